//! Coalescing: frames of a flow that came in order become one long frame, which segmentation cuts into the same
//! frames again.
//!
//! ```text
//!  [eth ip tcp 1..1448] [eth ip tcp 1449..2896] [eth ip tcp 2897..3000, PSH]
//!           -> [eth ip tcp, PSH | 3000 bytes], to be cut into 1448 bytes
//! ```
//!
//! A [`Table`] knows a few flows for the time of a batch. It reads frames and says what the caller is to do with
//! each; the bytes stay with the caller, who keeps one long frame for each open slot. The rules are those of
//! Linux (`inet_gro_receive`, `tcp_gro_receive`, `udp_gro_receive`), and stricter where Linux would not give back
//! the original bytes:
//!
//! - All headers are equal but for lengths, checksums, and the numbers below. So MAC addresses, tags, tunnels,
//!   TTL, TOS with ECN, DF, the flow label, and TCP options with their timestamps are equal.
//! - IPv4 identifications count up by one. If DF is set they may all be equal instead.
//! - TCP sequence numbers follow each other; acknowledgement, window and the urgent pointer are equal.
//! - All have the payload length of the first. A shorter one is the last.
//! - FIN and PSH are in the last only, CWR in the first only; SYN, RST and URG are never coalesced.
//! - IPv4 headers have no options and are no fragments.
//! - Checksums are correct and written as we would write them. There is no padding.
//!
//! A flow is what the innermost addresses and ports name, with the addresses of the tunnels around it. Frames of
//! other flows in the same tunnel may overtake each other, as in Linux.
//!
//! Invariants: a flow's frames leave in the order in which they came, if the caller does what the steps say;
//! fewer than [`Table::FLOWS`] frames are open between two frames; no input panics; nothing is allocated.
//! Thread-safety: plain data and `&mut self`.

use std::ops::Range;

use crate::checksum::Sum;
use crate::edit::tags;
use crate::segment::levels::{self, Level, Levels, Upper};
use crate::{Headers, LinkType, Net, Offload, Segment};

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// Headers longer than this are not coalesced.
const MAX_HEADERS: usize = 256;

/// What to do with a frame. First, the frames in the slots of `flush` leave, oldest first: [`Table::close`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// A bit for each slot that is to be closed.
    pub flush: u32,
    /// Then this.
    pub then: Then,
}

/// What to do with a frame after the flush.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Then {
    /// The frame leaves as it is.
    Pass,
    /// The frame is the first in this slot, and stays with the caller until the slot is closed.
    Open(usize),
    /// These bytes of the frame are added to the end of the long frame in the slot; then the frame is done with.
    Append {
        /// The slot.
        slot: usize,
        /// Which bytes of the frame.
        payload: Range<usize>,
        /// The frame was the last of its kind: the slot is to be closed now.
        close: bool,
    },
}

/// Which frames are coalesced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// UDP datagrams, too. Receivers that do not expect it lose the borders of datagrams only if nothing cuts
    /// the frame in front of them.
    pub udp: bool,
    /// Packets in tunnels, in PPPoE and behind labels (MPLS), too. Packets of different flows in a tunnel may then overtake each other.
    pub tunnels: bool,
    /// The longest frame that the caller can keep.
    pub longest: usize,
}

/// What is known of a frame.
struct Seen {
    levels: Levels,
    /// The headers; the bytes behind `len` have no meaning.
    head: [u8; MAX_HEADERS],
    len: usize,
    frame_len: usize,
}

/// A flow with an open frame.
#[derive(Clone, Copy, Debug)]
struct Open {
    levels: Levels,
    /// The headers of the first frame, and the same without the fields that may differ.
    head: [u8; MAX_HEADERS],
    blank: [u8; MAX_HEADERS],
    headers: usize,
    /// The payload of the first frame, and of the whole.
    size: usize,
    payload: usize,
    /// The number of frames, and when the first came.
    frames: u16,
    age: u64,
    /// The flags to be added to those of the first frame.
    last_flags: u8,
    /// By level, whether identifications stay the same.
    fixed: [bool; levels::MAX],
}

