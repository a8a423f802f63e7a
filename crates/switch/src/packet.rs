//! Packet: a frame on its way through the tables, and what actions do to its bytes.
//!
//! ```text
//!   frame (lent) ──first change──> room: a copy, ours     key and layout follow each change
//! ```
//!
//! A change of a field is done in place, and checksums follow it (RFC 1624; SCTP's in the same sense),
//! so one that was wrong stays wrong; a UDP checksum that is not there (0) is not made. What the frame
//! does not have is not set.
//!
//! Invariants: no byte of the lent frame changes; key and layout are those of the bytes; nothing is
//! allocated once the room is as large as the frames.
//! Thread-safety: plain data, one owner.

use flowyard_openflow::oxm::VID_PRESENT;
use flowyard_openflow::{Field, Oxm};
use flowyard_wire::checksum::{self, Sum};

use crate::key::Key;
use crate::parse::{self, ICMP, ICMP6, Layout, Net, SCTP, TCP, UDP, is_vlan, u16_at, u32_at};

/// Why an action ends a frame's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A time to live that is over.
    Ttl,
    /// An SCTP checksum cannot follow: not all of what it is about is here.
    Incomplete,
    /// It would be longer than any frame.
    TooLong,
}

type Done = Result<(), Fault>;

/// The longest frame that actions make, in bytes.
const LONGEST: usize = 0xffff;
/// The shortest frame on a wire, without its checksum: what became shorter is padded.
const SHORTEST: usize = 60;
/// Bytes that a PBB header adds: two addresses, EtherType, I-TAG.
const PBB: usize = 18;

/// A frame, as it is now.
pub(crate) struct Packet<'a> {
    frame: &'a [u8],
    room: Vec<u8>,
    owned: bool,
    pub(crate) key: Key,
    pub(crate) layout: Layout,
    /// Where the effects have it, as it is now.
    pub(crate) kept: Option<(u32, u32)>,
}

impl<'a> Packet<'a> {
    /// A frame as it came; `key` says what is not in its bytes.
    pub(crate) fn new(frame: &'a [u8], mut key: Key, room: Vec<u8>) -> Self {
        let layout = parse::parse(frame, &mut key);
        Self { frame, room, owned: false, key, layout, kept: None }
    }

    /// A frame that was parsed before.
    pub(crate) const fn parsed(frame: &'a [u8], key: Key, layout: Layout, room: Vec<u8>) -> Self {
        Self { frame, room, owned: false, key, layout, kept: None }
    }

