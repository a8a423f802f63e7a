//! A simulated kernel: interfaces that are created, deleted, moved and changed under a seed, and calls
//! that fail.
//!
//! ```text
//!  test ──offer──> [interface: rings, queues, sockets] <──calls── Packet, Tun, Xdp ──> engine
//!   │                        │
//!   └─ life: delete, move    └─ sent, lost: every frame that was accepted is one of these
//! ```
//!
//! It follows Linux where ports depend on it: when an interface is deleted or moved to another
//! namespace, its packet sockets and AF_XDP sockets are unbound, and stay so when it is back with the
//! same name and index; an XDP program moves with its interface; a TAP stays attached to an interface
//! that is moved, and is detached when it is deleted; a TAP that a port created ends with its last queue;
//! a moved interface is down.
//!
//! Invariants: equal seeds and equal calls give equal results; a frame that [`World::offer`] accepted
//! is received by the port, or counted by [`World::lost`] or [`World::abandoned`].
//! Thread-safety: all clones share one lock, which each call holds.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_frame::Rng;
use flowyard_pool::Pool;
use flowyard_yard::port::Halves;

use super::plan::{LivePort, Log};
use crate::live::{Counts, Interface, OpenError};

mod kernel;
mod packet;
mod tun;
mod xdp;

/// A kernel, and the interfaces of one network namespace.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

struct State {
    rng: Rng,
    /// One of N calls fails; 0 for none.
    fail_every: u64,
    /// The call that fails, counted from the first one, and its error.
    fail_at: Option<(u64, i32)>,
    calls: u64,
    failed: u64,
    /// By a number that is never used again.
    devices: BTreeMap<u64, Device>,
    rings: BTreeMap<u64, packet::RingState>,
    senders: BTreeMap<u64, Option<u64>>,
    queues: BTreeMap<u64, tun::QueueState>,
    sockets: BTreeMap<u64, xdp::SocketState>,
    programs: BTreeMap<u64, xdp::ProgramState>,
    /// Open descriptors that look at interfaces.
    links: usize,
    next: u64,
    sent: Vec<(String, Vec<u8>)>,
    lost: u64,
    abandoned: u64,
    overruns: u64,
    uncounted: u64,
}

/// The errors of calls on an open descriptor.
const CALL_ERRORS: [i32; 6] =
    [libc::EIO, libc::ENOBUFS, libc::EINTR, libc::ENETDOWN, libc::EAGAIN, libc::ENOMEM];

/// The errors of calls that open a descriptor or look something up.
const OPEN_ERRORS: [i32; 6] =
    [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EINTR, libc::EPERM, libc::ENOSPC];

/// An interface.
struct Device {
    name: String,
    index: u32,
    mtu: u32,
    is_up: bool,
    /// Whether it is in the namespace of the ports.
    is_here: bool,
    /// Whether it is a TAP.
    is_tap: bool,
    /// Whether it remains when the last queue of it is closed.
    is_persistent: bool,
    offloads: Offloads,
    /// Whether somebody keeps all frames from the port.
    is_stalled: bool,
    /// Receive queues.
    width: u64,
    program: Option<u64>,
    counts: Counts,
}

/// The offloads of an interface, for received frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offloads {
    /// Tags are stored separately.
    pub strips_tags: bool,
    /// Checksums of UDP are left to be completed, as by a sender on the same machine.
    pub leaves_checksums: bool,
    /// Consecutive frames of a flow are coalesced.
    pub coalesces: bool,
}

/// What became of an offered frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// It waits for a port.
    Waits,
    /// There was no room for it; the port counts it.
    Overrun,
    /// No port listens.
    Nobody,
}

