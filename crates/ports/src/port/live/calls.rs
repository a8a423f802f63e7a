//! The system calls that ports on interfaces make, as traits: the kernel is one implementation
//! ([`super::linux`]), and a simulation is another.
//!
//! ```text
//!  Packet, Tun, Xdp, Watch ──> System ──┬── Linux: sockets, /dev/net/tun, bpf(2)
//!                                       └── World: interfaces that a seed creates and destroys
//! ```
//!
//! There is a trait for each kind of descriptor: open, receive, send, look at the link, and one
//! question that decides whether a port lives: *is this descriptor still bound to the interface?*
//! When an interface is deleted or moved to another namespace, the kernel unbinds every socket on
//! it. An interface that comes back may have the same name and the same index, so neither is
//! evidence that a socket is bound; only the kernel's answer about the socket is.
//!
//! A call that fails gives no evidence: it must not be taken for "unbound", nor for "gone".
//!
//! Thread-safety: a descriptor is used by one thread at a time, a system by all.

use std::io;
use std::os::fd::OwnedFd;

use flowyard_pool::Umem;
use flowyard_wire::Offload;

use crate::af_packet::{Seen, Settings};
use crate::af_xdp::{self, Ahead, Attached, Desc, Rules};
use crate::live::{Carries, Counts, Interface, OpenError, State};
use crate::tap::{self, Got, HostQueue, Programs};

/// What opens descriptors.
pub(super) trait System: Clone + Send + Sync + 'static {
    type Link: Link;
    type Ring: Ring;
    type Sender: Sender;
    type Queue: Queue;
    type Socket: Socket;
    type Program: Program<Self::Socket>;

    /// A descriptor that looks at the interface `name`, which need not exist.
    fn link(&self, name: &str) -> io::Result<Self::Link>;

    /// The interface `name`.
    fn find(&self, name: &str) -> Result<Interface, OpenError>;

    /// Opens and binds `count` rings that share the frames of `on`. They receive nothing before all
    /// of them are bound.
    fn rings(
        &self,
        on: &Interface,
        count: usize,
        how: Settings,
    ) -> Result<Vec<Self::Ring>, OpenError>;

    fn sender(
        &self,
        on: &Interface,
        bypass: bool,
        carries: Carries,
    ) -> Result<Self::Sender, OpenError>;

    /// Attaches `count` queues to the TAP interface `name`. Also returns the number of lost frames.
    fn queues(
        &self,
        name: &str,
        count: usize,
        programs: &Programs,
        carries: Carries,
    ) -> io::Result<(Vec<Self::Queue>, u32)>;

    /// Loads the programs of a TAP interface with `count` queues.
    fn programs(&self, count: usize, by: &HostQueue) -> Result<Programs, OpenError>;

    /// Sets the TAP interface `name` up.
    fn set_up(&self, name: &str, how: tap::Settings) -> Result<Interface, OpenError>;

    /// Attaches a program that redirects frames to sockets; with `multi_buffer` also frames in several buffers.
    fn program(
        &self,
        on: &Interface,
        rules: &Rules,
        multi_buffer: bool,
        ahead: Option<&dyn Ahead>,
    ) -> Result<Self::Program, OpenError>;

    /// Continues with a ring of another process; see [`Ring::duplicate`].
    fn adopt_ring(&self, fd: OwnedFd, geometry: [usize; 2]) -> io::Result<Self::Ring>;

    /// Continues with a socket of another process that transmits.
    fn adopt_sender(&self, fd: OwnedFd, bypass: bool, carries: Carries)
    -> io::Result<Self::Sender>;

    /// Continues with a queue of another process.
    fn adopt_queue(&self, fd: OwnedFd, carries: Carries) -> io::Result<Self::Queue>;

    /// Continues with a socket of another process, whose rings have `frames` entries.
    fn adopt_socket(&self, fd: OwnedFd, umem: &Umem, frames: u32) -> io::Result<Self::Socket>;

    /// Continues with a program of another process: its link and its map.
    fn adopt_program(&self, fds: [OwnedFd; 2], attached: Attached) -> io::Result<Self::Program>;

    /// Binds a socket to `queue` of `on`.
    fn socket(
        &self,
        on: &Interface,
        queue: u32,
        umem: &Umem,
        how: af_xdp::Settings,
    ) -> Result<Self::Socket, OpenError>;
}

/// Looks at an interface by its name.
pub(super) trait Link: Send {
    /// Its state; `None` if there is no such interface.
    fn look(&mut self) -> io::Result<Option<State>>;

