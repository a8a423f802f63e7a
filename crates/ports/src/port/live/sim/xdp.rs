//! AF_XDP sockets and programs of the simulated kernel, in copy mode.
//!
//! Thread-safety: as [`super`].
#![allow(unsafe_code, reason = "this is the kernel's side of the memory that ports lend")]

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;

use super::{Interface, Offered, OpenError, State, World, hash};
use crate::af_xdp::{Attached, Desc, HEADROOM, Settings, Umem};
use crate::port::live::calls;

/// A socket.
pub(super) struct SocketState {
    pub(super) on: Option<u64>,
    queue: u32,
    umem: Umem,
    room: usize,
    multi_buffer: bool,
    fill: VecDeque<u64>,
    received: VecDeque<Desc>,
    to_send: VecDeque<Desc>,
    completed: VecDeque<u64>,
    dropped: u32,
}

/// A program, and its map.
pub(super) struct ProgramState {
    pub(super) on: Option<u64>,
    pub(super) sockets: BTreeMap<u32, u64>,
}

pub(in crate::port::live) struct WorldSocket {
    world: World,
    number: u64,
}

pub(in crate::port::live) struct WorldProgram {
    world: World,
    number: u64,
}

impl SocketState {
    /// The bytes of a frame, or of a part of one, that fit a chunk.
    fn chunk_room(&self) -> usize {
        (self.umem.chunk_bytes() - self.umem.headroom_bytes()) as usize - HEADROOM
    }

    /// Receives `frame`, in several chunks if it is longer than one. Returns whether there was room.
    fn receive(&mut self, frame: &[u8]) -> bool {
        let count = frame.len().div_ceil(self.chunk_room());
        let has_room = self.received.len() + count <= self.room && self.fill.len() >= count;
        if !has_room || count > 1 && !self.multi_buffer {
            return false;
        }
        let parts: Vec<_> = frame.chunks(self.chunk_room()).zip(self.fill.drain(..count)).collect();
        for (at, (part, addr)) in (1..).zip(parts) {
            let desc = Desc { continues: at < count, ..self.write(addr, part) };
            self.received.push_back(desc);
        }
        true
    }

    /// Writes `frame` into the chunk at `addr`, which the port has lent.
    fn write(&self, addr: u64, frame: &[u8]) -> Desc {
        let chunk = u64::from(self.umem.chunk_bytes());
        let at = addr / chunk * chunk + u64::from(self.umem.headroom_bytes()) + HEADROOM as u64;
        assert!(at + frame.len() as u64 <= (addr / chunk + 1) * chunk, "a frame fits its chunk");
        assert!(at + frame.len() as u64 <= self.umem.len() as u64, "inside of the memory");
        // SAFETY: the range lies in one chunk of the memory, as checked above. The chunk was lent
        // with `fill` and not returned yet, so nobody else accesses it.
        unsafe {
            let to = (self.umem.address() + at) as *mut u8;
            std::ptr::copy_nonoverlapping(frame.as_ptr(), to, frame.len());
        }
        Desc { addr: at, len: frame.len() as u32, continues: false }
    }

    /// The bytes of a submitted frame.
    fn read(&self, desc: Desc) -> Vec<u8> {
        assert!(desc.addr + u64::from(desc.len) <= self.umem.len() as u64, "inside of the memory");
        // SAFETY: inside of the memory, as checked above; the frame was lent with `transmit` and not
        // returned yet, so nobody writes to it.
        unsafe {
            let from = (self.umem.address() + desc.addr) as *const u8;
            std::slice::from_raw_parts(from, desc.len as usize).to_vec()
        }
    }
}

impl State {
    /// A frame comes to `device`, where `program` runs.
    pub(super) fn offer_xdp(&mut self, device: u64, program: u64, frame: &[u8]) -> Offered {
        let queue = (hash(frame) % self.devices[&device].width) as u32;
        let to = self.programs.get(&program).and_then(|program| program.sockets.get(&queue));
        let Some(socket) = to.copied().and_then(|number| self.sockets.get_mut(&number)) else {
            return Offered::Nobody;
        };
        if socket.on != Some(device) || socket.queue != queue {
            return Offered::Nobody;
        }
        if socket.receive(frame) {
            return Offered::Waits;
        }
        socket.dropped += 1;
        Offered::Overrun
    }
}

pub(super) fn program(world: &World, on: &Interface) -> Result<WorldProgram, OpenError> {
    let mut state = world.state();
    state.open_for("attaching the XDP program")?;
    let (device, number) = (state.device(on)?, state.number());
    let slot = state.devices.get_mut(&device).map(|device| &mut device.program);
    match slot {
        Some(slot) if slot.is_none() => *slot = Some(number),
        _ => return Err(OpenError::new("the interface already has another XDP program", "wait")),
    }
    state.programs.insert(number, ProgramState { on: Some(device), sockets: BTreeMap::new() });
    Ok(WorldProgram { world: world.clone(), number })
}

pub(super) fn socket(
    world: &World,
    on: &Interface,
    queue: u32,
    umem: &Umem,
    how: Settings,
) -> Result<WorldSocket, OpenError> {
    let mut state = world.state();
    state.open_for("af_xdp")?;
    let device = state.device(on)?;
    let taken = |socket: &SocketState| socket.on == Some(device) && socket.queue == queue;
    if state.sockets.values().any(taken) {
        return Err(OpenError::new("the queue already has an af_xdp socket", "wait"));
    }
    let number = state.number();
    let socket = SocketState {
        on: Some(device),
        queue,
        umem: umem.clone(),
        room: how.frames as usize,
        multi_buffer: how.multi_buffer,
        fill: VecDeque::new(),
        received: VecDeque::new(),
        to_send: VecDeque::new(),
        completed: VecDeque::new(),
        dropped: 0,
    };
    state.sockets.insert(number, socket);
    Ok(WorldSocket { world: world.clone(), number })
}

