//! Interrupts: MSI-X vectors, their moderation (EITR), low-latency interrupts, and the adaptive moderation of drivers.
//!
//! ```text
//!  frame ─> queue ─> vector ─┬─ moderation timer runs? ── yes ──> waits until it ends ─┐
//!                            ├─ low latency, and credit ──────> at once ───────────────┼─> interrupt ─> timer starts
//!                            └─ no ───────────────────────────> at once ───────────────┘     └─> driver: next interval
//! ```
//!
//! EITR of the 82599: the interval is in bits 11:3 of the register in units of 2.048 us at 10 and 1 Gbit/s (0 is no
//! moderation), hence 488,281 to 956 interrupts a second; ixgbe treats the unit as 2 us (`IXGBE_ITR_ADAPTIVE_*`). The timer
//! starts with each interrupt, also with a low-latency one. LLI moderation (EITR.LLI_MOD) takes a credit for each
//! low-latency interrupt; there are at most 31 (five bits), and one is added in each interval of GPIE. Without a credit the
//! frame waits as any other.
//!
//! Not modelled: the time that the host needs to answer an interrupt, and polling (NAPI), during which no interrupt comes.
//! So the rates are the highest that moderation allows, and the latencies are those that moderation alone adds.
//!
//! Invariants: the interrupts of a vector are at least its interval apart, except for low-latency ones; a frame waits at
//! most one interval. Thread-safety: plain data, `&mut self`; time is an argument.

use flowyard_frame::Nanos;
use serde::Serialize;

mod dim;
mod ixgbe;

pub use dim::{Dim, DimMode};
pub use ixgbe::IxgbeItr;

/// The unit of the interval of the 82599, at 10 and 1 Gbit/s.
pub const EITR_UNIT: Nanos = 2048;
/// The largest interval: nine bits.
pub const EITR_MAX: u32 = 0x1ff;
/// The vectors of the 82599's physical function: 64, of which ixgbe keeps one for causes other than queues.
pub const VECTORS: u16 = 64;
/// The most credits of LLI moderation: five bits.
pub const CREDITS: u8 = 31;

/// The interval of EITR that is nearest below `wanted`, at least one unit; 0 stays 0.
#[must_use]
pub fn eitr_interval(wanted: Nanos) -> Nanos {
    match wanted {
        0 => 0,
        wanted => (wanted / EITR_UNIT).clamp(1, EITR_MAX.into()) * EITR_UNIT,
    }
}

/// How the interval of a vector is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Moderation {
    /// Always this interval; 0 is an interrupt for each frame.
    Fixed(Nanos),
    /// ixgbe's adaptive interrupt moderation (`ixgbe_update_itr`).
    Ixgbe,
    /// Linux's dynamic interrupt moderation (`lib/dim`), used by mlx5, bnxt, ena, virtio-net and others.
    Dim(DimMode),
}

/// A frame for a vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// When it arrives; never earlier than the one before.
    pub now: Nanos,
    /// Its length in bytes.
    pub bytes: u32,
    /// The queue, among those of the vector: an index for the statistics.
    pub queue: usize,
    /// Whether a filter asks for a low-latency interrupt.
    pub low_latency: bool,
}

/// What came of the frames of a queue.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct QueueWaits {
    /// Frames.
    pub frames: u64,
    /// The sum of the times that they waited for an interrupt.
    pub waited: u128,
    /// The longest such time.
    pub longest: Nanos,
}

/// One MSI-X vector with its moderation.
#[derive(Clone, Debug)]
pub struct Vector {
    driver: Driver,
    /// The interval of moderation.
    interval: Nanos,
    /// Until when no interrupt comes; `None` before the first.
    quiet_until: Option<Nanos>,
    /// When frames that wait arrived, by queue: number, sum of the times, and the earliest.
    waiting: Vec<Waiting>,
    waits: Vec<QueueWaits>,
    /// Frames and bytes since the last interrupt.
    frames: u64,
    bytes: u64,
    interrupts: u64,
    low_latency: u64,
    credits: Option<Credits>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    frames: u64,
    arrived: u128,
    earliest: Nanos,
}

/// The credits of LLI moderation.
#[derive(Clone, Copy, Debug)]
struct Credits {
    every: Nanos,
    left: u8,
    counted: Nanos,
}

