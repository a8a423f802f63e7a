//! Mail: edits on their way from learners to tables, and the driver's orders to cores.
//!
//! ```text
//!  learner on core 2 ──Edit──┐
//!  control plane ───Control──┼──> the work of that core
//!  user ────────────Reload───┼──> mailbox of core 0 ──between batches──> its tables
//!  sampling on core 1 ─Report─┤   (bounded; a full one loses edits, and counts them)
//!  people ───────────Ask──────┤
//!  driver ──────────Stop─────┘
//! ```
//!
//! A lost edit does no harm to order or conservation: tables may say anything at any time. The
//! learner's knowledge and the table then differ until it learns the flow again.
//!
//! Thread-safety: any core may write to any mailbox; its core reads it. Nothing is allocated or
//! locked on the way.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use flowyard_frame::{Edit, To};

use crate::ask::Ask;
use crate::elephants::Report;
use crate::reload::Reload;
use crate::work::ControlMessage;

/// What a core can be told.
#[derive(Clone, Debug)]
pub enum Message {
    /// Change the learnt table.
    Edit(Edit),
    /// Change the table of promoted flows.
    Promote(Edit),
    /// Send the flows of an entry of the indirection table elsewhere.
    Entry {
        /// Its index.
        index: u32,
        /// The new home.
        to: To,
    },
    /// What a core saw, for the core that decides about elephants.
    Report(Box<Report>),
    /// Take over new tables.
    Reload(Arc<Reload>),
    /// A message of a control plane to the works: see [`crate::Work::control`].
    Control(ControlMessage),
    /// Answer a question.
    Ask(Box<Ask>),
    /// Receive no more. What is inside goes its way.
    Stop,
}

/// The mailboxes of all cores, by core.
#[derive(Clone, Debug)]
pub struct Mail(Arc<[SyncSender<Message>]>);

/// A core's own mailbox.
pub(crate) type Mailbox = Receiver<Message>;

impl Mail {
    /// Mailboxes for `cores` cores, each for `size` messages.
    pub(crate) fn new(cores: usize, size: usize) -> (Self, Vec<Mailbox>) {
        let (senders, boxes): (Vec<_>, _) = (0..cores).map(|_| sync_channel(size)).unzip();
        (Self(senders.into()), boxes)
    }

    /// Sends `message` to `core`, unless its mailbox is full. Whether it went. A core that is gone
    /// needs no mail.
    pub fn offer(&self, core: u16, message: Message) -> bool {
        let Some(to) = self.0.get(usize::from(core)) else { return true };
        !matches!(to.try_send(message), Err(TrySendError::Full(_)))
    }

    /// Sends `message` to every core, waiting for room in their mailboxes; not to be called by a
    /// core. Cores that are gone are passed over.
    pub fn to_all(&self, message: &Message) {
        for to in self.0.iter() {
            drop(to.send(message.clone()));
        }
    }
}
