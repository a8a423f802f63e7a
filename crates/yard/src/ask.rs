//! Ask: what people want to know of a running yard.
//!
//! ```text
//!  Handle ──Question by mail──> each core ──Answer, between two batches──> Handle
//! ```
//!
//! What is on a core's board, or in the places, is read at once. The rest only the core itself may
//! look at: so it is asked, and answers between batches. A core that is at work for longer than the
//! asker's patience, has died or has left gives no answer.
//!
//! Thread-safety: anyone may have a handle, and ask; cores answer one question after another.

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

/// What a core can be asked.
#[derive(Clone, Debug)]
pub enum Question {
    /// Whether it is alive.
    Alive,
    /// Its tables, with at most so many entries of each.
    Tables {
        /// The most entries of a table.
        entries: usize,
    },
    /// The last frames that it dropped.
    Drops,
    /// To tell what happens to some frames; `None`: to stop that.
    Follow(Option<Filter>),
    /// To count the flows that it works on.
    Sample(Box<Sampler>),
    /// What it has counted since; it counts no more then.
    Seen,
    /// A question of a type that its work knows: see [`crate::Work::ask`].
    Work(Arc<dyn Any + Send + Sync>),
}

/// What it answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It is done, or alive.
    Done,
    /// Its tables.
    Tables(Box<Tables>),
    /// Its drops, the oldest first.
    Drops(Vec<Dropped>),
    /// Its largest flows.
    Seen(Box<Seen>),
    /// The answer of its work; `None` if the work does not know the question.
    Work(Option<WorkAnswer>),
}

/// The tables of a core.
#[derive(Clone, PartialEq, Debug)]
pub struct Tables {
    /// Whether it receives: tables of a core that does not answer nothing.
    pub receives: bool,
    /// Those in front of the indirection table, in the order they are asked.
    pub front: Vec<TableState>,
    /// The indirection table.
    pub spread: Vec<To>,
    /// Frames that it answered.
    pub spread_hits: u64,
}

/// A table, as it is.
#[derive(Clone, PartialEq, Debug)]
pub struct TableState {
    /// `exact` (the user's), `rules`, `promoted`, `learnt`, or its number.
    pub name: String,
    /// How many entries it has; `None` if it does not say.
    pub entries: Option<usize>,
    /// How many it takes.
    pub capacity: Option<usize>,
    /// Frames that it answered.
    pub hits: u64,
    /// Entries, in no order; not all, if there are more than were asked for.
    pub listed: Vec<(FlowKey, Action)>,
}

/// A question on its way, with where the answer goes.
#[derive(Clone, Debug)]
pub struct Ask {
    question: Question,
    reply: SyncSender<(u16, Answer)>,
}

/// A way to ask a running yard.
#[derive(Clone)]
pub struct Handle {
    pub(crate) boards: Vec<Arc<Board>>,
    pub(crate) places: Arc<Places>,
    pub(crate) mail: Mail,
    pub(crate) elephants: Decisions,
    pub(crate) clock: Clock,
    /// Cores that answer no more.
    pub(crate) left: Arc<AtomicUsize>,
    pub(crate) control: Vec<Arc<dyn ControlPlane>>,
}

impl Handle {
    /// How many cores there are.
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

    /// What was decided about elephants.
    #[must_use]
    pub const fn elephants(&self) -> &Decisions {
        &self.elephants
    }

    /// The yard's time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        (self.clock)()
    }

    /// Whether every core has left: nobody will answer.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) >= self.boards.len()
    }

    /// Receives no more, and drains.
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

    /// The answers by core; `None` of a core that did not answer within `patience`.
    #[must_use]
    pub fn ask(&self, question: &Question, patience: Duration) -> Vec<Option<Answer>> {
        let mut answers = vec![None; self.cores()];
        let (reply, replies) = sync_channel(self.cores().max(1));
        for core in 0..self.cores() as u16 {
            let ask = Ask { question: question.clone(), reply: reply.clone() };
            self.mail.offer(core, Message::Ask(Box::new(ask)));
        }
        drop(reply); // so that the last one who can answer ends the wait
        let until = self.now().saturating_add(patience.as_nanos() as Nanos);
        loop {
            let left = Duration::from_nanos(until.saturating_sub(self.now()));
            match replies.recv_timeout(left) {
                Ok((core, answer)) => {
                    if let Some(slot) = answers.get_mut(usize::from(core)) {
                        *slot = Some(answer);
                    }
                }
                Err(_) => return answers, // all have answered or cannot, or it took too long
            }
        }
    }
}

impl Core {
    /// Answers, if there is still someone to be answered.
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
        self.publish(); // who asks wants to see the books as they are, too
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
