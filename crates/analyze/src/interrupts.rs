//! Interrupts of a policy: each queue has a vector, whose moderation decides when the host notices its frames.

use flowyard_adapter::interrupt::{Arrival, Moderation, Vector};
use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

/// How the adapter interrupts (`--itr`, `--vectors`).
#[derive(Clone, Copy, Debug)]
pub struct Interrupting {
    /// How the interval of a vector is chosen.
    pub moderation: Moderation,
    /// The vectors; queue q has vector q modulo their number.
    pub vectors: u16,
    /// LLI moderation: the interval in which a vector gets a credit for a low-latency interrupt; `None`: no limit.
    pub credits: Option<Nanos>,
}

/// The interrupts under one policy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InterruptSummary {
    /// How the interval is chosen, in words.
    pub moderation: String,
    /// Interrupts.
    pub interrupts: u64,
    /// Interrupts in a second.
    pub per_second: f64,
    /// Interrupts that came at once for a low-latency frame, before the end of the interval.
    pub low_latency: u64,
    /// The time that the frames waited for their interrupt, on average.
    pub mean_wait_ns: f64,
    /// The vectors that have queues with frames.
    pub vectors: Vec<VectorSummary>,
    /// The queues with frames.
    pub queues: Vec<QueueInterrupts>,
}

/// The interrupts of a vector.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VectorSummary {
    /// Its number.
    pub vector: u16,
    /// Interrupts.
    pub interrupts: u64,
    /// Interrupts in a second.
    pub per_second: f64,
    /// Its interval at the end.
    pub interval_ns: u64,
}

/// The waits of a queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QueueInterrupts {
    /// Its number.
    pub queue: u16,
    /// Its vector.
    pub vector: u16,
    /// Frames.
    pub packets: u64,
    /// The time that a frame waited for its interrupt, on average.
    pub mean_wait_ns: f64,
    /// The longest such time.
    pub longest_wait_ns: u64,
}

/// The vectors of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts {
    setup: Interrupting,
    vectors: Vec<Vector>,
    /// First and last arrival.
    seen: Option<(Nanos, Nanos)>,
}

impl Interrupts {
    pub(crate) fn new(setup: Interrupting, queues: u16) -> Self {
        let count = setup.vectors.clamp(1, queues.max(1));
        let queues_of = |vector: u16| usize::from((queues - vector).div_ceil(count));
        let make = |vector| Vector::new(setup.moderation, queues_of(vector), setup.credits);
        Self { setup, vectors: (0..count).map(make).collect(), seen: None }
    }

    /// A frame that lands in `queue`.
    #[inline]
    pub(crate) fn arrive(&mut self, queue: u16, now: Nanos, bytes: u32, low_latency: bool) {
        let count = self.vectors.len();
        let (vector, queue) = (usize::from(queue) % count, usize::from(queue) / count);
        self.vectors[vector].arrive(Arrival { now, bytes, queue, low_latency });
        self.seen = Some((self.seen.map_or(now, |(first, _)| first), now));
    }

    pub(crate) fn summary(&mut self) -> InterruptSummary {
        self.vectors.iter_mut().for_each(Vector::finish);
        let (first, last) = self.seen.unwrap_or_default();
        let seconds = (last - first) as f64 / 1e9;
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let count = self.vectors.len();
        let mut queues = Vec::new();
        for (number, vector) in (0..).zip(&self.vectors) {
            for (index, waits) in vector.waits().iter().enumerate().filter(|(_, w)| w.frames > 0) {
                queues.push(QueueInterrupts {
                    queue: (index * count) as u16 + number,
                    vector: number,
                    packets: waits.frames,
                    mean_wait_ns: waits.waited as f64 / waits.frames as f64,
                    longest_wait_ns: waits.longest,
                });
            }
        }
        queues.sort_by_key(|queue| queue.queue);
        let packets: u64 = queues.iter().map(|queue| queue.packets).sum();
        let waited: f64 = queues.iter().map(|q| q.mean_wait_ns * q.packets as f64).sum();
        let interrupts = self.vectors.iter().map(Vector::interrupts).sum();
        InterruptSummary {
            moderation: words(self.setup.moderation),
            interrupts,
            per_second: rate(interrupts),
            low_latency: self.vectors.iter().map(Vector::low_latency).sum(),
            mean_wait_ns: if packets > 0 { waited / packets as f64 } else { 0.0 },
            vectors: (0..)
                .zip(&self.vectors)
                .filter(|(_, vector)| vector.interrupts() > 0)
                .map(|(number, vector)| VectorSummary {
                    vector: number,
                    interrupts: vector.interrupts(),
                    per_second: rate(vector.interrupts()),
                    interval_ns: vector.interval(),
                })
                .collect(),
            queues,
        }
    }
}

fn words(moderation: Moderation) -> String {
    match moderation {
        Moderation::Fixed(0) => "none: an interrupt for each frame".to_owned(),
        Moderation::Fixed(interval) => format!("an interval of {:.3} us", interval as f64 / 1000.0),
        Moderation::Ixgbe => "adaptive, as ixgbe".to_owned(),
        Moderation::Dim(mode) => {
            format!(
                "adaptive, as Linux's DIM with {} profiles",
                match mode {
                    flowyard_adapter::interrupt::DimMode::Eqe => "EQE",
                    flowyard_adapter::interrupt::DimMode::Cqe => "CQE",
                }
            )
        }
    }
}
