//! The bench on real interfaces: the tester's ports by AF_PACKET, behind a guard.
//!
//! RFC 6815: benchmark traffic must not be on networks that others use. So the bench refuses
//! interfaces with a default route, and everything outside a network namespace of its own, unless
//! the user says that it is isolated.

use flowyard_frame::Nanos;
use flowyard_ports::af_packet::{Fanout, Ring, Sender, Settings};
use flowyard_ports::live::{Interface, default_route};
use flowyard_rfc2544::setup::Setup;
use flowyard_rfc2544::suite::Bench;
use flowyard_rfc2544::tester::{Measure, MeasureError, RealTester, Wire};

use crate::stop::{Stop, bad_input};

/// Room of a receive ring, in frames: half a second at a million a second.
const FRAMES: u32 = 1 << 19;

/// A port of the tester on an interface.
pub(super) struct Packet {
    name: String,
    sender: Sender,
    ring: Ring,
    buffer: Vec<u8>,
}

impl Packet {
    /// Opens interfaces, if they are isolated or the user says so.
    pub(super) fn open_all(names: &[String], is_isolated: bool) -> Result<Vec<Self>, Stop> {
        if !is_isolated {
            guard(names)?;
        }
        names.iter().map(|name| Self::open(name)).collect()
    }

    fn open(name: &str) -> Result<Self, Stop> {
        let interface = Interface::find(name).map_err(bad_input)?;
        if !interface.is_up {
            return Err(bad_input(format!("'{name}' is down; ip link set {name} up")));
        }
        let settings = Settings { fanout: Fanout::Hash, frames: FRAMES };
        let ring = Ring::open_one(&interface, settings, None).map_err(bad_input)?;
        let sender = Sender::open(&interface, true).map_err(bad_input)?;
        Ok(Self { name: name.into(), sender, ring, buffer: vec![0; 65_536] })
    }
}

/// Refuses what others may use.
fn guard(names: &[String]) -> Result<(), Stop> {
    let mend = "benchmark traffic must not be on networks that others use (RFC 6815): test in a \
                namespace of its own, or say --isolated";
    for name in names {
        if let Some(to) = default_route(name)? {
            return Err(bad_input(format!("'{name}' has the default route to {to}; {mend}")));
        }
    }
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).ok();
    let (ours, first) = (namespace("self"), namespace("1"));
    if first.is_none() || ours == first {
        return Err(bad_input(format!("this is the machine's own network namespace; {mend}")));
    }
    Ok(())
}

impl Wire for Packet {
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, String> {
        match self.sender.send(frames.iter().copied()) {
            (sent, None) => Ok(sent),
            (sent, Some(error)) => match error.raw_os_error() {
                // No room just now: the rest is offered again.
                Some(libc_codes::EAGAIN | libc_codes::ENOBUFS) => Ok(sent),
                _ => Err(format!("'{}': {error}; is it up, and both its ends?", self.name)),
            },
        }
    }

    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) {
        // A bound: whoever sends faster than this looks must not keep it here.
        for _ in 0..4096 {
            let Some(seen) = self.ring.peek() else { return };
            // Nobody leaves cutting to an adapter here; a frame that wants it is shown whole.
            let len = seen.len(None, 0).min(self.buffer.len());
            if len == seen.len(None, 0) {
                seen.write(None, 0, &mut self.buffer[..len]);
                each(&self.buffer[..len]);
            }
            self.ring.advance();
        }
    }

    fn drops(&mut self) -> u64 {
        self.ring.drops().map_or(0, u64::from)
    }
}

/// Error numbers of Linux on all its common processors.
mod libc_codes {
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const ENOBUFS: i32 = 105;
}

/// The bench between interfaces.
pub(super) struct LiveBench<'a> {
    pub(super) wires: Vec<Packet>,
    pub(super) clock: &'a dyn Fn() -> Nanos,
}

impl Bench for LiveBench<'_> {
    fn at(&mut self, setup: &Setup) -> Result<Box<dyn Measure + '_>, MeasureError> {
        Ok(Box::new(RealTester::new(&mut self.wires, self.clock, setup.clone())?))
    }
}
