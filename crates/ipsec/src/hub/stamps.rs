//! The numbers of frames in an ordered queue.
//!
//! ```text
//!  look: which policy? ──> [ lock: number: the next sequence number of an SA ] ──> stamp of the frame's buffer
//! ```
//!
//! A stamp belongs to a buffer of the pool while its frame is in the ordered queue. Every frame that enters the queue gets
//! one, so an old stamp is never used (`docs/decisions/0069-sequence-numbers-of-one-tunnel.md`). A long frame, which is cut
//! into several packets before they are sealed, gets a number for each: a run of one SA, and if that ends, a run of the
//! next one.
//!
//! Thread-safety: any thread. A stamp is used by the core that has the frame; the queue orders its accesses.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowyard_frame::{Batch, FlowKey, Lanes};
use flowyard_pool::Pool;
use flowyard_wire::Segment;
use flowyard_yard::{Arrivals, DropReason};

use super::{Class, IpsecHub, Left, current_key, cut_of, packet_of};
use crate::sa::{Mode, Sa};

/// The SA and the number of a frame, or why it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamp {
    /// The frame is not one to be sealed.
    None,
    /// It is sealed with this SA and number.
    Number(usize, u64),
    /// It is dropped.
    Drop(DropReason),
}

/// Numbers of one SA that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Run {
    pub(crate) sa: usize,
    pub(crate) first: u64,
    pub(crate) count: u32,
}

/// The numbers of a long frame, or why it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    /// The frame is not one to be sealed as a whole.
    None,
    /// Its segments are sealed with these numbers.
    Numbers([Run; 2]),
    /// It is dropped.
    Drop(DropReason),
}

/// Stamps in the first word: none, a reason behind [`DROP`], a policy behind [`POLICY`], or the number of an SA from
/// [`FIRST`] on. Policies and SAs of long frames have the number of segments from bit [`COUNT`] on.
const NONE: u64 = 0;
const DROP: u64 = 1 << 62;
const POLICY: u64 = 1 << 61;
const FIRST: u64 = 1;
const COUNT: u32 = 32;

/// The low half of a word, and the number of segments.
const fn parts(word: u64) -> (u64, u32) {
    (word & 0xffff_ffff, (word >> COUNT) as u32 & 0xffff)
}

/// The SA or the policy, and the first number.
type Cells = [AtomicU64; 2];

/// The stamps of all buffers.
#[derive(Debug)]
pub(super) struct Stamps {
    /// By position in the pool.
    first: Box<[Cells]>,
    /// The second run of a long frame.
    second: Box<[Cells]>,
}

impl Stamps {
    pub(super) fn new(buffers: usize) -> Self {
        let all = || (0..buffers).map(|_| Default::default()).collect();
        Self { first: all(), second: all() }
    }
}

fn write(cells: &Cells, run: Run) {
    cells[1].store(run.first, Relaxed);
    let word = if run.count == 0 {
        NONE
    } else {
        (u64::from(run.count) << COUNT) | (run.sa as u64 + FIRST)
    };
    cells[0].store(word, Relaxed);
}

fn read(cells: &Cells) -> Run {
    match parts(cells[0].load(Relaxed)) {
        (_, 0) => Run::default(),
        (sa, count) => Run { sa: (sa - FIRST) as usize, first: cells[1].load(Relaxed), count },
    }
}

impl IpsecHub {
    /// Whether frames get a stamp before they are worked on.
    pub(crate) fn has_stamps(&self) -> bool {
        !self.stamps.first.is_empty()
    }

    /// The stamp of the frame of `lane`, which is not a long one.
    pub(crate) fn stamp(&self, pool: &Pool, batch: &Batch, lane: usize) -> Stamp {
        let Some(cells) = self.cells(pool, batch, lane) else { return Stamp::None };
        let word = cells[0].load(Relaxed);
        match word {
            NONE => Stamp::None,
            word if word & DROP != 0 => Stamp::Drop(DropReason::of(word as u16)),
            word if word & POLICY != 0 => Stamp::None, // not numbered: does not occur
            word => Stamp::Number((word - FIRST) as usize, cells[1].load(Relaxed)),
        }
    }

