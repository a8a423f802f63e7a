//! The text form of flows: `tcp 10.0.0.1:40000 > 10.0.0.2:11211`.
//!
//! ```text
//!   flow  = proto end (">" | "->") end [ "vlan" id ]
//!   proto = tcp | udp | sctp | icmp | icmp6 | gre | esp | ah | ip | "proto" number
//!   end   = a.b.c.d[:port] | [v6]:port | v6
//! ```
//!
//! `FlowKey`'s `FromStr` reads this form, and its `Display` writes it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::FlowKey;
use crate::proto::{NAMES, has_ports};

/// Why a text is not a flow, and how to fix it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadFlow(String);

impl fmt::Display for BadFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadFlow {}

fn bad<T>(what: String) -> Result<T, BadFlow> {
    Err(BadFlow(
        what + "; write a flow as 'tcp 10.0.0.1:40000 > 10.0.0.2:11211' or 'udp [2001:db8::1]:53 > [2001:db8::2]:5353'",
    ))
}

impl FromStr for FlowKey {
    type Err = BadFlow;

    fn from_str(text: &str) -> Result<Self, BadFlow> {
        let spaced = text.replace("->", ">").replace('>', " > ");
        let mut words = spaced.split_whitespace();
        let name = words.next().unwrap_or("").to_ascii_lowercase();
        let protocol = match NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, number)) => *number,
            None if name == "ip" => 0,
            None if name == "proto" => match words.next().map(str::parse) {
                Some(Ok(number)) => number,
                _ => return bad("'proto' needs a number from 0 to 255".into()),
            },
            None => return bad(format!("'{name}' is not a protocol")),
        };
        let (src, sport) = end(words.next(), protocol, "source")?;
        if words.next() != Some(">") {
            return bad("there is no '>' between source and destination".into());
        }
        let (dst, dport) = end(words.next(), protocol, "destination")?;
        if src.is_ipv4() != dst.is_ipv4() {
            return bad(format!("{src} and {dst} have different IP versions"));
        }
        let mut key = Self::five_tuple(protocol, src, sport, dst, dport);
        match (words.next(), words.next()) {
            (None, _) => {}
            (Some("vlan"), Some(id)) => match id.parse() {
                Ok(id) if id < 4096 => key.vlan_tci = id,
                _ => return bad(format!("'{id}' is not a VLAN id (0 to 4095)")),
            },
            (Some(word), _) => return bad(format!("'{word}' is unexpected after the flow")),
        }
        match words.next() {
            Some(word) => bad(format!("'{word}' is unexpected after the flow")),
            None => Ok(key),
        }
    }
}

/// Parses an address, with a port if `protocol` has ports.
fn end(word: Option<&str>, protocol: u8, side: &str) -> Result<(IpAddr, u16), BadFlow> {
    let Some(word) = word else { return bad(format!("the {side} is missing")) };
    let bare = word.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match (word.parse::<SocketAddr>(), bare) {
        (Ok(socket), _) if has_ports(protocol) => Ok((socket.ip(), socket.port())),
        (Ok(socket), _) => bad(format!("{side} '{socket}' has a port, but this protocol has none")),
        (_, Ok(ip)) if !has_ports(protocol) => Ok((ip, 0)),
        (_, Ok(ip)) => bad(format!("{side} '{ip}' has no port")),
        _ => match word.rsplit_once(':') {
            Some((ip, port)) if is_address(ip) => {
                bad(format!("{side} port '{port}' is not a number from 0 to 65535"))
            }
            _ => bad(format!("{side} '{word}' is not an address")),
        },
    }
}

