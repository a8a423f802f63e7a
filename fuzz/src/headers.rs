//! `headers`: any bytes as a frame of any link type. The first byte chooses the link type.

use crate::{Limits, Line};
use flowyard_wire::fc::{FcFrame, HEADER};
use flowyard_wire::ncsi::Control;
use flowyard_wire::{Headers, LinkType, Net, Next};

/// Every level is parsed once, and its views are read. The checksum of a UDP header covers all levels within it: it is
/// verified at the eight outermost levels only, so the work is in proportion to the bytes. Nothing is allocated.
pub const LIMITS: Limits =
    Limits { blocks: Line { input: 500, byte: 30 }, bytes: Line { input: 0, byte: 0 } };

/// Levels whose checksums are verified.
const VERIFIED: usize = 8;

/// Parses every level of a frame, reads every view, and checks the invariants of `Headers`.
///
/// # Panics
/// When the parser panics, or an invariant does not hold.
pub fn headers(data: &[u8]) {
    let Some((link, bytes)) = data.split_first() else { return };
    let link = LinkType::ALL[usize::from(link % 8)];
    let (mut levels, mut outer) = (0, 0);
    for h in Headers::levels(link, bytes) {
        levels += 1;
        assert!(levels <= bytes.len() / 4 + 1, "more levels than bytes permit");
        assert!(outer <= h.l3 || h.l3 == 0, "a level begins before its outer level: {h:?}");
        assert!(h.l3 <= h.payload && h.payload <= h.end, "offsets out of order: {h:?}");
        assert!(
            outer <= h.payload && h.end as usize <= bytes.len(),
            "offsets outside the frame: {h:?}"
        );
        outer = h.payload;
        let ip = matches!(h.net, Net::Ipv4 | Net::Ipv6);
        assert_eq!(ip, h.src_ip(bytes).is_some() && h.dst_ip(bytes).is_some(), "{h:?}");
        assert!(h.l4 == 0 || (ip && h.l3 < h.l4 && h.l4 <= h.payload), "{h:?}");
        if let Some(ports) = h.ports {
            let at = h.l4 as usize;
            let field = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            assert_eq!(ports, (field(at), field(at + 2)), "{h:?}");
        }
        assert!(
            h.fault.is_none() || h.next == Next::None,
            "a level with a fault has a next level: {h:?}"
        );
        for address in [h.home_address, h.routing2] {
            assert!(address == 0 || (h.l3 < address && address + 16 <= h.end), "{h:?}");
        }
        assert_eq!(h.payload(bytes).len(), (h.end - h.payload) as usize);
        let _ = (h.tos(bytes), h.ttl(bytes), h.icmp(bytes), h.flow_label(bytes));
        let _ = (h.eth_src(bytes), h.eth_dst(bytes));
        let half = &bytes[..bytes.len() / 2];
        let _ = (h.ipv4_checksum(bytes), h.inner(half), h.src_ip(half));
        if levels <= VERIFIED {
            let _ = (h.transport_checksum(bytes), h.transport_checksum(half));
        }
    }
    assert!(levels > 0, "a frame without a level");
    storage_and_management(bytes);
}

/// The same bytes as an FC frame, and as a control frame of NC-SI.
fn storage_and_management(bytes: &[u8]) {
    if let Some(frame) = FcFrame::parse(bytes) {
        assert!(frame.payload.len() + HEADER <= bytes.len());
        let again = flowyard_wire::fc::FcHeader::read(&frame.header.bytes());
        assert_eq!(again, Some(frame.header), "a header is written as it was read");
        let _ = (frame.is_intact(), frame.header.exchange());
    }
    if let Some(frame) = Control::parse(bytes) {
        assert!(frame.payload.len() <= 0xfff && frame.package < 8 && frame.channel < 32);
        let _ = (frame.name(), frame.codes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two frames with a tunnel each, and the corpus: every byte changed, and cut after every byte.
    #[test]
    fn changed_seeds() {
        let ipv4 = |proto: u8| {
            [&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0][..], &[1, 2, 3, 4, 5, 6, 7, 8]].concat()
        };
        let gre =
            [&[1][..], &ipv4(47), &[0x20, 0, 8, 0, 0, 0, 0, 7], &ipv4(6), &[0x50; 20]].concat();
        let udp = [0, 9, 0x12, 0xb5, 0, 78, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0];
        let vxlan = [&[1][..], &ipv4(17), &udp, &[2; 12], &[8, 0], &ipv4(1), &[8; 28]].concat();
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/headers");
        let found = std::fs::read_dir(corpus).into_iter().flatten().flatten();
        found.filter_map(|file| std::fs::read(file.path()).ok()).for_each(|seed| headers(&seed));
        for seed in [gre, vxlan] {
            for at in 0..seed.len() {
                headers(&seed[..at]);
                for value in 0..=255 {
                    let mut changed = seed.clone();
                    changed[at] = value;
                    headers(&changed);
                }
            }
        }
    }
}
