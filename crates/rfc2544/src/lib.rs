//! The test bench: RFC 2544 and related methods (RFC 2889, 5180, 6201, 8219, 9004, MLRsearch), and
//! the checks by which the tester is qualified before it measures a device.
//!
//! ```text
//!  Search ── Trial ──> Measure (virtual time | real time | a model) ── TrialResult ──> Search
//!                        │ Spec ─> Plan ─> tagged frames ─> device ─> Analyser ─> Counts, Latency
//!                        └ T1..T10: every frame tagged, integers, seeded, the tester's drops apart
//! ```
//!
//! Searches are pure state machines: they return the next trial and accept its result. A run can
//! therefore be resumed by replaying the results recorded so far. Time is an argument; only the
//! command line reads a clock.
//!
//! Invariants: received = good + duplicates + corrupt + foreign + misrouted + stale; lost = sent -
//! good; frames that the tester itself lost are counted separately, never as loss of the device.
//! Thread-safety: plain values, each used by one thread.
#![forbid(unsafe_code)]

pub mod analyse;
pub mod compliance;
pub mod document;
pub mod dut;
pub mod latency;
pub mod learn;
pub mod line;
pub mod measure;
pub mod profile;
pub mod qualify;
pub mod search;
pub mod setup;
pub mod suite;
pub mod tag;
pub mod tester;
pub mod track;
pub mod traffic;
pub mod trial;
pub mod virtual_bench;

pub use analyse::Analyser;
pub use dut::Dut;
pub use latency::Latency;
pub use line::{Line, Load};
pub use measure::{Measure, MeasureError};
pub use profile::Profile;
pub use search::Search;
pub use setup::{Setup, Topology};
pub use suite::{Bench, Journal, Results};
pub use tester::VirtualTester;
pub use traffic::Spec;
pub use trial::{Counts, Trial, TrialResult};
