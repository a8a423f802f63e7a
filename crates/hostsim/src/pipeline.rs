//! The engine's cores and queues, or those of a load balancer: one flow on one core or on many, in order.
//!
//! ```text
//!  source ─> receive ─> [ ordered queue, window ] ─> work ─> commit in order ─> [ tx queue ] ─> transmit
//!            core a                                  cores b..               core z
//! ```
//!
//! Each core is a loop: it receives a batch if it has the input port, serves a batch if it works, and
//! transmits if it has the output port. The number of batches in a tick, and when a core that receives
//! leaves the work to others, follow [`flowyard_frame::schedule`], as in the engine. A batch costs its
//! frames times the sum of its stages on that core. The cost of a frame on a core depends on whether
//! another core touched it last, so each [`Role`] has its own [`Stages`]. A frame that finds the window
//! full is held, and its core receives no more frames until the held frame fits.
//!
//! Invariants: dequeued <= entered; committed <= dequeued; entered - committed <= window; frames leave
//! in the order in which they entered. Thread-safety: a run is one value on one thread.

use std::collections::VecDeque;

use flowyard_frame::{LANES, Nanos, schedule};
use serde::Serialize;

use crate::accounting::Accounting;
use crate::events::Events;

mod costs;
#[cfg(test)]
mod tests;

pub use costs::stages_of;

/// Frames of a full batch.
const BATCH: u64 = LANES as u64;

/// The cost of a frame in each stage, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stages {
    /// From the port to the end of settle: rx, parse, steer, settle.
    pub rx: f64,
    /// Into the queue.
    pub enqueue: f64,
    /// Out of the queue.
    pub dequeue: f64,
    /// The work itself.
    pub work: f64,
    /// Setting the done bit, and the commit.
    pub complete: f64,
    /// Out of the tx queue and to the port.
    pub tx: f64,
}

/// The part of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Role {
    /// Whether it has the input port.
    pub receives: bool,
    /// Whether it is a consumer of the queue.
    pub works: bool,
    /// Whether it has the output port.
    pub transmits: bool,
    /// The cost of a frame on this core.
    pub stages: Stages,
}

/// The configuration of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pipeline {
    /// The cores.
    pub roles: Vec<Role>,
    /// Frames in the queue's window.
    pub window: u64,
    /// Frames in the tx queue.
    pub tx_window: u64,
    /// The duration of a tick that finds nothing to do, in nanoseconds.
    pub idle: Nanos,
    /// Frames offered a second, at even distances; `None` offers as many as the port takes.
    pub offered_pps: Option<f64>,
    /// Descriptors of the receive ring.
    pub ring: u64,
    /// Time before the measurement and measured time, in nanoseconds.
    pub time: [Nanos; 2],
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// Frames transmitted a second.
    pub pps: f64,
    /// Frames lost because the receive ring was full, in the whole run.
    pub dropped: u64,
    /// The busy share of each core.
    pub busy: Vec<f64>,
    /// Frames taken from the port, transmitted, and held. Frames that the ring dropped never entered.
    pub accounting: Accounting,
}

impl Flow {
    /// Whether every frame that was taken has left or is still inside.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.accounting.is_balanced()
    }
}

/// A step of a core's tick; the event of this name is its end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// A tick begins.
    Begin,
    /// Received `frames`; at most `left` further batches may follow in this tick.
    Received { frames: u64, left: u64 },
    /// Worked on `frames`, of which the first has the ticket `first`.
    Served { frames: u64, first: u64 },
    /// Transmitted `frames`; at most `left` further batches may follow in this tick.
    Sent { frames: u64, left: u64 },
}

#[derive(Clone, Copy, Debug, Default)]
struct Core {
    tick_began: Nanos,
    rounds: u64,
    busy_this_tick: bool,
    /// Its port gave a full batch in this tick, so more frames may be waiting.
    pressed: bool,
    held: u64,
    /// The frames of its step: taken from the port and not entered, or taken from the tx queue and not sent.
    in_step: u64,
    busy: Nanos,
}

struct Run<'a> {
    of: &'a Pipeline,
    events: Events<(usize, Step)>,
    cores: Vec<Core>,
    /// Frames taken from the port, entered into the queue, dequeued, committed to the tx queue, and sent.
    taken: u64,
    entered: u64,
    dequeued: u64,
    committed: u64,
    sent: u64,
    dropped: u64,
    /// Frames in the tx queue.
    tx_queue: u64,
    /// Which tickets from `committed` on are done.
    done: VecDeque<bool>,
}

impl Pipeline {
    /// The engine as `flowyard bench engine` configures it: a window of 512 frames, a tx queue of 256.
    #[must_use]
    pub const fn yard(roles: Vec<Role>) -> Self {
        Self {
            roles,
            window: 512,
            tx_window: 256,
            idle: 100,
            offered_pps: None,
            ring: 1024,
            time: [2_000_000, 20_000_000],
        }
    }

