//! Ports on interfaces: AF_PACKET, AF_XDP, TAP.
//!
//! ```text
//!  [[port]] cores = [0, 1]      Device of core 0: sockets, Watch, News ── LiveRx, LiveTx ──> core 0
//!  interface = "eth0"      ──>  Device of core 1: ...                  ── LiveRx, LiveTx ──> core 1
//! ```
//!
//! A core has one device for each port it owns, with a receive and a transmit queue of its own;
//! receiving and transmitting share it. An interface that goes down or vanishes is told of once,
//! frames for it are dropped under `port_down`, and the device goes on when it is back.
//!
//! Invariants: a frame is transmitted once the kernel has taken it; what the kernel had no room for
//! on the way in is counted under `overrun`.
//! Thread-safety: the two halves of a device are one core's; the lock between them is never waited
//! for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_frame::{Batch, Lanes, Nanos};
use flowyard_ports::live::{Change, Interface, OpenError, Watch};
use flowyard_ports::{af_packet, tap};

use super::{Halves, Received, Rx, Tx, refuse};
use crate::build::BuildError;
use crate::config::{Config, PortConfig, PortKind};
use crate::counters::DropReason;
use crate::pool::Pool;

mod packet;
mod parts;
mod tun;
mod xdp;

/// Told of what happens at ports, as it happens: the port's name, and what.
pub type Log = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// One core's share of a port.
trait Device: Send {
    /// As [`Rx::rx`].
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received;

    /// As [`Tx::tx`].
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes;

    /// Receives no more.
    fn stop(&mut self) {}

    /// Transmits no more: what is left to say.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn news(&self) -> &News;
}

type Shared = Arc<Mutex<dyn Device>>;

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
        lock(&self.0).news().said.clone()
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

/// What becomes of an interface, told once.
struct News {
    port: String,
    log: Log,
    watch: Watch,
    /// For the end of the run.
    said: Vec<String>,
    /// Since when the interface has not taken what it was given.
    stuck: Option<Nanos>,
    /// It is back, and cannot be opened: tried again and again, and told of once.
    is_refused: bool,
}

/// Remarks kept for the end of a run.
const REMARKS: usize = 16;

/// How long an interface may take nothing before frames for it are dropped.
const PATIENCE: Nanos = 100_000_000;

impl News {
    fn new(port: &str, log: &Log, interface: &Interface) -> Result<Self, OpenError> {
        let watch = Watch::new(interface).map_err(|error| OpenError {
            what: format!("'{}' cannot be watched: {error}", interface.name),
            mend: "raise the limit of open files (ulimit -n)".into(),
        })?;
        Ok(Self {
            port: port.into(),
            log: Arc::clone(log),
            watch,
            said: Vec::new(),
            stuck: None,
            is_refused: false,
        })
    }

    fn say(&mut self, what: String) {
        (self.log)(&self.port, &what);
        if self.said.len() < REMARKS && !self.said.contains(&what) {
            self.said.push(what);
        }
    }

    /// Looks at the interface now and then, and tells what changed.
    #[inline]
    fn look(&mut self, now: Nanos) -> Option<Change> {
        let change = self.watch.look(now)?;
        self.stuck = None;
        self.say(match &change {
            Change::Down => "the interface went down".into(),
            Change::Gone => "the interface is gone".into(),
            Change::Up => "the interface is up again".into(),
            Change::New(_) if self.is_refused => return Some(change),
            Change::New(_) => "the interface is back, as a new one".into(),
        });
        Some(change)
    }

    /// What came of opening the interface that is back.
    fn opened(&mut self, result: Result<(), OpenError>) {
        match result {
            Ok(()) if self.is_refused => self.say("the interface is in use again".into()),
            Ok(()) => {}
            Err(error) => {
                if !self.is_refused {
                    self.say(error.to_string());
                }
                self.is_refused = true;
                self.watch.forget();
                return;
            }
        }
        self.is_refused = false;
    }

    /// The kernel did not take `left`: they come again, unless that has been so for long.
    fn later(&mut self, from: &mut Batch, left: Lanes, now: Nanos) -> Lanes {
        let since = *self.stuck.get_or_insert(now);
        if now.saturating_sub(since) < PATIENCE {
            return left;
        }
        if now.saturating_sub(since) < 2 * PATIENCE {
            self.say("the interface takes no frames; those for it are dropped".into());
        }
        refuse_all(from, left, DropReason::PortFailed)
    }

    /// Something failed with `error` that says that the interface is down or gone: drops `left`.
    fn down(&mut self, from: &mut Batch, left: Lanes) -> Lanes {
        self.watch.hurry();
        refuse_all(from, left, DropReason::PortDown)
    }
}

fn refuse_all(from: &mut Batch, lanes: Lanes, reason: DropReason) -> Lanes {
    lanes.for_each(|lane| refuse(from, lane, reason));
    Lanes::NONE
}

