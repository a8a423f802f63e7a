//! An AF_XDP socket with memory of its own: frames are copied in to be sent, and lent when received.
//!
//! ```text
//!  frames ─ copy ─> free chunks ─ tx ring ─> [kernel] ─ completion ─> free chunks
//!  fill ring ─> [kernel] ─ rx ring ─> lent to the caller ─> fill ring
//! ```
//!
//! For whoever has frames in memory of its own and sends them at full rate, as a traffic generator: in
//! copy mode the kernel takes a batch for one call, and makes each frame in one piece. That costs
//! less than sendmmsg(2) on a packet socket, and than its transmit ring (measured: docs/bench.md);
//! the more frames for one call, the less.
//!
//! Invariants: each chunk is free, or in one of the four rings, or lent for the time of a call.
//! Thread-safety: one thread's at a time.

use std::io;

use super::sys::Memory;
use super::{Desc, Mode, Program, Rules, Settings, Socket};
use crate::live::{Interface, OpenError};

/// Both directions of one queue.
#[derive(Debug)]
pub struct Exchange {
    /// Before the socket: no frames come any more when it is gone.
    program: Option<Program>,
    socket: Socket,
    memory: Memory,
    free: Vec<u64>,
    /// Frames handed over that the kernel was not woken for, and how many it is woken for.
    quiet: usize,
    gathers: usize,
}

/// Frames under way in each direction, and how many are looked at by one step.
const STEP: usize = 64;

impl Exchange {
    /// The longest frame, in bytes without FCS.
    pub const LONGEST: usize = Memory::CHUNK as usize;

    /// Opens queue 0 of `interface` with `frames` buffers in each direction (a power of two). With
    /// `receives`, all frames of the queue come here and none to the kernel, until it is dropped.
    ///
    /// # Errors
    /// When the kernel does not let us, or another program has the interface.
    pub fn open(interface: &Interface, frames: u32, receives: bool) -> Result<Self, OpenError> {
        let frames = frames.next_power_of_two().clamp(64, 1 << 16);
        let fail = |error| OpenError::os("memory for af_xdp", &error, super::CAPABILITY);
        let memory = Memory::new(2 * frames).map_err(fail)?;
        let settings = Settings { mode: Mode::Auto, frames };
        let mut socket = Socket::open(interface, 0, &memory.umem(), settings)?;
        socket.hurry();
        let chunk = |n: u32| u64::from(n) * u64::from(Memory::CHUNK);
        let free = (0..frames).map(chunk).collect();
        let program = if receives {
            socket.fill(&(frames..2 * frames).map(chunk).collect::<Vec<_>>());
            let program = Program::attach(interface, &Rules::All)?;
            let set = program.set(0, &socket);
            set.map_err(|error| OpenError::os("af_xdp", &error, super::CAPABILITY))?;
            Some(program)
        } else {
            None
        };
        Ok(Self { program, socket, memory, free, quiet: 0, gathers: 1 })
    }

    /// Wakes the kernel for `frames` frames only (at most half of its buffers), and not for every
    /// call: cheaper by half on a busy machine, and later by as long as it takes to gather them.
    /// What is left over goes with [`Exchange::pending`].
    #[must_use]
    pub fn gather(self, frames: usize) -> Self {
        let most = self.free.len() / 2;
        Self { gathers: frames.clamp(1, most.max(1)), ..self }
    }

    /// Whether frames come here.
    #[must_use]
    pub const fn receives(&self) -> bool {
        self.program.is_some()
    }

    /// Takes `frames`, the first one first, as long as there is room; returns how many, and why the
    /// kernel did not take them. What was taken leaves with this call or the next ones.
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
                let what = format!("{} bytes are more than af_xdp takes here", frame.len());
                return (self.flush(&batch[..taken]).0, Some(io::Error::other(what)));
            }
            *desc = Desc { addr, len: frame.len() as u32 };
            taken += 1;
        }
        self.flush(&batch[..taken])
    }

    /// Hands over what was written.
    fn flush(&mut self, batch: &[Desc]) -> (usize, Option<io::Error>) {
        self.socket.transmit(batch);
        self.quiet += batch.len();
        if !batch.is_empty() && self.quiet < self.gathers {
            return (batch.len(), None);
        }
        self.quiet = 0;
        (batch.len(), self.socket.wake().err())
    }

    /// Frames that were taken and have not left.
    pub fn pending(&mut self) -> u32 {
        self.socket.wake().unwrap_or(0)
    }

    /// Lends all that has come, up to `most` frames.
    pub fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8])) {
        let (mut descs, mut addrs) = ([Desc::default(); STEP], [0; STEP]);
        let mut seen = 0;
        while seen < most {
            let count = self.socket.receive(&mut descs);
            for (desc, addr) in descs[..count].iter().zip(&mut addrs) {
                each(self.memory.get(desc.addr, desc.len));
                // The frame starts somewhere in its chunk; the kernel wants the chunk back.
                *addr = desc.addr / u64::from(Memory::CHUNK) * u64::from(Memory::CHUNK);
            }
            self.socket.fill(&addrs[..count]);
            seen += count;
            if count < STEP {
                return;
            }
        }
    }

    /// Frames for us that were lost for want of room, since this was last asked.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn drops(&mut self) -> io::Result<u32> {
        self.socket.drops()
    }
}
