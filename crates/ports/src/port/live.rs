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
//! interface is back.
//!
//! Invariants: a frame counts as transmitted when the kernel has accepted it; received frames that
//! the kernel dropped for lack of space are counted as `overrun`.
//! Thread-safety: both halves of a device belong to one core, so the lock between them is never
//! contended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_frame::{Batch, Lanes, Nanos};
use flowyard_pool::Pool;
use flowyard_yard::port::{Halves, Received, Rx, Tx};

use crate::live::{Interface, OpenError};
use crate::{af_packet, tap};

mod device;
mod packet;
mod parts;
mod plan;
mod tun;
mod xdp;

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
        lock(&self.0).monitor().reported.clone()
    }
}

struct LiveTx(Shared);

impl Tx for LiveTx {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        lock(&self.0).tx(from, lanes, pool, now)
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
    let place = Place { port, pool, log };
    let devices = match &port.kind {
        LiveKind::AfPacket { settings, bypass } => packets(&place, *settings, *bypass),
        LiveKind::AfXdp(xdp) => xdp::open(&place, xdp),
        LiveKind::Tap { settings, processors } => taps(&place, settings, processors.as_deref()),
    };
    let halves = |device: Shared| {
        let rx: Box<dyn Rx> = Box::new(LiveRx(Arc::clone(&device)));
        (rx, Box::new(LiveTx(device)) as Box<dyn Tx>)
    };
    Ok(devices?.into_iter().map(halves).collect())
}

fn packets(
    place: &Place<'_>,
    port_settings: af_packet::Settings,
    bypass: bool,
) -> Result<Vec<Shared>, OpenError> {
    let interface = Interface::find(&place.port.interface)?;
    let count = place.port.cores;
    let rings = af_packet::Ring::open(&interface, count, port_settings)?;
    let parts = Arc::new(parts::Parts::new());
    (0..)
        .zip(rings)
        .map(|(at, ring)| {
            let sender = af_packet::Sender::open(&interface, bypass)?;
            let settings = packet::Settings {
                number: place.port.number,
                settings: port_settings,
                at,
                rings: count,
                bypass,
                parts: Arc::clone(&parts),
            };
            let monitor = place.monitor(&interface)?;
            Ok(Arc::new(Mutex::new(packet::Packet::new(ring, sender, settings, monitor))) as Shared)
        })
        .collect()
}

fn taps(
    place: &Place<'_>,
    port_settings: &tap::Settings,
    processors: Option<&[u32]>,
) -> Result<Vec<Shared>, OpenError> {
    let count = place.port.cores;
    let chooser = processors.map(tap::Chooser::by_processor).transpose()?;
    let programs = tap::Programs::new(chooser);
    let queues = tap::Queue::open(&place.port.interface, count, *port_settings, &programs)?;
    let interface = Interface::find(&place.port.interface)?;
    let parts = Arc::new(parts::Parts::new());
    (0..)
        .zip(tun::by_core(queues))
        .map(|(at, queue)| {
            let mut monitor = place.monitor(&interface)?;
            if at == 0 && count > 1 && !programs.has_gate() {
                monitor.report(
                    "queues are opened one by one, so flows may be reordered meanwhile: grant the \
                     program CAP_BPF"
                        .into(),
                );
            }
            let settings = tun::Settings {
                number: place.port.number,
                name: place.port.interface.clone(),
                at,
                queues: count,
                programs: programs.clone(),
                parts: Arc::clone(&parts),
            };
            let tap = tun::Tun::new(queue, settings, monitor);
            Ok(Arc::new(Mutex::new(tap)) as Shared)
        })
        .collect()
}
