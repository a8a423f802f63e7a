//! Ports on interfaces: AF_PACKET, AF_XDP, TAP.
//!
//! ```text
//!  [[port]] cores = [0, 1]      Device of core 0: sockets, Watch, Monitor ── LiveRx, LiveTx ──> core 0
//!  interface = "eth0"      ──>  Device of core 1: ...                  ── LiveRx, LiveTx ──> core 1
//! ```
//!
//! A core has one device for each port it owns, with its own receive and transmit queue; the two
//! halves of the port share it. When an interface goes down or vanishes, this is reported once,
//! frames for it are dropped with the reason `port_down`, and the device continues when the
//! interface is back: the supervisor (module `device`) opens the port again if the kernel has unbound
//! it (module `watch`), or if it receives nothing although its interface counts frames for it (module
//! `stall`).
//!
//! Devices make no system call by themselves, but by the traits of module `calls`.
//!
//! Invariants: a frame counts as transmitted when the kernel has accepted it; received frames that
//! the kernel dropped for lack of space are counted as `overrun`.
//! Thread-safety: both halves of a device belong to one core, so the lock between them is never
//! contended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_frame::{Batch, Lanes, Nanos};
use flowyard_pool::Pool;
use flowyard_yard::port::{Descriptors, Halves, Received, Rx, Tx};

use super::{CoalesceTx, Finish};
use crate::live::{Carries, OpenError};
use crate::{af_packet, tap};

mod calls;
mod device;
mod inherit;
mod linux;
mod long;
mod packet;
mod parts;
mod plan;
pub mod sim;
mod stall;
mod tun;
mod watch;
mod xdp;

use calls::{Queue as _, Ring as _, System};
use device::{Device, Place, Shared};
pub use plan::{LiveKind, LivePort, Log, XdpPort};

fn lock(device: &Shared) -> MutexGuard<'_, dyn Device + 'static> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

struct LiveRx(Shared);

impl Rx for LiveRx {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        lock(&self.0).rx(into, pool, now)
    }

    fn close(&mut self, _pool: &mut Pool) {
        lock(&self.0).stop();
    }

    fn remarks(&self) -> Vec<String> {
        lock(&self.0).remarks()
    }

    fn descriptors(&mut self) -> Option<Descriptors> {
        lock(&self.0).descriptors()
    }

    fn pause(&mut self, paused: bool) {
        lock(&self.0).pause(paused);
    }

    fn position(&mut self) -> Option<Vec<u64>> {
        lock(&self.0).position()
    }

    fn go_on(&mut self, position: &[u64], pool: &mut Pool) -> bool {
        lock(&self.0).go_on(position, pool)
    }
}

struct LiveTx(Shared);

impl Tx for LiveTx {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        lock(&self.0).tx(from, lanes, pool, now)
    }

    fn is_clear(&mut self) -> bool {
        lock(&self.0).is_clear()
    }

    fn close(&mut self) -> Result<(), String> {
        lock(&self.0).finish()
    }
}

/// Opens both halves of `port` for each of its cores.
///
/// # Errors
/// What failed, and how to fix it.
pub fn open(port: &LivePort, pool: &Pool, log: &Log) -> Result<Vec<Halves>, OpenError> {
    open_on(&linux::Linux, port, None, pool, log)
}

/// As [`open`], with the descriptors of a running process that has this port, by core. Nothing is received before
/// [`Rx::go_on`].
///
/// # Errors
/// The descriptors do not fit the port.
pub fn take_over(
    port: &LivePort,
    descriptors: Vec<Descriptors>,
    pool: &Pool,
    log: &Log,
) -> Result<Vec<Halves>, OpenError> {
    open_on(&linux::Linux, port, Some(descriptors), pool, log)
}

