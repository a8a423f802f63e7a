//! Unfinished frames: checksums are completed and long frames are cut in front of the encryption, and of nothing else.
//!
//! ```text
//!  [a: long, to be sealed] [b: long, no policy] [c: partial checksum, to be sealed]
//!     │                        └──> router, as it is    └──> completed, sealed ──> router
//!     └──> cut: checksum, seal ──> router ──> [a1 .. a45] in the place of a
//! ```
//!
//! A segment is written to where its packet is encrypted, with the space of the tunnel's header in front of it. The segments
//! of a frame leave in its place as a chain (see the chains of `flowyard_pool`), with sequence numbers that follow each other.
//!
//! Invariant: what leaves is what would leave if the port had finished the frame, byte for byte.

use std::sync::atomic::Ordering::Relaxed;

use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, To};
use flowyard_pool::{Meta, NoBuffer, Pool};
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment, offload};
use flowyard_yard::DropReason;
use flowyard_yard::work::Work;

use super::{Ipsec, key_of, set_eth_type};
use crate::esp;
use crate::hub::{Class, Left, MOST, Run, Runs, Stamp, current_key, cut_of, packet_of};
use crate::ip::Ip;
use crate::sa::Mode;

/// What is needed to cut frames.
#[derive(Debug)]
pub(super) struct Cutter {
    pool: Pool,
    /// Segments on their way to the router.
    segments: Batch,
    /// Routed segments with their ports, in the order in which they leave.
    leaving: Vec<(Frame, u16)>,
    /// Segments of the frame that do not leave, and why the first of them does not.
    missing: usize,
    why: DropReason,
}

/// A long frame that is cut.
struct Long<'a> {
    bytes: &'a [u8],
    cut: Cut,
    /// Its IP header, at this offset. A frame whose header is damaged is none that is sealed as a whole.
    ip: Option<Ip>,
    l3: usize,
    meta: Meta,
    key: FlowKey,
}

/// Where the sequence numbers of segments come from.
enum Numbers {
    /// They were taken when the frame entered the queue.
    Runs([Run; 2]),
    /// They are taken for this policy.
    Policy(usize),
    /// Each segment is classified.
    Each,
}

impl Numbers {
    /// The first of the numbers that were taken.
    fn next(runs: &mut [Run; 2]) -> Stamp {
        let Some(run) = runs.iter_mut().find(|run| run.count > 0) else {
            return Stamp::Drop(DropReason::SaExpired);
        };
        let number = run.first;
        (run.first, run.count) = (number.wrapping_add(1), run.count - 1);
        Stamp::Number(run.sa, number)
    }
}

impl Cutter {
    fn new(pool: &Pool) -> Box<Self> {
        let (segments, leaving) = (Batch::default(), Vec::with_capacity(MOST));
        Box::new(Self {
            pool: pool.share(),
            segments,
            leaving,
            missing: 0,
            why: DropReason::NoBuffer,
        })
    }

    fn miss(&mut self, reason: DropReason) {
        if self.missing == 0 {
            self.why = reason;
        }
        self.missing += 1;
    }

    /// A buffer for `len` bytes, with what is known of the long frame.
    fn take(&mut self, len: usize, long: &Long<'_>) -> Result<Frame, DropReason> {
        let (offload, wire_len) = (Offload::NONE, len as u32);
        let meta = Meta { wire_len, offload, copied: 0, segments_sent: 0, ..long.meta };
        self.pool.take(len, meta).map_err(|error| match error {
            NoBuffer::TooLong => DropReason::TooLong,
            NoBuffer::Empty => DropReason::NoBuffer,
        })
    }

    /// Segment `n` as a frame.
    fn plain(&mut self, long: &Long<'_>, n: usize) -> Result<Frame, DropReason> {
        let mut frame = self.take(long.cut.len(n), long)?;
        long.cut.write(long.bytes, n, self.pool.bytes_mut(&mut frame));
        Ok(frame)
    }

    /// Ties the segments to the frame in `lane`, which takes the bytes of the last of them.
    fn tie(&mut self, batch: &mut Batch, lane: usize) -> Result<(), DropReason> {
        let missing = std::mem::take(&mut self.missing);
        let Some((last, port)) = self.leaving.pop() else { return Err(self.why) };
        let frame = &mut batch.frames[lane];
        let fits = self.pool.overwrite(frame, self.pool.bytes(&last));
        self.pool.put(last);
        if !fits {
            self.leaving.drain(..).for_each(|(segment, _)| self.pool.put(segment));
            return Err(DropReason::TooLong);
        }
        let mark = batch.actions[lane].mark;
        let mut action = Action { to: To::Port(port), counter: 0, mark };
        if !self.leaving.is_empty() || missing > 0 {
            for (segment, to) in self.leaving.drain(..).rev() {
                self.pool.tie(frame, segment, to);
            }
            let missing = u16::try_from(missing).unwrap_or(u16::MAX);
            self.pool.set_last(frame, port, (missing, self.why.code()));
            action.to = To::CHAIN;
        }
        batch.actions[lane] = action;
        Ok(())
    }
}

