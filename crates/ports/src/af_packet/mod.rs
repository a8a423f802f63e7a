//! AF_PACKET: receive by a ring of slots (TPACKET_V2), transmit many frames by one call.
//!
//! ```text
//!  interface ──> [slot] [slot] [slot ..] ──> Ring::peek ─ Seen::write ──> buffer
//!       └─ longer than a slot ──> socket ──────┘
//!  buffers ──> Sender::send ──> sendmmsg ──> interface
//! ```
//!
//! Not TPACKET_V3, whose blocks of many frames are handed over when they are full or a millisecond
//! old: a flow that waits for its answers would wait for that millisecond at each port.
//!
//! Works on every interface of every driver: the fallback. The kernel keeps its copy of each frame,
//! so the ring taps a line: whoever wants it to be the line leaves addresses off the interface.
//!
//! A frame in the ring is not yet what was on the wire: its VLAN tag stands beside it, its checksum
//! may be left to an adapter, and it may be many segments glued into one. [`Seen::write`] mends all
//! three.
//!
//! Invariants: frames come in the kernel's order; a slot is given back when its frame was taken;
//! what the ring had no room for is counted ([`Ring::drops`]).
//! Thread-safety: one thread's at a time.

mod ring;
mod sys;

pub use ring::{Fanout, Ring, Seen, Settings};

use std::io;
use std::os::fd::OwnedFd;

use crate::live::{Interface, OpenError, sys as live};

/// Transmits frames.
#[derive(Debug)]
pub struct Sender(OwnedFd);

impl Sender {
    /// The most frames that go by one call.
    pub const MOST: usize = sys::MOST;

    /// Transmits on `interface`. With `bypass`, frames go straight to the driver: on the transmit
    /// queue of the processor that sends, without traffic shaping.
    ///
    /// # Errors
    /// When the kernel does not let us.
    pub fn open(interface: &Interface, bypass: bool) -> Result<Self, OpenError> {
        let fd = packet_socket()?;
        let (doing, level) = (format!("af_packet on '{}'", interface.name), libc::SOL_PACKET);
        let fail = |error| OpenError::os(&doing, &error, CAPABILITY);
        if bypass {
            live::set(&fd, level, libc::PACKET_QDISC_BYPASS, &1).map_err(fail)?;
        }
        // More than a default socket may have under way; where that is not allowed, less will do.
        let _less = live::set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        live::bind(&fd, &address(interface, 0)).map_err(fail)?;
        Ok(Self(fd))
    }

    /// Transmits `frames` (at most [`Sender::MOST`]), the first one first. Returns how many the
    /// kernel took, and why not the next.
    pub fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> (usize, Option<io::Error>) {
        sys::send(&self.0, frames)
    }
}

/// Bytes under way.
const SEND_BUFFER: i32 = 8 << 20;

const CAPABILITY: &str = "CAP_NET_RAW";

fn packet_socket() -> Result<OwnedFd, OpenError> {
    live::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
        .map_err(|error| OpenError::os("opening an af_packet socket", &error, CAPABILITY))
}

/// All frames of `protocol` (0 is none) on `interface`.
fn address(interface: &Interface, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface.index as i32,
        ..live::zeroed()
    }
}
