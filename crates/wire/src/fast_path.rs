//! The fast path: Ethernet, IPv4 without options or IPv6 without extensions, not fragmented, then
//! TCP or UDP. Most frames are such; the walk of `walk.rs` gives the same answer, more slowly.
//!
//! ```text
//!  0          14        34 (v4) or 54 (v6)
//!  | Ethernet | IP      | TCP or UDP | payload ... end | padding
//! ```
//!
//! Invariant: where it answers, the answer equals the walk's, field by field; a property test
//! compares the two. It leaves every other frame to the walk.

use crate::{
    Fragment, Headers, Labels, Net, Next, Tags, ip::proto, tunnel::is_tunnel_port, walk::ether,
};

/// Where the IP header starts.
const L3: usize = 14;

/// The fields that differ between the frames of the fast path. They stay in registers: the level
/// is written once, at the end.
pub(crate) struct Common {
    net: Net,
    eth_type: u16,
    proto: u8,
    ports: (u16, u16),
    tcp_flags: u8,
    l4: u32,
    payload: u32,
    end: u32,
}

impl Common {
    /// The whole level.
    #[inline(always)]
    pub(crate) const fn level(self) -> Headers {
        Headers {
            eth: Some(0),
            eth_type: self.eth_type,
            tags: Tags { count: 0, tci: [0; Tags::MAX] },
            labels: Labels { count: 0, entry: [0; Labels::MAX] },
            pppoe: None,
            net: self.net,
            l3: L3 as u32,
            proto: self.proto,
            fragment: Fragment { offset: 0, more: false, header: false },
            l4: self.l4,
            ports: Some(self.ports),
            tcp_flags: self.tcp_flags,
            home_address: 0,
            routing2: 0,
            payload: self.payload,
            end: self.end,
            next: Next::None,
            next_id: 0,
            tunnel_id: 0,
            fault: None,
        }
    }
}

