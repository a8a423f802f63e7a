//! Searches: pure state machines that return the next trial and accept its result.
//!
//! ```text
//!  while let Some(trial) = search.next_trial() { search.record(&measure(&trial)?); }
//!  search.answer()
//! ```
//!
//! A search uses no clock, device or file. Given the same results it returns the same trials, so a
//! run is resumable and repeatable.
//!
//! A fault of the tester is not loss of the device: a trial with a fault is repeated up to
//! [`RETRIES`] times; then the search uses the result and marks its answer.

pub mod back_to_back;
pub mod bursts;
pub mod latency;
pub mod learning;
pub mod loss_rate;
mod machine;
pub mod mlr;
pub mod recovery;
pub mod throughput;

pub use back_to_back::BackToBack;
pub use bursts::Bursts;
pub use latency::{Delay, Rfc2544Latency, Rfc8219Latency};
pub use learning::{Caching, LearningRate};
pub use loss_rate::LossRate;
#[cfg(test)]
pub(crate) use machine::Retry;
pub use machine::{RETRIES, Search};
pub use mlr::{Goal, MlrSearch};
pub use recovery::{Recovery, Reset};
pub use throughput::Throughput;

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
pub(crate) mod tests;
