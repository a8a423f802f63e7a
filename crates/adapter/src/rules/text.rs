//! A rule as ethtool's options: the reverse of the parser.

use std::fmt::{self, Display, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::rule::{FlowType, Masked, Rule, RuleAction};
use crate::fdir::Moderation;

impl Rule {
    /// The options after `ethtool -N DEV`: `flow-type tcp4 dst-port 80 action 3 loc 7`. The parser reads a rule that
    /// equals this one, except for its line and its text.
    #[must_use]
    pub fn options(&self) -> String {
        let mut text = format!("flow-type {}", self.flow_type.name());
        // Writing to a String does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, to: &mut String) -> fmt::Result {
        let (value, mask) = (&self.written, &self.mask);
        let kind = self.flow_type;
        if kind == FlowType::Ether {
            option(to, "src", Mac(value.eth_src), Mac(mask.eth_src), Mac([0xff; 6]))?;
            option(to, "dst", Mac(value.eth_dst), Mac(mask.eth_dst), Mac([0xff; 6]))?;
            short(to, "proto", (value.eth_type, mask.eth_type))?;
        } else {
            for (name, value, bits) in
                [("src-ip", value.src, mask.src), ("dst-ip", value.dst, mask.dst)]
            {
                if kind.is_ipv4() {
                    let [value, bits] =
                        [value, bits].map(|slot| Ip4(*slot.first_chunk().expect("16 bytes")));
                    option(to, name, value, bits, Ip4([0xff; 4]))?;
                } else {
                    option(to, name, Ip6(value), Ip6(bits), Ip6([0xff; 16]))?;
                }
            }
            let tos = if kind.is_ipv4() { "tos" } else { "tclass" };
            byte(to, tos, (value.tos, mask.tos))?;
        }
        if matches!(kind, FlowType::Ip4 | FlowType::Ip6) {
            byte(to, "l4proto", (value.proto, mask.proto))?;
        }
        if let Some((spi, bits)) = self.spi {
            number(to, "spi", spi.into(), bits.into(), u32::MAX.into(), true)?;
        }
        short(to, "src-port", (value.sport, mask.sport))?;
        short(to, "dst-port", (value.dport, mask.dport))?;
        self.write_ext(to)?;
        if self.dst_mac {
            let (value, bits) = (Mac(value.eth_dst), Mac(mask.eth_dst));
            write!(to, " dst-mac {value}")?;
            ignored(to, bits, Mac([0xff; 6]))?;
        }
        match self.action {
            RuleAction::Drop => write!(to, " action -1")?,
            RuleAction::Wake => write!(to, " action -2")?,
            RuleAction::Queue(queue) => write!(to, " action {queue}")?,
            RuleAction::Vf { vf, queue } => write!(to, " vf {vf} queue {queue}")?,
            RuleAction::Context { context, queue } => {
                write!(to, " context {context} queue {queue}")?;
            }
        }
        let extras = self.extras;
        if let Some(counter) = extras.counter {
            write!(to, " count {counter}")?;
        }
        if extras.moderation != Moderation::Default {
            write!(to, " moderation {}", extras.moderation.name())?;
        }
        if extras.value != 0 {
            write!(to, " value {}", extras.value)?;
        }
        self.loc.map_or(Ok(()), |loc| write!(to, " loc {loc}"))
    }

    fn write_ext(&self, to: &mut String) -> fmt::Result {
        if let Some((value, bits)) = self.vlan_etype {
            number(to, "vlan-etype", value.into(), bits.into(), u16::MAX.into(), true)?;
        }
        if let Some((value, bits)) = self.user_def {
            number(to, "user-def", value, bits, u64::MAX, true)?;
        }
        let (value, bits) = (self.written.vlan_tci, self.mask.vlan_tci);
        let alone = self.ext && self.vlan_etype.is_none() && self.user_def.is_none();
        number(to, "vlan", value.into(), bits.into(), u16::MAX.into(), alone)
    }
}

fn byte(to: &mut String, name: &str, (value, bits): Masked<u8>) -> fmt::Result {
    number(to, name, value.into(), bits.into(), u8::MAX.into(), false)
}

fn short(to: &mut String, name: &str, (value, bits): Masked<u16>) -> fmt::Result {
    number(to, name, value.into(), bits.into(), u16::MAX.into(), false)
}

/// A number, unless neither it nor its mask has a bit and it does not have to be `there`.
fn number(
    to: &mut String,
    name: &str,
    value: u64,
    bits: u64,
    all: u64,
    there: bool,
) -> fmt::Result {
    match (value, bits) {
        (0, 0) if !there => Ok(()),
        _ if bits == all => write!(to, " {name} {value}"),
        _ => write!(to, " {name} {value} m 0x{:x}", !bits & all),
    }
}

/// An address, unless neither it nor its mask has a bit.
fn option<T: Display + Default + PartialEq + Ignored>(
    to: &mut String,
    name: &str,
    value: T,
    bits: T,
    all: T,
) -> fmt::Result {
    if value == T::default() && bits == T::default() {
        return Ok(());
    }
    write!(to, " {name} {value}")?;
    ignored(to, bits, all)
}

/// The `m` of a mask whose ones are bits to match, unless all of them are.
fn ignored<T: Display + PartialEq + Ignored>(to: &mut String, bits: T, all: T) -> fmt::Result {
    if bits == all { Ok(()) } else { write!(to, " m {}", bits.ignored()) }
}

/// A mask whose ones are the bits to ignore.
trait Ignored: Copy {
    fn ignored(self) -> Self;
}

macro_rules! address {
    ($name:ident, $bytes:literal) => {
        #[derive(Clone, Copy, PartialEq, Default)]
        struct $name([u8; $bytes]);

        impl Ignored for $name {
            fn ignored(self) -> Self {
                Self(self.0.map(|byte| !byte))
            }
        }
    };
}

address!(Mac, 6);
address!(Ip4, 4);
address!(Ip6, 16);

impl Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Display for Ip4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv4Addr::from(self.0).fmt(f)
    }
}

