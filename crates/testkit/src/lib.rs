//! What tests and benches share: frames, traffic, the checker of order and conservation, captures, the
//! counting allocator, and the harness of tests with requirements.
//!
//! ```text
//!  Rng ──> Traffic ──> (time, frame) ──> the code under test ──> Checker: order, conservation
//!              └── Build: headers with correct lengths and checksums
//! ```
//!
//! Everything random comes from a seed: the same seed gives the same bytes at the same times.
//! Checksums are computed here, not with the `wire` crate, so that no code is tested with itself.
//!
//! Thread-safety: plain values, each used by one thread at a time.
#![deny(unsafe_code)]

pub mod alloc;
mod batch;
#[cfg(feature = "captures")]
pub mod captures;
pub mod dns;
#[cfg(feature = "harness")]
pub mod event_engine;
mod faulty;
mod frames;
#[cfg(feature = "harness")]
pub mod harness;
mod order;
pub mod stacks;
mod sums;
mod traffic;

pub use batch::{batch, hashed_batch};
pub use faulty::Faulty;
pub use flowyard_frame::Rng;
pub use frames::Build;
pub use order::{Checker, Summary, Violation};
pub use traffic::{Arrivals, Packet, Popularity, Profile, Sizes, Traffic};
