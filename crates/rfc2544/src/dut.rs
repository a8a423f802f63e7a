//! The device under test, under virtual time: frames in, frames out, each with its time.
//!
//! ```text
//!  tester ── offer(at, port, frame) ──> Dut ── collect(until) ──> (at, port, frame) ── tester
//! ```
//!
//! A device that can tell its whole state lets the tester notice that it is where it was before:
//! what came then comes again, and needs no second simulation.

use flowyard_frame::Nanos;

pub mod faulty;
pub mod yard;

pub use faulty::{Faults, Faulty, Truth};
pub use yard::{Job, YardDut, YardSpec};

/// Whether a device told its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All of it.
    Told,
    /// It is too much just now.
    Later,
    /// It cannot, or not any more.
    Never,
}

/// A device under virtual time.
pub trait Dut {
    /// What it is, for the report.
    fn describe(&self) -> String;

    /// How many ports it has.
    fn ports(&self) -> u8;

    /// The last bit of `frame` arrives at `port` at `at`: never before an earlier offer, and never
    /// before a time that was collected.
    fn offer(&mut self, at: Nanos, port: u8, frame: &[u8]);

    /// Hands over what left until `until`, in the order of time: when the first bit left, and where.
    fn collect(&mut self, until: Nanos, out: &mut dyn FnMut(Nanos, u8, &[u8]));

    /// Writes everything that its future depends on, besides what will be offered, with times
    /// relative to `now`. Two equal states, followed by equal offers, must give equal frames at equal
    /// distances.
    fn state(&self, _now: Nanos, _into: &mut Vec<u64>) -> State {
        State::Never
    }

    /// Is reset at `at`, and forwards again when it can. Gives false if it has no such thing.
    fn reset(&mut self, _at: Nanos) -> bool {
        false
    }

    /// Frames it dropped, by its own reasons, since it was built: for the report, never for results.
    fn drops(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}
