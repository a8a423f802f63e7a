//! Run: every core on its own thread, under the real clock.
//!
//! ```text
//!  Yard ──start──> Running ──(sources end, or stop)──> drain ──join──> Outcome
//!                    │ reload, counters
//! ```
//!
//! The engine is drained when no port will receive more and frames in + copies = frames out + drops. Each core
//! computes this from all boards and then leaves its loop. Boards may lag behind, so the sums can become
//! equal late but never early: every frame that is counted in is counted out once, and a copy is
//! published before it can leave.
//!
//! Works may make frames at any time, also for a port whose core has left its loop. The first core that finds the engine
//! drained therefore ends it: works make no frames any more, and each core leaves when it finds the engine drained after that.
//!
//! If the work of a core panics, the core ends: the frames that it had are dropped and counted, the
//! other cores continue, and the outcome names the core. Frames that only this core could have taken
//! are then held.

mod outcome;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowyard_frame::Nanos;

use crate::blueprint::Idle;
use crate::control::ControlPlane;
use crate::core::{Core, Tick};
use crate::counters::{Board, Counters, are_drained};
use crate::elephants::Decisions;
use crate::mail::{Mail, Message};
use crate::places::Places;
use crate::port::Closed;
use crate::stages::Stages;
use crate::tally::Count;
use crate::{Clock, Handle, Reload, Yard, sys};
use flowyard_pool::Pool;

pub use outcome::{CoreOutcome, CountOutcome, Outcome, QueueOutcome};

/// How long cores wait for frames of a core that died, before they end with frames held.
const PATIENCE: Nanos = 200_000_000;

/// The time between two measurements of the processor time that a core uses.
const METER: Nanos = 100_000_000;

/// The shortest and the longest sleep of an idle core. A frame that arrives meanwhile waits for the rest of
/// it. The ring of an interface holds 4,096 frames, which arrive in a millisecond at 4 million a second.
const NAP: (Nanos, Nanos) = (20_000, 1_000_000);

/// A running engine.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Option<Gone>>>,
    places: Arc<Places>,
    mail: Mail,
    pool: Pool,
    counters: Vec<String>,
    clock: Clock,
    began: Nanos,
    elephants: Decisions,
    control: Vec<Arc<dyn ControlPlane>>,
}

/// What the threads of the cores share.
struct Shared {
    boards: Vec<Arc<Board>>,
    places: Arc<Places>,
    /// Number of cores whose ports will receive no more.
    ended: AtomicUsize,
    /// Number of cores that died.
    died: AtomicUsize,
    /// Whether a port transmits no more because it failed.
    failed: AtomicBool,
    /// Number of cores that answer no more.
    left: Arc<AtomicUsize>,
}

/// The result of a core.
struct Gone {
    counters: Counters,
    stages: Stages,
    counts: Vec<Count>,
    closed: Closed,
    died: Option<String>,
    /// It has left its ports to another process, after no frame was inside.
    left: bool,
}

impl Yard {
    /// Starts a thread for each core.
    ///
    /// # Errors
    /// A thread cannot be started. Then no core has run, and all ports are closed.
    pub fn start(self, clock: Clock) -> io::Result<Running> {
        let Self { cores, places, mail, pool, counters, pin, idle, elephants, control } = self;
        let shared = Arc::new(Shared {
            boards: cores.iter().map(Core::board).collect(),
            places: Arc::clone(&places),
            ended: AtomicUsize::new(0),
            died: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            left: Arc::default(),
        });
        let began = clock();
        let pins = pin.into_iter().map(Some).chain(std::iter::repeat(None));
        // A core runs when all threads were started: it would wait for the others for ever.
        let (mut threads, mut gates) = (Vec::<JoinHandle<_>>::new(), Vec::new());
        for (core, cpu) in cores.into_iter().zip(pins) {
            let (shared, clock) = (Arc::clone(&shared), Arc::clone(&clock));
            let (gate, opened) = channel::<()>();
            let work = move || {
                opened.recv().ok()?;
                Some(core_thread(core, cpu, idle, &shared, &clock))
            };
            match thread::Builder::new().spawn(work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    drop((gate, gates));
                    // They close their ports.
                    threads.into_iter().for_each(|thread| drop(thread.join()));
                    return Err(error);
                }
            }
            gates.push(gate);
        }
        for gate in gates {
            let _ended = gate.send(());
        }
        Ok(Running {
            threads,
            shared,
            places,
            mail,
            pool,
            counters,
            clock,
            began,
            elephants,
            control,
        })
    }
}

