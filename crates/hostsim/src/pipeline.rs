//! The yard's cores and queues, or a load balancer's: one flow, one core or many, order kept.
//!
//! ```text
//!  source ─> receive ─> [ ordered queue, window ] ─> work ─> commit in order ─> [ tx queue ] ─> transmit
//!            core a                                  cores b..               core z
//! ```
//!
//! Each core is a loop: receive a batch if it has the port, serve a batch if it works, transmit if it has
//! the exit. A core whose port gave a full batch leaves the queue alone until the other workers have two
//! batches each (decision 0033). A batch costs frames times the sum of its stages, on that core: what a frame costs a core
//! depends on whether another core touched it last, so each [`Role`] has its own [`Stages`]. A frame
//! that finds the window full is held, and its core receives no more until it fits.
//!
//! Invariants: dequeued <= entered; committed <= dequeued; entered - committed <= window; frames leave
//! in the order they entered. Thread-safety: a run is one value on one thread.

use std::collections::VecDeque;

use flowyard_frame::Nanos;
use serde::Serialize;

use crate::events::Events;

/// What a frame costs in each stage, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stages {
    /// Port to settled: rx, parse, steer, settle.
    pub rx: f64,
    /// Into the queue.
    pub enqueue: f64,
    /// Out of it.
    pub dequeue: f64,
    /// The work.
    pub work: f64,
    /// Done bits, and the commit.
    pub complete: f64,
    /// Out of the tx queue, to the port.
    pub tx: f64,
}

/// What a core does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Role {
    /// It has the port where frames come in.
    pub receives: bool,
    /// It is a consumer of the queue.
    pub works: bool,
    /// It has the port where they leave.
    pub transmits: bool,
    /// What frames cost it.
    pub stages: Stages,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pipeline {
    /// The cores.
    pub roles: Vec<Role>,
    /// Frames of a batch.
    pub batch: u64,
    /// Frames of the queue's window.
    pub window: u64,
    /// Frames of the tx queue.
    pub tx_window: u64,
    /// A tick in which there was nothing to do, in nanoseconds.
    pub idle: Nanos,
    /// A core that was away for so long takes another batch at its ports, in nanoseconds.
    pub away: Nanos,
    /// The most batches it takes then.
    pub rounds: u64,
    /// Frames offered a second, evenly; `None` is as many as are taken.
    pub offered_pps: Option<f64>,
    /// Descriptors of the receive ring.
    pub ring: u64,
    /// Time before measuring and time measured, in nanoseconds.
    pub time: [Nanos; 2],
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// Frames transmitted a second.
    pub pps: f64,
    /// Frames lost to a full ring, whole run.
    pub dropped: u64,
    /// Busy share of each core.
    pub busy: Vec<f64>,
    /// Whole run: frames taken from the port, transmitted, and still inside as counted.
    pub books: [u64; 3],
}

impl Flow {
    /// Whether every frame that was taken left or is still inside.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.books[0] == self.books[1] + self.books[2]
    }
}

/// Where a core is in its tick.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// A tick begins.
    Begin,
    /// So many frames received; so many batches may follow.
    Received(u64, u64),
    /// So many frames worked on, the first with this ticket.
    Served(u64, u64),
    /// So many frames transmitted; so many batches may follow.
    Sent(u64, u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Core {
    tick_began: Nanos,
    rounds: u64,
    busy_this_tick: bool,
    /// Its port gave a full batch in this tick: there may be more.
    pressed: bool,
    held: u64,
    busy: Nanos,
}

struct Run<'a> {
    of: &'a Pipeline,
    events: Events<(usize, Step)>,
    cores: Vec<Core>,
    /// Frames taken from the port, entered, dequeued, committed to the tx queue, dequeued there, sent.
    taken: u64,
    entered: u64,
    dequeued: u64,
    committed: u64,
    tx_taken: u64,
    sent: u64,
    dropped: u64,
    /// Which tickets from `committed` on are done.
    done: VecDeque<bool>,
}

