//! Questions to a running engine from outside.
//!
//! ```text
//!  Handle ──Question by mail──> each core ──Answer, between two batches──> Handle
//! ```
//!
//! Counters (a core's board) and queue lengths are read directly. Everything else belongs to a core, which
//! answers between two batches. A core that works for longer than the caller's time limit, has died
//! or has finished gives no answer.
//!
//! Thread-safety: any thread may have a handle and ask; a core answers one question after another.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use flowyard_flow::learn::elephant::{Sampler, Seen};
use flowyard_frame::{Action, FlowKey, Nanos, To};

use crate::core::Core;
use crate::core::{LEARNT, PROMOTED, RULES, USER};
use crate::counters::{Board, Counters};
use crate::elephants::Decisions;
use crate::mail::{Mail, Message};
use crate::places::Places;
use crate::trace::{Dropped, Filter};
use crate::work::{ControlPlane, WorkAnswer};
use crate::{Clock, Reload};

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
    /// Trace the frames of some flows; `None` stops tracing.
    Follow(Option<Filter>),
    /// Start to count the flows that the core works on.
    Sample(Box<Sampler>),
    /// Return the counted flows, and stop counting.
    Seen,
    /// A question of a type that the work knows: see [`crate::Work::ask`].
    Work(Arc<dyn Any + Send + Sync>),
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
    /// The largest flows.
    Seen(Box<Seen>),
    /// The answer of its work; `None` if the work does not know the question.
    Work(Option<WorkAnswer>),
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
    question: Question,
    reply: SyncSender<(u16, Answer)>,
}

/// Access to a running engine from any thread.
#[derive(Clone)]
pub struct Handle {
    pub(crate) boards: Vec<Arc<Board>>,
    pub(crate) places: Arc<Places>,
    pub(crate) mail: Mail,
    pub(crate) elephants: Decisions,
    pub(crate) clock: Clock,
    /// Cores that have finished and answer no more.
    pub(crate) left: Arc<AtomicUsize>,
    pub(crate) control: Vec<Arc<dyn ControlPlane>>,
}

impl Handle {
    /// Number of cores.
    #[must_use]
    pub const fn cores(&self) -> usize {
        self.boards.len()
    }

    /// Counters by core, some ticks old.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        self.boards.iter().map(|board| board.read()).collect()
    }

    /// Queues and tx queues.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Decisions about elephant flows.
    #[must_use]
    pub const fn elephants(&self) -> &Decisions {
        &self.elephants
    }

    /// The engine's clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        (self.clock)()
    }

    /// Whether every core has finished, so that no core will answer.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) >= self.boards.len()
    }

    /// Stops receiving; frames inside are transmitted.
    pub fn stop(&self) {
        self.mail.to_all(&Message::Stop);
    }

    /// Replaces the tables of every core.
    pub fn reload(&self, reload: Reload) {
        self.mail.to_all(&Message::Reload(Arc::new(reload)));
    }

    /// The control plane of this type, if the engine has one.
    #[must_use]
    pub fn control_plane<T: ControlPlane>(&self) -> Option<Arc<T>> {
        crate::work::find_control(&self.control)
    }

    /// Asks every core. Returns the answers by core; `None` for a core that did not answer within `patience`.
    #[must_use]
    pub fn ask(&self, question: &Question, patience: Duration) -> Vec<Option<Answer>> {
        let mut answers = vec![None; self.cores()];
        let (reply, replies) = sync_channel(self.cores().max(1));
        for core in 0..self.cores() as u16 {
            let ask = Ask { question: question.clone(), reply: reply.clone() };
            self.mail.offer(core, Message::Ask(Box::new(ask)));
        }
        drop(reply); // so that the wait ends after the last core that can answer
        let until = self.now().saturating_add(patience.as_nanos() as Nanos);
        loop {
            let left = Duration::from_nanos(until.saturating_sub(self.now()));
            match replies.recv_timeout(left) {
                Ok((core, answer)) => {
                    if let Some(slot) = answers.get_mut(usize::from(core)) {
                        *slot = Some(answer);
                    }
                }
                Err(_) => return answers, // all have answered or cannot answer, or the time is over
            }
        }
    }
}

impl Core {
    /// Answers, unless the caller has gone.
    #[cold]
    pub(crate) fn answer(&mut self, ask: Ask) {
        let Ask { question, reply } = ask;
        let answer = match question {
            Question::Alive => Answer::Done,
            Question::Tables { entries } => Answer::Tables(Box::new(self.tables(entries))),
            Question::Drops => Answer::Drops(self.observers.tracer.drops()),
            Question::Follow(filter) => {
                self.observers.tracer.follow(filter);
                Answer::Done
            }
            Question::Sample(sampler) => {
                self.observers.tracer.sample(Some(sampler));
                Answer::Done
            }
            Question::Seen => {
                let mut seen = Seen::default();
                if let Some(mut sampler) = self.observers.tracer.sample(None) {
                    sampler.window(&mut seen);
                }
                Answer::Seen(Box::new(seen))
            }
            Question::Work(question) => Answer::Work(self.server.work.ask(&*question)),
        };
        self.publish(); // the caller also expects current counters
        let _gone = reply.try_send((self.id, answer));
    }

    fn tables(&mut self, most: usize) -> Tables {
        let entry = &mut self.entry;
        let hits = entry.steer.hits().to_vec();
        let mut front = Vec::new();
        for (at, &hits) in hits.iter().enumerate() {
            let Some(table) = entry.steer.table(at) else { continue };
            let name = match at {
                USER => "exact".into(),
                LEARNT => "learnt".into(),
                RULES => "rules".into(),
                PROMOTED => "promoted".into(),
                _ => format!("table {at}"),
            };
            let (entries, capacity) = table.occupancy().unzip();
            let mut listed = Vec::new();
            table.each(&mut |key, action| {
                if listed.len() < most {
                    listed.push((*key, *action));
                }
            });
            front.push(TableState { name, entries, capacity, hits, listed });
        }
        front.extend(self.server.work.table(most).map(|table| TableState {
            name: table.name.into(),
            entries: Some(table.entries),
            capacity: Some(table.capacity),
            hits: table.hits,
            listed: table.listed,
        }));
        Tables {
            receives: !entry.ports.is_empty() || !entry.ended.is_empty(),
            front,
            spread: entry.steer.spread.entries().to_vec(),
            spread_hits: hits.last().copied().unwrap_or(0),
        }
    }
}
