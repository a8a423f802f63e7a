//! Changes to the headers of a packet: hops, addresses, ports, TCP fields and options.
//!
//! [`flowyard_wire::edit`] changes the bytes and updates the checksums. Every input has a result, without a
//! panic.

use std::net::IpAddr;

use flowyard_frame::{FlowKey, Frag, proto};
use flowyard_wire::checksum::Sum;
use flowyard_wire::edit::{self, tags};
use flowyard_wire::{Headers, LinkType, Net, Offload};

pub(super) use flowyard_wire::edit::Side;

/// An IP packet that can be modified.
pub(super) struct Packet<'a> {
    /// The packet from its IP header on, without Ethernet padding.
    pub(super) bytes: &'a mut [u8],
    /// Offset of the packet in its frame.
    pub(super) l3: usize,
    /// Offset of the transport header in `bytes`.
    pub(super) l4: usize,
    pub(super) proto: u8,
    pub(super) v6: bool,
    /// Whether the destination MAC address is a group address.
    pub(super) to_group: bool,
    frag: Frag,
    /// Whether the transport checksum is partial.
    is_partial: bool,
}

impl<'a> Packet<'a> {
    /// The packet in the Ethernet `frame`. `None` if its IP header, or the transport header of an unfragmented
    /// packet or first fragment, is invalid or truncated.
    #[inline]
    pub(super) fn new(frame: &'a mut [u8], key: &FlowKey) -> Option<Self> {
        let l3 = l3_of(frame)?;
        let to_group = frame.first()? & 1 != 0;
        let bytes = frame.get_mut(l3..)?;
        let first = *bytes.first()?;
        let v6 = key.is_ipv6();
        let (l4, len) = if v6 {
            let header = bytes.first_chunk::<40>()?;
            let len = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
            let l4 = if header[6] == key.proto {
                40
            } else {
                // Extension headers are rare, so the general parser is used.
                Headers::parse(LinkType::RawIp, bytes).l4 as usize
            };
            (l4, len)
        } else {
            let header = bytes.first_chunk::<20>()?;
            (usize::from(first & 0xf) * 4, usize::from(u16::from_be_bytes([header[2], header[3]])))
        };
        let frag = key.fragment();
        let least = match (frag, key.proto) {
            (Frag::Later, _) => 0,
            (_, proto::TCP) => 20,
            (_, proto::SCTP) => 12,
            _ => 8,
        };
        let right = first >> 4 == if v6 { 6 } else { 4 } && l4 >= if v6 { 40 } else { 20 };
        let bytes = bytes.get_mut(..len)?;
        (right && l4 + least <= len).then_some(Self {
            bytes,
            l3,
            l4,
            proto: key.proto,
            v6,
            to_group,
            frag,
            is_partial: false,
        })
    }

    /// The packet in a frame of which `offload` is left to do: a partial checksum follows addresses only.
    #[inline]
    pub(super) const fn with_offload(self, offload: Offload) -> Self {
        let start = offload.checksum_start as usize;
        Self { is_partial: offload.has(Offload::PARTIAL) && self.l3 + self.l4 == start, ..self }
    }

    /// Where the headers are in `bytes`. This is computed where it is used: most packets need little of it.
    #[inline]
    fn edit(&self) -> edit::Packet {
        edit::Packet {
            net: self.net(),
            l3: 0,
            l4: if self.is_later() { 0 } else { self.l4 },
            end: self.bytes.len(),
            proto: self.proto,
            is_whole: matches!(self.frag, Frag::No),
            covers: [true; 2], // other packets are refused, see `is_routed`
            is_partial: self.is_partial,
        }
    }

    #[inline]
    const fn net(&self) -> Net {
        if self.v6 { Net::Ipv6 } else { Net::Ipv4 }
    }

    /// Length of the packet in bytes.
    pub(super) const fn ip_len(&self) -> usize {
        self.bytes.len()
    }

    /// Length in bytes of the longest packet that comes on a wire of a frame with this offload.
    #[inline]
    pub(super) const fn longest(&self, offload: Offload) -> usize {
        offload.longest(self.l3 + self.bytes.len()).saturating_sub(self.l3)
    }

    /// Whether the packet is a fragment other than the first.
    pub(super) const fn is_later(&self) -> bool {
        matches!(self.frag, Frag::Later)
    }

    /// The TTL or hop limit.
    #[inline]
    fn hops(&self) -> u8 {
        edit::ttl(self.bytes, self.net(), 0).unwrap_or(0)
    }

    /// Whether the TTL or hop limit does not allow another hop.
    #[inline]
    pub(super) fn is_expired(&self) -> bool {
        self.hops() < 2
    }

    /// Decrements the TTL or hop limit.
    #[inline]
    pub(super) fn one_hop(&mut self) {
        self.set_hops(self.hops().saturating_sub(1));
    }

