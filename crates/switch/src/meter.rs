//! Meters: rates that all cores share (OpenFlow 1.3.5, section 5.7).
//!
//! A band's bucket is one number: the time at which it would be full again (the virtual scheduling
//! algorithm of ITU-T I.371, which is equivalent to a token bucket). So cores share it by one
//! compare-and-swap. Only the cost of a frame is rounded, to 1/64 ns.
//!
//! ```text
//!   conforms:  full <= now,  or  full - now + cost <= depth         then full = max(full, now) + cost
//! ```
//!
//! A full bucket accepts a frame of any size. Without `OFPMF_BURST` a bucket holds a tenth of a second of
//! its rate.
//!
//! Invariants: of the bands that are exceeded, the one with the highest rate applies.
//! Thread-safety: all cores share the buckets without locks; when a meter changes, its [`Buckets`] are looked
//! up under a lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_openflow::change::Meter;
use flowyard_openflow::group::{Band, meter_flags};

/// Parts of a nanosecond.
const PARTS: u128 = 64;
const SECOND: u128 = 1_000_000_000;

/// The buckets of a meter's bands.
#[derive(Debug)]
pub(crate) struct Buckets(Box<[Bucket]>);

#[derive(Debug)]
struct Bucket {
    full: AtomicU64,
    /// The cost of a unit (a bit or a frame), times 2^32.
    unit: u128,
    depth: u64,
    rate: u32,
}

/// The buckets of every meter, with the number of the change that created them, which is equal on all cores.
pub(crate) type Shared = Arc<Mutex<HashMap<u32, (u64, Arc<Buckets>)>>>;

/// A meter on one core.
#[derive(Debug)]
pub(crate) struct Metering {
    pub(crate) meter: Arc<Meter>,
    buckets: Arc<Buckets>,
}

/// The result of a meter for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Pass,
    Drop,
    Remark(u8),
}

impl Buckets {
    fn new(meter: &Meter) -> Self {
        let flags = meter.config.flags;
        let bucket = |band: &Band| {
            let (rate, burst) = (u128::from(band.rate()), u128::from(band.burst()));
            let per_second = if flags & meter_flags::PKTPS != 0 { rate } else { rate * 1000 };
            let burst = if flags & meter_flags::BURST != 0 {
                (burst * SECOND * PARTS).checked_div(rate).unwrap_or(0)
            } else {
                SECOND / 10 * PARTS
            };
            Bucket {
                full: AtomicU64::new(0),
                unit: ((SECOND * PARTS) << 32).checked_div(per_second).unwrap_or(u128::MAX),
                depth: u64::try_from(burst).unwrap_or(u64::MAX),
                rate: band.rate(),
            }
        };
        Self(meter.config.bands.iter().map(bucket).collect())
    }
}

impl Bucket {
    /// Whether a frame of `units` conforms. If it does, its tokens are taken.
    fn take(&self, units: u128, now: u64) -> bool {
        if self.rate == 0 {
            return false;
        }
        let cost = u64::try_from((self.unit * units) >> 32).unwrap_or(u64::MAX);
        let now = now.saturating_mul(PARTS as u64);
        let pay = |full: u64| {
            let ahead = full.saturating_sub(now);
            let conforms = ahead == 0 || ahead.saturating_add(cost) <= self.depth;
            conforms.then(|| full.max(now).saturating_add(cost))
        };
        self.full.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok()
    }
}

impl Metering {
    /// The meter of change `number`.
    pub(crate) fn new(meter: &Arc<Meter>, number: u64, shared: &Shared) -> Self {
        let mut all = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Buckets::new(meter));
        let entry = all.entry(meter.config.meter).or_insert_with(|| (number, fresh()));
        if entry.0 < number {
            *entry = (number, fresh());
        }
        // If another core has already applied a later change, this core has buckets of its own until it does.
        let buckets = if entry.0 == number { Arc::clone(&entry.1) } else { fresh() };
        Self { meter: Arc::clone(meter), buckets }
    }

    /// The meter is gone on this core; with the last core, its buckets are, too.
    pub(crate) fn leave(self, shared: &Shared) {
        let mut all = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.meter.config.meter;
        let is_last = |buckets: &Arc<Buckets>| {
            Arc::ptr_eq(buckets, &self.buckets) && Arc::strong_count(buckets) == 2
        };
        if all.get(&number).is_some_and(|(_, buckets)| is_last(buckets)) {
            all.remove(&number);
        }
        drop(self); // under the lock, so that one core is the last
    }

    /// Applies the meter to a frame of `len` bytes on core `core`. It is counted as one frame; the rate in packets is
    /// that of the `packets` on a wire that it becomes.
    pub(crate) fn apply(&self, len: usize, packets: usize, core: usize, now: u64) -> Verdict {
        let (config, len) = (&self.meter.config, len as u64);
        if let Some(counts) = self.meter.counts.get(core) {
            counts.add(1, len, now);
        }
        let is_packets = config.flags & meter_flags::PKTPS != 0;
        let units = if is_packets { packets as u128 } else { u128::from(len) * 8 };
        let mut worst: Option<usize> = None;
        for (at, bucket) in self.buckets.0.iter().enumerate() {
            let higher = worst.is_none_or(|worst| self.buckets.0[worst].rate < bucket.rate);
            if !bucket.take(units, now) && higher {
                worst = Some(at);
            }
        }
        let Some(worst) = worst else { return Verdict::Pass };
        let cores = self.meter.counts.len();
        if let Some(counts) = self.meter.bands.get(worst * cores + core) {
            counts.add(1, len, now);
        }
        match config.bands.get(worst) {
            Some(Band::Drop { .. }) => Verdict::Drop,
            Some(Band::DscpRemark { levels, .. }) => Verdict::Remark(*levels),
            _ => Verdict::Pass,
        }
    }
}
