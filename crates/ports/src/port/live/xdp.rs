//! One core's part of an AF_XDP port: a socket whose memory is the engine's pool.
//!
//! ```text
//!  pool ──lend──> fill ring ──[kernel]──> rx ring ──unlend──> frame ──> batch
//!  batch ──lend──> tx ring ──[kernel]──> completion ring ──unlend──> spare ──> into the batch,
//!                                                                  in place of the next one sent
//! ```
//!
//! Nothing is copied here. A transmitted frame belongs to the kernel until it is completed, but the
//! batch needs a frame in its lane; it gets one that was completed before.
//!
//! Invariants: a buffer is lent once and becomes a frame again once. The ledger has a bit for each
//! lent buffer, and an address that is returned without its bit set is ignored. When the socket is
//! closed, all lent buffers return to the pool.
//! Thread-safety: used by one core; the program is shared by the cores of a port.

#![allow(unsafe_code, reason = "frames are created from buffers that the kernel returns")]

use std::sync::{Arc, Mutex, PoisonError};

use crate::af_xdp::{Attached, Desc, Program, Socket, Umem};
use crate::live::{Change, Interface, OpenError, is_down, offload};
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_wire::LinkType;

use super::device::{Device, HEADER, Monitor, Place, Shared, refuse_all};
use super::plan::XdpPort;
use flowyard_pool::{LONGEST_LENDABLE, Meta, Pool};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Received, refuse};

/// State shared by the cores of a port: the program, with the index of its interface.
struct Common {
    port: XdpPort,
    umem: Umem,
    program: Mutex<Option<(u32, Arc<Program>)>>,
}

impl Common {
    /// The program on `interface`; the first caller attaches it.
    fn program(&self, interface: &Interface) -> Result<Arc<Program>, OpenError> {
        let mut held = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            Some((index, program)) if *index == interface.index => Ok(Arc::clone(program)),
            _ => {
                let program = Arc::new(Program::attach(interface, &self.port.rules)?);
                *held = Some((interface.index, Arc::clone(&program)));
                Ok(program)
            }
        }
    }
}

/// A bound socket, and the longest frame that it transmits.
struct Bound {
    socket: Socket,
    program: Arc<Program>,
    longest: usize,
}

struct Xdp {
    common: Arc<Common>,
    number: u16,
    queue: u32,
    monitor: Monitor,
    /// Dropped before its buffers return to the pool.
    bound: Option<Bound>,
    out: Ledger,
    pool: Pool,
    /// The next time to read the kernel's counters.
    count_at: Nanos,
    is_stopped: bool,
}

/// The buffers lent to the kernel.
struct Ledger {
    bits: Box<[u64]>,
    /// Number of buffers in the fill ring, or being received into.
    filled: usize,
    /// Number of buffers in the tx ring, or being transmitted.
    sent: usize,
}

impl Ledger {
    fn set(&mut self, buffer: u64) {
        if let Some(word) = self.bits.get_mut(buffer as usize / 64) {
            *word |= 1 << (buffer % 64);
        }
    }

    /// Clears the bit of `buffer`; returns whether it was lent.
    fn clear(&mut self, buffer: u64) -> bool {
        let Some(word) = self.bits.get_mut(buffer as usize / 64) else { return false };
        let was = *word >> (buffer % 64) & 1 == 1;
        *word &= !(1 << (buffer % 64));
        was
    }

