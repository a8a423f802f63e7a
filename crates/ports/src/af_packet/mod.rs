//! AF_PACKET: receives through a ring of slots (TPACKET_V2), transmits many frames per call.
//!
//! ```text
//!  interface ──> [slot] [slot] [slot ..] ──> Ring::peek ─ Seen::write ──> buffer
//!       └─ longer than a slot ──> socket ──────┘
//!  buffers ──> Sender::send ──> sendmmsg ──> interface
//! ```
//!
//! TPACKET_V3 is not used: it delivers blocks of many frames when they are full or a millisecond
//! old, and a flow that waits for its answers would wait for that millisecond at each port.
//!
//! This port works on every interface with every driver. The kernel also processes each frame
//! itself, so the ring only taps the line; to make it the only receiver, configure no addresses on
//! the interface.
//!
//! A frame in the ring differs from the frame on the wire: its VLAN tag is stored separately, its
//! checksum may be left to an adapter, and it may consist of many coalesced segments.
//! [`Seen::write`] restores all three.
//!
//! Invariants: frames keep the kernel's order; a slot is returned to the kernel when its frame was
//! taken; frames dropped because the ring was full are counted ([`Ring::drops`]).
//! Thread-safety: used by one thread at a time.

mod ring;
mod seen;
mod sys;

pub use ring::{Fanout, Ring, Settings};
pub use seen::Seen;

use std::io;
use std::os::fd::OwnedFd;

use flowyard_wire::Offload;

use crate::live::{Carries, Interface, OpenError, sys as live};

/// Transmits frames.
#[derive(Debug)]
pub struct Sender {
    fd: OwnedFd,
    /// Whether each frame has a virtio-net header in front.
    has_header: bool,
}

impl Sender {
    /// Maximum number of frames per call.
    pub const MOST: usize = sys::MOST;

    /// Opens a sender on `interface`. With `bypass`, frames go directly to the driver, on the
    /// transmit queue of the sending CPU and without traffic shaping.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open(interface: &Interface, bypass: bool) -> Result<Self, OpenError> {
        Self::open_for(interface, bypass, Carries::NONE)
    }

    /// As [`Sender::open`], for frames with offloads that are left to the kernel.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open_for(
        interface: &Interface,
        bypass: bool,
        carries: Carries,
    ) -> Result<Self, OpenError> {
        let has_header = carries.csum();
        let fd = packet_socket()?;
        let (doing, level) = (format!("af_packet on '{}'", interface.name), libc::SOL_PACKET);
        let fail = |error| OpenError::os(&doing, &error, CAPABILITY);
        if bypass {
            live::set(&fd, level, libc::PACKET_QDISC_BYPASS, &1).map_err(fail)?;
        }
        if has_header {
            live::set(&fd, level, libc::PACKET_VNET_HDR, &1).map_err(fail)?;
        }
        // A larger send buffer than the default; if that is not permitted, the default remains.
        let _less = live::set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        live::bind(&fd, &address(interface, 0)).map_err(fail)?;
        Ok(Self { fd, has_header })
    }

    /// Continues with the socket of another process, with and without `bypass` as [`Sender::open`], for frames with offloads that
    /// are left to the kernel if `carries` has any.
    ///
    /// # Errors
    /// The descriptor is no packet socket.
    pub fn adopt(fd: OwnedFd, bypass: bool, carries: Carries) -> io::Result<Self> {
        live::set(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &i32::from(bypass))?;
        Ok(Self { fd, has_header: carries.csum() })
    }

    /// A duplicate of its descriptor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Whether the socket is still bound to the interface with this index. A call that fails is no
    /// evidence that it is not.
    #[must_use]
    pub fn is_bound(&self, index: u32) -> bool {
        is_bound(&self.fd, index)
    }

    /// Clears the error that a change of the interface left on the socket.
    pub fn clear(&mut self) {
        let _cleared: io::Result<i32> = live::get(&self.fd, libc::SOL_SOCKET, libc::SO_ERROR);
    }

    /// Transmits `frames` (at most [`Sender::MOST`]) in order. Returns how many the kernel
    /// accepted, and the error for the next one, if any.
    pub fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> (usize, Option<io::Error>) {
        self.send_unfinished(frames.map(|frame| (Offload::NONE, frame)))
    }

    /// As [`Sender::send`], with what the kernel is to do to each frame.
    #[inline]
    pub fn send_unfinished<'a>(
        &mut self,
        frames: impl Iterator<Item = (Offload, &'a [u8])>,
    ) -> (usize, Option<io::Error>) {
        sys::send(&self.fd, self.has_header, frames)
    }
}

/// Size of the send buffer in bytes.
const SEND_BUFFER: i32 = 8 << 20;

const CAPABILITY: &str = "CAP_NET_RAW";

fn packet_socket() -> Result<OwnedFd, OpenError> {
    live::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
        .map_err(|error| OpenError::os("opening an af_packet socket", &error, CAPABILITY))
}

/// Whether `fd` is bound to the interface with this index. When that interface is deleted or moved
/// to another namespace, the kernel unbinds the socket: it then reports the index -1.
fn is_bound(fd: &OwnedFd, index: u32) -> bool {
    live::bound_to(fd).map_or(true, |address| address.sll_ifindex == index as i32)
}

/// An address for all frames of `protocol` (0 for none) on `interface`.
fn address(interface: &Interface, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface.index as i32,
        ..live::zeroed()
    }
}
