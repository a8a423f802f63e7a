//! One core's part of an AF_XDP port: a socket whose memory is the engine's pool.
//!
//! ```text
//!  pool ──lend──> fill ring ──[kernel]──> rx ring ──unlend──> frame ──> batch
//!  batch ──lend──> tx ring ──[kernel]──> completion ring ──unlend──> spare ──> into the batch,
//!                                                                  in place of the next one sent
//! ```
//!
//! Nothing is copied here, except frames that are longer than a buffer ([`assembly`]). A transmitted frame belongs to the
//! kernel until it is completed, but the batch needs a frame in its lane; it gets one that was completed before.
//!
//! Invariants: a buffer is lent once and becomes a frame again once. The ledger has a bit for each
//! lent buffer, and an address that is returned without its bit set is ignored. When the socket is
//! closed, all lent buffers return to the pool.
//! Thread-safety: used by one core; the program is shared by the cores of a port.

#![allow(unsafe_code, reason = "frames are created from buffers that the kernel returns")]

use std::sync::{Arc, PoisonError};

use crate::af_xdp::{Attached, Desc};
use crate::live::{Interface, OpenError, State};
use flowyard_frame::{Batch, LANES, Lanes, Nanos};

mod assembly;
mod buffers;
mod common;
mod ledger;
mod open;

use self::assembly::{Assembly, MOST_PARTS};
use self::common::{Bound, Common};
use self::ledger::Ledger;
pub(super) use self::open::open;
use super::calls::{Program, Socket, System};
use super::device::{Device, HEADER, Monitor, News, refuse_all};
use super::plan::XdpPort;
use flowyard_pool::{LONGEST_LENDABLE, Pool};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Descriptors, Received, refuse};

struct Xdp<S: System> {
    common: Arc<Common<S>>,
    number: u16,
    queue: u32,
    monitor: Monitor<S::Link>,
    /// Dropped before its buffers return to the pool.
    bound: Option<Bound<S>>,
    out: Ledger,
    pool: Pool,
    /// The frame of which some parts were received.
    assembly: Assembly,
    /// Frames for which closed sockets had no room, not yet reported.
    lost: u32,
    /// The next time to read the kernel's counters.
    count_at: Nanos,
    is_stopped: bool,
    /// The interface is gone: the socket is closed when its frames were received.
    is_leaving: bool,
    /// Nothing is received, and the rings of the kernel are left alone.
    is_paused: bool,
    /// How often the port was opened, and the number of the opening whose descriptors another process has.
    openings: u64,
    handed: Option<u64>,
}

/// Time between two readings of the kernel's counters.
const COUNT_EVERY: Nanos = 1_000_000;

impl<S: System> Xdp<S> {
    /// Opens a socket on `interface`, fills it with buffers, and redirects frames to it. `old`: as
    /// of [`Common::program`].
    fn bind(
        &mut self,
        interface: &Interface,
        old: Option<&Arc<S::Program>>,
    ) -> Result<(), OpenError> {
        self.check_mtu(interface)?;
        let Common { system, umem, port: XdpPort { settings, .. }, .. } = &*self.common;
        let program = self.common.program(interface, old)?;
        let socket = system.socket(interface, self.queue, umem, *settings)?;
        let copies = if socket.is_zero_copy() { "zero copy" } else { "copy mode" };
        let runs = match program.attached() {
            Attached::Driver => "XDP program in native mode",
            Attached::Generic => "XDP program in generic mode",
        };
        self.monitor.report(format!("af_xdp on queue {}: {copies}, {runs}", self.queue));
        self.openings += 1;
        self.bound = Some(Bound { socket, program, index: interface.index });
        self.fill(None);
        self.redirect(interface)?;
        self.inform(interface.is_up, interface.mtu);
        Ok(())
    }

    /// Refuses an MTU whose frames the socket cannot have.
    fn check_mtu(&self, interface: &Interface) -> Result<(), OpenError> {
        let joins = self.common.port.settings.multi_buffer;
        let longest = if joins { self.longest_of_parts() } else { LONGEST_LENDABLE };
        if interface.mtu as usize + HEADER <= longest {
            return Ok(());
        }
        let (name, most) = (&interface.name, longest - HEADER);
        let other = if joins { "larger buffer_bytes" } else { "multi_buffer = true" };
        Err(OpenError {
            what: format!("'{name}' has an MTU of {}", interface.mtu),
            fix: format!(
                "lower it to {most} (ip link set {name} mtu ...), or use {other} or kind = \"af_packet\""
            ),
        })
    }

    /// The longest frame that fits the parts of one frame.
    fn longest_of_parts(&self) -> usize {
        self.pool.longest_large().min(MOST_PARTS * self.pool.longest())
    }

    /// The longest frame that is transmitted.
    fn longest(&self) -> usize {
        let joins = self.common.port.settings.multi_buffer;
        let longest = if joins { self.longest_of_parts() } else { self.pool.longest() };
        longest.min(self.monitor.watch.mtu as usize + HEADER)
    }