    /// Removes and returns all lent buffers.
    fn drain(&mut self) -> impl Iterator<Item = u64> + '_ {
        (self.filled, self.sent) = (0, 0);
        (0..).zip(self.bits.iter_mut()).flat_map(|(at, word)| {
            let bits = std::mem::take(word);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }
}

/// Time between two readings of the kernel's counters.
const COUNT_EVERY: Nanos = 1_000_000;

/// How often the kernel is woken in succession; in copy mode it takes 32 frames each time.
const WAKES: usize = 4;

pub(super) fn open(place: &Place<'_>, port: &XdpPort) -> Result<Vec<Shared>, OpenError> {
    let interface = Interface::find(&place.port.interface)?;
    let Some(umem) = place.pool.umem() else {
        let what = "the pool's buffers cannot be lent to the kernel".into();
        return Err(OpenError { what, fix: "remove 'buffer_bytes'".into() });
    };
    let common = Arc::new(Common { port: port.clone(), umem, program: Mutex::new(None) });
    let mut devices = Vec::new();
    for at in 0..place.port.cores {
        let mut xdp = Xdp {
            common: Arc::clone(&common),
            number: place.port.number,
            queue: port.queues.get(at).copied().unwrap_or(at as u32),
            monitor: place.monitor(&interface)?,
            bound: None,
            out: Ledger {
                bits: vec![0; place.pool.frames().div_ceil(64)].into(),
                filled: 0,
                sent: 0,
            },
            pool: place.pool.share(),
            count_at: 0,
            is_stopped: false,
        };
        xdp.bind(&interface)?;
        devices.push(Arc::new(Mutex::new(xdp)) as Shared);
    }
    Ok(devices)
}

impl Xdp {
    /// Opens a socket on `interface`, fills it with buffers, and redirects frames to it.
    fn bind(&mut self, interface: &Interface) -> Result<(), OpenError> {
        if interface.mtu as usize + HEADER > LONGEST_LENDABLE {
            return Err(OpenError {
                what: format!("'{}' has an MTU of {}", interface.name, interface.mtu),
                fix: format!(
                    "lower it to {} (ip link set {} mtu ...), or use kind = \"af_packet\"",
                    LONGEST_LENDABLE - HEADER,
                    interface.name
                ),
            });
        }
        let Common { umem, port: XdpPort { settings, .. }, .. } = &*self.common;
        let program = self.common.program(interface)?;
        let socket = Socket::open(interface, self.queue, umem, *settings)?;
        let copies = if socket.is_zero_copy() { "zero copy" } else { "copy mode" };
        let runs = match program.attached() {
            Attached::Driver => "XDP program in native mode",
            Attached::Generic => "XDP program in generic mode",
        };
        self.monitor.report(format!("af_xdp on queue {}: {copies}, {runs}", self.queue));
        let longest = interface.mtu as usize + HEADER;
        self.bound = Some(Bound { socket, program, longest });
        self.fill(None);
        self.redirect(interface)
    }

    fn redirect(&mut self, interface: &Interface) -> Result<(), OpenError> {
        let Some(Bound { socket, program, .. }) = &self.bound else { return Ok(()) };
        if self.is_stopped {
            return Ok(());
        }
        program.set(self.queue, socket).map_err(|error| OpenError {
            what: format!("queue {} of '{}': {error}", self.queue, interface.name),
            fix: "list its queues with 'ethtool -l'".into(),
        })
    }

    /// Closes the socket and takes back all buffers.
    fn unbind(&mut self) {
        let Some(Bound { program, socket, .. }) = self.bound.take() else { return };
        program.clear(self.queue);
        drop(socket); // after this, the kernel has none of our buffers
        for buffer in self.out.drain() {
            // SAFETY: the buffer's bit was set and is now cleared: it was lent once and returns
            // once.
            let frame = unsafe { self.pool.unlend_buffer(buffer) };
            self.pool.put(frame);
        }
    }

    fn attend(&mut self, now: Nanos) {
        if let Some(Change::New(interface)) = self.monitor.look(now) {
            self.unbind();
            let bound = self.bind(&interface);
            if bound.is_err() {
                self.unbind();
            }
            self.monitor.opened(bound);
        }
    }

    /// Lends buffers to the kernel for receiving, from `pool` or from our own.
    fn fill(&mut self, pool: Option<&mut Pool>) {
        let Some(Bound { socket, .. }) = &mut self.bound else { return };
        let pool = pool.unwrap_or(&mut self.pool);
        let most = self.common.port.settings.frames as usize;
        while most - self.out.filled.min(most) >= LANES && socket.fill_room() >= LANES {
            let (mut addrs, mut count) = ([0; LANES], 0);
            while count < LANES
                && let Ok(frame) = pool.take(0, Meta::default())
            {
                addrs[count] = pool.lend(frame);
                self.out.set(pool.buffer_at(addrs[count]));
                count += 1;
            }
            socket.fill(&addrs[..count]);
            self.out.filled += count;
            if count < LANES {
                return; // the pool is empty; retried by the next call
            }
        }
    }

    /// Wakes the kernel for submitted frames.
    fn wake(&mut self) {
        let Some(Bound { socket, .. }) = &mut self.bound else { return };
        for _ in 0..WAKES {
            match socket.wake() {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    if is_down(&error) && self.monitor.watch.is_up() {
                        self.monitor.watch.hurry();
                    }
                    return;
                }
            }
        }
    }

    /// Takes back all transmitted frames.
    fn reap(&mut self) {
        let Some(Bound { socket, .. }) = &mut self.bound else { return };
        let mut addrs = [0; LANES];
        loop {
            let count = socket.complete(&mut addrs);
            for &addr in &addrs[..count] {
                if self.out.clear(self.pool.buffer_at(addr)) {
                    self.out.sent = self.out.sent.saturating_sub(1);
                    // SAFETY: the buffer's bit was set and is now cleared: it was lent once and
                    // returns once.
                    let frame = unsafe { self.pool.unlend_sent(addr, 0) };
                    self.pool.put(frame);
                }
            }
            if count < LANES {
                return;
            }
        }
    }