impl Pipeline {
    /// The yard's: batches of 32, a window of 512, as `flowyard bench engine` sets it up.
    #[must_use]
    pub const fn yard(roles: Vec<Role>) -> Self {
        Self {
            roles,
            batch: 32,
            window: 512,
            tx_window: 256,
            idle: 100,
            away: 4_000,
            rounds: 8,
            offered_pps: None,
            ring: 1024,
            time: [2_000_000, 20_000_000],
        }
    }

    /// Runs it. Without a core that receives or works or transmits, nothing leaves.
    #[must_use]
    pub fn run(&self) -> Flow {
        let mut run = Run {
            of: self,
            events: Events::default(),
            cores: vec![Core::default(); self.roles.len()],
            taken: 0,
            entered: 0,
            dequeued: 0,
            committed: 0,
            tx_taken: 0,
            sent: 0,
            dropped: 0,
            done: VecDeque::new(),
        };
        for core in 0..self.roles.len() {
            run.events.at(0, (core, Step::Begin));
        }
        let [warmup, measure] = self.time;
        let mut before = None;
        while let Some((core, step)) = run.events.next_before(warmup.saturating_add(measure)) {
            if before.is_none() && run.events.now() >= warmup {
                before = Some(run.sent);
                run.cores.iter_mut().for_each(|core| core.busy = 0);
            }
            run.end(core, step);
        }
        let sent = run.sent - before.unwrap_or(run.sent);
        let held: u64 = run.cores.iter().map(|core| core.held).sum();
        let measure = measure.max(1) as f64;
        let in_hand = run.taken - run.entered - held;
        let inside = held + in_hand + (run.entered - run.committed) + (run.committed - run.sent);
        Flow {
            pps: sent as f64 * 1e9 / measure,
            dropped: run.dropped,
            busy: run.cores.iter().map(|core| (core.busy as f64 / measure).min(1.0)).collect(),
            books: [run.taken, run.sent, inside],
        }
    }
}

