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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::live::{Change, Interface, OpenError, Watch, is_down, is_full, is_too_long};
use crate::{af_packet, af_xdp, tap};
use flowyard_frame::{Batch, Lanes, Nanos};

use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::{Halves, Received, Rx, Tx, refuse};

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
            fix: "raise the limit of open files (ulimit -n)".into(),
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

/// A port on an interface, resolved.
#[derive(Clone, Debug)]
pub struct LivePort {
    /// The number that frames carry.
    pub number: u16,
    /// The name in logs.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// How many cores own the port; each has a receive and a transmit queue of its own.
    pub cores: usize,
    /// By which mechanism, with its settings.
    pub kind: LiveKind,
}

/// The mechanism of a port on an interface.
#[derive(Clone, Debug)]
pub enum LiveKind {
    /// Packet sockets.
    AfPacket {
        /// Fanout, and frames of the ring.
        settings: af_packet::Settings,
        /// Whether transmitted frames bypass the queueing discipline: only where each core stays on
        /// one processor, because the driver's queue is then the processor's.
        bypass: bool,
    },
    /// XDP sockets.
    AfXdp(XdpPort),
    /// An interface of the host whose adapter is the engine.
    Tap {
        /// MTU and hardware address.
        settings: tap::Settings,
        /// The processor of each queue, if the host is to choose the queue by processor.
        processors: Option<Vec<u32>>,
    },
}

/// What an AF_XDP port needs besides its interface.
#[derive(Clone, Debug)]
pub struct XdpPort {
    /// Copy mode, and frames of the rings.
    pub settings: af_xdp::Settings,
    /// Which frames are taken from the kernel.
    pub rules: af_xdp::Rules,
    /// The interface's queue of each core.
    pub queues: Vec<u32>,
    /// Whether TCP and UDP checksums are computed again, for senders on the same machine.
    pub completes_checksums: bool,
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

/// What a port is opened with.
struct Place<'a> {
    port: &'a LivePort,
    pool: &'a Pool,
    log: &'a Log,
}

impl Place<'_> {
    fn news(&self, interface: &Interface) -> Result<News, OpenError> {
        let mut news = News::new(&self.port.name, self.log, interface)?;
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
            let news = place.news(&interface)?;
            Ok(Arc::new(Mutex::new(packet::Packet::new(ring, sender, settings, news))) as Shared)
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
            let mut news = place.news(&interface)?;
            if at == 0 && count > 1 && !programs.has_gate() {
                news.say(
                    "queues are opened one by one, and flows may be reordered meanwhile: give the \
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
            let tap = tun::Tun::new(queue, settings, news);
            Ok(Arc::new(Mutex::new(tap)) as Shared)
        })
        .collect()
}
