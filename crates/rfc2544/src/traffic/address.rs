//! Addresses of the flows, from 198.18.0.0/15, which is reserved for benchmarks (RFC 2544 appendix
//! C.2.2): patterned, random, or colliding. IPv6 addresses are from 2001:2::/48 (RFC 5180); their
//! subnet and host are the last three bytes of the IPv4 address.

use std::net::{IpAddr, Ipv6Addr};

use flowyard_flow::toeplitz::{Fields, MICROSOFT_KEY, Toeplitz};
use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::{Build, Rng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the addresses of flows are chosen. A flow has the same addresses in all trials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Addresses {
    /// Start and increment: destination hosts 2, 3, 4 ... of one network. Devices that distribute
    /// frames by a hash suffer from such patterns (RFC 4814 section 2).
    #[default]
    Patterned,
    /// Destination networks are chosen uniformly from 256 networks (RFC 2544 section 12).
    Networks,
    /// MAC addresses, IP addresses and ports are random (RFC 4814 sections 4 and 5).
    Random,
    /// Random, but all with the same low 7 bits of the Toeplitz hash under the usual driver key, so
    /// that all flows use one entry of a 128-entry indirection table.
    Colliding,
}

/// The IP version of the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4 (RFC 2544).
    #[default]
    Ipv4,
    /// IPv6 (RFC 5180).
    Ipv6,
}

impl Family {
    /// The smallest frame that can hold a tag, in bytes with FCS.
    #[must_use]
    pub const fn min_size(self) -> u16 {
        match self {
            Self::Ipv4 => 64,
            Self::Ipv6 => 84,
        }
    }
}

/// The addresses of the flows in one IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hosts {
    /// How addresses are chosen.
    pub addresses: Addresses,
    /// The IP version.
    pub family: Family,
}

impl Addresses {
    /// These addresses in one IP version.
    #[must_use]
    pub const fn of(self, family: Family) -> Hosts {
        Hosts { addresses: self, family }
    }
}

/// TTL of test frames (RFC 2544 appendix C.2.6).
const TTL: u8 = 10;

impl Hosts {
    /// The key of flow `flow` from tester port `from` to tester port `to`.
    #[must_use]
    pub fn key(self, from: u8, to: u8, flow: u16) -> FlowKey {
        // The seed depends on this flow only: a trial with more flows contains the same flows.
        let seed = u64::from(from) << 40 | u64::from(to) << 32 | u64::from(flow);
        let mut rng = Rng::new(seed ^ 0x4814_4814_0000_0000);
        match self.addresses {
            Addresses::Patterned => self.in_family(patterned(from, to, flow)),
            Addresses::Networks => {
                let key = patterned(from, to, 0);
                let mut dst = key.dst;
                dst[1] = 19;
                dst[2] = rng.below(256) as u8;
                self.in_family(FlowKey { dst, ..key })
            }
            Addresses::Random => self.in_family(random(from, to, &mut rng)),
            Addresses::Colliding => {
                let Ok(hash) = Toeplitz::new(&MICROSOFT_KEY) else {
                    return self.in_family(random(from, to, &mut rng));
                };
                let fields = match self.family {
                    Family::Ipv4 => Fields::Ipv4Ports,
                    Family::Ipv6 => Fields::Ipv6Ports,
                };
                loop {
                    let key = self.in_family(random(from, to, &mut rng));
                    // One draw in 128 matches on average; the generator has a period of 2^64.
                    if hash.hash_key(&key, fields) & 0x7f == 0 {
                        return key;
                    }
                }
            }
        }
    }

    /// Converts the key's addresses to this IP version.
    fn in_family(self, key: FlowKey) -> FlowKey {
        let (Family::Ipv6, Some(IpAddr::V4(src)), Some(IpAddr::V4(dst))) =
            (self.family, key.src_ip(), key.dst_ip())
        else {
            return key;
        };
        let six = |[_, net, subnet, host]: [u8; 4]| {
            let subnet = u16::from_be_bytes([net, subnet]);
            IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, subnet, 0, 0, 0, host.into()))
        };
        let (src, dst) = (six(src.octets()), six(dst.octets()));
        let six = FlowKey::five_tuple(key.proto, src, key.sport, dst, key.dport);
        FlowKey { eth_src: key.eth_src, eth_dst: key.eth_dst, ..six }
    }

    /// The bytes of a frame. `size` includes the FCS, which is not part of the result. The bytes at
    /// the tag's offset are filled like the rest of the payload.
    #[must_use]
    pub fn between(self, from: u8, to: u8, flow: u16, size: usize) -> Vec<u8> {
        let headers = if self.family == Family::Ipv6 { 66 } else { 46 };
        let payload: Vec<u8> = (0..size.saturating_sub(headers)).map(|at| at as u8).collect();
        let mut frame = Build::new(&self.key(from, to, flow)).ttl(TTL).payload(&payload).bytes();
        if self.family == Family::Ipv4
            && let Some(sum) = frame.get_mut(40..42)
        {
            sum.fill(0); // no UDP checksum (RFC 768): the tag has a stronger one
        }
        frame
    }

    /// A learning frame for flow `flow` of port `from`: sent by port `to` in the reverse direction,
    /// without a tag.
    #[must_use]
    pub fn learning(self, from: u8, to: u8, flow: u16) -> Vec<u8> {
        Build::new(&self.key(from, to, flow).reversed()).ttl(TTL).pad(60).bytes()
    }

    /// A frame from port `from` to its pair.
    #[must_use]
    pub fn frame(self, from: u8, flow: u16, size: usize) -> Vec<u8> {
        self.between(from, from ^ 1, flow, size)
    }
}

fn patterned(from: u8, to: u8, flow: u16) -> FlowKey {
    let [high, low] = (flow + 2).to_be_bytes();
    let src = [198, 18, from + 1, 2];
    let dst = [198, 19, to.wrapping_add(65).wrapping_add(high), low];
    FlowKey {
        eth_src: [2, 0, 0, 0, 1, from],
        eth_dst: [2, 0, 0, 0, 2, to],
        ..FlowKey::five_tuple(proto::UDP, src.into(), 0xc020, dst.into(), 7)
    }
}

fn random(from: u8, to: u8, rng: &mut Rng) -> FlowKey {
    let mac = |port: u8, rng: &mut Rng| {
        let [a, b, c, d, ..] = rng.bits().to_be_bytes();
        [a & 0xfc, port + 1, port + 1, b, c, d] // RFC 4814 section 4.2
    };
    let ip = |net: u8, rng: &mut Rng| {
        let host = rng.below(0xfffe) + 1;
        [198, net, (host >> 8) as u8, host as u8]
    };
    let (eth_src, eth_dst) = (mac(from, rng), mac(to, rng));
    let (src, dst) = (ip(18, rng), ip(19, rng));
    let sport = 1024 + rng.below(64_512) as u16;
    let dport = 1 + rng.below(49_151) as u16;
    FlowKey {
        eth_src,
        eth_dst,
        ..FlowKey::five_tuple(proto::UDP, src.into(), sport, dst.into(), dport)
    }
}
