//! The yard: the engine that sorts frames onto cores.
//!
//! ```text
//!  rx ──> parse ──> steer ──> settle ──> enqueue ~~> dequeue ──> work ──> complete ──> tx
//!  <──────────────────── core.rs, top to bottom ────────────────────────────────────────>
//! ```
//!
//! [`Config`] (TOML) describes a yard, [`Yard`] is one, built and ready. [`run`] runs it on
//! threads, [`sim`] on one thread under a virtual clock and a seed.
//!
//! Invariants (every test that moves frames checks both): per flow, order out is order in, unless
//! a queue is declared unordered; frames in = frames out + drops by reason + frames held.
//! Thread-safety: a core is one thread's; cores share queues, mailboxes and the pool.

use std::sync::Arc;

use flowyard_frame::Nanos;

pub mod apply;
pub mod ask;
pub mod build;
pub mod config;
mod core;
mod counters;
mod elephants;
mod mail;
mod neighbour;
mod places;
pub mod pool;
pub mod port;
mod reload;
pub mod run;
pub mod scenario;
pub mod sim;
mod stages;
mod sys;
mod tally;
mod to_ports;
pub mod watch;
pub mod work;

pub use apply::{List, Lists, Op};
pub use ask::Handle;
pub use build::{Parts, Yard};
pub use config::Config;
pub use core::{Core, Stage, Tick};
pub use counters::{Board, Counters, DropReason, Drops};
pub use elephants::{Decisions, Report};
pub use mail::{Changes, Mail, Message};
pub use places::{Fan, Full, Place, Places};
pub use pool::{Meta, Pool};
pub use port::{Log, Pace, Rx, Tx};
pub use reload::Reload;
pub use stages::{Span, Stages};
pub use tally::Count;
pub use to_ports::ToPorts;
pub use work::Work;

/// The time now, in nanoseconds from some fixed point. Only the command line makes a real one.
pub type Clock = Arc<dyn Fn() -> Nanos + Send + Sync>;
