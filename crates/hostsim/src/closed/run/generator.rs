//! Clients in an open loop: a generator on each processor, whose requests are due at times that do not depend on the
//! answers.
//!
//! ```text
//!  turn ──> send each request that is due ──> ppoll: an answer, or the time of the next one ──> epoll_wait ──┐
//!   ^                                                                                                        │
//!   └─────────────────────────── read the answers of each connection that it returned <─────────────────────┘
//! ```
//!
//! A request that is sent late keeps the time at which it was due, so its latency contains the time for which the
//! generator did not run.

use flowyard_frame::{Nanos, Rng};
use hdrhistogram::Histogram;

use super::{Chunk, Event, Run};

/// The largest number of events that one `epoll_wait` of the generator returns.
const EPOLL_MAX: usize = 64;

/// The longest latency that is distinguished, in nanoseconds: more than a run lasts.
const LONGEST: Nanos = 1 << 40;

/// When requests are sent.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// One of each client; the next after the answer.
    Closed,
    /// At random times.
    Open(Generator),
}

impl Load {
    /// The client thread `number` before its first turn.
    pub(super) fn begin(&self, seed: u64, number: usize) -> Paced {
        let mut paced =
            Paced { rng: Rng::new(!(seed ^ ((number as u64) << 32))), ..Paced::default() };
        if let Self::Open(load) = self {
            paced.draw(load);
        }
        paced
    }
}

/// A generator thread: its costs in nanoseconds, and its load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generator {
    /// Building a request, without the system call.
    pub(crate) ask: Nanos,
    /// Checking an answer, without the system call.
    pub(crate) take: Nanos,
    /// A turn of the loop, without requests and system calls.
    pub(crate) turn: Nanos,
    /// A `ppoll` that does not wait.
    pub(crate) poll: Nanos,
    /// A `ppoll` that an answer ends before its timer expires, besides sleep and wake-up.
    pub(crate) armed: Nanos,
    /// A `ppoll` that a timer ends while the processor runs another thread, and while it is idle.
    pub(crate) timer: Nanos,
    pub(crate) idle_poll: Nanos,
    /// From the time of a timer until an idle processor has returned from that `ppoll`.
    pub(crate) idle_timer: Nanos,
    /// Requests per second of each thread.
    pub(crate) rate: f64,
    /// Requests that are due from then on are measured; the last one is due before then.
    pub(crate) time: [Nanos; 2],
}

/// What a generator does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Turn,
    Ask,
    List,
}

/// The state of a generator thread.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    rng: Rng,
    step: Step,
    /// When the next request is due, exactly: rounded gaps would change the rate.
    exact: f64,
    due: Nanos,
    /// When the turn began: requests that are due later are sent in the next one.
    now: Nanos,
    /// Number of waits; a timer belongs to one of them.
    waits: u64,
    /// What the end of the last wait by a timer costs, behind what every wait costs.
    timer_ns: Nanos,
}

impl Default for Paced {
    fn default() -> Self {
        Self {
            rng: Rng::new(0),
            step: Step::Turn,
            exact: 0.0,
            due: 0,
            now: 0,
            waits: 0,
            timer_ns: 0,
        }
    }
}

impl Paced {
    /// Draws when the next request is due: after an exponential gap.
    fn draw(&mut self, load: &Generator) {
        self.exact += -(1.0 - self.rng.unit()).ln() * 1e9 / load.rate;
        self.due = if self.exact < load.time[1] as f64 { self.exact as Nanos } else { Nanos::MAX };
    }
}

/// What came of the measured requests of an open loop.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Requests that were due in the measured time.
    pub(crate) due: u64,
    /// Answers that were read in the measured time.
    pub(crate) answers: u64,
    /// From the time at which a request was due until its answer was read.
    pub(crate) latency: Histogram<u64>,
    pub(crate) latency_sum: u128,
}

