//! Traffic for tests and benches, and the checker of order and conservation.
//!
//! ```text
//!  Rng ──> Traffic ──> (time, frame) ──> the thing under test ──> Checker: order, conservation
//!              └── Build: headers with right lengths and checksums
//! ```
//!
//! Everything comes from a seed: the same seed gives the same bytes at the same times. Checksums
//! are computed here, not with the `wire` crate, so that tests do not check code with itself.
//!
//! Thread-safety: plain values, each used by one thread at a time.
#![forbid(unsafe_code)]

mod frames;
#[cfg(feature = "harness")]
pub mod harness;
mod order;
mod sums;
mod traffic;

pub use flowyard_frame::Rng;
pub use frames::Build;
pub use order::{Checker, Summary, Violation};
pub use traffic::{Arrivals, Packet, Popularity, Profile, Sizes, Traffic};
