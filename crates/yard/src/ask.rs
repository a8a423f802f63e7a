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

mod freeze;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use flowyard_frame::Nanos;

use crate::control::{ControlPlane, find_control};
use crate::counters::{Board, Counters};
use crate::elephants::Decisions;
use crate::mail::{Mail, Message};
use crate::places::Places;
pub use crate::question::{Answer, Ask, Question, TableState, Tables};
use crate::{Clock, Reload};

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
        find_control(&self.control)
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