/// Completes the checksum of a frame that is not to be cut.
fn complete(frame: &mut Frame, pool: &Pool) -> Result<(), DropReason> {
    let meta = pool.meta(frame);
    let done = offload::complete(pool.bytes_mut(frame), meta.offload);
    pool.set_meta(frame, Meta { offload: Offload::NONE, ..meta });
    if done { Ok(()) } else { Err(DropReason::Malformed) }
}

impl Ipsec {
    /// As [`Ipsec::frame`], for an unfinished frame. A long frame that is sealed has its action already.
    #[cold]
    pub(super) fn unfinished(
        &mut self,
        batch: &mut Batch,
        lane: usize,
        pool: &Pool,
    ) -> Result<(), DropReason> {
        let (frame, key) = (&batch.frames[lane], batch.keys[lane]);
        let meta = pool.meta(frame);
        let bytes = pool.bytes(frame);
        let l3 = packet_of(bytes, meta.link)?;
        let key = current_key(&key, bytes.get(l3..).unwrap_or_default()).unwrap_or(key);
        let left = || self.hub.unfinished(bytes, l3, &key, meta.offload);
        if meta.offload.segment == Segment::None {
            let stamp = self.hub.stamp(pool, batch, lane);
            let left = if stamp == Stamp::None { left() } else { Left::Finish };
            return self.partial(&mut batch.frames[lane], &key, pool, (l3, stamp, left));
        }
        let numbers = match self.hub.runs(pool, batch, lane) {
            Runs::Drop(reason) => return Err(reason),
            Runs::Numbers(runs) => Numbers::Runs(runs),
            Runs::None => match left() {
                Left::Class(Class::Seal(policy)) => Numbers::Policy(policy),
                Left::Finish => Numbers::Each,
                Left::Class(class) => return self.passes(class),
            },
        };
        let mut cutter = self.cutter.take().unwrap_or_else(|| Cutter::new(pool));
        let frame = &batch.frames[lane];
        let done = self.cut(&mut cutter, frame, (l3, key, batch.actions[lane]), pool, numbers);
        let done = done.and_then(|()| cutter.tie(batch, lane));
        self.cutter = Some(cutter);
        done
    }

    /// A frame with a partial checksum. It has a stamp, or `left` says what is done with it.
    fn partial(
        &mut self,
        frame: &mut Frame,
        key: &FlowKey,
        pool: &Pool,
        (l3, stamp, left): (usize, Stamp, Left),
    ) -> Result<(), DropReason> {
        if let Left::Class(class) = left
            && !matches!(class, Class::Seal(_))
        {
            return self.passes(class);
        }
        self.hub.totals.checksums.fetch_add(1, Relaxed);
        complete(frame, pool)?;
        match left {
            Left::Class(Class::Seal(policy)) => self.seal_for(frame, pool, l3, (policy, key), true),
            _ if stamp == Stamp::None => {
                let key = key_of(pool.bytes(frame), key.in_port);
                self.single(frame, &key, pool, stamp)
            }
            _ => self.single(frame, key, pool, stamp),
        }
    }

    /// A frame whose packet is neither sealed nor opened.
    fn passes(&self, class: Class) -> Result<(), DropReason> {
        let totals = &self.hub.totals;
        let (total, done) = match class {
            Class::Drop(reason) => return Err(reason),
            Class::Keepalive => (&totals.keepalives, Err(DropReason::Taken)),
            Class::Ike => (&totals.ike, Ok(())),
            Class::Pass => (&totals.bypassed, Ok(())),
            Class::Open(..) | Class::Seal(_) => return Err(DropReason::Policy), // does not occur
        };
        total.fetch_add(1, Relaxed);
        done
    }

    /// [`Ipsec::frame`], which is compiled into the loop over finished frames.
    #[inline(never)]
    fn single(
        &mut self,
        frame: &mut Frame,
        key: &FlowKey,
        pool: &Pool,
        stamp: Stamp,
    ) -> Result<(), DropReason> {
        self.frame(frame, key, pool, stamp)
    }

