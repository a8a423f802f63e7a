//! The text form of rules, such as `udp from 10.0.0.0/8 to port 4789`.

use std::net::IpAddr;
use std::str::{FromStr, SplitWhitespace};

use flowyard_frame::proto;

use super::{ARP, IPV4, IPV6, Prefix, Rule};

/// A text that is not a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0}; write \"all\", or a rule such as \"arp\", \"ipv6\", \"tcp to port 80\", \
     \"udp from 10.0.0.0/8 to 10.1.0.1 to port 53\"; a rule that begins with \"not\" leaves frames to the kernel"
)]
pub struct BadRule(String);

impl FromStr for Rule {
    type Err = BadRule;

    /// Parses words in any order: `all`; `arp`, `ip`, `ipv6`, `type 0x88f7`; `tcp`, `udp`, `sctp`,
    /// `icmp`, `icmpv6`, `proto 47`; `from` and `to`, each with an address, a prefix, or `port 80`. The word
    /// `not` in front of them means that the kernel keeps these frames.
    fn from_str(text: &str) -> Result<Self, BadRule> {
        let (mut rule, mut words) = (Self::default(), text.split_whitespace());
        if let Some(rest) = text.trim_start().strip_prefix("not ") {
            (rule.kernel, words) = (true, rest.split_whitespace());
        }
        let mut count = 0;
        while let Some(word) = words.next() {
            count += 1;
            let twice = match word {
                "all" => text.trim() != "all",
                "arp" => put(&mut rule.ether_type, ARP),
                "ip" => put(&mut rule.ether_type, IPV4),
                "ipv6" => put(&mut rule.ether_type, IPV6),
                "type" => put(&mut rule.ether_type, number(&mut words, "an EtherType")?),
                "tcp" => put(&mut rule.protocol, proto::TCP),
                "udp" => put(&mut rule.protocol, proto::UDP),
                "sctp" => put(&mut rule.protocol, proto::SCTP),
                "icmp" => put(&mut rule.protocol, proto::ICMP),
                "icmpv6" => put(&mut rule.protocol, proto::ICMPV6),
                "proto" => put(&mut rule.protocol, number(&mut words, "a protocol")?),
                "from" | "to" => match (words.next().unwrap_or(""), word) {
                    ("port", "from") => put(&mut rule.from_port, number(&mut words, "a port")?),
                    ("port", _) => put(&mut rule.to_port, number(&mut words, "a port")?),
                    (addr, "from") => put(&mut rule.from, prefix(addr)?),
                    (addr, _) => put(&mut rule.to, prefix(addr)?),
                },
                _ => return Err(BadRule(format!("unknown word '{word}'"))),
            };
            if twice {
                return Err(BadRule(format!("'{word}' conflicts with the rest of '{text}'")));
            }
        }
        if count == 0 {
            return Err(BadRule("the rule is empty".into()));
        }
        if rule == (Self { kernel: true, ..Self::default() }) {
            return Err(BadRule("the kernel would keep every frame".into()));
        }
        let family = |prefix: Option<Prefix>| prefix.map(|prefix| prefix.addr.is_ipv4());
        match (family(rule.from), family(rule.to)) {
            (Some(a), Some(b)) if a != b => {
                Err(BadRule("one address is IPv4 and the other IPv6".into()))
            }
            (Some(false), _) | (_, Some(false)) if rule.ether_type == Some(ARP) => {
                Err(BadRule("ARP has IPv4 addresses only".into()))
            }
            _ => Ok(rule),
        }
    }
}

/// Sets `field`; returns whether it already had a value.
fn put<T>(field: &mut Option<T>, value: T) -> bool {
    field.replace(value).is_some()
}

fn number<T: TryFrom<u32>>(words: &mut SplitWhitespace<'_>, what: &str) -> Result<T, BadRule> {
    let word = words.next().unwrap_or("");
    let number = match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => word.parse::<u32>(),
    };
    let number = number.ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| BadRule(format!("'{word}' is not {what}")))
}

fn prefix(word: &str) -> Result<Prefix, BadRule> {
    let wrong = || BadRule(format!("'{word}' is neither an address nor a prefix nor 'port'"));
    let (addr, bits) = word.split_once('/').map_or((word, None), |(addr, bits)| (addr, Some(bits)));
    let addr: IpAddr = addr.parse().map_err(|_| wrong())?;
    let most = if addr.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(most), |bits| bits.parse::<u8>().map_err(|_| wrong()))?;
    if bits > most { Err(wrong()) } else { Ok(Prefix { addr, bits }) }
}