impl Default for Tally {
    fn default() -> Self {
        // The library accepts these bounds and digits.
        let latency = Histogram::new_with_bounds(1, LONGEST, 3);
        let latency = latency.unwrap_or_else(|_| unreachable!());
        Self { due: 0, answers: 0, latency, latency_sum: 0 }
    }
}

impl Run<'_> {
    /// The next chunk of a generator.
    pub(super) fn generate(&mut self, load: &Generator, number: usize, cpu: u16) -> (Chunk, Nanos) {
        let costs = self.of.costs;
        if let Some(&conn) = self.threads[number].named.front() {
            let take = self.ops(conn).take;
            let state = &mut self.conns[conn];
            state.taking = std::mem::take(&mut state.answers);
            return (Chunk::Take(conn), take + state.taking as Nanos * load.take);
        }
        let own = &mut self.threads[number];
        match own.paced.step {
            Step::Turn => (Chunk::Turn(number), load.turn),
            Step::Ask if own.paced.due <= own.paced.now => {
                let due = own.paced.due;
                own.paced.draw(load);
                self.tally.due += u64::from(due >= load.time[0]);
                let (chunk, ns) = self.ask(number, cpu);
                if let Chunk::Ask(conn) = chunk {
                    self.conns[conn].due.push_back(due);
                }
                (chunk, load.ask + ns)
            }
            Step::Ask if own.ready.is_empty() => (Chunk::Wait(number), load.armed),
            Step::Ask => (Chunk::Wait(number), load.poll),
            Step::List => {
                let events = own.ready.len().min(EPOLL_MAX) as Nanos;
                let timer = std::mem::take(&mut own.paced.timer_ns);
                (Chunk::List(number), timer + costs.epoll + events * costs.event)
            }
        }
    }

    pub(super) fn turned(&mut self, number: usize) {
        let now = self.events.now();
        let own = &mut self.threads[number].paced;
        (own.now, own.step) = (now, Step::Ask);
    }

    /// Lets a generator sleep if it has no answers and nothing is due. The time to sleep counts from the end of the
    /// system call, but was computed when the turn began, as in the generator.
    pub(super) fn waited(&mut self, number: usize, cpu: u16) {
        let own = &mut self.threads[number];
        own.paced.step = Step::List;
        if own.ready.is_empty() {
            own.paced.waits += 1;
            if own.paced.due < Nanos::MAX {
                let sleep = own.paced.due.saturating_sub(own.paced.now);
                self.events.after(sleep, Event::Timer(number, own.paced.waits));
            }
            self.sleep(number, cpu);
        }
    }

    /// The timer of a wait expires.
    pub(super) fn expire(&mut self, number: usize, wait: u64) {
        let super::Load::Open(load) = &self.of.load else { return };
        let is_idle = self.is_idle(self.threads[number].cpu);
        let own = &mut self.threads[number];
        if own.asleep && own.paced.waits == wait {
            let all = if is_idle { load.idle_poll } else { load.timer };
            let rest = all.saturating_sub(load.armed);
            own.paced.timer_ns = rest;
            // The latency of a timer contains what the thread pays for the end of its wait.
            self.wake_after(load.idle_timer.saturating_sub(rest), number);
        }
    }

    pub(super) fn listed(&mut self, number: usize) {
        let own = &mut self.threads[number];
        let events = own.ready.len().min(EPOLL_MAX);
        own.named.extend(own.ready.drain(..events));
        own.paced.step = Step::Turn;
    }

    /// Records the latencies of the answers that a generator has read.
    pub(super) fn record(&mut self, conn: usize) {
        let super::Load::Open(load) = &self.of.load else { return };
        let [from, until] = load.time;
        let now = self.events.now();
        let state = &mut self.conns[conn];
        for _ in 0..std::mem::take(&mut state.taking) {
            self.read += 1;
            self.tally.answers += u64::from((from..until).contains(&now));
            let Some(due) = state.due.pop_front() else { continue };
            if due >= from {
                self.tally.latency.saturating_record((now - due).max(1));
                self.tally.latency_sum += u128::from(now - due);
            }
        }
    }
}