impl Display for Ip6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::parse;

    fn again(text: &str) -> Rule {
        let one = |text: &str| Rule { text: String::new(), ..parse("f", text).unwrap().remove(0) };
        let rule = one(text);
        assert_eq!(one(&rule.options()), rule, "{text}\n{}", rule.options());
        rule
    }

    #[test]
    fn every_option_is_written_and_read_again() {
        let tcp = again(
            "flow-type tcp4 src-ip 10.1.2.3 m 0.0.0.255 dst-port 80 tos 4 m 1 action 3 loc 7",
        );
        assert_eq!(
            tcp.options(),
            "flow-type tcp4 src-ip 10.1.2.3 m 0.0.0.255 tos 4 m 0x1 dst-port 80 action 3 loc 7"
        );
        for text in [
            "flow-type ether src 2:0:0:0:0:1 m 0:0:0:0:0:ff dst 2:0:0:0:0:2 proto 0x88cc action -1",
            "flow-type ip6 dst-ip 2001:db8::1 m ::ffff l4proto 47 tclass 3 src-port 9 vf 2 queue 4",
            "flow-type esp4 spi 0 m 0xff dst-mac 2:0:0:0:0:9 action -2 loc 1",
            "flow-type ah6 spi 9 vlan 5 m 0xf000 vlan-etype 0x8100 user-def 0x1234567890abcdef m 0xff",
            "flow-type sctp6 vlan 0 m 0xffff context 3 action 1",
            "flow-type ip4 l4data 0x01020304 m 0xffff user-def 0",
            "flow-type udp4",
            "flow-type udp4 dst-mac 0:0:0:0:0:0 m ff:ff:ff:ff:ff:ff",
        ] {
            again(text);
        }
    }
}