/// The answer for a common frame, `None` for all others.
#[inline(always)]
pub(crate) fn fast_path(bytes: &[u8]) -> Option<Common> {
    // The shortest frame of the fast path: Ethernet, IPv4, UDP.
    let head = bytes.first_chunk::<42>()?;
    let (net, eth_type, l4, total, upper) = match [head[12], head[13], head[14]] {
        [0x08, 0x00, 0x45] if (head[20] & 0x3f) | head[21] == 0 => {
            let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
            (Net::Ipv4, ether::IPV4, L3 + 20, total, head[23])
        }
        [0x86, 0xdd, 0x60..0x70] => {
            let payload = usize::from(u16::from_be_bytes([head[18], head[19]]));
            (Net::Ipv6, ether::IPV6, L3 + 40, 40 + payload, head[20])
        }
        _ => return None,
    };
    let segment = bytes.get(l4..L3 + total)?;
    let (header, end, flags) = match upper {
        proto::TCP => {
            let tcp = segment.first_chunk::<20>()?;
            let header = usize::from(tcp[12] >> 4) * 4;
            if header < 20 || header > segment.len() {
                return None;
            }
            (header, L3 + total, tcp[13])
        }
        proto::UDP => {
            let udp = segment.first_chunk::<8>()?;
            let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
            let dport = u16::from_be_bytes([udp[2], udp[3]]);
            if length < 8 || length > segment.len() || is_tunnel_port(dport) {
                return None;
            }
            (8, l4 + length, 0)
        }
        _ => return None,
    };
    let &[a, b, c, d] = segment.first_chunk()?;
    Some(Common {
        net,
        eth_type,
        proto: upper,
        ports: (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
        tcp_flags: flags,
        l4: l4 as u32,
        payload: (l4 + header) as u32,
        end: end as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;
    use proptest::{prelude::*, strategy::ValueTree};

    /// Frames of the fast path, and frames that differ from one in a few fields.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let kind = (any::<bool>(), prop::sample::select(vec![6, 17, 17, 1, 58, 44, 132]));
        let lengths = (-3i32..4, -3i32..4, 0usize..80, 0usize..8);
        let edits = prop::collection::vec((12usize..64, any::<u8>()), 0..3);
        let port = prop::sample::select(vec![53, 4789, 2152, 6081, 443]);
        (kind, lengths, edits, port).prop_map(
            |((v6, proto), (ip_off, udp_off, payload, padding), edits, port): (_, _, _, u16)| {
                let clamp = |off: i32| if off.abs() == 3 { off } else { 0 };
                let body = 20 + payload;
                let mut bytes = vec![2; 12];
                if v6 {
                    let len = (body as i32 + clamp(ip_off)) as u16;
                    bytes.extend([
                        0x86,
                        0xdd,
                        0x60,
                        0,
                        0,
                        0,
                        (len >> 8) as u8,
                        len as u8,
                        proto,
                        64,
                    ]);
                    bytes.extend([1; 32]);
                } else {
                    let len = (20 + body as i32 + clamp(ip_off)) as u16;
                    let fixed = [0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0x40, 0, 64, proto];
                    bytes.extend([0x08, 0x00]);
                    bytes.extend(fixed);
                    bytes.extend([1; 10]);
                }
                let len = (body as i32 + clamp(udp_off)) as u16;
                let [high, low] = port.to_be_bytes();
                bytes.extend([0x10, 0x11, high, low, (len >> 8) as u8, len as u8]);
                bytes.extend([0, 0, 0, 0, 0, 0, 0x50, 0x12]);
                bytes.resize(bytes.len() + 6 + payload + padding, 7);
                for (at, value) in edits {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = value;
                    }
                }
                bytes
            },
        )
    }

    #[test]
    fn most_such_frames_take_the_fast_path() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let taken = (0..1000)
            .filter(|_| fast_path(&frame().new_tree(&mut runner).unwrap().current()).is_some())
            .count();
        assert!((100..900).contains(&taken), "{taken} of 1000");
    }

    /// The least frames of each kind, with and without padding, are frames of the fast path; what is not of
    /// its kind, or does not fit, is not.
    #[test]
    fn plain_frames_take_the_fast_path() {
        for (v6, proto, header) in [(false, 6, 20), (false, 17, 8), (true, 6, 20), (true, 17, 8)] {
            let l4 = if v6 { 54 } else { 34 };
            for (payload, padding) in [(0, 0), (0, 6), (5, 0), (5, 6)] {
                let len = header + payload;
                let mut bytes = vec![2; 12];
                if v6 {
                    bytes.extend([0x86, 0xdd, 0x6f, 0xff, 0, 0, 0, len as u8, proto, 64]);
                    bytes.extend([1; 32]);
                } else {
                    bytes.extend([8, 0, 0x45, 0xff, 0, 20 + len as u8, 0, 0, 0x40, 0, 64, proto]);
                    bytes.extend([1; 10]);
                }
                bytes.extend([0, 80, 0, 81, 0, len as u8, 0, 0, 0, 0, 0, 0, 0x50, 0x12]);
                bytes.resize(l4 + len, 7);
                bytes.resize(l4 + len + padding, 0);
                let name = format!("v6 {v6}, protocol {proto}, {payload} bytes, {padding} padding");
                let takes = |at: usize, value: u8| {
                    let mut bytes = bytes.clone();
                    bytes[at] = value;
                    fast_path(&bytes).is_some()
                };
                assert!(takes(0, 2), "{name}");
                if header == 20 {
                    assert_eq!(takes(l4 + 12, 0x60), payload >= 4, "options, {name}");
                    assert!(!takes(l4 + 12, 0x40), "{name}");
                } else {
                    assert!(takes(l4 + 5, 8) && !takes(l4 + 5, 7), "{name}");
                    assert!(!takes(l4 + 5, len as u8 + 1), "{name}");
                    for port in [2152_u16, 4789, 4790, 6081, 8472] {
                        let mut bytes = bytes.clone();
                        bytes[l4 + 2..l4 + 4].copy_from_slice(&port.to_be_bytes());
                        assert!(fast_path(&bytes).is_none(), "port {port}, {name}");
                    }
                }
                assert!(fast_path(&bytes[..l4 + len - 1]).is_none(), "cut, {name}");
                assert!(!takes(if v6 { 20 } else { 23 }, 1), "ICMP, {name}");
                let versions = if v6 { [0x60, 0x6f, 0x5f, 0x70] } else { [0x45, 0x45, 0x46, 0x44] };
                assert_eq!(versions.map(|version| takes(14, version)), [true, true, false, false]);
                if !v6 {
                    assert!(
                        !takes(20, 0x20) && !takes(20, 1) && !takes(21, 1),
                        "fragments, {name}"
                    );
                    assert!(takes(20, 0x80) && takes(20, 0), "{name}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn the_fast_path_equals_the_walk(bytes in frame(), cut in any::<prop::sample::Index>(), whole in any::<bool>()) {
            let bytes = if whole { &bytes[..] } else { &bytes[..cut.index(bytes.len())] };
            if let Some(common) = fast_path(bytes) {
                let mut walked = Headers::default();
                walked.walk(LinkType::Ethernet, bytes);
                prop_assert_eq!(common.level(), walked);
            }
        }
    }
}