impl Credits {
    /// Takes a credit if there is one.
    fn take(&mut self, now: Nanos) -> bool {
        let since = now.saturating_sub(self.counted);
        let new = since / self.every.max(1);
        self.counted += new * self.every.max(1);
        self.left = (u64::from(self.left) + new).min(CREDITS.into()) as u8;
        let has = self.left > 0;
        self.left -= u8::from(has);
        has
    }
}

#[derive(Clone, Debug)]
enum Driver {
    Fixed,
    Ixgbe(IxgbeItr),
    Dim(Dim),
}

impl Vector {
    /// A vector for `queues` queues. `credits_every` turns LLI moderation on: the interval in which a credit is added.
    #[must_use]
    pub fn new(moderation: Moderation, queues: usize, credits_every: Option<Nanos>) -> Self {
        let (driver, interval) = match moderation {
            Moderation::Fixed(interval) => (Driver::Fixed, interval),
            Moderation::Ixgbe => {
                let itr = IxgbeItr::default();
                let interval = itr.interval();
                (Driver::Ixgbe(itr), interval)
            }
            Moderation::Dim(mode) => {
                let dim = Dim::new(mode);
                let interval = dim.interval();
                (Driver::Dim(dim), interval)
            }
        };
        Self {
            driver,
            interval,
            quiet_until: None,
            waiting: vec![Waiting::default(); queues],
            waits: vec![QueueWaits::default(); queues],
            frames: 0,
            bytes: 0,
            interrupts: 0,
            low_latency: 0,
            credits: credits_every.map(|every| Credits { every, left: CREDITS, counted: 0 }),
        }
    }

    /// A frame arrives. Interrupts that are due before it come first.
    pub fn arrive(&mut self, arrival: Arrival) {
        let now = arrival.now;
        // The interrupt at the end of the interval covers a frame that arrives at this moment.
        self.until(now.saturating_sub(1));
        let Some(waiting) = self.waiting.get_mut(arrival.queue) else { return };
        if waiting.frames == 0 {
            waiting.earliest = now;
        }
        waiting.frames += 1;
        waiting.arrived += u128::from(now);
        self.frames += 1;
        self.bytes += u64::from(arrival.bytes);
        let is_quiet = self.quiet_until.is_some_and(|until| now < until);
        let at_once = arrival.low_latency
            && is_quiet
            && self.credits.as_mut().is_none_or(|credits| credits.take(now));
        self.low_latency += u64::from(at_once);
        let full = matches!(&self.driver, Driver::Dim(dim) if self.frames >= dim.frames());
        if !is_quiet || at_once || full {
            self.interrupt(now);
        }
    }

    /// Lets the time pass until `now`: an interrupt that is due comes.
    pub fn until(&mut self, now: Nanos) {
        if let Some(due) = self.quiet_until.filter(|due| *due <= now && self.frames > 0) {
            self.interrupt(due);
        }
    }

    /// Ends the observation: frames that still wait get the interrupt at the end of the interval.
    pub fn finish(&mut self) {
        self.until(Nanos::MAX);
    }

    fn interrupt(&mut self, at: Nanos) {
        for (waiting, waits) in self.waiting.iter_mut().zip(&mut self.waits) {
            let Waiting { frames, arrived, earliest } = std::mem::take(waiting);
            if frames > 0 {
                waits.frames += frames;
                waits.waited += u128::from(at) * u128::from(frames) - arrived;
                waits.longest = waits.longest.max(at - earliest);
            }
        }
        self.interrupts += 1;
        let (frames, bytes) = (std::mem::take(&mut self.frames), std::mem::take(&mut self.bytes));
        match &mut self.driver {
            Driver::Fixed => {}
            Driver::Ixgbe(itr) => {
                itr.update(at, frames, bytes);
                self.interval = itr.interval();
            }
            Driver::Dim(dim) => {
                dim.update(at, frames, bytes);
                self.interval = dim.interval();
            }
        }
        self.quiet_until = Some(at.saturating_add(self.interval));
    }

    /// Interrupts so far.
    #[must_use]
    pub const fn interrupts(&self) -> u64 {
        self.interrupts
    }

    /// Interrupts that came before the end of the interval for a low-latency frame.
    #[must_use]
    pub const fn low_latency(&self) -> u64 {
        self.low_latency
    }

    /// The interval of moderation now.
    #[must_use]
    pub const fn interval(&self) -> Nanos {
        self.interval
    }

    /// The waits of each queue.
    #[must_use]
    pub fn waits(&self) -> &[QueueWaits] {
        &self.waits
    }
}

#[cfg(test)]
mod tests;
