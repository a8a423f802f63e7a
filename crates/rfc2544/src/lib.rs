//! The test bench: RFC 2544 and its family, and a tester that proves itself first.
//!
//! ```text
//!  Search ── Trial ──> Measure (virtual time | real time | a model) ── TrialResult ──> Search
//!                        │ Spec ─> Plan ─> tagged frames ─> device ─> Analyser ─> Counts, Latency
//!                        └ T1..T10: every frame tagged, integers, seeded, the tester's drops apart
//! ```
//!
//! Searches are pure: they ask for trials and are told results, so a run can be resumed by telling it
//! again what was written down. Time is an argument; only the command line has a clock.
//!
//! Invariants: received = good + duplicates + corrupt + foreign + misrouted + stale; lost = sent -
//! good; what the tester lost itself is never the device's loss.
//! Thread-safety: plain values, each used by one thread.
#![forbid(unsafe_code)]

pub mod analyse;
pub mod compliance;
pub mod document;
pub mod dut;
pub mod latency;
pub mod learn;
pub mod line;
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
pub use profile::Profile;
pub use search::Search;
pub use setup::{Setup, Topology};
pub use suite::{Bench, Journal, Results};
pub use tester::{Measure, MeasureError, VirtualTester};
pub use traffic::Spec;
pub use trial::{Counts, Trial, TrialResult};
