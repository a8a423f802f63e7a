//! ICMP errors: the flow of the packet that could not be delivered.
//!
//! ```text
//!  outer IP | ICMP type, code, checksum, 4 bytes | IP header of the packet | its first bytes ...
//! ```
//!
//! An ICMP error quotes the beginning of the packet (RFC 792, RFC 4443). The quoted addresses and
//! ports identify the flow, in the direction in which the packet was sent.

use flowyard_frame::{FlowKey, proto};
use flowyard_wire::{Headers, LinkType};

/// Length of an ICMP header in bytes.
pub const HEADER: usize = 8;

/// The packet that an ICMP error quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted {
    /// Its 5-tuple, in the direction in which it was sent.
    pub flow: FlowKey,
    /// Offset of its transport header from the start of the quoted packet.
    pub l4: usize,
}

/// The packet quoted in `message`, an ICMP message (ICMPv6 if `v6`) beginning with its type. `None`
/// unless it is an error about a TCP, UDP or SCTP packet whose ports are included.
#[must_use]
pub fn quoted(message: &[u8], v6: bool) -> Option<Quoted> {
    let kind = *message.first()?;
    // Destination unreachable, time exceeded, parameter problem; packet too big.
    let is_error = if v6 { matches!(kind, 1..=4) } else { matches!(kind, 3 | 11 | 12) };
    if !is_error {
        return None;
    }
    let packet = message.get(HEADER..)?;
    if packet.first()? >> 4 != if v6 { 6 } else { 4 } {
        return None;
    }
    let headers = Headers::parse(LinkType::RawIp, packet);
    if headers.fragment.is_later() || !proto::has_ports(headers.proto) || headers.l4 == 0 {
        return None;
    }
    let l4 = headers.l4 as usize;
    let ports = packet.get(l4..)?.first_chunk::<4>()?; // RFC 792 guarantees eight bytes only
    let (src, dst) = (headers.src_ip(packet)?, headers.dst_ip(packet)?);
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    let flow = FlowKey::five_tuple(headers.proto, src, port(0), dst, port(2));
    Some(Quoted { flow, l4 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowyard_testkit::Build;
    use proptest::prelude::*;

    #[test]
    fn a_quoted_packet_is_known_by_its_first_bytes() {
        for text in
            ["tcp 192.0.2.1:80 > 10.0.0.9:4000", "udp [2001:db8::1]:53 > [2001:db8::2]:4000"]
        {
            let flow: FlowKey = text.parse().unwrap();
            let frame = Build::new(&flow).bytes();
            let packet = &frame[14..];
            let (kind, l4) = if flow.is_ipv6() { (2, 40) } else { (3, 20) };
            for end in l4..=packet.len() {
                let message = [&[kind, 4, 0, 0, 0, 0, 5, 0][..], &packet[..end]].concat();
                let quoted = quoted(&message, flow.is_ipv6());
                let want = (end >= l4 + 8).then_some(Quoted { flow, l4 });
                // Fewer bytes than RFC 792 guarantees may suffice; the result is never wrong.
                assert!(
                    quoted == want || end < l4 + 8 && quoted == Some(Quoted { flow, l4 }),
                    "{end}"
                );
            }
            let echo = [&[8, 0, 0, 0, 0, 0, 0, 0][..], packet].concat();
            assert_eq!(quoted(&echo, false), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(mut bytes in prop::collection::vec(any::<u8>(), 0..120), v6: bool) {
            let _ = quoted(&bytes, v6);
            if let Some(kind) = bytes.first_mut() {
                *kind = 3;
            }
            let _ = quoted(&bytes, v6);
        }
    }
}