    /// The numbers of the long frame of `lane`.
    pub(crate) fn runs(&self, pool: &Pool, batch: &Batch, lane: usize) -> Runs {
        let Some(at) = self.place(pool, batch, lane) else { return Runs::None };
        let word = self.stamps.first[at][0].load(Relaxed);
        match parts(word) {
            _ if word & DROP != 0 => Runs::Drop(DropReason::of(word as u16)),
            _ if word & POLICY != 0 => Runs::None, // not numbered: does not occur
            (_, 0) => Runs::None,
            _ => Runs::Numbers([read(&self.stamps.first[at]), read(&self.stamps.second[at])]),
        }
    }

    fn place(&self, pool: &Pool, batch: &Batch, lane: usize) -> Option<usize> {
        pool.position(&batch.frames[lane]).filter(|at| *at < self.stamps.first.len())
    }

    fn cells(&self, pool: &Pool, batch: &Batch, lane: usize) -> Option<&Cells> {
        self.stamps.first.get(pool.position(&batch.frames[lane])?)
    }

    /// Takes up to `count` numbers for packets of an outbound policy.
    fn take_run(&self, policy: usize, key: &FlowKey, count: u32) -> Result<Run, DropReason> {
        let (sa, (first, count)) = self.taken(policy, key, |sa| sa.take_run(count))?;
        Ok(Run { sa, first, count })
    }

    /// Takes a number of the first usable SA of an outbound policy.
    pub(crate) fn take(&self, policy: usize, key: &FlowKey) -> Stamp {
        match self.taken(policy, key, Sa::take) {
            Ok((sa, number)) => Stamp::Number(sa, number),
            Err(reason) => Stamp::Drop(reason),
        }
    }

    /// Takes of the first usable SA of an outbound policy. In transport mode the addresses are those of the SA.
    #[inline]
    fn taken<T>(
        &self,
        policy: usize,
        key: &FlowKey,
        take: impl Fn(&Sa) -> Option<T>,
    ) -> Result<(usize, T), DropReason> {
        let mut ended = None;
        for &number in self.carriers.get(policy).map_or(&[][..], Vec::as_slice) {
            let sa = &self.sas[number];
            let ends = (Some(sa.config.src), Some(sa.config.dst));
            if sa.config.mode == Mode::Transport && (key.src_ip(), key.dst_ip()) != ends {
                continue;
            }
            if let Some(taken) = take(sa) {
                return Ok((number, taken));
            }
            ended = Some(sa);
        }
        let Some(sa) = ended else { return Err(DropReason::NoSa) };
        sa.counts.expired.fetch_add(1, crate::sync::Ordering::Relaxed);
        Err(DropReason::SaExpired)
    }

    /// The word of an unfinished frame that is about to enter.
    #[cold]
    fn look_unfinished(&self, pool: &Pool, batch: &Batch, lane: usize) -> u64 {
        let frame = &batch.frames[lane];
        let (bytes, meta) = (pool.bytes(frame), pool.meta(frame));
        let Ok(l3) = packet_of(bytes, meta.link) else { return NONE };
        let key = &batch.keys[lane];
        let current = current_key(key, bytes.get(l3..).unwrap_or_default());
        let left = self.unfinished(bytes, l3, current.as_ref().unwrap_or(key), meta.offload);
        let Left::Class(Class::Seal(policy)) = left else {
            return NONE;
        };
        if meta.offload.segment == Segment::None {
            return POLICY | policy as u64;
        }
        match cut_of(bytes, meta.offload) {
            Ok(cut) => POLICY | (cut.count() as u64) << COUNT | policy as u64,
            Err(reason) => DROP | u64::from(reason.code()),
        }
    }