/// Flow hash of a frame: its addresses and ports, wherever its tag is.
fn hash(frame: &[u8]) -> u64 {
    let at = if frame.get(12..14) == Some(&[0x81, 0]) { 30 } else { 26 };
    let bytes = frame.get(at..at + 12).unwrap_or(frame);
    bytes.iter().fold(0x9e37_79b9, |sum, byte| flowyard_frame::rng::mix(sum ^ u64::from(*byte)))
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Fails some calls on open descriptors.
    fn call(&mut self) -> io::Result<()> {
        self.fails(&CALL_ERRORS)
    }

    /// As [`State::call`], for a call that opens a descriptor or looks something up.
    fn open(&mut self) -> io::Result<()> {
        self.fails(&OPEN_ERRORS)
    }

    /// As [`State::open`]; `what` is what the call is for.
    fn open_for(&mut self, what: &str) -> Result<(), OpenError> {
        self.open().map_err(|error| OpenError::os(what, &error, ""))
    }

    fn fails(&mut self, errors: &[i32]) -> io::Result<()> {
        self.calls += 1;
        let error = match self.fail_at {
            Some((call, error)) if call == self.calls => error,
            _ if self.fail_every > 0 && self.rng.below(self.fail_every) == 0 => {
                errors[self.rng.below(errors.len() as u64) as usize]
            }
            _ => return Ok(()),
        };
        self.failed += 1;
        Err(io::Error::from_raw_os_error(error))
    }

    fn here(&self, name: &str) -> Option<u64> {
        let is = |device: &Device| device.is_here && device.name == name;
        self.devices.iter().find(|(_, device)| is(device)).map(|(number, _)| *number)
    }

    /// The device of `on`, if it is still that one.
    fn device(&self, on: &Interface) -> Result<u64, OpenError> {
        let found = self.here(&on.name).filter(|number| self.devices[number].index == on.index);
        let gone = io::Error::from_raw_os_error(libc::ENODEV);
        found.ok_or_else(|| OpenError::os(&on.name, &gone, ""))
    }

    /// Whether an interface here has this index; those of other namespaces are counted separately.
    fn is_taken(&self, index: u32) -> bool {
        self.devices.values().any(|device| device.is_here && device.index == index)
    }

    fn index(&self) -> u32 {
        let mut index = 2;
        while self.is_taken(index) {
            index += 1;
        }
        index
    }

    /// The kernel unbinds the sockets on `device`.
    fn unregister(&mut self, device: u64) {
        for ring in self.rings.values_mut() {
            ring.on = ring.on.filter(|on| *on != device);
        }
        for on in self.senders.values_mut() {
            *on = on.filter(|on| *on != device);
        }
        for socket in self.sockets.values_mut() {
            socket.on = socket.on.filter(|on| *on != device);
        }
    }

    /// Creates an interface, which is down, with this index if it is free.
    fn create(&mut self, name: &str, is_tap: bool, width: usize, index: Option<u32>) -> u64 {
        let free = index.filter(|index| !self.is_taken(*index));
        let index = free.unwrap_or_else(|| self.index());
        let number = self.number();
        let device = Device {
            name: name.into(),
            index,
            mtu: 1500,
            is_up: false,
            is_here: true,
            is_tap,
            is_persistent: true,
            offloads: Offloads { strips_tags: true, leaves_checksums: false, coalesces: false },
            is_stalled: false,
            width: width as u64,
            program: None,
            counts: Counts::default(),
        };
        self.devices.insert(number, device);
        number
    }

    fn delete(&mut self, device: u64) {
        self.unregister(device);
        for program in self.programs.values_mut() {
            program.on = program.on.filter(|on| *on != device);
        }
        for queue in self.queues.values_mut().filter(|queue| queue.on == Some(device)) {
            queue.on = None;
            self.lost += queue.frames.iter().map(|waiting| waiting.frames).sum::<u64>();
            queue.frames.clear();
        }
        self.devices.remove(&device);
    }
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: Rng::new(seed),
            fail_every: 0,
            fail_at: None,
            calls: 0,
            failed: 0,
            devices: BTreeMap::new(),
            rings: BTreeMap::new(),
            senders: BTreeMap::new(),
            queues: BTreeMap::new(),
            sockets: BTreeMap::new(),
            programs: BTreeMap::new(),
            links: 0,
            next: 0,
            sent: Vec::new(),
            lost: 0,
            abandoned: 0,
            overruns: 0,
            uncounted: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens both halves of `port` for each of its cores in this world.
    ///
    /// # Errors
    /// As [`super::open`].
    pub fn open(&self, port: &LivePort, pool: &Pool, log: &Log) -> Result<Vec<Halves>, OpenError> {
        super::open_on(self, port, None, pool, log)
    }

    /// Creates the interface `name`, which is down, with `width` receive queues, and with this index
    /// if it is free.
    pub fn create(&self, name: &str, is_tap: bool, width: usize, index: Option<u32>) {
        self.state().create(name, is_tap, width, index);
    }

    /// The index of the interface `name`, if it exists here.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<u32> {
        let state = self.state();
        Some(state.devices[&state.here(name)?].index)
    }

    fn change(&self, name: &str, what: impl FnOnce(&mut Device)) {
        let mut state = self.state();
        if let Some(device) = state.here(name)
            && let Some(device) = state.devices.get_mut(&device)
        {
            what(device);
        }
    }

    /// Sets the interface up or down.
    pub fn set_up(&self, name: &str, is_up: bool) {
        self.change(name, |device| device.is_up = is_up);
    }

    /// Changes its MTU.
    pub fn set_mtu(&self, name: &str, mtu: u32) {
        self.change(name, |device| device.mtu = mtu);
    }

    /// Changes its offloads.
    pub fn set_offloads(&self, name: &str, offloads: Offloads) {
        self.change(name, |device| device.offloads = offloads);
    }

    /// Renames it, unless that name is taken.
    pub fn rename(&self, name: &str, to: &str) {
        if self.index(to).is_none() {
            self.change(name, |device| device.name = to.into());
        }
    }

    /// Deletes it.
    pub fn delete(&self, name: &str) {
        let mut state = self.state();
        if let Some(device) = state.here(name) {
            state.delete(device);
        }
    }

    /// Moves it to another namespace.
    pub fn move_away(&self, name: &str) {
        let mut state = self.state();
        let Some(number) = state.here(name) else { return };
        state.unregister(number);
        if let Some(device) = state.devices.get_mut(&number) {
            (device.is_here, device.is_up) = (false, false);
        }
    }

    /// Moves an interface that is elsewhere back, unless its name is taken here; with a new index if
    /// `renumber`. Returns whether there was one.
    pub fn move_back(&self, name: &str, renumber: bool) -> bool {
        let mut state = self.state();
        let away = |device: &Device| !device.is_here && device.name == name;
        let found = state.devices.iter().find(|(_, device)| away(device)).map(|(at, _)| *at);
        let Some(number) = found.filter(|_| state.here(name).is_none()) else { return false };
        let new = state.index();
        let renumber = renumber || state.is_taken(state.devices[&number].index);
        if let Some(device) = state.devices.get_mut(&number) {
            device.is_here = true;
            device.index = if renumber { new } else { device.index };
        }
        true
    }

    /// Keeps all frames from the port, which stays bound: its filters, or the entries of its
    /// map, are changed by another process. A port that is opened again receives.
    pub fn stall(&self, name: &str) {
        let mut state = self.state();
        let Some(number) = state.here(name) else { return };
        for ring in state.rings.values_mut().filter(|ring| ring.on == Some(number)) {
            ring.is_silent = true;
        }
        for program in state.programs.values_mut().filter(|program| program.on == Some(number)) {
            program.sockets.clear();
        }
        if let Some(device) = state.devices.get_mut(&number) {
            device.is_stalled = device.is_tap;
        }
    }

    /// One of `every` calls fails from now on; 0 for none.
    pub fn fail(&self, every: u64) {
        self.state().fail_every = every;
    }

    /// Call `number` fails with `error`, a number of errno(3); calls are counted from 1.
    pub fn fail_at(&self, number: u64, error: i32) {
        self.state().fail_at = Some((number, error));
    }

    /// Number of calls that may fail, so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Number of open descriptors, attached programs, and interfaces that end with their descriptors.
    #[must_use]
    pub fn open_objects(&self) -> usize {
        let State { rings, senders, queues, sockets, programs, devices, links, .. } =
            &*self.state();
        let temporary = devices.values().filter(|device| !device.is_persistent).count();
        rings.len()
            + senders.len()
            + queues.len()
            + sockets.len()
            + programs.len()
            + links
            + temporary
    }

    /// Number of calls that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.state().failed
    }

    /// A frame comes to the interface `name`: from the wire, or from the host of a TAP.
    pub fn offer(&self, name: &str, frame: &[u8]) -> Offered {
        let mut state = self.state();
        let Some(number) = state.here(name).filter(|number| state.devices[number].is_up) else {
            return Offered::Nobody;
        };
        if state.devices[&number].is_tap {
            return state.offer_tap(number, frame);
        }
        if let Some(device) = state.devices.get_mut(&number) {
            device.counts.received += 1;
        }
        let offered = match state.devices[&number].program {
            Some(program) => state.offer_xdp(number, program, frame),
            None => state.offer_rings(number, frame),
        };
        state.overruns += u64::from(offered == Offered::Overrun);
        offered
    }

    /// Frames that came to an AF_PACKET or AF_XDP port without room for them.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.state().overruns
    }

    /// Those of [`World::overruns`] of which no port was notified before it closed its ring or socket.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        self.state().uncounted
    }

    /// Takes the frames that were transmitted, with the name of their interface.
    #[must_use]
    pub fn sent(&self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut self.state().sent)
    }

    /// Frames that the kernel had accepted and lost: those that waited in a queue of a TAP that was
    /// deleted, and those that waited to be sent by an AF_XDP socket that was closed.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.state().lost
    }

    /// Frames that waited for a port when it closed its ring, queue or socket.
    #[must_use]
    pub fn abandoned(&self) -> u64 {
        self.state().abandoned
    }
}