    /// The same, to go another way.
    pub(crate) fn branch(&self, room: Vec<u8>) -> Packet<'_> {
        let (key, layout, kept) = (self.key, self.layout, self.kept);
        Packet { frame: self.bytes(), room, owned: false, key, layout, kept }
    }

    /// The room, to be used again.
    pub(crate) fn into_room(self) -> Vec<u8> {
        self.room
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.owned { &self.room } else { self.frame }
    }

    /// Whether the bytes are still the lent ones.
    pub(crate) const fn is_same(&self) -> bool {
        !self.owned
    }

    fn own(&mut self) -> &mut Vec<u8> {
        self.kept = None;
        if !self.owned {
            self.room.clear();
            self.room.extend_from_slice(self.frame);
            self.owned = true;
        }
        &mut self.room
    }

    /// Key and layout after a change of what is where.
    fn again(&mut self) {
        let mut key = Key::ZERO;
        key.0[1..4].copy_from_slice(&self.key.0[1..4]);
        key.0[15] = self.key.0[15] >> 32 << 32;
        let pipeline = [Field::InPort, Field::InPhyPort, Field::Metadata, Field::TunnelId];
        let kept = pipeline
            .iter()
            .fold(1 << Field::ActsetOutput as u8, |sum, field| sum | 1_u64 << *field as u8);
        key.0[0] = self.key.0[0] & kept;
        let bytes = if self.owned { &self.room } else { self.frame };
        self.layout = parse::parse(bytes, &mut key);
        self.key = key;
    }

    fn insert(&mut self, at: usize, new: &[u8]) -> Done {
        let bytes = self.own();
        let len = bytes.len();
        if at > len || len + new.len() > LONGEST {
            return Err(Fault::TooLong);
        }
        bytes.resize(len + new.len(), 0);
        bytes.copy_within(at..len, at + new.len());
        bytes[at..at + new.len()].copy_from_slice(new);
        Ok(())
    }

    fn remove(&mut self, at: usize, n: usize) {
        let bytes = self.own();
        let padded = bytes.len() >= SHORTEST;
        if at + n <= bytes.len() {
            bytes.copy_within(at + n.., at);
            bytes.truncate(bytes.len() - n);
        }
        if padded && bytes.len() < SHORTEST {
            bytes.resize(SHORTEST, 0);
        }
    }

    /// The outermost tag's priority, drop eligibility and id.
    fn tci(&self) -> u16 {
        if self.layout.tagged { u16_at(self.bytes(), 14).unwrap_or(0) } else { 0 }
    }

    pub(crate) fn push_vlan(&mut self, tpid: u16) -> Done {
        if self.bytes().len() < 14 {
            return Ok(());
        }
        let ([a, b], [c, d]) = (tpid.to_be_bytes(), self.tci().to_be_bytes());
        self.insert(12, &[a, b, c, d])?;
        self.again();
        Ok(())
    }

    pub(crate) fn pop_vlan(&mut self) {
        if self.layout.tagged {
            self.remove(12, 4);
            self.again();
        }
    }

    /// Whether there is an EtherType with something behind it that may get another one.
    const fn has_type(&self) -> bool {
        self.layout.type_at != 0
    }

    /// Label and TTL are those of the label or IP header that was outermost.
    pub(crate) fn push_mpls(&mut self, kind: u16) -> Done {
        if !self.has_type() {
            return Ok(());
        }
        let Layout { net, l3, type_at, .. } = self.layout;
        let top = match net {
            Net::Mpls => u32_at(self.bytes(), l3).unwrap_or(0) & !0x100,
            Net::Ipv4 => 0x100 | u32::from(self.bytes()[l3 + 8]),
            Net::Ipv6 => 0x100 | u32::from(self.bytes()[l3 + 7]),
            _ => 0x100,
        };
        self.insert(l3, &top.to_be_bytes())?;
        self.room[type_at..type_at + 2].copy_from_slice(&kind.to_be_bytes());
        self.again();
        Ok(())
    }

    pub(crate) fn pop_mpls(&mut self, kind: u16) {
        let Layout { net: Net::Mpls, l3, type_at, .. } = self.layout else { return };
        self.remove(l3, 4);
        self.room[type_at..type_at + 2].copy_from_slice(&kind.to_be_bytes());
        self.again();
    }

    /// Addresses are those of the frame; so is the I-SID of an I-TAG that was outermost, and the
    /// priority of a tag.
    pub(crate) fn push_pbb(&mut self, kind: u16) -> Done {
        let Some(addresses) = self.bytes().first_chunk::<12>() else { return Ok(()) };
        let mut head = [0; PBB];
        head[..12].copy_from_slice(addresses);
        head[12..14].copy_from_slice(&kind.to_be_bytes());
        let mut tag = u32::from(self.tci() >> 13) << 29;
        if self.layout.net == Net::Pbb {
            tag |= self.key.bits(Field::PbbIsid) as u32;
        }
        head[14..].copy_from_slice(&tag.to_be_bytes());
        self.insert(0, &head)?;
        self.again();
        Ok(())
    }

    /// The outer header goes, with the tags between its addresses and the I-TAG.
    pub(crate) fn pop_pbb(&mut self) {
        if self.layout.net == Net::Pbb && self.layout.l3 + 4 + 14 <= self.bytes().len() {
            self.remove(0, self.layout.l3 + 4);
            self.again();
        }
    }

    /// 1.0: the outermost tag's bits under `mask` become `bits`; without a tag, there is a new one.
    pub(crate) fn tag(&mut self, bits: u16, mask: u16) -> Done {
        if !self.layout.tagged {
            self.push_vlan(0x8100)?;
        }
        if self.layout.tagged {
            let tci = self.tci() & !mask | bits & mask;
            self.own()[14..16].copy_from_slice(&tci.to_be_bytes());
            self.key.set(Field::VlanVid, u128::from(tci & 0xfff) | VID_PRESENT);
            self.key.set(Field::VlanPcp, (tci >> 13).into());
        }
        Ok(())
    }

    pub(crate) fn set_mpls_ttl(&mut self, ttl: u8) {
        if self.layout.net == Net::Mpls {
            let at = self.layout.l3 + 3;
            self.own()[at] = ttl;
        }
    }

    pub(crate) fn dec_mpls_ttl(&mut self) -> Done {
        if self.layout.net != Net::Mpls {
            return Ok(());
        }
        match self.bytes()[self.layout.l3 + 3] {
            0 | 1 => Err(Fault::Ttl),
            ttl => {
                self.set_mpls_ttl(ttl - 1);
                Ok(())
            }
        }
    }

    /// Where the TTL of the IP header at `at` is.
    fn ip_ttl(&self, at: usize) -> Option<usize> {
        let ttl = match self.bytes().get(at)? >> 4 {
            4 => at + 8,
            6 => at + 7,
            _ => return None,
        };
        (self.bytes().len() >= at + 20).then_some(ttl)
    }

    /// Sets the TTL of the IP header at `ip`.
    fn set_ip_ttl(&mut self, ip: usize, ttl: u8) {
        let Some(at) = self.ip_ttl(ip) else { return };
        let v4 = at == ip + 8;
        let bytes = self.own();
        let old = u16_at(bytes, ip + 8).unwrap_or(0);
        bytes[at] = ttl;
        if v4 {
            let new = u16_at(bytes, ip + 8).unwrap_or(0);
            let check = u16_at(bytes, ip + 10).unwrap_or(0);
            let check = checksum::update(check, old, new);
            bytes[ip + 10..ip + 12].copy_from_slice(&check.to_be_bytes());
        }
    }

    pub(crate) fn set_nw_ttl(&mut self, ttl: u8) {
        if matches!(self.layout.net, Net::Ipv4 | Net::Ipv6) {
            self.set_ip_ttl(self.layout.l3, ttl);
        }
    }

    pub(crate) fn dec_nw_ttl(&mut self) -> Done {
        if !matches!(self.layout.net, Net::Ipv4 | Net::Ipv6) {
            return Ok(());
        }
        let Some(at) = self.ip_ttl(self.layout.l3) else { return Ok(()) };
        match self.bytes()[at] {
            0 | 1 => Err(Fault::Ttl),
            ttl => {
                self.set_ip_ttl(self.layout.l3, ttl - 1);
                Ok(())
            }
        }
    }

    /// Where the TTL behind the outermost label is, and the IP header it belongs to.
    fn inner_ttl(&self) -> Option<(usize, Option<usize>)> {
        let Layout { net: Net::Mpls, l3, .. } = self.layout else { return None };
        if self.key.bits(Field::MplsBos) == 0 {
            return (self.bytes().len() >= l3 + 8).then_some((l3 + 7, None));
        }
        self.ip_ttl(l3 + 4).map(|at| (at, Some(l3 + 4)))
    }

    pub(crate) fn copy_ttl_out(&mut self) {
        if let Some((at, _)) = self.inner_ttl() {
            let ttl = self.bytes()[at];
            self.set_mpls_ttl(ttl);
        }
    }

    pub(crate) fn copy_ttl_in(&mut self) {
        let Some((at, ip)) = self.inner_ttl() else { return };
        let ttl = self.bytes()[self.layout.l3 + 3];
        match ip {
            Some(ip) => self.set_ip_ttl(ip, ttl),
            None => self.own()[at] = ttl,
        }
    }

    /// 1.0: the source or destination port of TCP or UDP, or type or code of ICMP.
    pub(crate) fn set_transport(&mut self, dst: bool, value: u16) -> Done {
        let pair = [
            (Field::TcpSrc, Field::TcpDst),
            (Field::UdpSrc, Field::UdpDst),
            (Field::Icmpv4Type, Field::Icmpv4Code),
        ];
        let mut fields = pair.iter().map(|&(s, d)| if dst { d } else { s });
        match fields.find(|field| self.key.has(*field)) {
            Some(field) => self.set(&Oxm::exact(field, value.into())),
            None => Ok(()),
        }
    }

    /// Set-field. A field that the frame does not have stays away.
    pub(crate) fn set(&mut self, oxm: &Oxm) -> Done {
        let (field, value) = (oxm.field, oxm.value);
        if field == Field::TunnelId {
            self.key.set(field, value);
            return Ok(());
        }
        if !self.key.has(field) {
            return Ok(());
        }
        let Layout { net, l3, l4, type_at, .. } = self.layout;
        let bytes = value.to_be_bytes();
        let last = |n: usize| &bytes[16 - n..];
        match field {
            Field::EthDst => self.own()[..6].copy_from_slice(last(6)),
            Field::EthSrc => self.own()[6..12].copy_from_slice(last(6)),
            Field::EthType => self.own()[type_at..type_at + 2].copy_from_slice(last(2)),
            Field::VlanVid => return self.tag(value as u16, 0xfff),
            Field::VlanPcp => return self.tag((value as u16) << 13, 0xe000),
            Field::IpDscp => self.tos((value as u8) << 2, 0xfc),
            Field::IpEcn => self.tos(value as u8, 3),
            Field::IpProto if net == Net::Ipv4 => self.change(l3 + 9, last(1), true, true)?,
            Field::IpProto => {
                let (at, old) = (self.layout.next_at, self.layout.proto);
                self.own()[at] = value as u8;
                // In the pseudo header, wherever it is named.
                self.follow(false, old.into(), value as u16)?;
            }
            Field::Ipv4Src => self.change(l3 + 12, last(4), true, true)?,
            Field::Ipv4Dst => self.change(l3 + 16, last(4), true, true)?,
            Field::Ipv6Src => self.change(l3 + 8, last(16), false, true)?,
            Field::Ipv6Dst => self.change(l3 + 24, last(16), false, true)?,
            Field::Ipv6Flabel => {
                let old = u32_at(self.bytes(), l3).unwrap_or(0);
                let new = old & !0xf_ffff | value as u32;
                self.own()[l3..l3 + 4].copy_from_slice(&new.to_be_bytes());
            }
            Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => {
                self.change(l4, last(2), false, true)?;
            }
            Field::TcpDst | Field::UdpDst | Field::SctpDst => {
                self.change(l4 + 2, last(2), false, true)?;
            }
            Field::Icmpv4Type | Field::Icmpv6Type => self.change(l4, last(1), false, true)?,
            Field::Icmpv4Code | Field::Icmpv6Code => self.change(l4 + 1, last(1), false, true)?,
            Field::ArpOp => self.own()[l3 + 6..l3 + 8].copy_from_slice(last(2)),
            Field::ArpSha => self.own()[l3 + 8..l3 + 14].copy_from_slice(last(6)),
            Field::ArpSpa => self.own()[l3 + 14..l3 + 18].copy_from_slice(last(4)),
            Field::ArpTha => self.own()[l3 + 18..l3 + 24].copy_from_slice(last(6)),
            Field::ArpTpa => self.own()[l3 + 24..l3 + 28].copy_from_slice(last(4)),
            Field::Ipv6NdTarget => self.change(self.layout.target, last(16), false, true)?,
            Field::Ipv6NdSll | Field::Ipv6NdTll => {
                self.change(self.layout.link, last(6), false, true)?;
            }
            Field::MplsLabel => self.word(l3, (value as u32) << 12, 0xffff_f000),
            Field::MplsTc => self.word(l3, (value as u32) << 9, 0xe00),
            Field::MplsBos => self.word(l3, (value as u32) << 8, 0x100),
            Field::PbbIsid => self.word(l3, value as u32, 0xff_ffff),
            Field::PbbUca => self.word(l3, (value as u32) << 27, 1 << 27),
            // The pipeline's own, and those that no action sets.
            Field::InPort
            | Field::InPhyPort
            | Field::Metadata
            | Field::TunnelId
            | Field::Ipv6Exthdr
            | Field::TcpFlags
            | Field::ActsetOutput => return Ok(()),
        }
        match field {
            // What follows may be something else now.
            Field::EthType | Field::IpProto | Field::Icmpv6Type => self.again(),
            _ => self.key.set(field, value),
        }
        Ok(())
    }

    /// The bits under `mask` of the word at `at` become `bits`.
    fn word(&mut self, at: usize, bits: u32, mask: u32) {
        let new = u32_at(self.bytes(), at).unwrap_or(0) & !mask | bits;
        self.own()[at..at + 4].copy_from_slice(&new.to_be_bytes());
    }

    /// The bits under `mask` of the TOS byte or the traffic class become `bits`.
    fn tos(&mut self, bits: u8, mask: u8) {
        let l3 = self.layout.l3;
        if self.layout.net == Net::Ipv4 {
            let new = self.bytes()[l3 + 1] & !mask | bits;
            // There is no SCTP checksum over this.
            let _done = self.change(l3 + 1, &[new], true, false);
        } else {
            self.word(l3, u32::from(bits) << 20, u32::from(mask) << 20);
        }
    }

    /// Meter band: the drop precedence of an assured forwarding class rises (RFC 2597).
    pub(crate) fn remark(&mut self, levels: u8) {
        if !self.key.has(Field::IpDscp) {
            return;
        }
        let dscp = self.key.bits(Field::IpDscp) as u8;
        let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
        if (1..=4).contains(&class) && precedence != 0 && dscp & 1 == 0 {
            let precedence = (precedence + levels.min(3)).min(3);
            let _done = self.set(&Oxm::exact(Field::IpDscp, (class << 3 | precedence << 1).into()));
        }
    }

    /// Writes `new` at `at`; the checksums of the IPv4 header and of the transport follow.
    fn change(&mut self, at: usize, new: &[u8], header: bool, transport: bool) -> Done {
        let Layout { l3, l4, .. } = self.layout;
        let inside = l4 != 0 && at >= l4;
        let base = if inside { l4 } else { l3 };
        let bytes = self.own();
        // Whole words of the sum.
        let from = at - (at - base) % 2;
        let to = (at + new.len() + (at + new.len() - base) % 2).min(bytes.len());
        let before = !Sum::ZERO.bytes(&bytes[from..to]).finish();
        let crc = if inside { self.sctp() } else { None };
        let bytes = self.own();
        bytes[at..at + new.len()].copy_from_slice(new);
        let after = !Sum::ZERO.bytes(&bytes[from..to]).finish();
        if header {
            update(bytes, l3 + 10, before, after);
        }
        if let Some(crc) = crc {
            self.follow_sctp(crc?)
        } else if transport {
            self.follow(inside, before, after)
        } else {
            Ok(())
        }
    }

    /// What the checksum of an SCTP packet should be (RFC 9260, appendix A); `None` of another.
    fn sctp(&self) -> Option<Result<u32, Fault>> {
        let Layout { l4, proto, end, whole, .. } = self.layout;
        if proto != SCTP || l4 == 0 {
            return None;
        }
        if !whole || end < l4 + 12 {
            return Some(Err(Fault::Incomplete));
        }
        let (head, rest) = self.bytes()[l4..end].split_at(12);
        Some(Ok(checksum::crc32c(&[&head[..8], &[0; 4], rest])))
    }

    /// The checksum of an SCTP packet follows a change: what was right before, and is now, differ by as
    /// much as the packet's own shall. So one that was wrong stays wrong.
    fn follow_sctp(&mut self, before: u32) -> Done {
        let Some(after) = self.sctp().transpose()? else { return Ok(()) };
        let at = self.layout.l4 + 8;
        let differ = (before ^ after).to_le_bytes();
        for (byte, differ) in self.own()[at..at + 4].iter_mut().zip(differ) {
            *byte ^= differ;
        }
        Ok(())
    }

    /// The transport's checksum follows a change: in the transport itself (`inside`), or in what it
    /// calls its pseudo header.
    fn follow(&mut self, inside: bool, before: u16, after: u16) -> Done {
        let Layout { net, l4, proto, end, .. } = self.layout;
        if l4 == 0 {
            return Ok(());
        }
        let bytes = self.own();
        let check = match proto {
            TCP => l4 + 16,
            UDP if u16_at(bytes, l4 + 6) == Some(0) => return Ok(()),
            UDP => l4 + 6,
            // Without a pseudo header.
            ICMP if inside && net == Net::Ipv4 => l4 + 2,
            ICMP6 if net == Net::Ipv6 => l4 + 2,
            _ => return Ok(()),
        };
        if check + 2 <= end {
            update(bytes, check, before, after);
            if proto == UDP && u16_at(bytes, check) == Some(0) {
                bytes[check..check + 2].fill(0xff); // 0 would say that there is none
            }
        }
        Ok(())
    }
}

/// The checksum at `at` follows a change of a folded sum.
fn update(bytes: &mut [u8], at: usize, before: u16, after: u16) {
    if let Some(check) = u16_at(bytes, at) {
        let check = checksum::update(check, before, after);
        bytes[at..at + 2].copy_from_slice(&check.to_be_bytes());
    }
}

/// The VLAN id and where the tag's frame starts: for learning.
pub(crate) fn vlan(bytes: &[u8]) -> u16 {
    let tagged = u16_at(bytes, 12).is_some_and(is_vlan);
    if tagged { u16_at(bytes, 14).unwrap_or(0) & 0xfff } else { 0 }
}