impl Run<'_> {
    /// A step ends: its effect, and the next one.
    fn end(&mut self, core: usize, step: Step) {
        match step {
            Step::Begin => {
                let now = self.events.now();
                let own = &mut self.cores[core];
                let away = now - std::mem::replace(&mut own.tick_began, now);
                own.rounds = (away / self.of.away.max(1)).clamp(1, self.of.rounds.max(1));
                own.busy_this_tick = false;
                self.receive(core, self.cores[core].rounds);
            }
            Step::Received(frames, left) => {
                self.enter(core, frames);
                self.receive(core, left);
            }
            Step::Served(frames, first) => {
                for at in first..first + frames {
                    self.done[(at - self.committed) as usize] = true;
                }
                self.commit();
                self.transmit(core, self.cores[core].rounds);
            }
            Step::Sent(frames, left) => {
                self.sent += frames;
                self.commit(); // what found the tx queue full
                self.transmit(core, left);
            }
        }
    }

    /// Begins a step of `ns` nanoseconds.
    fn begin(&mut self, core: usize, ns: f64, step: Step) {
        let ns = (ns.round() as Nanos).max(1); // time moves on, whatever a profile says
        self.cores[core].busy += ns;
        self.cores[core].busy_this_tick = true;
        self.events.after(ns, (core, step));
    }

    /// Puts held frames and `frames` more into the queue, as far as they fit.
    fn enter(&mut self, core: usize, frames: u64) {
        let want = self.cores[core].held + frames;
        let room = self.of.window.saturating_sub(self.entered - self.committed);
        let fit = want.min(room);
        self.entered += fit;
        self.done.resize(self.done.len() + fit as usize, false);
        self.cores[core].held = want - fit;
    }

    fn receive(&mut self, core: usize, rounds: u64) {
        let role = &self.of.roles[core];
        if role.receives && rounds > 0 {
            self.enter(core, 0);
            if self.cores[core].held == 0 {
                let frames = self.waiting().min(self.of.batch);
                if frames > 0 {
                    self.taken += frames;
                    self.cores[core].pressed |= frames == self.of.batch;
                    let ns = frames as f64 * (role.stages.rx + role.stages.enqueue);
                    self.begin(core, ns, Step::Received(frames, rounds - 1));
                    return;
                }
            }
        }
        self.serve(core);
    }

    /// Frames that wait at the port.
    fn waiting(&mut self) -> u64 {
        let Some(pps) = self.of.offered_pps else { return u64::MAX };
        let came = (self.events.now() as f64 * pps / 1e9) as u64;
        let waiting = came.saturating_sub(self.taken + self.dropped);
        let lost = waiting.saturating_sub(self.of.ring);
        self.dropped += lost;
        waiting - lost
    }

    fn serve(&mut self, core: usize) {
        let role = &self.of.roles[core];
        let frames = (self.entered - self.dequeued).min(self.of.batch);
        let pressed = std::mem::take(&mut self.cores[core].pressed);
        if role.works && frames > 0 && !(pressed && self.others_lack_work()) {
            let first = self.dequeued;
            self.dequeued += frames;
            let Stages { dequeue, work, complete, .. } = role.stages;
            let ns = frames as f64 * (dequeue + work + complete);
            self.begin(core, ns, Step::Served(frames, first));
            return;
        }
        self.transmit(core, self.cores[core].rounds);
    }

    /// Whether the workers but one have less than two batches each, one in hand and one to come.
    fn others_lack_work(&self) -> bool {
        let workers = self.of.roles.iter().filter(|role| role.works).count() as u64;
        let inside = self.entered - self.committed;
        inside <= 2 * self.of.batch * workers.saturating_sub(1)
    }

    /// Hands on what is done with all before it, as far as the tx queue has room.
    fn commit(&mut self) {
        while self.done.front() == Some(&true)
            && self.committed - self.tx_taken < self.of.tx_window.max(1)
        {
            self.done.pop_front();
            self.committed += 1;
        }
    }

    fn transmit(&mut self, core: usize, rounds: u64) {
        let role = &self.of.roles[core];
        let frames = (self.committed - self.tx_taken).min(self.of.batch);
        if role.transmits && rounds > 0 && frames > 0 {
            self.tx_taken += frames;
            let ns = frames as f64 * role.stages.tx;
            self.begin(core, ns, Step::Sent(frames, rounds - 1));
            return;
        }
        let idle = if self.cores[core].busy_this_tick { 0 } else { self.of.idle.max(1) };
        self.events.after(idle, (core, Step::Begin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn role(roles: [bool; 3], stages: Stages) -> Role {
        Role { receives: roles[0], works: roles[1], transmits: roles[2], stages }
    }

    const STAGES: Stages =
        Stages { rx: 30.0, enqueue: 5.0, dequeue: 5.0, work: 300.0, complete: 5.0, tx: 20.0 };

    fn workers(n: usize, stages: Stages) -> Pipeline {
        let ends = [role([true, false, false], stages), role([false, false, true], stages)];
        let mut pipeline = Pipeline::yard(ends.to_vec());
        pipeline.roles.extend(vec![role([false, true, false], stages); n]);
        pipeline
    }

    #[test]
    fn one_core_takes_the_sum_of_its_stages() {
        let flow = Pipeline::yard(vec![role([true; 3], STAGES)]).run();
        assert!((flow.pps * 365.0 / 1e9 - 1.0).abs() < 0.01, "{flow:?}");
        assert!(flow.is_balanced() && flow.busy[0] > 0.99);
    }

    #[test]
    fn workers_gain_in_line_until_the_producer_is_the_limit() {
        let rates: Vec<f64> = (1..=12).map(|n| workers(n, STAGES).run().pps).collect();
        for (n, rate) in rates.iter().enumerate() {
            // A worker does 1 in 310 ns, the producer 1 in 35.
            let expected = ((n + 1) as f64 / 310.0).min(1.0 / 35.0) * 1e9;
            assert!((rate / expected - 1.0).abs() < 0.05, "{n}: {rate} {expected}");
        }
    }

    #[test]
    fn a_consumer_can_be_the_limit_and_a_small_window_is_one() {
        let slow = Stages { tx: 200.0, ..STAGES };
        let flow = workers(4, slow).run();
        assert!((flow.pps / 5e6 - 1.0).abs() < 0.03, "{flow:?}");
        let narrow = Pipeline { window: 32, ..workers(4, STAGES) }.run();
        assert!(narrow.pps < 1.1 * workers(1, STAGES).run().pps, "one batch at a time");
    }

    /// Decision 0033: it receives for both while the other works, and works when that has enough.
    #[test]
    fn who_receives_leaves_the_work_to_others_as_far_as_they_get() {
        let two = |work: f64| {
            let stages = Stages { work, ..STAGES };
            let roles = vec![role([true, true, false], stages), role([false, true, true], stages)];
            Pipeline::yard(roles).run()
        };
        // 35 ns to receive, 35 ns to serve and transmit: side by side, and nobody does both.
        let even = two(5.0);
        assert!((even.pps * 35.0 / 1e9 - 1.0).abs() < 0.05, "{even:?}");
        // Work for more than one core is shared: 365 ns a frame on two cores.
        let much = two(300.0);
        assert!((much.pps * 365.0 / 2e9 - 1.0).abs() < 0.05, "{much:?}");
        assert!(much.busy.iter().all(|busy| *busy > 0.95), "{much:?}");
    }

    /// One flow that one core does alone: others beside it have nothing to do.
    #[test]
    fn cores_that_have_no_part_change_nothing() {
        let alone = vec![role([true; 3], STAGES)];
        let baseline = Pipeline::yard(alone.clone()).run().pps;
        for idle in 1..=9 {
            let roles = [alone.clone(), vec![role([false; 3], STAGES); idle]].concat();
            assert_eq!(Pipeline::yard(roles).run().pps, baseline, "{idle}");
        }
    }

    #[test]
    fn offered_load_is_met_or_dropped() {
        let below = Pipeline { offered_pps: Some(1e6), ..workers(1, STAGES) }.run();
        assert!((below.pps / 1e6 - 1.0).abs() < 0.01 && below.dropped == 0, "{below:?}");
        let above = Pipeline { offered_pps: Some(9e6), ..workers(1, STAGES) }.run();
        assert!(above.dropped > 0 && (above.pps / workers(1, STAGES).run().pps - 1.0).abs() < 0.02);
    }

    proptest! {
        /// Whatever the roles and costs: books balance, and no more comes out than any core can do.
        #[test]
        fn the_books_balance(
            roles in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 1.0f64..500.0), 1..6),
            window in 1u64..600, tx_window in 1u64..300,
        ) {
            let make = |(receives, works, transmits, ns): (bool, bool, bool, f64)| {
                let stages = Stages { rx: ns, enqueue: 1.0, dequeue: 1.0, work: ns, complete: 1.0, tx: ns };
                Role { receives, works, transmits, stages }
            };
            let roles: Vec<Role> = roles.into_iter().map(make).collect();
            let bound = |on: fn(&Role) -> bool| {
                roles.iter().filter(|role| on(role)).map(|role| 1e9 / role.stages.rx).sum::<f64>()
            };
            let bounds = [bound(|r| r.receives), bound(|r| r.works), bound(|r| r.transmits)];
            let pipeline = Pipeline { window, tx_window, time: [100_000, 1_000_000], ..Pipeline::yard(roles) };
            let flow = pipeline.run();
            prop_assert!(flow.is_balanced(), "{:?}", flow);
            let most = bounds.into_iter().fold(f64::MAX, f64::min);
            // A window of frames may have waited when measuring began.
            prop_assert!(flow.pps <= most * 1.02 + 1e3 * (window + tx_window + 600) as f64);
        }
    }
}
