//! The yard: the engine that sorts frames onto cores.
//!
//! ```text
//!  rx ──> parse ──> steer ──> settle ──> enqueue ~~> dequeue ──> work ──> complete ──> tx
//!  <──────────────────── core.rs, top to bottom ────────────────────────────────────────>
//! ```
//!
//! A [`Blueprint`] describes an engine, [`Yard::build`] builds it. [`run`] runs it on threads,
//! [`sim`] on one thread under a virtual clock and a seed. The engine knows no kind of work and no
//! kind of port: it has the traits [`Work`], [`Rx`] and [`Tx`].
//!
//! Invariants (every test that moves frames checks both): per flow, order out is order in, unless
//! a queue is declared unordered; frames in = frames out + drops by reason + frames held.
//! Thread-safety: a core is one thread's; cores share queues, mailboxes and the pool.

use std::sync::Arc;

use flowyard_frame::Nanos;

pub mod apply;
mod arrivals;
pub mod ask;
pub mod blueprint;
pub mod build;
mod control;
mod core;
mod counters;
mod elephants;
pub mod front;
pub mod handover;
mod mail;
mod places;
pub mod port;
mod question;
mod reload;
pub mod run;
pub mod sim;
mod stages;
mod sys;
mod tally;
mod to_ports;
pub mod trace;
pub mod work;

pub use apply::{List, Lists, Op};
pub use arrivals::{Arrivals, Numbered};
pub use ask::Handle;
pub use blueprint::{Blueprint, BlueprintError};
pub use build::{Parts, Yard};
pub use control::ControlPlane;
pub use core::{Core, Stage, Tick};
pub use counters::{Board, Counters, DropReason, Drops};
pub use elephants::{Decisions, Report};
pub use mail::{Mail, Message};
pub use places::{Fan, Full, Place, Places};
pub use port::{Closed, Discard, Rx, Tx};
pub use reload::{Reload, WorkChange};
pub use stages::{Span, Stages};
pub use tally::Count;
pub use to_ports::{MADE, ToPorts};
pub use work::{Around, Work};

/// The time now, in nanoseconds from some fixed point. Only the command line makes a real one.
pub type Clock = Arc<dyn Fn() -> Nanos + Send + Sync>;