/// The flows of one batch.
#[derive(Clone, Debug)]
pub struct Table {
    open: [Option<Open>; Self::FLOWS],
    rules: Rules,
    age: u64,
}

impl Table {
    /// The number of slots. One is always free, if the caller closes what the steps say.
    pub const FLOWS: usize = 9;

    /// An empty table.
    #[must_use]
    pub const fn new(rules: Rules) -> Self {
        Self { open: [None; Self::FLOWS], rules, age: 0 }
    }

    /// The open slots, a bit for each.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.mask(|_| true)
    }

    /// The oldest open slot of `mask`: to close several in the order in which their frames came.
    #[must_use]
    pub fn oldest(&self, mask: u32) -> Option<usize> {
        let of_mask = |slot: &usize| mask & 1 << slot != 0;
        let open = (0..Self::FLOWS).filter(of_mask);
        open.filter_map(|slot| Some((self.open[slot]?.age, slot))).min().map(|(_, slot)| slot)
    }

    fn mask(&self, holds: impl Fn(&Open) -> bool) -> u32 {
        let open = self.open.iter().enumerate();
        open.filter(|(_, open)| open.as_ref().is_some_and(&holds)).map(|(slot, _)| 1 << slot).sum()
    }

    /// What to do with the Ethernet frame `frame`. `checked` if all its checksums are known to be good; else they
    /// are verified here. A frame with an unfinished offload is not offered.
    pub fn offer(&mut self, frame: &[u8], checked: bool) -> Step {
        let Some(seen) = Seen::of(frame) else {
            return Step { flush: self.near(frame), then: Then::Pass };
        };
        let same =
            self.open.iter().position(|open| open.as_ref().is_some_and(|o| o.is_flow(&seen)));
        // A tunnel that is damaged looks like a packet without one, and may be of any flow in it.
        let mixed = self.mask(|open| {
            open.levels.count() != seen.levels.count() && open.outermost() == seen.outermost()
        });
        let flush = mixed | same.map_or(0, |slot| 1 << slot);
        let Some(payload) = self.eligible(&seen, frame, checked) else {
            return Step { flush, then: Then::Pass };
        };
        if let Some(slot) = same
            && let Some(open) = &mut self.open[slot]
            && let Some(close) = open.append(&seen, payload.len(), self.rules.longest)
        {
            return Step { flush: mixed, then: Then::Append { slot, payload, close } };
        }
        if !seen.may_be_first() {
            return Step { flush, then: Then::Pass };
        }
        let Some(slot) = self.open.iter().position(Option::is_none) else {
            return Step { flush: self.slots(), then: Then::Pass };
        };
        let others = self.slots();
        self.age += 1;
        self.open[slot] = Some(seen.open(self.age));
        // Leave a slot free for the next frame.
        let is_full = flush == 0 && others.count_ones() as usize == Self::FLOWS - 1;
        let oldest = self.oldest(others).filter(|_| is_full);
        Step { flush: oldest.map_or(flush, |slot| 1 << slot), then: Then::Open(slot) }
    }

    /// Closes `slot`: completes the headers of its long frame `frame`, and returns what is left to do to it.
    /// A frame that is still alone is unchanged. `None` if the slot is not open, or has a frame of another length;
    /// then nothing is changed in the frame.
    pub fn close(&mut self, slot: usize, frame: &mut [u8]) -> Option<Offload> {
        let open = self.open.get_mut(slot)?.take()?;
        if frame.len() != open.headers + open.payload {
            return None;
        }
        if open.frames == 1 {
            return Some(Offload::NONE);
        }
        Some(open.finish(frame))
    }

    /// The slots of flows between the same outermost addresses as a frame that is not understood.
    fn near(&self, frame: &[u8]) -> u32 {
        let headers = Headers::parse(LinkType::Ethernet, frame);
        let (src, dst) = (headers.src_octets(frame), headers.dst_octets(frame));
        if src.is_empty() {
            return 0;
        }
        self.mask(|open| open.levels.get(0).net == headers.net && open.outermost() == (src, dst))
    }

    /// The payload of a frame that may be coalesced.
    fn eligible(&self, seen: &Seen, frame: &[u8], checked: bool) -> Option<Range<usize>> {
        let payload = seen.len..frame.len();
        let innermost = seen.levels.innermost();
        let is_tcp = innermost.upper == Upper::Tcp;
        let flags = if is_tcp { seen.head[innermost.l4() + 13] } else { ACK };
        let whole = frame.len() - seen.levels.outermost();
        let fits = !payload.is_empty()
            && (is_tcp || self.rules.udp)
            && (self.rules.tunnels || seen.levels.count() == 1 && is_plain(seen, frame))
            && flags & !(FIN | PSH | ACK | ECE | CWR) == 0
            && flags & ACK != 0
            && frame.len() <= self.rules.longest
            && whole <= usize::from(u16::MAX)
            && seen
                .levels
                .iter()
                .all(|level| level.net != Net::Ipv4 || level.l4() - level.l3() == 20);
        (fits && seen.is_exact(frame, checked)).then_some(payload)
    }
}

