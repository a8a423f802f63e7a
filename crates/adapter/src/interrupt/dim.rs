//! Linux's dynamic interrupt moderation (`lib/dim/net_dim.c`): a walk over five profiles, in steps that measure 64
//! interrupts each.
//!
//! ```text
//!  parked on top ──traffic changed──> going left/right ──better: go on; worse: turn──> on top or at an edge: park
//!        └──────────────────────────<── ten steps without an end: parked tired, for as many measurements
//! ```

use flowyard_frame::Nanos;
use serde::Serialize;

/// Interrupts of a measurement (`DIM_NEVENTS`).
const EVENTS: u64 = 64;
/// Steps after which the walk is tired: twice the profiles.
const TIRED: u8 = 10;

/// From when the period of the profiles counts, and with which limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum DimMode {
    /// From the last event (`NET_DIM_RX_EQE_PROFILES`).
    Eqe,
    /// From the last completion (`NET_DIM_RX_CQE_PROFILES`). The model counts from the last interrupt in both.
    Cqe,
}

impl DimMode {
    /// The profiles: microseconds, and the frames that cause an interrupt earlier.
    #[must_use]
    pub const fn profiles(self) -> [(u16, u16); 5] {
        match self {
            Self::Eqe => [(1, 256), (8, 256), (64, 256), (128, 256), (256, 256)],
            Self::Cqe => [(2, 256), (8, 128), (16, 64), (32, 64), (64, 64)],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walk {
    Top,
    Tired,
    Right,
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Compared {
    Worse,
    Same,
    Better,
}

/// Bytes, packets and interrupts in a millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Rates {
    bytes: u64,
    packets: u64,
    events: u64,
}

impl Rates {
    /// How these rates compare with `before`: bytes count first, then packets, then fewer interrupts. A tenth is no difference.
    fn compare(self, before: Self) -> Compared {
        let differs = |now: u64, then: u64| 100 * now.abs_diff(then) / then > 10;
        let better = |is: bool| if is { Compared::Better } else { Compared::Worse };
        if before.bytes == 0 {
            return if self.bytes > 0 { Compared::Better } else { Compared::Same };
        }
        if differs(self.bytes, before.bytes) {
            return better(self.bytes > before.bytes);
        }
        if before.packets == 0 {
            return if self.packets > 0 { Compared::Better } else { Compared::Same };
        }
        if differs(self.packets, before.packets) {
            return better(self.packets > before.packets);
        }
        if before.events > 0 && differs(self.events, before.events) {
            return better(self.events < before.events);
        }
        Compared::Same
    }
}

/// The state of a vector.
#[derive(Clone, Copy, Debug)]
pub struct Dim {
    mode: DimMode,
    profile: usize,
    walk: Walk,
    right: u8,
    left: u8,
    tired: u8,
    before: Rates,
    /// The measurement: its start, and what came since.
    since: Option<Nanos>,
    events: u64,
    packets: u64,
    bytes: u64,
}

impl Dim {
    /// The walk starts at the second profile, going right.
    #[must_use]
    pub const fn new(mode: DimMode) -> Self {
        Self {
            mode,
            profile: 1, // NET_DIM_DEF_PROFILE_*
            walk: Walk::Right,
            right: 0,
            left: 0,
            tired: 0,
            before: Rates { bytes: 0, packets: 0, events: 0 },
            since: None,
            events: 0,
            packets: 0,
            bytes: 0,
        }
    }

    /// The number of the profile.
    #[must_use]
    pub const fn profile(&self) -> usize {
        self.profile
    }

    /// The interval of the profile.
    #[must_use]
    pub const fn interval(&self) -> Nanos {
        self.mode.profiles()[self.profile].0 as Nanos * 1000
    }

    /// The frames of the profile that cause an interrupt earlier.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.mode.profiles()[self.profile].1 as u64
    }

    /// An interrupt at `now` found this many frames and bytes.
    pub fn update(&mut self, now: Nanos, frames: u64, bytes: u64) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.events += 1;
        self.packets += frames;
        self.bytes += bytes;
        if self.events < EVENTS {
            return;
        }
        let micros = (now - since) / 1000;
        let rate = |count: u64| (count * 1000).div_ceil(micros.max(1));
        let rates =
            Rates { bytes: rate(self.bytes), packets: rate(self.packets), events: rate(EVENTS) };
        if micros > 0 {
            self.decide(rates);
        }
        self.since = Some(now);
        (self.events, self.packets, self.bytes) = (0, 0, 0);
    }

    fn decide(&mut self, now: Rates) {
        let was = self.walk;
        match self.walk {
            Walk::Top => {
                if now.compare(self.before) != Compared::Same {
                    self.leave_parking();
                }
            }
            Walk::Tired => {
                self.tired = self.tired.saturating_sub(1);
                if self.tired == 0 {
                    self.leave_parking();
                }
            }
            Walk::Right | Walk::Left => {
                if now.compare(self.before) != Compared::Better {
                    self.turn();
                }
                if self.is_on_top() {
                    self.park(Walk::Top);
                } else {
                    self.walk_on();
                }
            }
        }
        if was != Walk::Top || self.walk != Walk::Top {
            self.before = now;
        }
    }

    fn walk_on(&mut self) {
        if self.tired == TIRED {
            return self.park(Walk::Tired);
        }
        if !self.step() {
            self.park(Walk::Top);
        }
    }

    /// A step to the next profile; false at the edge.
    fn step(&mut self) -> bool {
        match self.walk {
            Walk::Top | Walk::Tired => {}
            Walk::Right if self.profile == 4 => return false,
            Walk::Left if self.profile == 0 => return false,
            Walk::Right => {
                self.profile += 1;
                self.right += 1;
            }
            Walk::Left => {
                self.profile -= 1;
                self.left += 1;
            }
        }
        self.tired += 1;
        true
    }

    fn leave_parking(&mut self) {
        self.walk = if self.profile > 0 { Walk::Left } else { Walk::Right };
        self.step();
    }

    fn turn(&mut self) {
        match self.walk {
            Walk::Right => (self.walk, self.left) = (Walk::Left, 0),
            Walk::Left => (self.walk, self.right) = (Walk::Right, 0),
            Walk::Top | Walk::Tired => {}
        }
    }

    const fn is_on_top(&self) -> bool {
        match self.walk {
            Walk::Top | Walk::Tired => true,
            Walk::Right => self.left > 1 && self.right == 1,
            Walk::Left => self.right > 1 && self.left == 1,
        }
    }

    const fn park(&mut self, walk: Walk) {
        (self.right, self.left) = (0, 0);
        if matches!(walk, Walk::Top) {
            self.tired = 0;
        }
        self.walk = walk;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixty-four interrupts, `gap` apart, with these frames each.
    fn measure(dim: &mut Dim, now: &mut Nanos, gap: Nanos, frames: u64) {
        for _ in 0..EVENTS {
            *now += gap;
            dim.update(*now, frames, frames * 1000);
        }
    }

    #[test]
    fn growing_traffic_walks_to_the_last_profile() {
        let (mut dim, mut now) = (Dim::new(DimMode::Eqe), 0);
        dim.update(0, 1, 1000);
        for frames in [1, 2, 4, 8] {
            measure(&mut dim, &mut now, 10_000, frames);
        }
        assert_eq!((dim.profile(), dim.interval(), dim.frames()), (4, 256_000, 256));
        assert_eq!(dim.walk, Walk::Top, "parked at the edge");
    }

    /// Traffic that no profile changes: the walk goes to and fro, is tired after ten steps, and rests for nine measurements.
    #[test]
    fn steady_traffic_tires_the_walk() {
        let (mut dim, mut now) = (Dim::new(DimMode::Cqe), 0);
        dim.update(0, 1, 1000);
        for _ in 0..10 {
            measure(&mut dim, &mut now, 10_000, 5);
            assert!(matches!(dim.profile(), 1 | 2) && dim.walk != Walk::Tired, "{dim:?}");
        }
        measure(&mut dim, &mut now, 10_000, 5);
        let parked = dim.profile();
        for _ in 0..9 {
            assert_eq!((dim.walk, dim.profile()), (Walk::Tired, parked));
            measure(&mut dim, &mut now, 10_000, 5);
        }
        measure(&mut dim, &mut now, 10_000, 5);
        assert_ne!(dim.walk, Walk::Tired);
    }

    #[test]
    fn rates_are_compared_by_bytes_then_packets_then_interrupts() {
        let rates = |bytes, packets, events| Rates { bytes, packets, events };
        let base = rates(100, 100, 100);
        for (now, compared) in [
            (rates(110, 1, 1), Compared::Worse), // packets decide: a tenth of bytes is no difference
            (rates(112, 1, 1), Compared::Better),
            (rates(88, 900, 1), Compared::Worse),
            (rates(100, 120, 900), Compared::Better),
            (rates(100, 100, 80), Compared::Better),
            (rates(100, 100, 120), Compared::Worse),
            (base, Compared::Same),
        ] {
            assert_eq!(now.compare(base), compared, "{now:?}");
        }
        assert_eq!(base.compare(Rates::default()), Compared::Better);
    }

    #[test]
    fn the_profile_is_always_one_of_five() {
        let (mut dim, mut now) = (Dim::new(DimMode::Eqe), 0);
        let mut random = flowyard_frame::Rng::new(1);
        for _ in 0..5000 {
            measure(&mut dim, &mut now, 1000 + random.bits() % 100_000, 1 + random.bits() % 50);
            assert!(dim.profile() < 5 && dim.tired <= TIRED, "{dim:?}");
        }
    }
}