    /// Runs the pipeline. No frame leaves if no core receives, works or transmits.
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
            sent: 0,
            dropped: 0,
            tx_queue: 0,
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
        let measure = measure.max(1) as f64;
        Flow {
            pps: sent as f64 * 1e9 / measure,
            dropped: run.dropped,
            busy: run.cores.iter().map(|core| (core.busy as f64 / measure).min(1.0)).collect(),
            accounting: Accounting {
                entered: run.taken,
                left: run.sent,
                dropped: 0,
                held: run.inside(),
            },
        }
    }
}

impl Run<'_> {
    /// The frames in the pipeline, counted in each place: held by a core, in a core's step to the queue or to the port,
    /// in the window (waiting, in work, or done), and in the tx queue.
    fn inside(&self) -> u64 {
        let on_cores: u64 = self.cores.iter().map(|core| core.held + core.in_step).sum();
        on_cores + self.done.len() as u64 + self.tx_queue
    }

    /// Ends a step: applies its effect and begins the next step.
    fn end(&mut self, core: usize, step: Step) {
        match step {
            Step::Begin => {
                let now = self.events.now();
                let own = &mut self.cores[core];
                let away = now - std::mem::replace(&mut own.tick_began, now);
                own.rounds = schedule::rounds(away);
                own.busy_this_tick = false;
                self.receive(core, self.cores[core].rounds);
            }
            Step::Received { frames, left } => {
                self.cores[core].in_step -= frames;
                self.enter(core, frames);
                self.receive(core, left);
            }
            Step::Served { frames, first } => {
                for at in first..first + frames {
                    self.done[(at - self.committed) as usize] = true;
                }
                self.commit();
                self.transmit(core, self.cores[core].rounds);
            }
            Step::Sent { frames, left } => {
                self.cores[core].in_step -= frames;
                self.sent += frames;
                self.commit(); // frames that found the tx queue full
                self.transmit(core, left);
            }
        }
    }

    /// Begins a step of `ns` nanoseconds.
    fn begin(&mut self, core: usize, ns: f64, step: Step) {
        let ns = (ns.round() as Nanos).max(1); // time advances even if a profile has costs of zero
        self.cores[core].busy += ns;
        self.cores[core].busy_this_tick = true;
        self.events.after(ns, (core, step));
    }

    /// Puts the held frames of `core` and `frames` more into the queue, as many as fit.
    fn enter(&mut self, core: usize, frames: u64) {
        let want = self.cores[core].held + frames;
        let free = self.of.window.saturating_sub(self.entered - self.committed);
        let fit = want.min(free);
        self.entered += fit;
        self.done.resize(self.done.len() + fit as usize, false);
        self.cores[core].held = want - fit;
    }

    fn receive(&mut self, core: usize, rounds: u64) {
        let role = &self.of.roles[core];
        if role.receives && rounds > 0 {
            self.enter(core, 0);
            if self.cores[core].held == 0 {
                let frames = self.waiting().min(BATCH);
                if frames > 0 {
                    self.taken += frames;
                    self.cores[core].in_step += frames;
                    self.cores[core].pressed |= frames == BATCH;
                    let ns = frames as f64 * (role.stages.rx + role.stages.enqueue);
                    self.begin(core, ns, Step::Received { frames, left: rounds - 1 });
                    return;
                }
            }
        }
        self.serve(core);
    }

    /// The number of frames that wait at the port.
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
        let frames = (self.entered - self.dequeued).min(BATCH);
        let pressed = std::mem::take(&mut self.cores[core].pressed);
        if role.works && frames > 0 && !(pressed && self.others_lack_work()) {
            let first = self.dequeued;
            self.dequeued += frames;
            let Stages { dequeue, work, complete, .. } = role.stages;
            let ns = frames as f64 * (dequeue + work + complete);
            self.begin(core, ns, Step::Served { frames, first });
            return;
        }
        self.transmit(core, self.cores[core].rounds);
    }

    fn others_lack_work(&self) -> bool {
        let workers = self.of.roles.iter().filter(|role| role.works).count();
        schedule::others_lack_work((self.entered - self.committed) as usize, workers)
    }

    /// Moves the frames that are done, and whose predecessors are done, to the tx queue, as many as fit.
    fn commit(&mut self) {
        while self.done.front() == Some(&true) && self.tx_queue < self.of.tx_window.max(1) {
            self.done.pop_front();
            self.committed += 1;
            self.tx_queue += 1;
        }
    }

    fn transmit(&mut self, core: usize, rounds: u64) {
        let role = &self.of.roles[core];
        let frames = self.tx_queue.min(BATCH);
        if role.transmits && rounds > 0 && frames > 0 {
            self.tx_queue -= frames;
            self.cores[core].in_step += frames;
            let ns = frames as f64 * role.stages.tx;
            self.begin(core, ns, Step::Sent { frames, left: rounds - 1 });
            return;
        }
        let idle = if self.cores[core].busy_this_tick { 0 } else { self.of.idle.max(1) };
        self.events.after(idle, (core, Step::Begin));
    }
}