/// Whether `text` is an IPv4 address, or an IPv6 address in brackets.
fn is_address(text: &str) -> bool {
    let v6 = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    v6.map_or_else(|| text.parse::<Ipv4Addr>().is_ok(), |v6| v6.parse::<Ipv6Addr>().is_ok())
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(src), Some(dst)) = (self.src_ip(), self.dst_ip()) else {
            return write!(f, "ethertype 0x{:04x}", self.eth_type);
        };
        match NAMES.iter().find(|(_, number)| *number == self.proto) {
            Some((name, _)) => f.write_str(name)?,
            None if self.proto == 0 => f.write_str("ip")?,
            None => write!(f, "proto {}", self.proto)?,
        }
        if has_ports(self.proto) {
            let (src, dst) = (SocketAddr::new(src, self.sport), SocketAddr::new(dst, self.dport));
            write!(f, " {src} > {dst}")?;
        } else {
            write!(f, " {src} > {dst}")?;
        }
        if self.vlan_tci & 0xfff != 0 {
            write!(f, " vlan {}", self.vlan_tci & 0xfff)?;
        }
        Ok(())
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowKey({self}, frag {}, flags {:#x}", self.frag, self.tcp_flags)?;
        write!(f, ", tci {:#x}, tunnel {:#x})", self.vlan_tci, self.tunnel_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_written_can_be_read() {
        for text in [
            "tcp 10.0.0.1:40000 > 10.0.0.2:11211",
            "udp [2001:db8::1]:53 > [2001:db8::2]:5353",
            "sctp 10.0.0.1:1 > 10.0.0.2:2 vlan 100",
            "icmp 10.0.0.1 > 10.0.0.2",
            "icmp6 fe80::1 > ff02::1",
            "gre 10.0.0.1 > 10.0.0.2",
            "ip 10.0.0.1 > 10.0.0.2",
            "proto 89 10.0.0.1 > 224.0.0.5",
        ] {
            assert_eq!(text.parse::<FlowKey>().unwrap().to_string(), text);
        }
        let tight: FlowKey = "TCP 10.0.0.1:1->10.0.0.2:2".parse().unwrap();
        assert_eq!(tight.to_string(), "tcp 10.0.0.1:1 > 10.0.0.2:2");
    }

    /// Every flow that has a text is read back from it, whatever its protocol, addresses, ports and VLAN.
    #[test]
    fn a_flow_is_its_text() {
        let mut rng = crate::rng::Rng::new(1);
        for n in 0..1024_u64 {
            let (proto, is_v4) = ((n / 4) as u8, n % 2 == 0);
            let mut ip = || match is_v4 {
                true => IpAddr::from((rng.bits() as u32).to_be_bytes()),
                false => {
                    IpAddr::from((u128::from(rng.bits()) << 64 | 0xffff_0000_0001).to_be_bytes())
                }
            };
            let (src, dst) = (ip(), ip());
            let ports = if has_ports(proto) { rng.bits() as u32 } else { 0 };
            let (sport, dport) = ((ports >> 16) as u16, ports as u16);
            let vlan_tci = [0, 1, 4095, rng.below(4096) as u16][(n / 2 % 4) as usize];
            let key = FlowKey { vlan_tci, ..FlowKey::five_tuple(proto, src, sport, dst, dport) };
            let text = key.to_string();
            assert_eq!(text.parse(), Ok(key), "{text}");
            assert_eq!(text.contains(" vlan "), vlan_tci != 0, "{text}");
        }
    }

    #[test]
    fn the_text_of_what_is_no_plain_flow() {
        let mut key: FlowKey = "icmp 10.0.0.1 > 10.0.0.2".parse().unwrap();
        key.vlan_tci = 0xe064; // priority 7, VLAN 100
        assert_eq!(key.to_string(), "icmp 10.0.0.1 > 10.0.0.2 vlan 100");
        key.vlan_tci = 0xe000; // a priority, and no VLAN
        assert_eq!(key.to_string(), "icmp 10.0.0.1 > 10.0.0.2");
        key.tunnel_id = 9;
        let debug = "FlowKey(icmp 10.0.0.1 > 10.0.0.2, frag 0, flags 0x0, tci 0xe000, tunnel 0x9)";
        assert_eq!(format!("{key:?}"), debug);
        key.eth_type = 0x806;
        assert_eq!(key.to_string(), "ethertype 0x0806");
    }

    #[test]
    fn errors_name_the_mistake() {
        for (text, what) in [
            ("", "'' is not a protocol"),
            ("tpc 1.2.3.4:5 > 6.7.8.9:10", "'tpc' is not a protocol"),
            ("tcp 1.2.3.4 > 6.7.8.9:10", "source '1.2.3.4' has no port"),
            ("tcp 1.2.3.4:5 6.7.8.9:10", "no '>'"),
            ("tcp 1.2.3.4:5 > ", "the destination is missing"),
            ("tcp 1.2.3.4:5 > [::1]:10", "different IP versions"),
            (
                "tcp 1.2.3.4:99999 > 6.7.8.9:10",
                "source port '99999' is not a number from 0 to 65535",
            ),
            ("udp [::1]:x > [::2]:2", "source port 'x' is not a number from 0 to 65535"),
            ("udp host:1 > 6.7.8.9:10", "source 'host:1' is not an address"),
            ("udp [host]:1 > 6.7.8.9:10", "source '[host]:1' is not an address"),
            ("udp ::1:99999 > [::2]:2", "source '::1:99999' is not an address"),
            ("udp 1.2.3.4:5 > [1.2.3.4]:x", "destination '[1.2.3.4]:x' is not an address"),
            ("icmp 1.2.3.4 > host", "destination 'host' is not an address"),
            ("icmp 1.2.3.4:5 > 6.7.8.9", "has a port"),
            ("proto 1.2.3.4 > 6.7.8.9", "'proto' needs a number"),
            ("proto", "'proto' needs a number"),
            ("ip", "the source is missing"),
            ("tcp 1.2.3.4:5 > 6.7.8.9:10 vlan 4096", "not a VLAN id"),
            ("tcp 1.2.3.4:5 > 6.7.8.9:10 x", "'x' is unexpected"),
            ("tcp 1.2.3.4:5 > 6.7.8.9:10 vlan 1 y", "'y' is unexpected"),
            ("proto 256 1.2.3.4 > 6.7.8.9", "number from 0 to 255"),
        ] {
            let err = text.parse::<FlowKey>().unwrap_err().to_string();
            assert!(err.contains(what), "{text}: {err}");
            assert!(err.contains("write a flow as"), "{err}");
        }
    }
}