impl WorldSocket {
    fn with<T>(&self, what: impl FnOnce(&mut SocketState) -> T) -> T {
        let mut state = self.world.state();
        let socket = state.sockets.get_mut(&self.number);
        what(socket.expect("a socket exists until it is closed"))
    }
}

impl calls::Socket for WorldSocket {
    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into()) // the simulation has one process
    }

    fn go_on(&mut self) {}

    fn is_bound(&self) -> bool {
        let mut state = self.world.state();
        state.call().is_err() || state.sockets[&self.number].on.is_some()
    }

    fn is_zero_copy(&self) -> bool {
        false
    }

    fn fill_room(&mut self) -> usize {
        self.with(|socket| socket.room - socket.fill.len())
    }

    fn fill(&mut self, addrs: &[u64]) {
        self.with(|socket| socket.fill.extend(addrs));
    }

    fn has_received(&mut self) -> bool {
        self.with(|socket| !socket.received.is_empty())
    }

    fn receive(&mut self, into: &mut [Desc]) -> usize {
        self.with(|socket| {
            let count = into.len().min(socket.received.len());
            into.iter_mut().zip(socket.received.drain(..count)).for_each(|(to, desc)| *to = desc);
            count
        })
    }

    fn tx_room(&mut self) -> usize {
        self.with(|socket| socket.room - socket.to_send.len())
    }

    fn transmit(&mut self, frames: &[Desc]) {
        self.with(|socket| socket.to_send.extend(frames));
    }

    fn wake(&mut self) -> io::Result<u32> {
        let mut state = self.world.state();
        let on = state.sockets[&self.number].on;
        if state.sockets[&self.number].to_send.is_empty() {
            return Ok(0);
        }
        let Some(device) = on.and_then(|on| state.devices.get(&on)) else {
            return Err(io::Error::from_raw_os_error(libc::ENXIO));
        };
        if !device.is_up {
            return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
        }
        let name = device.name.clone();
        let failed = state.call();
        let State { sockets, sent, .. } = &mut *state;
        let Some(socket) = sockets.get_mut(&self.number) else { return Ok(0) };
        match failed {
            // As the port's own socket has it: a busy kernel is not an error.
            Err(error) if crate::live::is_full(&error) => return Ok(socket.to_send.len() as u32),
            result => result?,
        }
        for _ in 0..32 {
            let Some(parts) = socket.to_send.iter().position(|desc| !desc.continues) else { break };
            let parts: Vec<_> = socket.to_send.drain(..=parts).collect();
            assert!(
                parts.len() == 1 || socket.multi_buffer,
                "a frame in parts on a socket without"
            );
            sent.push((name.clone(), parts.iter().flat_map(|part| socket.read(*part)).collect()));
            socket.completed.extend(parts.iter().map(|part| part.addr));
        }
        Ok(socket.to_send.len() as u32)
    }

    fn complete(&mut self, into: &mut [u64]) -> usize {
        self.with(|socket| {
            let count = into.len().min(socket.completed.len());
            into.iter_mut().zip(socket.completed.drain(..count)).for_each(|(to, addr)| *to = addr);
            count
        })
    }

    fn drops(&mut self) -> io::Result<u32> {
        self.world.state().call()?;
        Ok(self.with(|socket| std::mem::take(&mut socket.dropped)))
    }
}

impl Drop for WorldSocket {
    fn drop(&mut self) {
        let mut state = self.world.state();
        if let Some(socket) = state.sockets.remove(&self.number) {
            // A frame is counted with its last part.
            let frames =
                |descs: &VecDeque<Desc>| descs.iter().filter(|desc| !desc.continues).count() as u64;
            state.abandoned += frames(&socket.received);
            state.lost += frames(&socket.to_send);
            state.uncounted += u64::from(socket.dropped);
        }
        for program in state.programs.values_mut() {
            program.sockets.retain(|_, socket| *socket != self.number);
        }
    }
}

impl calls::Program<WorldSocket> for WorldProgram {
    fn duplicate(&self) -> io::Result<[OwnedFd; 2]> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn attached(&self) -> Attached {
        Attached::Generic
    }

    fn is_on(&self, index: u32) -> bool {
        let mut state = self.world.state();
        let on = state.programs[&self.number].on;
        let found = on.and_then(|on| state.devices.get(&on));
        found.is_some_and(|device| device.index == index) || state.call().is_err()
    }

    fn detach(&self) {
        let mut state = self.world.state();
        let on = state.programs.get_mut(&self.number).and_then(|program| program.on.take());
        if let Some(device) = on.and_then(|on| state.devices.get_mut(&on)) {
            device.program = None;
        }
    }

    fn set(&self, queue: u32, socket: &WorldSocket) -> io::Result<()> {
        let mut state = self.world.state();
        state.call()?;
        if let Some(program) = state.programs.get_mut(&self.number) {
            program.sockets.insert(queue, socket.number);
        }
        Ok(())
    }

    fn clear(&self, queue: u32) {
        if let Some(program) = self.world.state().programs.get_mut(&self.number) {
            program.sockets.remove(&queue);
        }
    }
}

impl Drop for WorldProgram {
    fn drop(&mut self) {
        calls::Program::detach(self);
        self.world.state().programs.remove(&self.number);
    }
}
