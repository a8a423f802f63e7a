//! The result of a run.

use flowyard_flow::learn::elephant::Decision;
use flowyard_frame::Nanos;

use crate::counters::Counters;
use crate::stages::Stages;
use crate::tally::Count;

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// By core.
    pub cores: Vec<CoreOutcome>,
    /// Queues, then tx queues.
    pub queues: Vec<QueueOutcome>,
    /// The counters that table entries name.
    pub counts: Vec<CountOutcome>,
    /// Remarks for the user, such as on cores that are not pinned.
    pub remarks: Vec<String>,
    /// Why ports could not receive or transmit everything, such as a damaged capture or a full disk.
    pub failed: Vec<String>,
    /// Frames still inside, by the accounting of the pool: 0 unless a core died.
    pub held: usize,
    /// Duration of the run.
    pub elapsed: Nanos,
    /// Decisions about elephant flows, oldest first; the last ones of a long run.
    pub decisions: Vec<Decision>,
}

/// The result of a core.
#[derive(Clone, PartialEq, Debug)]
pub struct CoreOutcome {
    /// Its counters.
    pub counters: Counters,
    /// Cost of its stages.
    pub stages: Stages,
    /// Why the core died, if it did.
    pub died: Option<String>,
}

/// The result of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueOutcome {
    /// The name; a tx queue has its port's name.
    pub name: String,
    /// The order that the queue keeps.
    pub order: flowyard_queue::Order,
    /// Whether it is a tx queue.
    pub is_tx: bool,
    /// Frames that were enqueued.
    pub enqueued: u64,
    /// Frames that were completed.
    pub completed: u64,
}

/// The result of a counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountOutcome {
    /// Its name.
    pub name: String,
    /// By core.
    pub cores: Vec<Count>,
}

impl CountOutcome {
    /// The sum over all cores.
    #[must_use]
    pub fn total(&self) -> Count {
        self.cores.iter().fold(Count::default(), |sum, core| sum.plus(*core))
    }
}

impl Outcome {
    /// The sum over all cores.
    #[must_use]
    pub fn total(&self) -> Counters {
        self.cores.iter().fold(Counters::default(), |sum, core| sum.plus(&core.counters))
    }

    /// Whether frames in + copies = frames out + drops + frames held.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let total = self.total();
        total.rx_frames + total.copies == total.tx_frames + total.drops.total() + self.held as u64
    }
}