/// Whether nothing but VLAN tags is between Ethernet and IP: kernels cannot cut long frames with PPPoE or labels.
fn is_plain(seen: &Seen, frame: &[u8]) -> bool {
    let l3 = seen.levels.get(0).l3();
    matches!(tags::ether_type(frame), Some((0x0800 | 0x86dd, at)) if at == l3)
}

/// The source and destination of a level.
fn addresses<'a>(level: &Level, head: &'a [u8; MAX_HEADERS]) -> (&'a [u8], &'a [u8]) {
    let (at, len) =
        if level.net == Net::Ipv4 { (level.l3() + 12, 4) } else { (level.l3() + 8, 16) };
    let part = |at: usize| head.get(at..at + len).unwrap_or_default();
    (part(at), part(at + len))
}

impl Seen {
    /// The outermost addresses.
    fn outermost(&self) -> (&[u8], &[u8]) {
        addresses(self.levels.get(0), &self.head)
    }

    /// The innermost TCP or UDP header and all around it.
    fn of(frame: &[u8]) -> Option<Self> {
        let (levels, _) = Levels::walk(frame, |level| level.next == crate::Next::None).ok()?;
        let len = levels.innermost().l4() + levels.transport_len(frame);
        let mut head = [0; MAX_HEADERS];
        head.get_mut(..len)?.copy_from_slice(frame.get(..len)?);
        Some(Self { levels, head, len, frame_len: frame.len() })
    }

    /// Whether a first frame may have these flags; with FIN or PSH it would be the last, too.
    fn may_be_first(&self) -> bool {
        let innermost = self.levels.innermost();
        innermost.upper != Upper::Tcp || self.head[innermost.l4() + 13] & (FIN | PSH) == 0
    }

    fn open(self, age: u64) -> Open {
        let payload = self.frame_len - self.len;
        Open {
            levels: self.levels,
            head: self.head,
            blank: self.blank(),
            headers: self.len,
            size: payload,
            payload,
            frames: 1,
            age,
            last_flags: 0,
            fixed: [false; levels::MAX],
        }
    }