    /// Its counters; `None` if they cannot be read.
    fn counts(&mut self) -> Option<Counts>;
}

/// Keeps a part of an older life of a port from receiving, from any thread. Returns the number of frames
/// that waited in it and were discarded.
pub(super) type Silencer = Box<dyn FnOnce() -> u32 + Send>;

/// The receiving half of an AF_PACKET port.
pub(super) trait Ring: Send {
    fn is_bound(&self, index: u32) -> bool;
    /// The next frame, or its first bytes while the rest waits.
    fn peek_start(&mut self) -> Option<Seen<'_>>;
    /// Writes the whole frame with its tag; returns whether the kernel had all of it.
    fn write_whole(&mut self, out: &mut [u8]) -> bool;
    /// Receives the rest of a frame that is waiting.
    fn gather(&mut self);
    fn advance(&mut self);
    fn drops(&mut self) -> io::Result<u32>;
    /// Clears the error that a change of the interface left on the socket.
    fn clear(&mut self);
    /// Frames that are in the ring remain.
    fn silencer(&self) -> Silencer;
    /// A duplicate of its descriptor, and the sizes of the ring and of a slot in bytes.
    fn duplicate(&self) -> io::Result<(OwnedFd, [usize; 2])>;
    /// The slot that is read next; `None` in the middle of a frame.
    fn position(&self) -> Option<u64>;
    /// Reads next from `slot`; returns whether there is such a slot.
    fn go_on(&mut self, slot: u64) -> bool;
}

/// The transmitting half of an AF_PACKET port.
pub(super) trait Sender: Send {
    fn is_bound(&self, index: u32) -> bool;
    fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = (Offload, &'a [u8])>,
    ) -> (usize, Option<io::Error>);
    /// As [`Ring::clear`].
    fn clear(&mut self);
    /// A duplicate of its descriptor.
    fn duplicate(&self) -> io::Result<OwnedFd>;
}

/// A queue of a TAP interface.
pub(super) trait Queue: Send {
    /// Whether it is attached to the interface that has this name here.
    fn is_attached(&self, name: &str) -> bool;
    /// Whether its interface has this name here, also if the queue was detached from it: the interface
    /// may end with the queue.
    fn is_of(&self, name: &str) -> bool;
    /// The unfinished frames that it carries.
    fn carries(&self) -> Carries;
    /// Reads a frame into `parts`, one after the other, and its virtio-net header.
    fn read(&mut self, parts: [&mut [u8]; 3]) -> io::Result<(Got, [u8; Offload::VIRTIO_LEN])>;
    fn write(&mut self, offload: Offload, frame: &[u8]) -> io::Result<()>;
    /// Detaches the queue. The kernel discards the frames that wait in it.
    fn silencer(&self) -> Silencer;
    /// Removes the programs that keep frames of the host from the queues.
    fn unfilter(&mut self);
    /// A duplicate of its descriptor.
    fn duplicate(&self) -> io::Result<OwnedFd>;
}

/// An AF_XDP socket.
pub(super) trait Socket: Send {
    fn is_bound(&self) -> bool;
    fn is_zero_copy(&self) -> bool;
    fn fill_room(&mut self) -> usize;
    fn fill(&mut self, addrs: &[u64]);
    /// Whether received frames wait.
    fn has_received(&mut self) -> bool;
    fn receive(&mut self, into: &mut [Desc]) -> usize;
    fn tx_room(&mut self) -> usize;
    fn transmit(&mut self, frames: &[Desc]);
    fn wake(&mut self) -> io::Result<u32>;
    fn complete(&mut self, into: &mut [u64]) -> usize;
    fn drops(&mut self) -> io::Result<u32>;
    /// A duplicate of its descriptor.
    fn duplicate(&self) -> io::Result<OwnedFd>;
    /// Goes on where another process has stopped.
    fn go_on(&mut self);
}

/// The XDP program of an interface.
pub(super) trait Program<S>: Send + Sync {
    fn attached(&self) -> Attached;
    /// Whether it runs on the interface with this index.
    fn is_on(&self, index: u32) -> bool;
    /// Detaches it, also while others hold it.
    fn detach(&self);
    fn set(&self, queue: u32, socket: &S) -> io::Result<()>;
    fn clear(&self, queue: u32);
    /// Duplicates of its link and its map.
    fn duplicate(&self) -> io::Result<[OwnedFd; 2]>;
}
