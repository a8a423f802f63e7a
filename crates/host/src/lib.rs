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

mod cpus;
#[cfg(test)]
mod fake;
mod files;
mod flow_types;
mod here;
mod known;
mod machine;
pub mod ntuple;
mod setting;
mod state;
mod sys;

pub use cpus::list as cpu_list;
pub use here::{Here, interfaces};
pub use known::Known;
pub use machine::{Channels, Coalesce, Counts, Driver, Feature, Machine, Rss, Rules};
pub use setting::{Setting, Settings, settings_of};
pub use state::*;