    /// Sets the TTL or hop limit.
    #[inline]
    pub(super) fn set_hops(&mut self, hops: u8) {
        edit::set_ttl(self.bytes, self.net(), 0, hops);
    }

    /// Sets the identification of an IPv4 packet.
    pub(super) fn set_id(&mut self, id: u16) {
        let _old = edit::replace(self.bytes, 4, id.to_be_bytes(), 10);
    }

    /// Offset of the payload of a TCP segment; `None` if its header is invalid or truncated.
    pub(super) fn tcp_payload(&self) -> Option<usize> {
        let len = usize::from(self.bytes.get(self.l4 + 12)? >> 4) * 4;
        (len >= 20 && self.l4 + len <= self.bytes.len()).then_some(self.l4 + len)
    }

    /// The 32-bit number at `at`.
    pub(super) fn long(&self, at: usize) -> u32 {
        let long = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        long.map_or(0, |long| u32::from_be_bytes(*long))
    }

    /// Writes `new` at `at` of a transport header, and updates the transport checksum. The packet is not of SCTP.
    pub(super) fn change(&mut self, at: usize, new: &[u8]) {
        let _not_sctp = self.edit().change(self.bytes, at, new);
    }

    /// Updates the transport checksum after bytes of the transport changed: `old` and `new` are the sums of
    /// the whole transport.
    pub(super) fn sum_changed(&mut self, old: Sum, new: Sum) {
        self.edit().sum_changed(self.bytes, old, new);
    }

    /// Updates lengths and checksums for removing the bytes of a TCP segment from `end` on. The bytes
    /// themselves are not removed.
    pub(super) fn cut(&mut self, end: usize) {
        let Some(gone) = self.bytes.get(end..).filter(|gone| !gone.is_empty()) else { return };
        let sum = Sum::ZERO.bytes(gone);
        self.resize(end, sum, Sum::ZERO);
    }

    /// Updates lengths and checksums for inserting `n` bytes with this `sum` into a TCP segment. The
    /// bytes themselves are not inserted. Returns false if the packet would be too long for IP.
    pub(super) fn lengthen(&mut self, n: usize, sum: Sum) -> bool {
        let most = usize::from(u16::MAX) + if self.v6 { 40 } else { 0 };
        let fits = self.bytes.len() + n <= most;
        if fits {
            self.resize(self.bytes.len() + n, Sum::ZERO, sum);
        }
        fits
    }

    fn resize(&mut self, len: usize, old: Sum, new: Sum) {
        let segment = |len: usize| ((len - self.l4) as u16).to_be_bytes();
        let (before, after) = (segment(self.bytes.len()), segment(len));
        self.edit().pseudo_header_changed(self.bytes, &before, &after);
        self.edit().sum_changed(self.bytes, old, new);
        let header = if self.v6 { len - 40 } else { len };
        let header = (header as u16).to_be_bytes();
        match self.v6 {
            true => self.bytes[4..6].copy_from_slice(&header),
            false => _ = edit::replace(self.bytes, 2, header, 10),
        }
    }

    /// Whether routers must not fragment the packet.
    pub(super) fn may_not_be_cut(&self) -> bool {
        self.v6 || self.bytes.get(6).is_some_and(|flags| flags & 0x40 != 0)
    }

    /// Whether the transport checksum covers addresses that are not in the IP header, because the packet has a
    /// source route (RFC 791, RFC 8200 section 8.1) or a home address (RFC 6275). Such packets must not be
    /// translated.
    pub(super) fn is_routed(&self) -> bool {
        if !self.v6 {
            let options = self.bytes.get(20..self.l4).unwrap_or_default();
            // Bytes inside another option may also match; this refuses more packets than necessary.
            return options.iter().any(|option| matches!(option, 131 | 137));
        }
        let (mut next, mut at) = (self.bytes.get(6).copied().unwrap_or(0), 40);
        while at < self.l4 {
            let Some(header) = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
                return true;
            };
            match (next, header) {
                (43, [_, _, _, left]) if *left != 0 => return true,
                (0 | 43, _) => at += (usize::from(header[1]) + 1) * 8,
                (44, _) => at += 8,
                _ => return true, // destination options may have a home address; others are unknown
            }
            next = header[0];
        }
        false
    }

    /// The 16-bit number at `at`.
    pub(super) fn word(&self, at: usize) -> u16 {
        let word = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
        word.map_or(0, |word| u16::from_be_bytes(*word))
    }

    /// Replaces the address, and the port if given, of one side. Returns false if that is not possible: the
    /// address is of another family, or the packet is a fragment of SCTP, whose checksum covers bytes that are
    /// not in this fragment.
    pub(super) fn translate(&mut self, side: Side, addr: IpAddr, port: Option<u16>) -> bool {
        if !self.edit().set_address(self.bytes, side, addr) {
            return false;
        }
        let Some(port) = port else { return true };
        let at = self.l4 + if side == Side::Src { 0 } else { 2 };
        // The port that a fragment of SCTP has already needs no change.
        self.edit().set_port(self.bytes, side, port).is_ok() || self.word(at) == port
    }

    /// Limits the MSS option of a SYN to `mss` (RFC 9293 section 3.7.1).
    pub(super) fn clamp_mss(&mut self, mss: u16) {
        self.offer(|offered| offered.min(mss));
    }

    /// Reduces the MSS option of a SYN by `n`.
    pub(super) fn lower_mss(&mut self, n: u16) {
        self.offer(|offered| offered.saturating_sub(n));
    }

    fn offer(&mut self, change: impl Fn(u16) -> u16) {
        if self.proto != proto::TCP || self.frag == Frag::Later {
            return;
        }
        let len = self.bytes.get(self.l4 + 12).map_or(0, |b| usize::from(b >> 4) * 4);
        let end = (self.l4 + len).min(self.bytes.len());
        let mut at = self.l4 + 20;
        while at + 1 < end {
            match (self.bytes[at], self.bytes[at + 1]) {
                (0, _) => return,
                (1, _) => at += 1,
                (2, 4) if at + 4 <= end => {
                    let offered = u16::from_be_bytes([self.bytes[at + 2], self.bytes[at + 3]]);
                    let mss = change(offered);
                    if offered != mss {
                        self.change(at + 2, &mss.to_be_bytes());
                    }
                    return;
                }
                (_, 0 | 1) => return,
                (_, len) => at += usize::from(len),
            }
        }
    }
}

