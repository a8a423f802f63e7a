//! The tester's connections in real time: its ports, and the reset of the device.

/// One port of the tester.
pub trait Wire {
    /// Sends `frames` in order; returns how many were accepted.
    ///
    /// # Errors
    /// A permanent failure, as a message for the user.
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, String>;

    /// Passes every frame received so far to `each`.
    fn receive(&mut self, each: &mut dyn FnMut(&[u8]));

    /// Received frames that the port itself dropped since the last call.
    fn drops(&mut self) -> u64;
}

/// Resets the device under test.
pub trait Resetter {
    /// Starts the reset and returns at once; the tester continues to send.
    ///
    /// # Errors
    /// Why the reset could not be started, as a message for the user.
    fn begin(&mut self) -> Result<(), String>;

    /// Ends the reset after the trial, and reports whether it succeeded.
    ///
    /// # Errors
    /// Why the reset failed, as a message for the user.
    fn end(&mut self) -> Result<(), String>;
}
