//! The frames of probes.

use std::net::IpAddr;

use flowyard_frame::{FlowKey, proto};
use flowyard_wire::checksum::{checksum, crc32c, transport_checksum};

const TEXT: &[u8] = b"flowyard probe: the checksum is wrong on purpose";

/// A frame of the flow, whose TCP, UDP or SCTP checksum is wrong. It lives for one hop.
pub(super) fn frame(flow: &FlowKey, to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let mut bytes = [&to[..], &from[..]].concat();
    let segment = segment(flow);
    match (flow.src_ip(), flow.dst_ip()) {
        (Some(IpAddr::V4(src)), Some(IpAddr::V4(dst))) => {
            let len = 20 + segment.len() as u16;
            let mut header = vec![0x45, 0];
            header.extend(len.to_be_bytes());
            header.extend([0, 0, 0x40, 0, 1, flow.proto, 0, 0]);
            header.extend(src.octets());
            header.extend(dst.octets());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes.extend([8, 0]);
            bytes.extend(header);
        }
        (Some(IpAddr::V6(src)), Some(IpAddr::V6(dst))) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((segment.len() as u16).to_be_bytes());
            bytes.extend([flow.proto, 1]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
        }
        _ => {}
    }
    bytes.extend(segment);
    bytes
}

/// The header and a text, with the complement of the checksum.
fn segment(flow: &FlowKey) -> Vec<u8> {
    let mut bytes = [flow.sport.to_be_bytes(), flow.dport.to_be_bytes()].concat();
    let (Some(src), Some(dst)) = (flow.src_ip(), flow.dst_ip()) else { return bytes };
    let at = match flow.proto {
        proto::TCP => {
            // Sequence numbers, a header of five words, ACK, a window.
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
            16
        }
        proto::UDP => {
            bytes.extend((8 + TEXT.len() as u16).to_be_bytes());
            bytes.extend([0, 0]);
            6
        }
        _ => {
            // A verification tag, the checksum, and a chunk that is data.
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 3]);
            bytes.extend((16 + TEXT.len() as u16).to_be_bytes());
            bytes.extend([0; 12]);
            bytes.extend(TEXT);
            let sum = !crc32c(&[&bytes]);
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            return bytes;
        }
    };
    bytes.extend(TEXT);
    let right = transport_checksum(src, dst, flow.proto, &bytes);
    // 0 and 0xffff are the same number to the receiver, and 0 in UDP means that there is no checksum.
    let wrong = if matches!(right, 0 | 0xffff) { 1 } else { !right };
    bytes[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowyard_wire::{Headers, LinkType, Verdict};

    #[test]
    fn frames_have_their_flow_and_a_wrong_checksum() {
        for text in [
            "tcp 198.18.0.1:1000 > 10.0.0.1:2000",
            "udp 198.18.0.1:1000 > 10.0.0.1:2000",
            "sctp 198.18.0.1:1000 > 10.0.0.1:2000",
            "tcp [2001:2::1]:1000 > [fd00::1]:2000",
            "udp [2001:2::1]:1000 > [fd00::1]:2000",
        ] {
            let flow: FlowKey = text.parse().unwrap();
            let bytes = frame(&flow, [2; 6], [4; 6]);
            let headers = Headers::parse(LinkType::Ethernet, &bytes);
            let key = flowyard_flow::parse::key(&headers, &bytes, 0);
            assert_eq!(key.to_string(), text);
            let is_ipv4 = flow.is_ipv4();
            let expected = if is_ipv4 { Verdict::Good } else { Verdict::NotChecked };
            assert_eq!(headers.ipv4_checksum(&bytes), expected);
            assert_eq!(headers.transport_checksum(&bytes), Verdict::Bad, "{text}");
        }
    }
}