fn open_on<S: System>(
    system: &S,
    port: &LivePort,
    inherited: Option<Vec<Descriptors>>,
    pool: &Pool,
    log: &Log,
) -> Result<Vec<Halves>, OpenError> {
    let inherited = inherited.map(|all| inherit::Inherited::of(port, all)).transpose()?;
    let place = Place { system, port, pool, log, progress: stall::Progress::new(port.cores) };
    let devices = match &port.kind {
        LiveKind::AfPacket { settings, bypass } => packets(&place, (*settings, *bypass), inherited),
        LiveKind::AfXdp(xdp) => {
            xdp::open(&place, xdp, inherited).map(|devices| (devices, Carries::NONE))
        }
        LiveKind::Tap { settings, host_queue } => taps(&place, settings, host_queue, inherited),
    };
    let (devices, carries) = devices?;
    let halves = |device: Shared| {
        let rx: Box<dyn Rx> = Box::new(LiveRx(Arc::clone(&device)));
        let tx = Finish::around(Box::new(LiveTx(device)), carries, port.delivered, pool);
        let coalesces = port.coalesces && carries.tso();
        (rx, if coalesces { Box::new(CoalesceTx::new(tx, pool.share())) } else { tx })
    };
    Ok(devices.into_iter().map(halves).collect())
}

fn packets<S: System>(
    place: &Place<'_, S>,
    (port_settings, bypass): (af_packet::Settings, bool),
    inherited: Option<inherit::Inherited>,
) -> Result<(Vec<Shared>, Carries), OpenError> {
    let system = place.system;
    let interface = system.find(&place.port.interface)?;
    let count = place.port.cores;
    let carries = place.port.carries;
    let (rings, senders) = match inherited {
        Some(inherited) => inherited.rings(system, (bypass, carries))?,
        None => {
            let rings = system.rings(&interface, count, port_settings)?;
            let senders = (0..count).map(|_| system.sender(&interface, bypass, carries));
            (rings, senders.collect::<Result<_, _>>()?)
        }
    };
    let silencers = rings.iter().map(S::Ring::silencer).collect();
    let parts = Arc::new(parts::Parts::new(silencers));
    (0..)
        .zip(rings.into_iter().zip(senders))
        .map(|(at, (ring, sender))| {
            let settings = packet::Settings {
                system: system.clone(),
                number: place.port.number,
                settings: port_settings,
                at,
                rings: count,
                bypass,
                carries: place.port.carries,
                parts: Arc::clone(&parts),
            };
            let monitor = place.monitor(at, &interface, Some(|counts| counts.received))?;
            Ok(Arc::new(Mutex::new(packet::Packet::new(ring, sender, settings, monitor))) as Shared)
        })
        .collect::<Result<_, _>>()
        .map(|devices| (devices, carries))
}

fn taps<S: System>(
    place: &Place<'_, S>,
    port_settings: &tap::Settings,
    host_queue: &tap::HostQueue,
    inherited: Option<inherit::Inherited>,
) -> Result<(Vec<Shared>, Carries), OpenError> {
    let (system, count) = (place.system, place.port.cores);
    let programs = system.programs(count, host_queue)?;
    let name = &place.port.interface;
    let is_inherited = inherited.is_some();
    let queues = match inherited {
        Some(inherited) => (inherited.queues(system, place.port.carries)?, 0),
        None => system
            .queues(name, count, &programs, place.port.carries)
            .map_err(|error| tap::refused(name, &error))?,
    };
    // Those that the kernel knows of the ones that were asked for.
    let carries = queues.0.first().map_or(Carries::NONE, calls::Queue::carries);
    let interface = system.set_up(name, *port_settings)?;
    let silencers = queues.0.iter().map(S::Queue::silencer).collect();
    let parts = Arc::new(parts::Parts::new(silencers));
    (0..)
        .zip(tun::by_core(queues))
        .map(|(at, queue)| {
            let mut monitor = place.monitor(at, &interface, Some(|counts| counts.unsent))?;
            if at == 0 && count > 1 && !programs.has_gate() && !is_inherited {
                monitor.report(
                    "queues are opened one by one and the kernel moves flows between them, so flows \
                     may be reordered: grant the program CAP_BPF"
                        .into(),
                );
            }
            let settings = tun::Settings {
                system: system.clone(),
                number: place.port.number,
                name: name.clone(),
                at,
                queues: count,
                programs: programs.clone(),
                carries: place.port.carries,
                parts: Arc::clone(&parts),
            };
            let tap = tun::Tun::new(queue, settings, monitor);
            Ok(Arc::new(Mutex::new(tap)) as Shared)
        })
        .collect::<Result<_, _>>()
        .map(|devices| (devices, carries))
}

#[cfg(test)]
mod tests;