    /// The headers without the fields that may differ between frames of a flow.
    fn blank(&self) -> [u8; MAX_HEADERS] {
        let mut blank = self.head;
        let put = |blank: &mut [u8], at| levels::put(blank, at, 0);
        for level in self.levels.iter() {
            let (l3, l4) = (level.l3(), level.l4());
            match level.net {
                Net::Ipv4 => [2, 4, 10].iter().for_each(|at| put(&mut blank, l3 + at)),
                _ => put(&mut blank, l3 + 4),
            }
            if level.pppoe {
                put(&mut blank, l3 - 4);
            }
            match level.upper {
                Upper::Plain | Upper::Gre { sum: false } => {}
                Upper::Gre { sum: true } => put(&mut blank, l4 + 4),
                Upper::Udp(_) | Upper::Datagram => {
                    [4, 6].iter().for_each(|at| put(&mut blank, l4 + at));
                }
                Upper::Gtp(_) => [4, 6, 10].iter().for_each(|at| put(&mut blank, l4 + at)),
                Upper::Tcp => {
                    [4, 6, 16].iter().for_each(|at| put(&mut blank, l4 + at));
                    blank[l4 + 13] &= !(FIN | PSH | CWR);
                }
            }
        }
        blank
    }

    /// Whether segmentation would write the same lengths and checksums.
    fn is_exact(&self, frame: &[u8], checked: bool) -> bool {
        // Written anew from the lengths, every field must be as it is.
        let mut head = self.head;
        let Some(out) = head.get_mut(..self.len) else { return false };
        let innermost = self.levels.innermost();
        let (l4, is_tcp) = (innermost.l4(), innermost.upper == Upper::Tcp);
        let field = l4 + if is_tcp { 16 } else { 6 };
        let stored = levels::get(out, field);
        // Such a checksum would be absent, or not as we write it.
        if stored == if is_tcp { 0xffff } else { 0 } {
            return false;
        }
        let len = frame.len() - l4;
        let pseudo = self.pseudo();
        // What is behind the pseudo header sums up to its complement.
        let rest = Sum::ZERO.word(pseudo.word(len as u64).finish().into());
        // A source route has other addresses in its pseudo header.
        let is_plain = innermost.net == Net::Ipv4 || l4 - innermost.l3() == 40;
        if !checked || !is_plain {
            let sum = Sum::ZERO.bytes(&frame[l4..]);
            if pseudo.word(len as u64).plus(sum).finish() != 0 {
                return false;
            }
        }
        if !is_tcp && usize::from(levels::get(out, l4 + 4)) != len {
            return false;
        }
        self.levels.finish(out, frame.len(), rest, |_| 0);
        out == &frame[..self.len]
    }

    /// The sum of the innermost pseudo header without the length.
    fn pseudo(&self) -> Sum {
        pseudo(&self.levels, &self.head)
    }
}

/// The sum of the innermost pseudo header without the length.
fn pseudo(levels: &Levels, head: &[u8; MAX_HEADERS]) -> Sum {
    let innermost = levels.innermost();
    let (src, dst) = addresses(innermost, head);
    let proto = if innermost.upper == Upper::Tcp { 6 } else { 17 };
    Sum::ZERO.bytes(src).bytes(dst).word(proto)
}

impl Open {
    /// The outermost addresses.
    fn outermost(&self) -> (&[u8], &[u8]) {
        addresses(self.levels.get(0), &self.head)
    }

    /// Whether the frame is of this flow: the same addresses at each level, and the same ports.
    fn is_flow(&self, seen: &Seen) -> bool {
        let (ours, theirs) = (self.levels.innermost(), seen.levels.innermost());
        self.levels.count() == seen.levels.count()
            && ours.upper == theirs.upper
            && self.head[ours.l4()..][..4] == seen.head[theirs.l4()..][..4]
            && self.levels.iter().zip(seen.levels.iter()).all(|(a, b)| {
                a.net == b.net && addresses(a, &self.head) == addresses(b, &seen.head)
            })
    }

