//! Mail: edits from learners to tables, and requests to cores.
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
//! A lost edit harms neither order nor conservation, because tables may say anything at any time. The
//! learner's knowledge and the table differ until it learns the flow again.
//!
//! Thread-safety: any core may write to any mailbox; its own core reads it. Sending does not allocate
//! or lock.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use flowyard_flow::table::marked::Named;
use flowyard_frame::{Edit, To};

use crate::elephants::report::Report;
use crate::question::Ask;
use crate::reload::Reload;
use crate::work::ControlMessage;

/// A message to a core.
#[derive(Clone, Debug)]
pub enum Message {
    /// Change the learnt table.
    Edit(Edit),
    /// Change the table of promoted flows.
    Promote(Edit),
    /// Marks with a number name a flow from here on, or nothing.
    Name {
        /// The number.
        number: u32,
        /// The flow.
        flow: Option<Named>,
    },
    /// Change the destination of an entry of the indirection table.
    Entry {
        /// The index of the entry.
        index: u32,
        /// The new destination.
        to: To,
    },
    /// A core's report to the elephant detector.
    Report(Box<Report>),
    /// Replace tables.
    Reload(Arc<Reload>),
    /// A message of a control plane to the work: see [`crate::Work::control`].
    Control(ControlMessage),
    /// Answer a question.
    Ask(Box<Ask>),
    /// Stop receiving. Frames inside are transmitted.
    Stop,
    /// Receive nothing (`true`), or receive again (`false`).
    Pause(bool),
    /// Another process has taken over: end without closing the ports.
    Leave,
}

/// The mailboxes of all cores, by core.
#[derive(Clone, Debug)]
pub struct Mail(Arc<[SyncSender<Message>]>);

/// A core's own mailbox.
pub(crate) type Mailbox = Receiver<Message>;

impl Mail {
    /// Mailboxes for `cores` cores, each with a capacity of `size` messages.
    pub(crate) fn new(cores: usize, size: usize) -> (Self, Vec<Mailbox>) {
        let (senders, boxes): (Vec<_>, _) = (0..cores).map(|_| sync_channel(size)).unzip();
        (Self(senders.into()), boxes)
    }

    /// Sends `message` to `core` unless its mailbox is full. Returns whether it was sent; a core that has
    /// finished needs no mail, which counts as sent.
    pub fn offer(&self, core: u16, message: Message) -> bool {
        let Some(to) = self.0.get(usize::from(core)) else { return true };
        !matches!(to.try_send(message), Err(TrySendError::Full(_)))
    }

    /// Sends `message` to every core and waits for capacity in their mailboxes. Cores must not call this.
    /// Cores that have finished are skipped.
    pub fn to_all(&self, message: &Message) {
        for to in self.0.iter() {
            drop(to.send(message.clone()));
        }
    }
}
