//! The tester's ports on real interfaces.
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
use crate::Error;

/// Kind of the tester's ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Packet socket (AF_PACKET): works on every interface.
    AfPacket,
    /// AF_XDP socket for both directions: uses one queue, and frames of no more than 2048 bytes.
    AfXdp,
    /// Sends by AF_XDP, receives by a packet socket.
    Mixed,
}

impl Kind {
    /// Its name in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Mixed => "af_xdp to send, af_packet to receive",
        }
    }
}

/// Frames in the receive ring of a packet socket: 0.1 s at half a million frames per second.
const FRAMES: u32 = 1 << 16;
/// Frames in an AF_XDP ring, in each direction.
const CHUNKS: u32 = 1 << 14;

/// Frames that `bench generate` hands to the kernel by one call. A veth delivers them to one receive
/// backlog, so it is less than the capacity of that (net.core.netdev_max_backlog, 1000).
const GATHERS: usize = 512;

/// A port of the tester on an interface.
pub struct Port {
    name: String,
    sends: Sends,
    receives: Receives,
    /// The frame that is being received.
    buffer: Vec<u8>,
}

enum Sends {
    Packet(Sender),
    Xdp(Box<Exchange>),
}

enum Receives {
    Packet(Ring),
    /// The socket that sends also receives.
    Same,
    Nothing,
}

impl Port {
    /// Opens a port on each interface. Without `is_isolated` they must pass the isolation check.
    ///
    /// # Errors
    ///
    /// When an interface fails the check, does not exist, is down, or a socket cannot be opened.
    pub fn open_all(names: &[String], kind: Kind, is_isolated: bool) -> Result<Vec<Self>, Error> {
        if !is_isolated {
            guard::check(names)?;
        }
        names.iter().map(|name| Self::open(name, kind, true)).collect()
    }

    /// Opens a port on one interface, without the isolation check; if not `receives`, only for sending.
    pub(super) fn open(name: &str, kind: Kind, receives: bool) -> Result<Self, Error> {
        let interface = Interface::find(name).map_err(Error::input)?;
        if !interface.is_up {
            return Err(Error::input(format!("'{name}' is down; run: ip link set {name} up")));
        }
        let sends = match kind {
            Kind::AfPacket => Sends::Packet(Sender::open(&interface, true).map_err(Error::input)?),
            Kind::AfXdp | Kind::Mixed => {
                let both = receives && kind == Kind::AfXdp;
                let opened = Exchange::open(&interface, CHUNKS, both).map_err(Error::input)?;
                // The generator sends as fast as possible; the methods send each frame when it is due.
                let opened = if receives { opened } else { opened.gather(GATHERS) };
                Sends::Xdp(Box::new(opened))
            }
        };
        let receives = match kind {
            _ if !receives => Receives::Nothing,
            Kind::AfXdp => Receives::Same,
            Kind::AfPacket | Kind::Mixed => {
                let settings = Settings { fanout: Fanout::Hash, frames: FRAMES };
                let mut rings = Ring::open(&interface, 1, settings).map_err(Error::input)?;
                let ring = rings.pop();
                Receives::Packet(ring.ok_or_else(|| Error::input("no receive ring was opened"))?)
            }
        };
        Ok(Self { name: name.into(), sends, receives, buffer: vec![0; 1 << 16] })
    }

    /// Polls until all frames that were handed over have been sent, a bounded number of times.
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

/// Maximum number of frames to receive before the tester checks its send schedule again.
const RX_BURST: usize = 256;

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
                // The kernel's queue is full: the caller offers the rest again.
                Some(libc_codes::EAGAIN | libc_codes::ENOBUFS) => Ok(sent),
                _ => Err(format!(
                    "'{}': {error}; check that the interface and its peer are up",
                    self.name
                )),
            },
        }
    }

    #[inline]
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) {
        // The kernel stops sending at a frame that the peer's queue cannot take; this call restarts it.
        if let Sends::Xdp(exchange) = &mut self.sends {
            exchange.pending();
        }
        let ring = match (&mut self.receives, &mut self.sends) {
            (Receives::Packet(ring), _) => ring,
            (Receives::Same, Sends::Xdp(exchange)) => return exchange.receive(RX_BURST, each),
            _ => return,
        };
        for _ in 0..RX_BURST {
            let Some(seen) = ring.peek() else { return };
            // A frame that still needs segmentation by an adapter (TSO) is passed on whole.
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

/// Error numbers of Linux, the same on all common processors.
mod libc_codes {
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const ENOBUFS: i32 = 105;
}

/// The bench on real interfaces.
pub struct LiveBench<'a> {
    /// The tester's ports.
    pub wires: Vec<Port>,
    /// The clock.
    pub clock: &'a dyn Fn() -> Nanos,
    /// The command that resets the device, if there is one.
    pub reset: Option<Command>,
}

impl Bench for LiveBench<'_> {
    fn at(&mut self, setup: &Setup) -> Result<Box<dyn Measure + '_>, MeasureError> {
        let reset = self.reset.as_mut().map(|command| command as &mut dyn Resetter);
        let tester = RealTester::new(&mut self.wires, self.clock, setup.clone())?;
        Ok(Box::new(tester.with_reset(reset)))
    }
}