/// Offset of the IP packet in an Ethernet frame; `None` if the frame is not IP.
pub(super) fn l3_of(bytes: &[u8]) -> Option<usize> {
    match tags::ether_type(bytes)? {
        (0x0800 | 0x86dd, l3) => Some(l3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use flowyard_flow::parse;
    use flowyard_testkit::Build;

    use super::*;

    /// The option is in the header, which may be cut anywhere, and so long as the packet or longer.
    #[test]
    fn an_option_is_read_only_inside_header_and_packet() {
        let v4 = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let v6 = ["2001:db8::1", "2001:db8::2"].map(|addr| addr.parse().expect("an address"));
        for ([src, dst], l4) in [(v4, 20), (v6, 40)] {
            for (words, cut, before) in (0..16)
                .flat_map(|words| (0..=40).map(move |cut| (words, cut)))
                .flat_map(|(words, cut)| (0..40).map(move |before| (words, cut, before)))
            {
                let options = [&[1; 40][..before], &[2, 4, 9, 9], &[2, 4, 8, 8]].concat();
                let key = FlowKey::five_tuple(proto::TCP, src, 5, dst, 80);
                let mut bytes = Build::new(&key).payload(&options[..cut.min(before + 8)]).bytes();
                let len = bytes.len() - 14 - l4;
                bytes[14 + l4 + 12] = words << 4;
                bytes.extend([2, 4, 7, 7]); // padding of the frame
                let mut wanted = bytes.clone();
                let at = 14 + l4 + 20 + before + 2;
                let ends = 20 + before + 4;
                if ends <= len.min(4 * usize::from(words)) {
                    wanted[at..at + 2].copy_from_slice(&[1, 0]);
                }
                Packet::new(&mut bytes, &key).expect("20 bytes of the header").clamp_mss(256);
                let sum = 14 + l4 + 16;
                bytes[sum..sum + 2].copy_from_slice(&wanted[sum..sum + 2]);
                assert_eq!(bytes, wanted, "{words} words, {before} before, {len} bytes");
            }
        }
    }

    /// A header shorter than 20 bytes is invalid, and one that is longer than the segment is truncated.
    #[test]
    fn the_payload_of_a_segment_begins_behind_its_header() {
        let v4 = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let v6 = ["2001:db8::1", "2001:db8::2"].map(|addr| addr.parse().expect("an address"));
        for ([src, dst], l4) in [(v4, 20), (v6, 40)] {
            for rest in [0, 3, 4, 20, 39, 40, 60] {
                for words in 0..16 {
                    let key = FlowKey::five_tuple(proto::TCP, src, 5, dst, 80);
                    let mut bytes = Build::new(&key).payload(&vec![1; rest]).bytes();
                    bytes[14 + l4 + 12] = words << 4 | 9;
                    let key = parse::key(&Headers::parse(LinkType::Ethernet, &bytes), &bytes, 0);
                    let key = FlowKey { proto: proto::TCP, ..key };
                    let packet = Packet::new(&mut bytes, &key).expect("20 bytes of the header");
                    let len = 4 * usize::from(words);
                    let is_good = len >= 20 && len <= 20 + rest;
                    let wanted = is_good.then_some(l4 + len);
                    assert_eq!(packet.tcp_payload(), wanted, "{words} words, {rest} bytes more");
                }
            }
        }
    }
}
