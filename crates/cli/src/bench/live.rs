//! The bench on real interfaces: the tester's ports, behind a guard.
//!
//! ```text
//!  af-packet   sendmmsg ──> interface ──> ring of slots
//!  af-xdp      tx ring  ──> interface ──> XDP program ──> rx ring
//!  mixed       tx ring  ──> interface ──> ring of slots
//! ```

use flowyard_frame::Nanos;
use flowyard_ports::af_packet::{Fanout, Ring, Sender, Settings};
use flowyard_ports::af_xdp::Exchange;
use flowyard_ports::live::Interface;
use flowyard_rfc2544::setup::Setup;
use flowyard_rfc2544::suite::Bench;
use flowyard_rfc2544::tester::{Measure, MeasureError, RealTester, Resetter, Wire};

use super::guard;
use super::reset::Command;
use crate::stop::{Stop, bad_input};

/// What the tester's ports are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Kind {
    /// A packet socket: works on every interface
    AfPacket,
    /// An AF_XDP socket, both ways: one queue, frames of 2048 bytes at most
    AfXdp,
    /// Sends by AF_XDP, receives by a packet socket
    Mixed,
}

impl Kind {
    /// As in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Mixed => "af_xdp to send, af_packet to receive",
        }
    }
}

/// Room for received frames: a tenth of a second at half a million a second.
const FRAMES: u32 = 1 << 16;
/// The same of AF_XDP, in each direction.
const CHUNKS: u32 = 1 << 14;

/// Frames that the generator has the kernel send by one call: not more than its backlogs of received
/// frames hold (net.core.netdev_max_backlog, 1000), as veth delivers to one.
const GATHERS: usize = 512;

/// A port of the tester on an interface.
pub(super) struct Port {
    name: String,
    sends: Sends,
    receives: Receives,
    /// Frames of two kilobytes and less; longer ones are not the tester's.
    buffer: Vec<u8>,
}

enum Sends {
    Packet(Sender),
    Xdp(Box<Exchange>),
}

enum Receives {
    Packet(Ring),
    /// What sends also receives.
    Same,
    Nothing,
}

impl Port {
    /// Opens interfaces, if they are isolated or the user says so.
    pub(super) fn open_all(
        names: &[String],
        kind: Kind,
        is_isolated: bool,
    ) -> Result<Vec<Self>, Stop> {
        if !is_isolated {
            guard::check(names)?;
        }
        names.iter().map(|name| Self::open(name, kind, true)).collect()
    }

    /// Opens one, behind the guard; without `receives`, only to send.
    pub(super) fn open(name: &str, kind: Kind, receives: bool) -> Result<Self, Stop> {
        let interface = Interface::find(name).map_err(bad_input)?;
        if !interface.is_up {
            return Err(bad_input(format!("'{name}' is down; ip link set {name} up")));
        }
        let sends = match kind {
            Kind::AfPacket => Sends::Packet(Sender::open(&interface, true).map_err(bad_input)?),
            Kind::AfXdp | Kind::Mixed => {
                let both = receives && kind == Kind::AfXdp;
                let opened = Exchange::open(&interface, CHUNKS, both).map_err(bad_input)?;
                // Whoever only sends sends as fast as it goes; the methods send when a frame is due.
                let opened = if receives { opened } else { opened.gather(GATHERS) };
                Sends::Xdp(Box::new(opened))
            }
        };
        let receives = match kind {
            _ if !receives => Receives::Nothing,
            Kind::AfXdp => Receives::Same,
            Kind::AfPacket | Kind::Mixed => {
                let settings = Settings { fanout: Fanout::Hash, frames: FRAMES };
                let mut rings = Ring::open(&interface, 1, settings).map_err(bad_input)?;
                Receives::Packet(rings.pop().ok_or_else(|| bad_input("no ring was opened"))?)
            }
        };
        Ok(Self { name: name.into(), sends, receives, buffer: vec![0; 1 << 16] })
    }

    /// Waits until what was taken has left, for a moment.
    pub(super) fn drain(&mut self) {
        if let Sends::Xdp(exchange) = &mut self.sends {
            for _ in 0..10_000 {
                if exchange.pending() == 0 {
                    return;
                }
            }
        }
    }
}

/// Frames that are looked at before the tester looks at its schedule again.
const LOOK: usize = 256;

impl Wire for Port {
    #[inline]
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, String> {
        let frames = frames.iter().copied();
        let (sent, error) = match &mut self.sends {
            Sends::Packet(sender) => sender.send(frames),
            Sends::Xdp(exchange) => exchange.send(frames),
        };
        match error {
            None => Ok(sent),
            Some(error) => match error.raw_os_error() {
                // No room just now: the rest is offered again.
                Some(libc_codes::EAGAIN | libc_codes::ENOBUFS) => Ok(sent),
                _ => Err(format!("'{}': {error}; is it up, and both its ends?", self.name)),
            },
        }
    }

    #[inline]
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) {
        // The kernel stops at a frame that the far side has no room for: it is asked to go on.
        if let Sends::Xdp(exchange) = &mut self.sends {
            exchange.pending();
        }
        let ring = match (&mut self.receives, &mut self.sends) {
            (Receives::Packet(ring), _) => ring,
            (Receives::Same, Sends::Xdp(exchange)) => return exchange.receive(LOOK, each),
            _ => return,
        };
        for _ in 0..LOOK {
            let Some(seen) = ring.peek() else { return };
            // Nobody leaves cutting to an adapter here; a frame that wants it is shown whole.
            let len = seen.len(None, 0);
            if let Some(buffer) = self.buffer.get_mut(..len) {
                seen.write(None, 0, buffer);
                each(buffer);
            }
            ring.advance();
        }
    }

    fn drops(&mut self) -> u64 {
        let drops = match (&mut self.receives, &mut self.sends) {
            (Receives::Packet(ring), _) => ring.drops(),
            (Receives::Same, Sends::Xdp(exchange)) => exchange.drops(),
            _ => Ok(0),
        };
        drops.map_or(0, u64::from)
    }
}

/// Error numbers of Linux on all its common processors.
mod libc_codes {
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const ENOBUFS: i32 = 105;
}

/// The bench between interfaces.
pub(super) struct LiveBench<'a> {
    pub(super) wires: Vec<Port>,
    pub(super) clock: &'a dyn Fn() -> Nanos,
    pub(super) reset: Option<Command>,
}

impl Bench for LiveBench<'_> {
    fn at(&mut self, setup: &Setup) -> Result<Box<dyn Measure + '_>, MeasureError> {
        let reset = self.reset.as_mut().map(|command| command as &mut dyn Resetter);
        let tester = RealTester::new(&mut self.wires, self.clock, setup.clone())?;
        Ok(Box::new(tester.with_reset(reset)))
    }
}
