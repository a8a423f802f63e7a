//! An AF_XDP socket with its own memory: frames to send are copied in, received frames are lent.
//!
//! ```text
//!  frames ─ copy ─> free chunks ─ tx ring ─> [kernel] ─ completion ─> free chunks
//!  fill ring ─> [kernel] ─ rx ring ─> lent to the caller ─> fill ring
//! ```
//!
//! For callers such as a traffic generator, which have frames in their own memory and send them at
//! full rate. In copy mode the kernel takes a batch per call and builds each frame in one piece.
//! This costs less than sendmmsg(2) on a packet socket and than a packet socket's transmit ring
//! (measured: docs/bench.md), and the cost per frame falls with the number of frames per call.
//!
//! Invariants: each chunk is free, or in one of the four rings, or lent for the duration of a call.
//! Thread-safety: used by one thread at a time.

use std::io;

use super::program::Program;
use super::rules::Rules;
use super::socket::{Desc, Mode, Settings, Socket};
use super::sys::{CAPABILITY, Memory};
use crate::live::{Interface, OpenError};

/// Both directions of one queue.
#[derive(Debug)]
pub struct Exchange {
    /// Declared before the socket, so that it is dropped first and no further frames arrive.
    program: Option<Program>,
    socket: Socket,
    memory: Memory,
    free: Vec<u64>,
    /// Frames submitted since the kernel was last woken.
    quiet: usize,
    /// The number of submitted frames for which the kernel is woken.
    gathers: usize,
}

/// Frames processed per step.
const STEP: usize = 64;

impl Exchange {
    /// The longest frame in bytes without FCS.
    pub const LONGEST: usize = Memory::CHUNK as usize;

    /// Opens queue 0 of `interface` with `frames` buffers per direction (rounded up to a power of
    /// two). With `receives`, all frames of the queue come here instead of to the kernel, until the
    /// exchange is dropped.
    ///
    /// # Errors
    /// When the kernel refuses, or the interface has another XDP program.
    pub fn open(interface: &Interface, frames: u32, receives: bool) -> Result<Self, OpenError> {
        let frames = frames.next_power_of_two().clamp(64, 1 << 16);
        let fail = |error| OpenError::os("memory for af_xdp", &error, CAPABILITY);
        let memory = Memory::new(2 * frames).map_err(fail)?;
        let settings = Settings { mode: Mode::Auto, frames, multi_buffer: false };
        let mut socket = Socket::open(interface, 0, &memory.umem(), settings)?;
        socket.hurry();
        let chunk = |n: u32| u64::from(n) * u64::from(Memory::CHUNK);
        let free = (0..frames).map(chunk).collect();
        let program = if receives {
            socket.fill(&(frames..2 * frames).map(chunk).collect::<Vec<_>>());
            let program = Program::attach(interface, &Rules::All, false, None)?;
            let set = program.set(0, &socket);
            set.map_err(|error| OpenError::os("af_xdp", &error, CAPABILITY))?;
            Some(program)
        } else {
            None
        };
        Ok(Self { program, socket, memory, free, quiet: 0, gathers: 1 })
    }

    /// Wakes the kernel only once per `frames` frames (at most half of the buffers) instead of for
    /// every call. This halves the cost on a busy machine and delays frames by the time to gather
    /// them. [`Exchange::pending`] sends the remaining frames.
    #[must_use]
    pub fn gather(self, frames: usize) -> Self {
        let most = self.free.len() / 2;
        Self { gathers: frames.clamp(1, most.max(1)), ..self }
    }

    /// Whether this exchange receives frames.
    #[must_use]
    pub const fn receives(&self) -> bool {
        self.program.is_some()
    }

    /// Accepts `frames` in order while there are free buffers. Returns how many were accepted, and
    /// the error of the kernel, if any. Accepted frames leave with this call or a later one.
    pub fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> (usize, Option<io::Error>) {
        let mut done = [0; STEP];
        loop {
            let count = self.socket.complete(&mut done);
            self.free.extend_from_slice(&done[..count]);
            if count < STEP {
                break;
            }
        }
        let (mut taken, mut batch) = (0, [Desc::default(); STEP]);
        let room = self.socket.tx_room().min(STEP);
        for (desc, frame) in batch[..room].iter_mut().zip(frames) {
            let Some(addr) = self.free.pop() else { break };
            if !self.memory.put(addr, frame) {
                self.free.push(addr);
                let what = format!(
                    "a frame of {} bytes exceeds the limit of {} bytes",
                    frame.len(),
                    Self::LONGEST
                );
                return (self.flush(&batch[..taken]).0, Some(io::Error::other(what)));
            }
            *desc = Desc { addr, len: frame.len() as u32, continues: false };
            taken += 1;
        }
        self.flush(&batch[..taken])
    }

    /// Submits the written frames.
    fn flush(&mut self, batch: &[Desc]) -> (usize, Option<io::Error>) {
        self.socket.transmit(batch);
        self.quiet += batch.len();
        if !batch.is_empty() && self.quiet < self.gathers {
            return (batch.len(), None);
        }
        self.quiet = 0;
        (batch.len(), self.socket.wake().err())
    }

    /// Wakes the kernel; returns the number of accepted frames that it has not taken yet.
    pub fn pending(&mut self) -> u32 {
        self.socket.wake().unwrap_or(0)
    }

    /// Lends received frames to `each`, until none is left or about `most` were lent.
    pub fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) {
        let (mut descs, mut addrs) = ([Desc::default(); STEP], [0; STEP]);
        let mut seen = 0;
        while seen < most {
            let count = self.socket.receive(&mut descs);
            for (desc, addr) in descs[..count].iter().zip(&mut addrs) {
                each(self.memory.get(desc.addr, desc.len));
                // The frame may start anywhere in its chunk; the kernel needs the chunk's address.
                *addr = desc.addr / u64::from(Memory::CHUNK) * u64::from(Memory::CHUNK);
            }
            self.socket.fill(&addrs[..count]);
            seen += count;
            if count < STEP {
                return;
            }
        }
    }

    /// The number of frames dropped since the last call for lack of buffers or ring space.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn drops(&mut self) -> io::Result<u32> {
        self.socket.drops()
    }
}
