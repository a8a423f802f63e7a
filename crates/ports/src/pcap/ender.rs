//! Ends captures that wait for a pipe, such as `tcpdump -w - | flowyard analyze -`, when the user does.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// Ends the captures that were opened with it: they return what has arrived, and then nothing more.
///
/// Thread-safety: clones may be used by any thread; [`Ender::writer`] also by a signal handler.
#[derive(Clone, Debug)]
pub struct Ender(Arc<(OwnedFd, OwnedFd)>);

impl Ender {
    /// An ender for any number of captures.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self(Arc::new((reader, writer))))
    }

    /// Ends the captures.
    pub fn end(&self) {
        // A full pipe has a byte in it, which is enough.
        let _full = rustix::io::write(&self.0.1, b"!");
    }

    /// A pipe that ends the captures when a byte is written into it.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn writer(&self) -> io::Result<OwnedFd> {
        self.0.1.try_clone()
    }

    /// Whether the captures were ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut wait = [PollFd::new(&self.0.0, PollFlags::IN)];
        poll(&mut wait, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Waits until `input` has bytes or ended; `false` if the captures were ended.
    fn wait(&self, input: BorrowedFd<'_>) -> io::Result<bool> {
        loop {
            let mut wait = [
                PollFd::from_borrowed_fd(input, PollFlags::IN),
                PollFd::new(&self.0.0, PollFlags::IN),
            ];
            match poll(&mut wait, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(wait[1].revents().is_empty()),
            }
        }
    }
}

/// A file or pipe that ends early when its ender is used.
pub(super) struct Endable {
    pub(super) input: File,
    pub(super) ender: Ender,
}

impl Read for Endable {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.ender.wait(self.input.as_fd())? {
            match self.input.read(buf) {
                // A FIFO that was opened before its writer.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
        Ok(0)
    }
}
