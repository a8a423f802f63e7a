//! Translation of addresses and ports of a packet, with incremental update of the checksums (RFC 1624).
//!
//! Every input has a result, without a panic. A checksum that was wrong stays wrong by the same difference, so
//! damage is not hidden.

use std::net::IpAddr;

use flowyard_frame::{FlowKey, Frag, proto};
use flowyard_wire::{Headers, LinkType, checksum};

/// Source or destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Src,
    Dst,
}

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
        })
    }

    /// Length of the packet in bytes.
    pub(super) const fn ip_len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the packet is a fragment other than the first.
    pub(super) const fn is_later(&self) -> bool {
        matches!(self.frag, Frag::Later)
    }

    /// Whether the TTL or hop limit does not allow another hop.
    #[inline]
    pub(super) fn is_expired(&self) -> bool {
        self.bytes[if self.v6 { 7 } else { 8 }] < 2
    }

    /// Decrements the TTL or hop limit.
    #[inline]
    pub(super) fn one_hop(&mut self) {
        let hops = self.bytes[if self.v6 { 7 } else { 8 }];
        self.live(hops.saturating_sub(1));
    }

    /// Sets the TTL or hop limit.
    #[inline]
    pub(super) fn live(&mut self, hops: u8) {
        if self.v6 {
            self.bytes[7] = hops;
        } else {
            let (old, check) = (self.word(8), self.word(10));
            self.bytes[8] = hops;
            let check = checksum::update(check, old, self.word(8));
            self.put(10, &check.to_be_bytes());
        }
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

    /// Writes `new` at the even offset `at` of a TCP segment, and updates the checksum.
    pub(super) fn change_tcp(&mut self, at: usize, new: &[u8]) {
        let mut old = [0; 36];
        let Some(was) = self.bytes.get(at..at + new.len()) else { return };
        old[..new.len()].copy_from_slice(was);
        let check = self.l4 + 16;
        if let Some(sum) = checksum::update_bytes(self.word(check), &old[..new.len()], new) {
            self.put(check, &sum.to_be_bytes());
        }
        self.put(at, new);
    }

    /// Updates lengths and checksums for removing the bytes of a TCP segment from `end` on. The bytes
    /// themselves are not removed.
    pub(super) fn cut(&mut self, end: usize) {
        let Some(gone) = self.bytes.get(end..).filter(|gone| !gone.is_empty()) else { return };
        let sum = !checksum::checksum(gone);
        self.resize(end, sum, 0);
    }

    /// Updates lengths and checksums for inserting `n` bytes with the checksum `sum` into a TCP segment. The
    /// bytes themselves are not inserted. Returns false if the packet would be too long for IP.
    pub(super) fn lengthen(&mut self, n: usize, sum: u16) -> bool {
        let most = usize::from(u16::MAX) + if self.v6 { 40 } else { 0 };
        let fits = self.bytes.len() + n <= most;
        if fits {
            self.resize(self.bytes.len() + n, 0, sum);
        }
        fits
    }

    fn resize(&mut self, len: usize, old: u16, new: u16) {
        let segment = |len: usize| (len - self.l4) as u16;
        let (before, after) = (segment(self.bytes.len()), segment(len));
        let check = checksum::update(self.word(self.l4 + 16), before, after);
        let check = checksum::update(check, old, new);
        self.put(self.l4 + 16, &check.to_be_bytes());
        match self.v6 {
            true => self.put(4, &((len - 40) as u16).to_be_bytes()),
            false => self.change(2, &(len as u16).to_be_bytes(), Some(10)),
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

    /// Offset of the transport checksum that covers the addresses; `None` if there is none.
    fn check_at(&self) -> Option<usize> {
        let at = match (self.frag, self.proto) {
            (Frag::Later, _) => return None,
            (_, proto::TCP) => self.l4 + 16,
            (_, proto::UDP) => self.l4 + 6,
            (_, proto::ICMPV6) => self.l4 + 2,
            _ => return None,
        };
        // RFC 768: 0 is no checksum.
        (self.proto != proto::UDP || self.word(at) != 0).then_some(at)
    }

    /// The 16-bit number at `at`.
    pub(super) fn word(&self, at: usize) -> u16 {
        let word = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
        word.map_or(0, |word| u16::from_be_bytes(*word))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(to) = self.bytes.get_mut(at..at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }

    /// Writes `new` at the even offset `at`, and updates the checksum at `check`.
    fn change(&mut self, at: usize, new: &[u8], check: Option<usize>) {
        let mut old = [0; 16];
        let Some(was) = self.bytes.get(at..at + new.len()) else { return };
        old[..new.len()].copy_from_slice(was);
        if let Some(check) = check
            && let Some(sum) = checksum::update_bytes(self.word(check), &old[..new.len()], new)
        {
            let none = sum == 0 && self.proto == proto::UDP && check != 10;
            self.put(check, &(if none { 0xffff } else { sum }).to_be_bytes());
        }
        self.put(at, new);
    }

    /// Replaces the address, and the port if given, of one side. Returns false if that is not possible: the
    /// address is of another family, or the packet is a fragment of SCTP, whose checksum covers bytes that are
    /// not in this fragment.
    pub(super) fn translate(&mut self, side: Side, addr: IpAddr, port: Option<u16>) -> bool {
        let check = self.check_at();
        match (addr, self.v6) {
            (IpAddr::V4(addr), false) => {
                let at = if side == Side::Src { 12 } else { 16 };
                let old = <[u8; 4]>::try_from(&self.bytes[at..at + 4]).unwrap_or_default();
                self.change(at, &addr.octets(), Some(10));
                self.follow(check, &old, &addr.octets());
            }
            (IpAddr::V6(addr), true) => {
                let at = if side == Side::Src { 8 } else { 24 };
                self.change(at, &addr.octets(), check);
            }
            _ => return false,
        }
        match port {
            Some(port) if self.frag != Frag::Later => self.port(side, port, check),
            _ => true,
        }
    }

    /// Updates a checksum for a change that was made before.
    fn follow(&mut self, check: Option<usize>, old: &[u8], new: &[u8]) {
        if let Some(at) = check
            && let Some(sum) = checksum::update_bytes(self.word(at), old, new)
        {
            let none = sum == 0 && self.proto == proto::UDP;
            self.put(at, &(if none { 0xffff } else { sum }).to_be_bytes());
        }
    }

    fn port(&mut self, side: Side, port: u16, check: Option<usize>) -> bool {
        let at = self.l4 + if side == Side::Src { 0 } else { 2 };
        let old = self.word(at);
        if old == port {
            return true;
        }
        if self.proto != proto::SCTP {
            self.change(at, &port.to_be_bytes(), check);
            return true;
        }
        if self.frag != Frag::No {
            return false;
        }
        // A CRC is linear: the CRC of the difference, followed by zeros, is the difference of the CRCs.
        let len = self.bytes.len() - self.l4;
        let mut ports = [0; 4];
        ports.copy_from_slice(&self.bytes[self.l4..self.l4 + 4]);
        let before = crc_of(&ports, len);
        self.put(at, &port.to_be_bytes());
        ports.copy_from_slice(&self.bytes[self.l4..self.l4 + 4]);
        let change = before ^ crc_of(&ports, len);
        let stored = self.bytes[self.l4 + 8..].first_chunk::<4>().copied().unwrap_or_default();
        let stored = u32::from_le_bytes(stored) ^ change;
        self.put(self.l4 + 8, &stored.to_le_bytes());
        true
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
        let end = self.l4 + usize::from(self.bytes.get(self.l4 + 12).map_or(0, |b| b >> 4)) * 4;
        let mut at = self.l4 + 20;
        while at + 1 < end.min(self.bytes.len()) {
            match (self.bytes[at], self.bytes[at + 1]) {
                (0, _) => return,
                (1, _) => at += 1,
                (2, 4) if at + 4 <= end => {
                    let offered = u16::from_be_bytes([self.bytes[at + 2], self.bytes[at + 3]]);
                    let mss = change(offered);
                    if offered != mss {
                        // The field may be at an odd offset, so the surrounding words are included.
                        let from = (at + 2) & !1;
                        let Some(words) = self.bytes.get(from..from + 4) else { return };
                        let mut new = [0; 4];
                        new.copy_from_slice(words);
                        new[at + 2 - from..][..2].copy_from_slice(&mss.to_be_bytes());
                        self.change(from, &new, Some(self.l4 + 16));
                    }
                    return;
                }
                (_, 0 | 1) => return,
                (_, len) => at += usize::from(len),
            }
        }
    }
}

/// The CRC of `first` followed by zeros, `len` bytes in total.
fn crc_of(first: &[u8; 4], len: usize) -> u32 {
    static ZEROS: [u8; 1024] = [0; 1024];
    let mut pieces: [&[u8]; 66] = [&[]; 66];
    pieces[0] = first;
    let mut left = len.saturating_sub(4);
    for piece in &mut pieces[1..] {
        *piece = &ZEROS[..left.min(ZEROS.len())];
        left -= piece.len();
    }
    checksum::crc32c(&pieces)
}

/// Offset of the IP packet in an Ethernet frame; `None` if the frame is not IP.
pub(super) fn l3_of(bytes: &[u8]) -> Option<usize> {
    let mut at = 12;
    loop {
        let word = bytes.get(at..)?.first_chunk::<2>()?;
        match u16::from_be_bytes(*word) {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            0x0800 | 0x86dd => return Some(at + 2),
            _ => return None,
        }
    }
}
