//! Questions to a core, and its answers.
//!
//! Thread-safety: plain values; the answer travels by a channel.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use flowyard_flow::learn::elephant::{Sampler, Seen};
use flowyard_frame::{Action, FlowKey, To};

use crate::handover::{CoreState, HandoverError};
use crate::port::CorePorts;
use crate::stages::Stages;
use crate::trace::{Dropped, Filter};
use crate::work::WorkAnswer;

/// A question to a core.
#[derive(Clone, Debug)]
pub enum Question {
    /// Whether the core is alive.
    Alive,
    /// The tables of the core.
    Tables {
        /// The largest number of entries to list of each table.
        entries: usize,
    },
    /// The last frames that the core dropped.
    Drops,
    /// The cost of its stages so far.
    Stages,
    /// Trace the frames of some flows; `None` stops tracing.
    Follow(Option<Filter>),
    /// Start to count the flows that the core works on.
    Sample(Box<Sampler>),
    /// Return the counted flows, and stop counting.
    Seen,
    /// A question of a type that the work knows: see [`crate::Work::ask`].
    Work(Arc<dyn Any + Send + Sync>),
    /// The descriptors of its ports, for a process that is to take over.
    Descriptors,
    /// The positions of its paused ports, and the state of its work.
    State,
}

/// The answer of a core.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The request was carried out, or the core is alive.
    Done,
    /// The tables.
    Tables(Box<Tables>),
    /// The dropped frames, oldest first.
    Drops(Vec<Dropped>),
    /// The cost of its stages since it began.
    Stages(Box<Stages>),
    /// The largest flows.
    Seen(Box<Seen>),
    /// The answer of its work; `None` if the work does not know the question.
    Work(Option<WorkAnswer>),
    /// The descriptors by port; `None` if one of the ports cannot be handed over.
    Descriptors(Option<CorePorts>),
    /// The state, or why it cannot be handed over now.
    State(Result<Arc<CoreState>, HandoverError>),
}

/// The tables of a core.
#[derive(Clone, PartialEq, Debug)]
pub struct Tables {
    /// Whether the core receives frames. The tables of other cores answer nothing.
    pub receives: bool,
    /// The tables in front of the indirection table, in the order they are asked.
    pub front: Vec<TableState>,
    /// The indirection table.
    pub spread: Vec<To>,
    /// Frames that the indirection table answered.
    pub spread_hits: u64,
}

/// The state of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableState {
    /// `exact` (the user's), `rules`, `promoted`, `learnt`, or the table's number.
    pub name: String,
    /// Number of entries; `None` if the table does not know.
    pub entries: Option<usize>,
    /// Largest number of entries.
    pub capacity: Option<usize>,
    /// Frames that the table answered.
    pub hits: u64,
    /// Entries in no order; not all of them if there are more than were asked for.
    pub listed: Vec<(FlowKey, Action)>,
}

/// A question with the channel for its answer.
#[derive(Clone, Debug)]
pub struct Ask {
    pub(crate) question: Question,
    pub(crate) reply: SyncSender<(u16, Answer)>,
}

impl Ask {
    /// Asks a core, which sends its number and its answer to `reply`.
    #[must_use]
    pub const fn new(question: Question, reply: SyncSender<(u16, Answer)>) -> Self {
        Self { question, reply }
    }
}