/// Whether an error means that the interface is down, or gone.
fn is_down(error: &std::io::Error) -> bool {
    // ENETDOWN, ENXIO and ENODEV; EIO, EBADFD and EFAULT are what a tap has for the same.
    matches!(error.raw_os_error(), Some(100 | 6 | 19 | 5 | 77 | 14))
}

/// Whether an error means that there is no room now: EAGAIN, ENOBUFS, ENOMEM, EBUSY.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(11 | 105 | 12 | 16))
}

/// Both halves of each port on an interface, by port and core.
pub(crate) type Opened = BTreeMap<(u16, u16), Halves>;

/// Opens the ports on interfaces, but those that `given` says are given otherwise.
///
/// # Errors
/// What is wrong, at the name of the interface.
pub(crate) fn open(
    config: &Config,
    pool: &Pool,
    log: &Log,
    given: impl Fn(u16) -> bool,
) -> Result<Opened, BuildError> {
    let mut all = Opened::new();
    for (number, port) in (0..).zip(config.ports()) {
        let Some(interface) = port.interface.as_ref().filter(|_| !given(number)) else { continue };
        let place = Place { config, number, port, pool, log, name: interface.get_ref() };
        let devices = match port.kind {
            PortKind::AfPacket => packets(&place),
            PortKind::AfXdp => xdp::open(&place),
            PortKind::Tap => taps(&place),
            PortKind::Mem | PortKind::Pcap => continue,
        };
        let devices = devices.map_err(|OpenError { what, mend }| {
            BuildError::from(config.error(interface.span(), what, mend))
        })?;
        for (core, device) in port.owners().zip(devices) {
            let rx = Box::new(LiveRx(Arc::clone(&device)));
            all.insert((number, *core.get_ref()), (rx, Box::new(LiveTx(device))));
        }
    }
    Ok(all)
}

/// What a port is opened with.
struct Place<'a> {
    config: &'a Config,
    number: u16,
    port: &'a PortConfig,
    pool: &'a Pool,
    log: &'a Log,
    name: &'a str,
}

impl Place<'_> {
    fn news(&self, interface: &Interface) -> Result<News, OpenError> {
        let mut news = News::new(self.port.name.get_ref(), self.log, interface)?;
        let longest = self.pool.longest();
        if interface.mtu as usize + HEADER > longest {
            news.say(format!(
                "the interface has an MTU of {}, and frames of more than {longest} bytes are dropped: raise 'buffer_bytes' in [yard]",
                interface.mtu
            ));
        }
        if !interface.is_up {
            news.say("the interface is down".into());
        }
        Ok(news)
    }
}

/// Ethernet header and VLAN tag.
const HEADER: usize = 18;

fn packets(place: &Place<'_>) -> Result<Vec<Shared>, OpenError> {
    let interface = Interface::find(place.name)?;
    let count = place.port.owners().count();
    // Unpinned, a core may be moved to another processor, and its frames to another queue of the
    // driver in mid-flow: then the kernel's queues choose by flow.
    let bypass = !place.config.yard.pin.get_ref().is_empty();
    let rings = af_packet::Ring::open(&interface, count, place.port.packet_settings())?;
    let parts = Arc::new(parts::Parts::new());
    (0..)
        .zip(rings)
        .map(|(at, ring)| {
            let sender = af_packet::Sender::open(&interface, bypass)?;
            let settings = packet::Settings {
                number: place.number,
                settings: place.port.packet_settings(),
                at,
                rings: count,
                bypass,
                parts: Arc::clone(&parts),
            };
            let news = place.news(&interface)?;
            Ok(Arc::new(Mutex::new(packet::Packet::new(ring, sender, settings, news))) as Shared)
        })
        .collect()
}

fn taps(place: &Place<'_>) -> Result<Vec<Shared>, OpenError> {
    let count = place.port.owners().count();
    let processors = place.port.host_queues(place.config.yard.pin.get_ref());
    let chooser = processors.as_deref().map(tap::Chooser::by_processor).transpose()?;
    let programs = tap::Programs::new(chooser);
    let queues = tap::Queue::open(place.name, count, place.port.tap_settings(), &programs)?;
    let interface = Interface::find(place.name)?;
    let parts = Arc::new(parts::Parts::new());
    (0..)
        .zip(tun::by_core(queues))
        .map(|(at, queue)| {
            let mut news = place.news(&interface)?;
            if at == 0 && count > 1 && !programs.has_gate() {
                news.say(
                    "queues are opened one by one, and flows may be reordered meanwhile: give the \
                     program CAP_BPF"
                        .into(),
                );
            }
            let settings = tun::Settings {
                number: place.number,
                name: place.name.into(),
                at,
                queues: count,
                programs: programs.clone(),
                parts: Arc::clone(&parts),
            };
            let tap = tun::Tun::new(queue, settings, news);
            Ok(Arc::new(Mutex::new(tap)) as Shared)
        })
        .collect()
}
