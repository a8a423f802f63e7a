//! The device under test, under virtual time: frames in, frames out, each with its time.
//!
//! ```text
//!  tester ── offer(at, port, frame) ──> Dut ── collect(until) ──> (at, port, frame) ── tester
//! ```
//!
//! A device that can export its complete state lets the tester detect that a state recurs: from
//! there on the output repeats and need not be simulated again.

mod device;
pub mod faulty;
pub mod yard;

pub use device::{Dut, State};
pub use faulty::{Faults, Faulty, Truth};
pub use yard::{Job, YardDut, YardSpec};
