//! Packet: a frame on its way through the tables, and the actions that change its bytes.
//!
//! ```text
//!   received frame (borrowed) ──first change──> buffer: a copy      key and layout follow each change
//! ```
//!
//! Header fields are changed in place by `flowyard_wire::edit`, which also updates the checksums: one that
//! was wrong stays wrong, and a UDP checksum that is absent (0) stays absent. A field that the frame does not
//! have is not set.
//!
//! Invariants: the bytes of the received frame do not change; key and layout are those of the current
//! bytes; nothing is allocated once the buffer is as large as the frames.
//! Thread-safety: plain data with one owner.

use flowyard_openflow::Field;
use flowyard_openflow::act::Action;
use flowyard_openflow::oxm::VID_PRESENT;
use flowyard_wire::edit::tags;
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, edit, offload};

use crate::key::Key;
use crate::parse::{self, Layout, Net, u32_at};
use crate::unfinished::{is_any, is_long, needs_finished};

mod fields;

/// Why an action cannot be applied; the frame is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The time to live has expired.
    Ttl,
    /// The SCTP checksum cannot be updated, because the frame does not hold the whole packet.
    Incomplete,
    /// The frame would be longer than any frame may be.
    TooLong,
}

pub(crate) type Done = Result<(), Fault>;

/// The longest frame that actions make, in bytes.
const LONGEST: usize = 0xffff;
/// The shortest Ethernet frame, without its frame check sequence. A frame that becomes shorter is padded.
const SHORTEST: usize = 60;
/// Bytes of a PBB header: two addresses, EtherType, I-TAG.
const PBB: usize = 18;

/// A frame in its current state.
pub(crate) struct Packet<'a> {
    frame: &'a [u8],
    buffer: Vec<u8>,
    /// The bytes are those in `buffer`.
    is_changed: bool,
    pub(crate) key: Key,
    pub(crate) layout: Layout,
    /// Offset and length of the current bytes in the effects, if they are there already.
    pub(crate) kept: Option<(u32, u32)>,
    /// What is left to do before the bytes are on a wire.
    pub(crate) left: Offload,
}

impl<'a> Packet<'a> {
    /// A received frame. `key` has the fields that are not in its bytes.
    pub(crate) fn new(frame: &'a [u8], mut key: Key, buffer: Vec<u8>) -> Self {
        let layout = parse::parse(frame, &mut key);
        Self { frame, buffer, is_changed: false, key, layout, kept: None, left: Offload::NONE }
    }

    /// A received frame that was parsed before, of which `left` is left to do.
    pub(crate) const fn parsed(
        frame: &'a [u8],
        (key, layout): (Key, Layout),
        left: Offload,
        buffer: Vec<u8>,
    ) -> Self {
        Self { frame, buffer, is_changed: false, key, layout, kept: None, left }
    }

