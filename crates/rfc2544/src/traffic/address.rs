//! Who the flows are: addresses inside 198.18.0.0/15, which belongs to benchmarks (RFC 2544 appendix
//! C.2.2), in patterns, drawn, or made to collide.

use flowyard_flow::toeplitz::{Fields, MICROSOFT_KEY, Toeplitz};
use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::{Build, Rng};
use serde::{Deserialize, Serialize};

/// How flows are told apart. The same flow has the same addresses in all trials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Addresses {
    /// Start and increment: destination hosts 2, 3, 4 ... of one network. What hash-steered
    /// devices suffer from, RFC 4814 section 2.
    #[default]
    Patterned,
    /// Destination networks drawn evenly from the 256 behind the device, RFC 2544 section 12.
    Networks,
    /// MAC addresses, IP addresses and ports drawn, RFC 4814 sections 4 and 5.
    Random,
    /// Drawn, but all with the same low 7 bits of the Toeplitz hash under the driver's usual key:
    /// one entry of a 128-entry indirection table takes them all.
    Colliding,
}

/// TTL of test frames, RFC 2544 appendix C.2.6.
const TTL: u8 = 10;

impl Addresses {
    /// The key of flow `flow` from tester port `from` to tester port `to`.
    #[must_use]
    pub fn key(self, from: u8, to: u8, flow: u16) -> FlowKey {
        // Numbers of this flow alone: a trial with more flows has the same ones and others.
        let seed = u64::from(from) << 40 | u64::from(to) << 32 | u64::from(flow);
        let mut rng = Rng::new(seed ^ 0x4814_4814_0000_0000);
        match self {
            Self::Patterned => patterned(from, to, flow),
            Self::Networks => {
                let key = patterned(from, to, 0);
                let mut dst = key.dst;
                dst[1] = 19;
                dst[2] = rng.below(256) as u8;
                FlowKey { dst, ..key }
            }
            Self::Random => random(from, to, &mut rng),
            Self::Colliding => {
                let Ok(hash) = Toeplitz::new(&MICROSOFT_KEY) else {
                    return random(from, to, &mut rng);
                };
                loop {
                    let key = random(from, to, &mut rng);
                    // One in 128 on average; the sequence does not repeat for 2^64 draws.
                    if hash.hash_key(&key, Fields::Ipv4Ports) & 0x7f == 0 {
                        return key;
                    }
                }
            }
        }
    }

    /// The bytes of such a frame, `size` bytes long with the FCS that is not in it; the tag's place
    /// is filled as the rest.
    #[must_use]
    pub fn between(self, from: u8, to: u8, flow: u16, size: usize) -> Vec<u8> {
        let payload: Vec<u8> = (0..size.saturating_sub(46)).map(|at| at as u8).collect();
        let mut frame = Build::new(&self.key(from, to, flow)).ttl(TTL).payload(&payload).bytes();
        if let Some(sum) = frame.get_mut(40..42) {
            sum.fill(0); // no checksum, RFC 768: the tag has a stronger one
        }
        frame
    }

    /// A frame with which the device learns where flow `flow` of port `from` goes: from `to`, the
    /// other way round, without a tag.
    #[must_use]
    pub fn learning(self, from: u8, to: u8, flow: u16) -> Vec<u8> {
        Build::new(&self.key(from, to, flow).reversed()).ttl(TTL).pad(60).bytes()
    }

    /// From port `from` to the next.
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
