//! Sim: every core on one thread, in an order drawn from a seed, under a virtual clock. A failure is
//! reproduced by its seed.
//!
//! ```text
//!  seed ──> which core ticks next, how time goes on, who stalls, who dies
//!  every tick that gets something done ──> trace hash: same seed, same hash
//! ```
//!
//! A tick is the smallest step: between two ticks of a core, others see its open batch (if its work takes
//! time, or the core stalls), its queues, and its mailbox.
//!
//! Thread-safety: one thread.

use flowyard_frame::Nanos;
use flowyard_frame::Rng;

use crate::core::{Core, Tick};
use crate::counters::Counters;
use crate::{Places, Yard};

/// Faults, and how often they occur.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// One of N ticks is followed by a stall of its core; 0 for none.
    pub stall_every: u64,
    /// The longest stall.
    pub stall_ns: Nanos,
    /// One of N ticks kills its core, if other cores can do its work; 0 for none.
    pub death_every: u64,
    /// Time after which the open batch of a dead core is released.
    pub found_after_ns: Nanos,
}

/// An engine under a seed.
pub struct Sim {
    /// The engine.
    pub yard: Yard,
    /// The virtual time.
    pub now: Nanos,
    faults: Faults,
    rng: Rng,
    states: Vec<State>,
    trace: u64,
    /// Ticks since the last one that made progress.
    quiet: u64,
}

/// The state of a core in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Ticks from this time on.
    Alive(Nanos),
    /// Died; its frames are released at this time.
    Dead(Nanos),
    /// Died, and was released.
    Gone,
}

/// No core made progress for a long time although frames are inside.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("standstill at {now} ns: {inside} frames inside, {queues}; cores {cores}")]
pub struct Standstill {
    now: Nanos,
    inside: u64,
    queues: String,
    cores: String,
}

/// Ticks without progress after which the engine has stalled. Virtual time has then passed every fault
/// and every work.
const QUIET: u64 = 20_000;

/// The longest step of virtual time between two ticks.
const STEP: Nanos = 1000;

impl Sim {
    /// `yard` at time 0; all events are drawn from `seed`.
    #[must_use]
    pub fn new(yard: Yard, seed: u64, faults: Faults) -> Self {
        let states = vec![State::Alive(0); yard.cores.len()];
        let rng = Rng::new(seed);
        Self { yard, now: 0, faults, rng, states, trace: 0xcbf2_9ce4_8422_2325, quiet: 0 }
    }

    /// One tick of one core, and the faults after it. Returns the progress of the tick.
    pub fn step(&mut self) -> u32 {
        self.now += 1 + self.rng.below(STEP);
        let at = self.rng.below(self.states.len() as u64) as usize;
        let progress = match self.states[at] {
            State::Gone => 0,
            State::Alive(from) | State::Dead(from) if self.now < from => 0,
            State::Dead(_) => {
                self.yard.cores[at].release();
                self.states[at] = State::Gone;
                1
            }
            State::Alive(_) => {
                let progress = self.yard.cores[at].tick(self.now);
                self.fail(at);
                progress
            }
        };
        if progress == 0 {
            self.quiet += 1;
        } else {
            self.quiet = 0;
            self.record(at as u64);
            self.record(progress.into());
            self.record(self.now);
        }
        progress
    }

    /// Steps until every received frame has left or was dropped and no port will receive more.
    ///
    /// # Errors
    /// When the engine stalls before that.
    pub fn run(&mut self) -> Result<Counters, Standstill> {
        loop {
            self.step();
            if self.quiet > 0 && self.quiet.is_multiple_of(64) && self.is_drained() {
                return Ok(self.total());
            }
            if self.quiet > QUIET {
                return Err(self.standstill());
            }
        }
    }

    /// The sum of all cores' counters.
    #[must_use]
    pub fn total(&self) -> Counters {
        let counters = self.yard.cores.iter().map(Core::counters);
        counters.fold(Counters::default(), |sum, core| sum.plus(&core))
    }

    /// Number of cores that died.
    #[must_use]
    pub fn deaths(&self) -> usize {
        self.states.iter().filter(|state| !matches!(state, State::Alive(_))).count()
    }

    /// A hash of all events: which core made how much progress, and when.
    #[must_use]
    pub const fn trace(&self) -> u64 {
        self.trace
    }

    /// Adds `value` to the hash (FNV-1a, word by word).
    pub const fn record(&mut self, value: u64) {
        self.trace = (self.trace ^ value).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    }

    fn is_drained(&self) -> bool {
        self.yard.cores.iter().all(Core::has_ended) && self.total().inside() == 0
    }

    /// Draws the fault of core `at`.
    fn fail(&mut self, at: usize) {
        let Faults { stall_every, stall_ns, death_every, found_after_ns } = self.faults;
        let hit = |rng: &mut Rng, every: u64| every > 0 && rng.below(every) == 0;
        if hit(&mut self.rng, stall_every) {
            self.states[at] = State::Alive(self.now + self.rng.below(stall_ns + 1));
        }
        if hit(&mut self.rng, death_every) && self.is_spare(at as u16) {
            self.states[at] = State::Dead(self.now + found_after_ns);
        }
    }

    /// Whether the engine can continue without core `id`: the core has no port, and each of its queues has
    /// another consumer that is alive.
    fn is_spare(&self, id: u16) -> bool {
        let alive = |core: u16| {
            core != id && matches!(self.states.get(usize::from(core)), Some(State::Alive(_)))
        };
        let Places { queues, ports, .. } = &*self.yard.places;
        ports.iter().all(|port| !port.consumers.contains(&id))
            && (queues.iter().filter(|queue| queue.consumers.contains(&id)))
                .all(|queue| queue.consumers.iter().any(|&core| alive(core)))
    }

    fn standstill(&self) -> Standstill {
        let Places { queues, ports, .. } = &*self.yard.places;
        let holds = |place: &&crate::Place| !place.queue.is_empty();
        let tell = |place: &crate::Place| {
            let holder = place.queue.holder().map(|core| format!(" (core {core} has the oldest)"));
            format!("{} holds {}{}", place.name, place.queue.len(), holder.unwrap_or_default())
        };
        let full: Vec<_> = queues.iter().chain(ports).filter(holds).map(tell).collect();
        let queues = if full.is_empty() { "all queues empty".into() } else { full.join(", ") };
        let cores = format!("{:?}", self.states);
        Standstill { now: self.now, inside: self.total().inside(), queues, cores }
    }
}