impl Running {
    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle {
            boards: self.shared.boards.clone(),
            places: Arc::clone(&self.places),
            mail: self.mail.clone(),
            elephants: self.elephants.clone(),
            clock: Arc::clone(&self.clock),
            left: Arc::clone(&self.shared.left),
            control: self.control.clone(),
        }
    }

    /// Stops receiving, and drains. Returns at once.
    pub fn stop(&self) {
        self.mail.to_all(&Message::Stop);
    }

    /// Replaces the tables of every core.
    pub fn reload(&self, reload: Reload) {
        self.mail.to_all(&Message::Reload(Arc::new(reload)));
    }

    /// Continues background work of the control planes; call it from time to time.
    pub fn tick(&self) {
        let now = (self.clock)();
        self.control.iter().for_each(|control| control.tick(now));
    }

    /// Counters by core, some ticks old.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        self.shared.boards.iter().map(|board| board.read()).collect()
    }

    /// Decisions about elephant flows so far.
    #[must_use]
    pub const fn elephants(&self) -> &Decisions {
        &self.elephants
    }

    /// Queues and tx queues.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// The memory of all frames.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether a port failed and transmits no more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Whether every core has finished.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until the engine is drained: until the sources end, or [`Running::stop`] was called.
    #[must_use]
    pub fn join(self) -> Outcome {
        let Self { threads, places, pool, counters, clock, began, elephants, .. } = self;
        let gone = threads.into_iter().filter_map(|thread| match thread.join() {
            Ok(gone) => gone,
            Err(panic) => Some(Gone::by(panic)),
        });
        let gone: Vec<_> = gone.collect();
        let elapsed = clock().saturating_sub(began);
        // A core that has left keeps its free buffers, and those that the kernel has.
        let held = if gone.iter().any(|core| core.left) { 0 } else { pool.held() };
        let told = |what: fn(&Closed) -> &[String]| {
            gone.iter().flat_map(|core| what(&core.closed)).cloned().collect::<Vec<_>>()
        };
        let (remarks, failed) = (told(|told| &told.remarks), told(|told| &told.failed));
        let by_core = |at: usize| gone.iter().map(move |core| core.counts.get(at).copied());
        let counts = (0..).zip(counters).map(|(at, name)| CountOutcome {
            name,
            cores: by_core(at).map(Option::unwrap_or_default).collect(),
        });
        let counts = counts.collect();
        let cores = gone.into_iter().map(|Gone { counters, stages, died, .. }| CoreOutcome {
            counters,
            stages,
            died,
        });
        Outcome {
            cores: cores.collect(),
            queues: queues(&places),
            counts,
            remarks,
            failed,
            held,
            elapsed,
            decisions: elephants.last(),
        }
    }
}

/// The state of the queues.
#[must_use]
pub fn queues(places: &Places) -> Vec<QueueOutcome> {
    let queues = places.queues.iter().map(|place| (place, false));
    let all = queues.chain(places.ports.iter().map(|place| (place, true)));
    all.map(|(place, is_tx)| QueueOutcome {
        name: place.name.clone(),
        order: place.queue.order(),
        is_tx,
        enqueued: place.queue.tail(),
        completed: place.queue.head(),
    })
    .collect()
}

impl Gone {
    /// A thread that panicked outside of a tick: only the reason is known.
    #[expect(clippy::needless_pass_by_value, reason = "it is what joining a thread gives")]
    fn by(panic: Box<dyn std::any::Any + Send>) -> Self {
        Self {
            counters: Counters::default(),
            stages: Stages::default(),
            counts: Vec::new(),
            closed: Closed::default(),
            died: Some(said(&*panic)),
            left: false,
        }
    }
}

/// The message of a panic.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}