    /// Continues with the socket and the program of another process.
    fn adopt(
        &mut self,
        interface: &Interface,
        (socket, queue, program): (S::Socket, u32, S::Program),
    ) -> Result<(), OpenError> {
        if queue != self.queue {
            return Err(OpenError {
                what: format!(
                    "'{}' uses queue {queue} in the running process and queue {} in the configuration",
                    interface.name, self.queue
                ),
                fix: "stop the running process and start this configuration instead of taking over"
                    .into(),
            });
        }
        let mut held = self.common.program.lock().unwrap_or_else(PoisonError::into_inner);
        let program = Arc::clone(held.get_or_insert_with(|| Arc::new(program)));
        drop(held);
        self.openings += 1;
        self.bound = Some(Bound { socket, program, index: interface.index });
        Ok(())
    }

    /// Tells the program in front what the interface takes.
    fn inform(&mut self, is_up: bool, mtu: u32) {
        let (Some(ahead), Some(bound)) = (&self.common.port.ahead, &self.bound) else { return };
        let state = State { index: bound.index, mtu, is_up: is_up && !self.is_stopped };
        if let Some(what) = ahead.look(&state, bound.program.attached()) {
            self.monitor.report(what);
        }
    }

    fn redirect(&mut self, interface: &Interface) -> Result<(), OpenError> {
        let Some(Bound { socket, program, .. }) = &self.bound else { return Ok(()) };
        if self.is_stopped {
            return Ok(());
        }
        program.set(self.queue, socket).map_err(|error| {
            let doing = format!("redirecting queue {} of '{}'", self.queue, interface.name);
            let OpenError { what, fix } = OpenError::os(&doing, &error, "CAP_BPF");
            // The map of the program has no such entry.
            let no_queue = error.raw_os_error() == Some(libc::E2BIG);
            let fix = if no_queue { "list its queues with 'ethtool -l'".into() } else { fix };
            OpenError { what, fix }
        })
    }

    /// Closes the socket and takes back all buffers.
    fn unbind(&mut self) {
        let Some(Bound { program, socket, .. }) = self.bound.take() else { return };
        program.clear(self.queue);
        drop(socket); // after this, the kernel has none of our buffers
        if let Some(begun) = self.assembly.end() {
            self.lost += 1;
            self.pool.put(begun);
        }
        for buffer in self.out.drain() {
            // SAFETY: the buffer's bit was set and is now cleared: it was lent once and returns
            // once.
            let frame = unsafe { self.pool.unlend_buffer(buffer) };
            self.pool.put(frame);
        }
    }

    #[inline]
    fn attend(&mut self, now: Nanos) {
        let is_due = self.common.port.ahead.is_some() && self.monitor.watch.is_due(now);
        let bound = &self.bound;
        let is_bound = |index| bound.as_ref().is_some_and(|bound| bound.is_bound(index));
        if self.monitor.look(now, is_bound) == Some(News::Gone) {
            self.is_leaving = true;
        }
        if (self.monitor.fresh().is_some() || self.is_leaving) && !self.has_received() {
            self.reopen();
        } else if is_due {
            self.inform(self.monitor.is_ready(), self.monitor.watch.mtu);
        }
    }

    /// Whether frames wait that must be received before the socket is closed.
    fn has_received(&mut self) -> bool {
        self.bound.as_mut().is_some_and(|bound| bound.socket.has_received())
    }

    /// Closes the socket; opens it again if the interface is there.
    #[cold]
    fn reopen(&mut self) {
        self.is_leaving = false;
        let old = self.bound.as_mut().map(|Bound { socket, program, .. }| {
            self.lost += socket.drops().unwrap_or(0);
            Arc::clone(program)
        });
        self.unbind();
        let Some(interface) = self.monitor.fresh().cloned() else {
            self.common.release();
            return;
        };
        let bound = self.bind(&interface, old.as_ref());
        if bound.is_err() {
            self.unbind();
        }
        self.monitor.opened(bound);
    }
}