    /// Counts the frame in if it continues this one, and returns whether it must be the last.
    fn append(&mut self, seen: &Seen, payload: usize, longest: usize) -> Option<bool> {
        let whole = self.headers + self.payload + payload;
        let limit = usize::from(u16::MAX) + self.levels.outermost();
        if self.levels != seen.levels
            || seen.len != self.headers
            || self.blank != seen.blank()
            || payload > self.size
            || whole > longest.min(limit)
        {
            return None;
        }
        let l4 = self.levels.innermost().l4();
        let mut flags = 0;
        if self.levels.innermost().upper == Upper::Tcp {
            flags = seen.head[l4 + 13];
            let number = |head: &[u8; MAX_HEADERS]| {
                u32::from(levels::get(head, l4 + 4)) << 16 | u32::from(levels::get(head, l4 + 6))
            };
            let next = number(&self.head).wrapping_add(self.payload as u32);
            if flags & CWR != 0 || number(&seen.head) != next {
                return None;
            }
        } else if usize::from(self.frames) >= MAX_DATAGRAMS {
            return None;
        }
        let fixed = self.fixed_after(seen)?;
        self.fixed = fixed;
        self.frames += 1;
        self.payload += payload;
        self.last_flags = flags & (FIN | PSH);
        Some(payload < self.size || self.last_flags != 0)
    }

    /// By level, whether the identifications stay the same with this frame; `None` if they do neither. All
    /// tunnels must do the same, since an offload has one flag for them.
    fn fixed_after(&self, seen: &Seen) -> Option<[bool; levels::MAX]> {
        let mut fixed = self.fixed;
        let count = self.levels.count();
        let mut around = None;
        for (at, level) in self.levels.iter().enumerate().filter(|(_, l)| l.net == Net::Ipv4) {
            let id = |head: &[u8; MAX_HEADERS]| levels::get(head, level.l3() + 4);
            let step = id(&seen.head).wrapping_sub(id(&self.head));
            let dont_fragment = self.head[level.l3() + 6] & 0x40 != 0;
            if self.frames == 1 {
                fixed[at] = dont_fragment && step == 0;
            }
            if step != if fixed[at] { 0 } else { self.frames } {
                return None;
            }
            if at + 1 < count && *around.get_or_insert(fixed[at]) != fixed[at] {
                return None;
            }
        }
        Some(fixed)
    }

    /// Writes the headers of the long frame: lengths, flags, and a partial checksum.
    fn finish(&self, frame: &mut [u8]) -> Offload {
        let (innermost, len) = (*self.levels.innermost(), frame.len());
        let (l4, is_tcp) = (innermost.l4(), innermost.upper == Upper::Tcp);
        let Some((out, _)) = frame.split_at_mut_checked(self.headers) else { return Offload::NONE };
        let offset = if is_tcp { 16 } else { 6 };
        if is_tcp {
            out[l4 + 13] |= self.last_flags;
        } else {
            levels::put(out, l4 + 4, (len - l4) as u16);
        }
        let partial = pseudo(&self.levels, &self.head).word((len - l4) as u64).finish();
        levels::put(out, l4 + offset, !partial);
        // What a checksum around it covers is the complete packet.
        self.levels.finish(out, len, Sum::ZERO.word(partial.into()), |_| 0);
        let (segment, cwr) = match (is_tcp, innermost.net) {
            (true, Net::Ipv4) => (Segment::Tcp4, out[l4 + 13] & CWR),
            (true, _) => (Segment::Tcp6, out[l4 + 13] & CWR),
            (false, _) => (Segment::Udp, 0),
        };
        let last = self.levels.count() - 1;
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        Offload {
            segment,
            flags: Offload::PARTIAL
                | flag(cwr != 0, Offload::ECN)
                | flag(self.fixed[last], Offload::FIXED_ID)
                | flag(self.fixed[..last].contains(&true), Offload::FIXED_OUTER_ID),
            segment_bytes: self.size as u16,
            checksum_start: l4 as u16,
            checksum_offset: offset as u8,
            transport_len: (self.headers - l4) as u8,
        }
    }
}

/// The kernel's limit (`UDP_GRO_CNT_MAX`).
const MAX_DATAGRAMS: usize = 64;

#[cfg(test)]
mod tests;
