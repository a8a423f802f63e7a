//! The state of a run.

use flowyard_frame::{Nanos, Rng};
use hdrhistogram::Histogram;

use super::outcome::Outcome;
use super::parts::{Conn, Cpu, Event, Ring, Thread};
use super::setup::{Load, Setup, SetupError};
use super::steer::Steer;
use crate::events::Events;

pub(super) struct Host<'a> {
    pub(super) setup: &'a Setup,
    pub(super) events: Events<Event>,
    pub(super) cpus: Vec<Cpu>,
    pub(super) rings: Vec<Ring>,
    pub(super) threads: Vec<Thread>,
    pub(super) conns: Vec<Conn>,
    pub(super) steer: Steer,
    pub(super) rng: Rng,
    /// Frames that entered and left each queue and each backlog.
    pub(super) queue_tails: Vec<u64>,
    pub(super) queue_heads: Vec<u64>,
    pub(super) backlog_tails: Vec<u32>,
    pub(super) backlog_heads: Vec<u32>,
    pub(super) tx_free: Nanos,
    /// The share of a socket's cache lines that must come from memory.
    pub(super) missing: f64,
    /// The measured time.
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) latency: Histogram<u64>,
    pub(super) latency_sum: u128,
    pub(super) outcome: Outcome,
    pub(super) due: u64,
    pub(super) local: u64,
    /// Requests between a client and a socket.
    pub(super) flying: u64,
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) answers: u64,
}

impl<'a> Host<'a> {
    /// The host before its first event, and the time when the load begins.
    pub(super) fn new(setup: &'a Setup) -> Result<(Self, Nanos), SetupError> {
        let Setup { machine, queues, threads, connections, .. } = *setup;
        if queues == 0 || threads == 0 || connections == 0 || setup.window == 0 || setup.ring == 0 {
            return Err(SetupError::Number(
                "queues, threads, connections, window and ring must be at least 1",
            ));
        }
        if let Load::Open { rate } = setup.load
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(SetupError::Number("the offered load must be a positive number"));
        }
        let cpus = usize::from(machine.cpus());
        let mut rng = Rng::new(setup.seed);
        let (steer, start) = Steer::new(setup, rng.bits())?;
        let from = start + setup.warmup;
        let host = Self {
            setup,
            events: Events::default(),
            cpus: (0..cpus).map(|_| Cpu::new()).collect(),
            rings: (0..queues).map(|_| Ring::new(setup)).collect(),
            threads: (0..threads).map(|n| Thread::new(n % machine.cpus())).collect(),
            conns: (0..connections).map(|n| Conn::new((n % u32::from(threads)) as u16)).collect(),
            steer,
            rng,
            queue_tails: vec![0; usize::from(queues)],
            queue_heads: vec![0; usize::from(queues)],
            backlog_tails: vec![0; cpus],
            backlog_heads: vec![0; cpus],
            tx_free: 0,
            missing: setup.costs.missing(connections),
            from,
            to: from + setup.measure,
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .map_err(|_| SetupError::Number("the latency histogram cannot be made"))?,
            latency_sum: 0,
            outcome: Outcome::default(),
            due: 0,
            local: 0,
            flying: 0,
            sent: 0,
            answered: 0,
            answers: 0,
        };
        Ok((host, start))
    }

    pub(super) fn now(&self) -> Nanos {
        self.events.now()
    }

    pub(super) fn measuring(&self) -> bool {
        self.now() >= self.from
    }
}