impl<S: System> Device for Xdp<S> {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        if self.is_paused {
            return Received::default();
        }
        self.attend(now);
        self.fill(Some(pool));
        self.wake();
        let mut got = Received { overrun: std::mem::take(&mut self.lost), ..Received::default() };
        let Some(Bound { socket, .. }) = &mut self.bound else {
            self.monitor.note(&mut got, 0, true, now);
            return got;
        };
        let mut descs = [Desc::default(); LANES];
        let count = socket.receive(&mut descs);
        if now >= self.count_at {
            self.count_at = now + COUNT_EVERY;
            got.overrun += socket.drops().unwrap_or(0);
        }
        for &desc in &descs[..count] {
            got.overrun += self.accept(desc, into, pool, now);
        }
        // In copy mode all parts of a frame are there at once.
        while self.assembly.has_begun()
            && let Some(Bound { socket, .. }) = &mut self.bound
            && socket.receive(&mut descs[..1]) == 1
        {
            got.overrun += self.accept(descs[0], into, pool, now);
        }
        // Without buffers the kernel cannot deliver; the port is not stalled then.
        let is_idle = count == 0 && self.out.filled > 0;
        self.monitor.note(&mut got, into.len(), is_idle, now);
        got
    }

    fn tx(&mut self, from: &mut Batch, lanes: Lanes, _pool: &Pool, now: Nanos) -> Lanes {
        self.attend(now);
        let (is_ready, longest) = (self.monitor.is_ready(), self.longest());
        let Some(Bound { socket, .. }) = self.bound.as_mut().filter(|_| is_ready) else {
            return refuse_all(from, lanes, DropReason::PortDown);
        };
        let (mut room, mut left) = (socket.tx_room(), lanes);
        let most = self.common.port.settings.frames as usize;
        if self.out.sent + LANES > most {
            self.reap();
        }
        room = room.min(most.saturating_sub(self.out.sent));
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
            if len > self.pool.longest() {
                self.submit(&descs[..count]);
                room -= std::mem::take(&mut count);
                let Some(parts) = self.transmit_parts(&from.frames[lane], room) else { break };
                room -= parts;
                left = left.without(Lanes(1 << lane));
                continue;
            }
            let Some(mut spare) = self.spare(len) else { break };
            let frame = &mut from.frames[lane];
            (spare.hash, spare.mark) = (frame.hash, frame.mark);
            let lent = if self.pool.address(frame).is_some() {
                std::mem::replace(frame, spare)
            } else {
                // Its buffer is of the second size, which the kernel does not take.
                self.pool.bytes_mut(&mut spare).copy_from_slice(self.pool.bytes(frame));
                spare
            };
            let addr = self.pool.lend(lent);
            self.out.set(self.pool.buffer_at(addr));
            descs[count] = Desc { addr, len: len as u32, continues: false };
            count += 1;
            left = left.without(Lanes(1 << lane));
        }
        self.submit(&descs[..count]);
        self.wake();
        if left != lanes {
            self.monitor.stuck = None;
        }
        if left.is_empty() { left } else { self.monitor.later(from, left, now) }
    }

    fn is_clear(&mut self) -> bool {
        self.reap();
        self.out.sent == 0
    }

    fn stop(&mut self) {
        self.is_stopped = true;
        if let Some(Bound { program, .. }) = &self.bound {
            program.clear(self.queue);
        }
        if let Some(ahead) = &self.common.port.ahead {
            ahead.stop();
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

    fn remarks(&self) -> Vec<String> {
        self.monitor.reported.clone()
    }

    /// Its descriptors are the socket's, and the link's and the map's of the program; its numbers are the entries of a
    /// ring, the queue, and where the program runs. A port with a program in front of its own cannot be handed over.
    fn descriptors(&mut self) -> Option<Descriptors> {
        if self.common.port.ahead.is_some() {
            return None;
        }
        let Bound { socket, program, .. } = self.bound.as_ref()?;
        let [link, map] = program.duplicate().ok()?;
        let attached = u64::from(program.attached() == Attached::Generic);
        let frames = self.common.port.settings.frames.into();
        let socket = socket.duplicate().ok()?;
        self.handed = Some(self.openings);
        Some(Descriptors {
            fds: vec![socket, link, map],
            numbers: vec![frames, self.queue.into(), attached],
        })
    }

    fn pause(&mut self, paused: bool) {
        self.is_paused = paused;
    }

    /// How many of the lent buffers are to be received into and to be transmitted, whether the next part received belongs to
    /// a frame that has begun, and the words of the ledger. A frame that has begun is lost.
    fn position(&mut self) -> Option<Vec<u64>> {
        if self.handed != Some(self.openings) || self.monitor.fresh().is_some() {
            return None; // the socket was opened again
        }
        let begun = self.assembly.has_begun().into();
        let mut numbers = vec![self.out.filled as u64, self.out.sent as u64, begun];
        numbers.extend(&self.out.bits);
        Some(numbers)
    }

    fn go_on(&mut self, position: &[u64], pool: &mut Pool) -> bool {
        let [filled, sent, begun, words @ ..] = position else { return false };
        let Some(Bound { socket, .. }) = &mut self.bound else { return false };
        socket.go_on();
        if *begun != 0 {
            self.assembly = Assembly::Discards;
        }
        self.out = Ledger { bits: words.into(), filled: *filled as usize, sent: *sent as usize };
        let is_same = self.out.bits.len() == pool.frames().div_ceil(64);
        is_same && self.out.lent().all(|buffer| pool.claim(buffer))
    }
}

impl<S: System> Drop for Xdp<S> {
    fn drop(&mut self) {
        self.unbind();
    }
}