    /// Numbers the segments of a long frame. A frame that needs a third SA, because the second has fewer numbers than the
    /// frame has segments, is sealed as far as the first two suffice.
    #[cold]
    fn number_long(&self, at: usize, key: &FlowKey, (policy, count): (u64, u32)) {
        let (first, second) = (&self.stamps.first[at], &self.stamps.second[at]);
        let policy = policy as usize;
        match self.take_run(policy, key, count) {
            Ok(run) => {
                let rest = count - run.count;
                let other = if rest == 0 { None } else { self.take_run(policy, key, rest).ok() };
                write(first, run);
                write(second, other.unwrap_or_default());
            }
            Err(reason) => first[0].store(DROP | u64::from(reason.code()), Relaxed),
        }
    }
}

/// As [`current_key`], for the frame of `lane`.
fn current_key_of(pool: &Pool, batch: &Batch, lane: usize) -> Option<FlowKey> {
    let frame = &batch.frames[lane];
    let bytes = pool.bytes(frame);
    let l3 = packet_of(bytes, pool.meta(frame).link).ok()?;
    current_key(&batch.keys[lane], bytes.get(l3..)?)
}

impl Arrivals for IpsecHub {
    fn look(&self, pool: &Pool, batch: &Batch, lanes: Lanes) {
        for lane in lanes {
            let Some(cells) = self.cells(pool, batch, lane) else { continue };
            let frame = &batch.frames[lane];
            let (bytes, meta) = (pool.bytes(frame), pool.meta(frame));
            if !meta.offload.is_none() {
                cells[0].store(self.look_unfinished(pool, batch, lane), Relaxed);
                continue;
            }
            // Frames that are not sealed are looked at again by the core that works on them.
            let class = packet_of(bytes, meta.link).map(|l3| {
                let (packet, key) = (bytes.get(l3..).unwrap_or_default(), &batch.keys[lane]);
                self.classify(packet, current_key(key, packet).as_ref().unwrap_or(key))
            });
            let word = match class {
                Ok(Class::Seal(policy)) => POLICY | policy as u64,
                _ => NONE,
            };
            cells[0].store(word, Relaxed);
        }
    }

    fn number(&self, pool: &Pool, batch: &Batch, lanes: Lanes) {
        for lane in lanes {
            let Some(at) = self.place(pool, batch, lane) else { continue };
            let cells = &self.stamps.first[at];
            let word = cells[0].load(Relaxed);
            if word & POLICY == 0 {
                continue;
            }
            let (policy, count) = parts(word);
            let current = if self.has_transport { current_key_of(pool, batch, lane) } else { None };
            let key = current.as_ref().unwrap_or(&batch.keys[lane]);
            if count > 0 {
                self.number_long(at, key, (policy, count));
                continue;
            }
            let word = match self.take(policy as usize, key) {
                Stamp::Number(sa, number) => {
                    cells[1].store(number, Relaxed);
                    sa as u64 + FIRST
                }
                Stamp::Drop(reason) => DROP | u64::from(reason.code()),
                Stamp::None => NONE,
            };
            cells[0].store(word, Relaxed);
        }
    }

    fn refused(&self, pool: &Pool, batch: &Batch, lanes: Lanes) {
        // The last first: only the numbers that were taken last can be given back. If a core has taken some since, there is
        // a gap, which receivers accept.
        for lane in (0..batch.len()).rev().filter(|&lane| lanes.has(lane)) {
            let Some(at) = self.place(pool, batch, lane) else { continue };
            if let Runs::Numbers([first, second]) = self.runs(pool, batch, lane) {
                for run in [second, first].into_iter().filter(|run| run.count > 0) {
                    let _gap = self.sas[run.sa].give_back_run(run.first, run.count);
                }
            } else if let Stamp::Number(sa, number) = self.stamp(pool, batch, lane) {
                let _gap = self.sas[sa].give_back(number);
            }
            self.stamps.first[at][0].store(NONE, Relaxed);
        }
    }
}