    /// A replacement for a frame that is transmitted: a completed frame, or one from the pool.
    fn spare(&mut self, len: usize) -> Option<flowyard_frame::Frame> {
        let Some(Bound { socket, .. }) = &mut self.bound else { return None };
        let mut addr = [0];
        while socket.complete(&mut addr) == 1 {
            if self.out.clear(self.pool.buffer_at(addr[0])) {
                self.out.sent = self.out.sent.saturating_sub(1);
                // SAFETY: the buffer's bit was set and is now cleared: it was lent once and returns
                // once.
                return Some(unsafe { self.pool.unlend_sent(addr[0], len) });
            }
        }
        self.pool.take(len, Meta::default()).ok()
    }
}

impl Device for Xdp {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        self.attend(now);
        self.fill(Some(pool));
        self.wake();
        let mut got = Received::default();
        let Some(Bound { socket, .. }) = &mut self.bound else { return got };
        let mut descs = [Desc::default(); LANES];
        let count = socket.receive(&mut descs);
        for &Desc { addr, len } in &descs[..count] {
            if !self.out.clear(pool.buffer_at(addr)) {
                continue; // not lent, so it must not be accessed
            }
            self.out.filled = self.out.filled.saturating_sub(1);
            let in_port = self.number;
            let meta =
                Meta { time: now, wire_len: len, in_port, link: LinkType::Ethernet, copied: 0 };
            // SAFETY: the buffer's bit was set and is now cleared: it was lent once and returns
            // once.
            let mut frame = unsafe { pool.unlend(addr, len as usize, meta) };
            if self.common.port.completes_checksums {
                offload::recompute(pool.bytes_mut(&mut frame));
            }
            if let Err(frame) = into.push(frame, FlowKey::ZERO) {
                pool.put(frame); // not reached: at most as many frames as lanes
            }
        }
        if now >= self.count_at {
            self.count_at = now + COUNT_EVERY;
            got.overrun = socket.drops().unwrap_or(0);
        }
        got
    }

    fn tx(&mut self, from: &mut Batch, lanes: Lanes, _pool: &Pool, now: Nanos) -> Lanes {
        self.attend(now);
        let Some(Bound { socket, longest, .. }) = &mut self.bound else {
            return refuse_all(from, lanes, DropReason::PortDown);
        };
        if !self.monitor.watch.is_up() {
            return refuse_all(from, lanes, DropReason::PortDown);
        }
        let (longest, mut room, mut left) = (*longest, socket.tx_room(), lanes);
        let most = self.common.port.settings.frames as usize;
        if self.out.sent + LANES > most {
            self.reap();
            room = room.min(most.saturating_sub(self.out.sent));
        }
        let (mut descs, mut count) = ([Desc::default(); LANES], 0);
        for lane in lanes {
            let len = from.frames[lane].len();
            if !(14..=longest).contains(&len) {
                let odd = if len < 14 { DropReason::PortFailed } else { DropReason::TooLong };
                refuse(from, lane, odd);
                left = left.without(Lanes(1 << lane));
                continue;
            }
            if count == room {
                break;
            }
            let Some(mut spare) = self.spare(len) else { break };
            let frame = &mut from.frames[lane];
            (spare.hash, spare.mark) = (frame.hash, frame.mark);
            let addr = self.pool.lend(std::mem::replace(frame, spare));
            self.out.set(self.pool.buffer_at(addr));
            descs[count] = Desc { addr, len: len as u32 };
            count += 1;
            left = left.without(Lanes(1 << lane));
        }
        if let Some(Bound { socket, .. }) = &mut self.bound {
            socket.transmit(&descs[..count]);
            self.out.sent += count;
        }
        self.wake();
        if count > 0 {
            self.monitor.stuck = None;
        }
        if left.is_empty() { left } else { self.monitor.later(from, left, now) }
    }

    fn stop(&mut self) {
        self.is_stopped = true;
        if let Some(Bound { program, .. }) = &self.bound {
            program.clear(self.queue);
        }
    }

    /// Transmits the remaining frames, if the kernel takes them at once.
    fn finish(&mut self) -> Result<(), String> {
        self.wake();
        let left = match &mut self.bound {
            Some(Bound { socket, .. }) => socket.wake().unwrap_or(0),
            None => 0,
        };
        self.unbind();
        match left {
            0 => Ok(()),
            left => Err(format!("{left} frames were passed to the interface but not transmitted")),
        }
    }

    fn monitor(&self) -> &Monitor {
        &self.monitor
    }
}

impl Drop for Xdp {
    fn drop(&mut self) {
        self.unbind();
    }
}
