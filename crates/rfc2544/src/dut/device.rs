//! The interface of a device under virtual time.

use flowyard_frame::Nanos;

/// Whether a device exported its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The exported state is complete.
    Complete,
    /// The state is too large at the moment; a later attempt may succeed.
    TooLarge,
    /// The device cannot export its state, now or later.
    Unavailable,
}

/// A device under virtual time.
pub trait Dut {
    /// A description of the device for the report.
    fn describe(&self) -> String;

    /// The number of ports.
    fn ports(&self) -> u8;

    /// The last bit of `frame` arrives at `port` at time `at`. Times never decrease, and never lie
    /// before a time up to which frames were collected.
    fn offer(&mut self, at: Nanos, port: u8, frame: &[u8]);

    /// Passes every frame that left up to `until` to `out`, in order of time: the time of the first
    /// bit, the port, the bytes.
    fn collect(&mut self, until: Nanos, out: &mut dyn FnMut(Nanos, u8, &[u8]));

    /// Appends everything that future output depends on, apart from the frames still to be offered,
    /// with times relative to `now`. Two equal states followed by equal offers must give equal
    /// frames at equal relative times.
    fn state(&self, _now: Nanos, _into: &mut Vec<u64>) -> State {
        State::Unavailable
    }

    /// Resets the device at time `at`. Returns false if the device cannot be reset.
    fn reset(&mut self, _at: Nanos) -> bool {
        false
    }

    /// Frames that the device dropped since it was built, by its own reasons. These counters appear
    /// in the report and are never used to compute results.
    fn drops(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}
