//! The machine that flowyard runs on: reads the settings of a network interface and of the kernel that
//! decide where frames go, plans changes of them, applies these and undoes them.
//!
//! ```text
//!  sysfs, procfs ──┐
//!  ethtool (ioctl) ┴─ Machine ──> State ──> what the card would do ──> Plan ──> apply ──> journal ──> undo
//!                     (here, or a test's)
//! ```
//!
//! A value that the kernel or the driver does not give is [`Known::Unknown`] with the reason, never a default.
//!
//! Invariants: nothing but [`Machine`]'s methods touches the machine; reading changes nothing.
//! Thread-safety: every value is used by one thread at a time.

mod apply;
mod card;
mod cpus;
mod effect;
#[cfg(test)]
mod fake;
mod files;
mod flow_types;
mod goal;
mod guard;
mod here;
pub mod journal;
mod known;
mod machine;
pub mod ntuple;
mod plan;
mod prove;
mod rules;
mod sample;
mod setting;
mod state;
mod sys;
mod traffic;

pub use apply::{Failure, Undone, apply, differences, undo, undo_journal};
pub use card::{Card, Place};
pub use cpus::list as cpu_list;
pub use effect::Effect;
pub use goal::{Goal, plan};
pub use guard::dangers;
pub use here::{Here, addresses, interfaces};
pub use known::Known;
pub use machine::{Channels, Coalesce, Counts, Driver, Feature, Machine, Rss};
pub use plan::{Change, Observed, Plan, Refusal, Step};
pub use prove::{CpuProof, FlowProof, Proof, QueueProof, Seen};
pub use sample::{Only, Sampled, Sampler};
pub use setting::{Setting, Settings, settings_of};
pub use state::*;
pub use sys::{Offload, offload};
pub use traffic::{Flow, Traffic};