    /// A copy of the packet to which other actions are applied.
    pub(crate) fn branch(&self, buffer: Vec<u8>) -> Packet<'_> {
        let (key, layout, kept, left) = (self.key, self.layout, self.kept, self.left);
        Packet { frame: self.bytes(), buffer, is_changed: false, key, layout, kept, left }
    }

    /// The buffer, for the next packet.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.is_changed { &self.buffer } else { self.frame }
    }

    /// Whether the bytes are still those of the received frame.
    pub(crate) const fn is_same(&self) -> bool {
        !self.is_changed
    }

    /// The bytes, to be changed: the first call copies the frame.
    fn own(&mut self) -> &mut Vec<u8> {
        self.kept = None;
        if !self.is_changed {
            self.buffer.clear();
            self.buffer.extend_from_slice(self.frame);
            self.is_changed = true;
        }
        &mut self.buffer
    }

    /// Parses the frame again after headers were added, removed or changed in kind.
    fn parse_again(&mut self) {
        let mut key = Key::ZERO;
        key.0[1..4].copy_from_slice(&self.key.0[1..4]);
        key.0[15] = self.key.0[15] >> 32 << 32;
        let pipeline = [Field::InPort, Field::InPhyPort, Field::Metadata, Field::TunnelId];
        let kept = pipeline
            .iter()
            .fold(1 << Field::ActsetOutput as u8, |sum, field| sum | 1_u64 << *field as u8);
        key.0[0] = self.key.0[0] & kept;
        let bytes = if self.is_changed { &self.buffer } else { self.frame };
        self.layout = parse::parse(bytes, &mut key);
        self.key = key;
    }

    fn insert(&mut self, at: usize, new: &[u8]) -> Done {
        // Where a long frame does not fit, its segments do.
        let longest = if is_long(self.left) { 2 * LONGEST } else { LONGEST };
        let left = self.left.shifted(new.len() as isize).ok_or(Fault::TooLong)?;
        let bytes = self.own();
        let len = bytes.len();
        if at > len || len + new.len() > longest {
            return Err(Fault::TooLong);
        }
        self.left = left;
        let bytes = self.own();
        bytes.resize(len + new.len(), 0);
        bytes.copy_within(at..len, at + new.len());
        bytes[at..at + new.len()].copy_from_slice(new);
        Ok(())
    }

    fn remove(&mut self, at: usize, n: usize) {
        let len = self.bytes().len();
        // What is behind the headers of a long frame is data; its segments are padded by an adapter, if at all.
        let padded = len >= SHORTEST && !is_long(self.left);
        if padded && len < SHORTEST + n {
            self.complete();
        }
        // The checksum starts behind the headers that actions remove: see `unfinished::follows`.
        self.left = self.left.shifted(-(n as isize)).unwrap_or_default();
        let bytes = self.own();
        if at + n <= bytes.len() {
            bytes.copy_within(at + n.., at);
            bytes.truncate(bytes.len() - n);
        }
        if padded && bytes.len() < SHORTEST {
            bytes.resize(SHORTEST, 0);
        }
    }

    /// Completes the checksum of a frame that is not to be cut.
    fn complete(&mut self) {
        let left = std::mem::take(&mut self.left);
        if left.has(Offload::PARTIAL) {
            offload::complete(self.own(), left);
        }
    }

    /// Where the checksums are that follow a change.
    fn editor(&self) -> edit::Packet {
        edit::Packet::from(self.layout).with_offload(self.left, 0)
    }

    /// The frames that a port would put on a wire.
    pub(crate) fn wired(&self) -> Wired<'_> {
        let left = self.left;
        let cut = if is_long(left) { Cut::new(self.bytes(), left).map(Some) } else { Ok(None) };
        Wired { bytes: self.bytes(), left, cut: cut.ok() }
    }

    /// Applies an action that changes the packet. Other actions do nothing here.
    pub(crate) fn change(&mut self, action: &Action) -> Done {
        if is_any(self.left) && needs_finished(action) {
            if is_long(self.left) {
                return Err(Fault::TooLong); // it is cut in front of the tables
            }
            self.complete();
        }
        match action {
            Action::CopyTtlOut => self.copy_ttl_out(),
            Action::CopyTtlIn => self.copy_ttl_in(),
            Action::SetMplsTtl(ttl) => self.set_mpls_ttl(*ttl),
            Action::DecMplsTtl => self.dec_mpls_ttl()?,
            Action::PushVlan(tpid) => self.push_vlan(*tpid)?,
            Action::PopVlan | Action::StripVlan => self.pop_vlan(),
            Action::PushMpls(kind) => self.push_mpls(*kind)?,
            Action::PopMpls(kind) => self.pop_mpls(*kind),
            Action::SetNwTtl(ttl) => self.set_nw_ttl(*ttl),
            Action::DecNwTtl => self.dec_nw_ttl()?,
            Action::SetField(oxm) => self.set(oxm)?,
            Action::PushPbb(kind) => self.push_pbb(*kind)?,
            Action::PopPbb => self.pop_pbb(),
            Action::SetVlanVid(vid) => self.set_tag(*vid, 0xfff)?,
            Action::SetVlanPcp(pcp) => self.set_tag(u16::from(*pcp) << 13, 0xe000)?,
            Action::SetTpSrc(port) => self.set_transport(false, *port)?,
            Action::SetTpDst(port) => self.set_transport(true, *port)?,
            Action::Output { .. }
            | Action::Enqueue { .. }
            | Action::Group(_)
            | Action::SetQueue(_)
            // The agent rejects these.
            | Action::Experimenter { .. } => {}
        }
        Ok(())
    }

    /// The tag control information of the outermost tag; 0 without a tag.
    fn tci(&self) -> u16 {
        tags::outermost(self.bytes()).unwrap_or(0)
    }

    /// The new tag has the control information of the tag that was outermost.
    pub(crate) fn push_vlan(&mut self, tpid: u16) -> Done {
        if self.bytes().len() < tags::AT + 2 {
            return Ok(());
        }
        let tag = tags::tag(tpid, self.tci());
        self.insert(tags::AT, &tag)?;
        self.parse_again();
        Ok(())
    }

    pub(crate) fn pop_vlan(&mut self) {
        if self.layout.tagged {
            self.remove(tags::AT, tags::LEN);
            self.parse_again();
        }
    }

    /// Sets the bits of `mask` in the control information of the outermost tag. As OpenFlow 1.0 requires, a
    /// frame without a tag gets one.
    pub(crate) fn set_tag(&mut self, tci: u16, mask: u16) -> Done {
        if !self.layout.tagged {
            self.push_vlan(0x8100)?;
        }
        if let Some(tci) = tags::set_outermost(self.own(), mask, tci) {
            self.key.set(Field::VlanVid, u128::from(tci & 0xfff) | VID_PRESENT);
            self.key.set(Field::VlanPcp, (tci >> 13).into());
        }
        Ok(())
    }

    /// The new label stack entry has the label and the TTL of the outermost entry, or the TTL of the IP
    /// header.
    pub(crate) fn push_mpls(&mut self, kind: u16) -> Done {
        let Layout { net, l3, type_at, .. } = self.layout;
        if type_at == 0 {
            return Ok(()); // there is no EtherType that could be changed
        }
        let top = match net {
            Net::Mpls => u32_at(self.bytes(), l3).unwrap_or(0) & !0x100,
            Net::Ipv4 => 0x100 | u32::from(self.bytes()[l3 + 8]),
            Net::Ipv6 => 0x100 | u32::from(self.bytes()[l3 + 7]),
            _ => 0x100,
        };
        self.insert(l3, &top.to_be_bytes())?;
        self.buffer[type_at..type_at + 2].copy_from_slice(&kind.to_be_bytes());
        self.parse_again();
        Ok(())
    }

    pub(crate) fn pop_mpls(&mut self, kind: u16) {
        let Layout { net: Net::Mpls, l3, type_at, .. } = self.layout else { return };
        self.remove(l3, 4);
        self.buffer[type_at..type_at + 2].copy_from_slice(&kind.to_be_bytes());
        self.parse_again();
    }

    /// The new header has the addresses of the frame, the I-SID of the outermost I-TAG, and the priority of
    /// the outermost tag.
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
        self.parse_again();
        Ok(())
    }

    /// Removes the outer header with the tags between its addresses and the I-TAG.
    pub(crate) fn pop_pbb(&mut self) {
        if self.layout.net == Net::Pbb && self.layout.l3 + 4 + 14 <= self.bytes().len() {
            self.remove(0, self.layout.l3 + 4);
            self.parse_again();
        }
    }
}

/// A frame as it would be on a wire: one frame, or segments.
pub(crate) struct Wired<'a> {
    bytes: &'a [u8],
    left: Offload,
    /// `None` if the frame cannot be cut.
    cut: Option<Option<Cut>>,
}

impl Wired<'_> {
    pub(crate) fn count(&self) -> usize {
        self.cut.map_or(0, |cut| cut.map_or(1, |cut| cut.count()))
    }

    /// The length of frame `n`.
    pub(crate) fn len(&self, n: usize) -> usize {
        self.cut.flatten().map_or(self.bytes.len(), |cut| cut.len(n))
    }

    /// The bytes of frame `n`.
    pub(crate) fn frame(&self, n: usize) -> Vec<u8> {
        let Some(cut) = self.cut.flatten() else {
            let mut bytes = self.bytes.to_vec();
            offload::complete(&mut bytes, self.left);
            return bytes;
        };
        let mut bytes = vec![0; cut.len(n)];
        cut.write(self.bytes, n, &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests;