/// The body of a core's thread.
fn core_thread(
    mut core: Core,
    cpu: Option<usize>,
    idle: Idle,
    shared: &Shared,
    clock: &Clock,
) -> Gone {
    let mut remarks = Vec::new();
    if let Some(cpu) = cpu
        && !sys::pin(cpu)
    {
        remarks.push(format!("core {} is not pinned: CPU {cpu} is not available", core.id()));
        tracing::warn!(core = core.id(), cpu, "the core is not pinned: the CPU is not available");
    }
    let died = tick_until_drained(&mut core, idle, shared, clock);
    shared.left.fetch_add(1, Ordering::Release);
    if core.has_left() {
        let (counters, stages, counts) = (core.counters(), core.stages(), core.counts());
        // What it has belongs to the process that has taken over; the descriptors end with this process.
        std::mem::forget(core);
        return Gone { counters, stages, counts, closed: Closed::default(), died, left: true };
    }
    let mut closed = core.close_ports();
    closed.remarks.iter().for_each(|remark| tracing::warn!(core = core.id(), "{remark}"));
    closed.failed.iter().for_each(|failed| tracing::error!(core = core.id(), "{failed}"));
    closed.remarks.splice(..0, remarks);
    let (stages, counts) = (core.stages(), core.counts());
    Gone { counters: core.counters(), stages, counts, closed, died, left: false }
}

/// Ticks until all is drained. Returns what the core died of, if it did.
fn tick_until_drained(
    core: &mut Core,
    idle: Idle,
    shared: &Shared,
    clock: &Clock,
) -> Option<String> {
    let (mut ended, mut quiet, mut last) = (false, 0, clock());
    let mut metered = last;
    loop {
        let now = clock();
        if now.saturating_sub(metered) >= METER {
            metered = now;
            core.publish_cpu(sys::thread_cpu_ns());
        }
        let tick = catch_unwind(AssertUnwindSafe(|| core.tick(now)));
        match tick {
            Err(panic) => {
                core.release(); // also publishes the last counters, before another core relies on them
                shared.died.fetch_add(1, Ordering::Release);
                shared.ended.fetch_add(u32::from(!ended) as usize, Ordering::Release);
                let why = said(&*panic);
                tracing::error!(
                    core = core.id(),
                    why,
                    "core died: its frames are counted as core_died"
                );
                return Some(why);
            }
            Ok(0) => {}
            Ok(_) if core.has_left() => return None,
            Ok(_) => {
                if core.has_failed() {
                    shared.failed.store(true, Ordering::Relaxed);
                }
                (quiet, last) = (0, now);
                continue;
            }
        }
        if core.has_left() {
            return None;
        }
        let quiet_for = now.saturating_sub(last);
        if !ended && core.is_blocked() && shared.gives_up(quiet_for) {
            core.stop(); // frames that wait for a core that died would wait for ever, and so would the ports
            core.publish();
            ended = true;
            shared.ended.fetch_add(1, Ordering::Release);
        }
        if !ended && core.has_ended() {
            core.publish();
            ended = true;
            shared.ended.fetch_add(1, Ordering::Release);
        }
        if ended && shared.is_over(quiet_for) {
            core.publish_cpu(sys::thread_cpu_ns());
            return None;
        }
        rest(idle, quiet, quiet_for);
        quiet += 1;
    }
}

impl Shared {
    /// Whether a core that has been idle for `quiet` nanoseconds may end.
    fn is_over(&self, quiet: Nanos) -> bool {
        // Acquire: received frames are on the boards of the cores that ended.
        if self.ended.load(Ordering::Acquire) < self.boards.len() {
            return false;
        }
        let may_end = || are_drained(&self.boards) || self.gives_up(quiet);
        if !may_end() {
            return false;
        }
        self.places.end();
        may_end() // unless a work has made a frame meanwhile
    }

    /// Whether a core that has been idle for `quiet` nanoseconds waits for a core that died.
    fn gives_up(&self, quiet: Nanos) -> bool {
        quiet > PATIENCE && self.died.load(Ordering::Acquire) > 0
    }
}

/// Waits, for longer the longer the core has been idle: `quiet` ticks, `quiet_for` nanoseconds.
fn rest(idle: Idle, quiet: u32, quiet_for: Nanos) {
    match (idle, quiet) {
        (_, 0..16) => std::hint::spin_loop(),
        // Even a polling core must let others run if there are more threads than CPUs.
        (Idle::Busy, _) if quiet.is_multiple_of(256) => thread::yield_now(),
        (Idle::Busy, _) => std::hint::spin_loop(),
        (Idle::Sleep, 16..64) => thread::yield_now(),
        (Idle::Sleep, _) => thread::sleep(Duration::from_nanos(nap(quiet_for))),
    }
}

/// How long a core sleeps that has been idle for `quiet_for` nanoseconds: an eighth of that time. A frame
/// then waits for at most an eighth of the pause before it.
fn nap(quiet_for: Nanos) -> Nanos {
    (quiet_for / 8).clamp(NAP.0, NAP.1)
}

#[cfg(test)]
mod tests;