    /// Cuts a frame; its segments are in `cutter.leaving` then.
    fn cut(
        &mut self,
        cutter: &mut Cutter,
        frame: &Frame,
        (l3, key, action): (usize, FlowKey, Action),
        pool: &Pool,
        mut numbers: Numbers,
    ) -> Result<(), DropReason> {
        let (bytes, meta) = (pool.bytes(frame), pool.meta(frame));
        let cut = cut_of(bytes, meta.offload)?;
        let packet = bytes.get(l3..).unwrap_or_default();
        let ip = Ip::parse(packet);
        if ip.is_some_and(|ip| !esp::has_right_sum(packet, &ip)) {
            return Err(DropReason::Malformed);
        }
        let long = Long { bytes, cut, ip, l3, meta, key };
        self.hub.totals.cut.fetch_add(1, Relaxed);
        self.hub.totals.segments.fetch_add(cut.count() as u64, Relaxed);
        for n in 0..cut.count() {
            let made = match &mut numbers {
                Numbers::Each => self.segment(cutter, &long, n),
                Numbers::Runs(runs) => self.sealed(cutter, &long, n, Numbers::next(runs)),
                Numbers::Policy(policy) => {
                    let stamp = self.hub.take(*policy, &key);
                    self.sealed(cutter, &long, n, stamp)
                }
            };
            match made {
                Ok(segment) => self.push(cutter, segment, &key, action),
                Err(reason) => cutter.miss(reason),
            }
        }
        self.route(cutter);
        Ok(())
    }

    /// Hands a segment to the router.
    fn push(&mut self, cutter: &mut Cutter, segment: Frame, key: &FlowKey, action: Action) {
        if let Ok(at) = cutter.segments.push(segment, *key) {
            cutter.segments.actions[at] = action;
        }
        if cutter.segments.len() == LANES {
            self.route(cutter);
        }
    }

    fn route(&mut self, cutter: &mut Cutter) {
        let Cutter { pool, segments, .. } = &mut *cutter;
        self.router.work(segments, pool, self.now);
        for lane in 0..cutter.segments.len() {
            let segment = std::mem::take(&mut cutter.segments.frames[lane]);
            match cutter.segments.actions[lane].to {
                To::Port(port) => cutter.leaving.push((segment, port)),
                to => {
                    cutter.pool.put(segment);
                    cutter.miss(match to {
                        To::Drop(code) => DropReason::of(code),
                        _ => DropReason::NoRoute,
                    });
                }
            }
        }
        cutter.segments.set_len(0);
    }

    /// Segment `n`, handled as a frame of its own.
    fn segment(
        &mut self,
        cutter: &mut Cutter,
        long: &Long<'_>,
        n: usize,
    ) -> Result<Frame, DropReason> {
        let mut frame = cutter.plain(long, n)?;
        let key = key_of(cutter.pool.bytes(&frame), long.key.in_port);
        match self.single(&mut frame, &key, &cutter.pool, Stamp::None) {
            Ok(()) => Ok(frame),
            Err(reason) => {
                cutter.pool.put(frame);
                Err(reason)
            }
        }
    }

    /// Segment `n`, sealed with the number of `stamp`.
    fn sealed(
        &mut self,
        cutter: &mut Cutter,
        long: &Long<'_>,
        n: usize,
        stamp: Stamp,
    ) -> Result<Frame, DropReason> {
        let Long { bytes, cut, ip, l3, .. } = *long;
        let (sa, number) = match stamp {
            Stamp::Number(sa, number) => (sa, number),
            Stamp::Drop(reason) => return Err(reason),
            Stamp::None => return Err(DropReason::NoSa),
        };
        let limit = self.hub.mtu;
        let (sa, tally) = self.sa(sa)?;
        let ip = Ip { total: cut.len(n) - l3, ..ip.ok_or(DropReason::Malformed)? };
        let plan = esp::plan_for(sa, ip)?;
        if plan.total() > limit {
            let mut frame = cutter.plain(long, n)?;
            let mtu = esp::inner_mtu(limit, &plan);
            let from = sa.config.src;
            return match self.too_big(&mut frame, &cutter.pool, l3, from, mtu, &plan) {
                Ok(()) => Ok(frame),
                Err(reason) => {
                    cutter.pool.put(frame);
                    Err(reason)
                }
            };
        }
        let mut frame = cutter.take(l3 + plan.total(), long)?;
        let out = cutter.pool.bytes_mut(&mut frame);
        let is_tunnel = sa.config.mode == Mode::Tunnel;
        // What stands in front of the inserted bytes moves to the front; they are written by `seal`.
        cut.write(bytes, n, &mut out[plan.head..]);
        let passes = !is_tunnel || esp::one_hop(&mut out[plan.head + l3..]);
        out.copy_within(plan.head..plan.head + l3 + plan.at, 0);
        let (front, packet) = out.split_at_mut(l3);
        let done = match passes {
            true => esp::seal(sa, number, &plan, packet, tally).map_err(DropReason::from),
            false => Err(DropReason::TtlExpired),
        };
        if let Err(reason) = done {
            cutter.pool.put(frame);
            return Err(reason);
        }
        if is_tunnel {
            set_eth_type(front, sa.config.dst.is_ipv6());
        }
        Ok(frame)
    }
}
