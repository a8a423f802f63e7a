//! The XDP program of an interface: attached, given sockets, and detached when dropped.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::rules::{Ours, Rules, Strays};
use super::socket::Socket;
use super::sys::{self, CAPABILITY};
use crate::live::{Interface, OpenError, State};

/// Where in the receive path the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attached {
    /// In the driver (native mode).
    Driver,
    /// After the driver (generic mode): the driver does not support XDP, or not with its settings.
    Generic,
}

/// An attached program.
#[derive(Debug)]
pub struct Program {
    /// Dropped first, so that no further frames are redirected.
    link: OwnedFd,
    map: OwnedFd,
    /// Those that it was attached with, and one in front; `None` if another process has attached it, then the link keeps
    /// the program.
    _programs: Option<(OwnedFd, Option<Before>)>,
    attached: Attached,
}

/// A program that runs in front of a port's own.
pub trait Ahead: Send + Sync + std::fmt::Debug {
    /// Prepares for the interface with this index.
    ///
    /// # Errors
    /// What the kernel refuses.
    fn on(&self, index: u32) -> io::Result<Before>;

    /// Learns the state of the interface, about every 20 ms; `attached` is where its programs run. Returns a message for
    /// the log if something has changed.
    fn look(&self, state: &State, attached: Attached) -> Option<String>;

    /// The port stops receiving: the program answers no more frames that come by it.
    fn stop(&self);
}

/// The program to attach in front.
#[derive(Debug)]
pub struct Before {
    /// The program.
    pub program: OwnedFd,
    /// The map of programs in which it looks for the port's.
    pub behind: OwnedFd,
    /// Where in this map.
    pub at: u32,
    /// An array in which the port's program counts the frames that it leaves to the kernel: 64 bits at `counter` in the
    /// element `first` + queue, for the first `queues` queues.
    pub counters: OwnedFd,
    /// The element of queue 0.
    pub first: u32,
    /// The number of queues that have an element.
    pub queues: u32,
    /// The offset of the counter in its element.
    pub counter: i16,
}

/// Number of queues in a map.
const QUEUES: u32 = 256;
/// XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE.
const DRIVER: u32 = 1 << 2;
const GENERIC: u32 = 1 << 1;

impl Program {
    /// Attaches a program to `interface` that redirects the frames selected by `rules` to the
    /// sockets of their queues, and passes all others to the kernel. With `multi_buffer` it accepts frames in several
    /// buffers; then no program can run in front, because the kernel calls only programs that do the same.
    ///
    /// # Errors
    /// When the interface already has another program, or the kernel refuses.
    pub fn attach(
        interface: &Interface,
        rules: &Rules,
        multi_buffer: bool,
        ahead: Option<&dyn Ahead>,
    ) -> Result<Self, OpenError> {
        let fail = |error| OpenError::os("loading the XDP program", &error, CAPABILITY);
        let map = sys::xsk_map(QUEUES).map_err(fail)?;
        let prepare = |error: io::Error| {
            OpenError::os("preparing the program in front of the port", &error, CAPABILITY)
        };
        let before = ahead.map(|ahead| ahead.on(interface.index)).transpose().map_err(prepare)?;
        let strays = before.as_ref().map(|before| Strays {
            map: before.counters.as_raw_fd(),
            first: before.first,
            queues: before.queues,
            offset: before.counter,
        });
        let insns = rules.program(Ours::Map(map.as_raw_fd()), strays);
        let flags = if multi_buffer { sys::FRAGS } else { 0 };
        let program =
            sys::load_with(sys::Purpose::Xdp, flags, &insns).map_err(|(error, log)| {
                let OpenError { what, fix } = fail(error);
                let log = if log.is_empty() { log } else { format!(" ({log})") };
                OpenError::new(format!("{what}{log}"), fix)
            })?;
        if let Some(before) = &before {
            sys::map_set(&before.behind, before.at, Some(&program)).map_err(prepare)?;
        }
        let first = before.as_ref().map_or(&program, |before| &before.program);
        let attach = |flags| sys::link(first, interface.index, flags);
        let (link, attached) = match attach(DRIVER) {
            Ok(link) => (link, Attached::Driver),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                return Err(taken(interface));
            }
            Err(_) => (attach(GENERIC).map_err(|e| refused(interface, &e))?, Attached::Generic),
        };
        let _programs = Some((program, before));
        Ok(Self { link, map, _programs, attached })
    }

    /// Continues with the program that another process has attached, by its link and its map of sockets.
    #[must_use]
    pub const fn adopt(link: OwnedFd, map: OwnedFd, attached: Attached) -> Self {
        Self { link, map, _programs: None, attached }
    }

    /// Duplicates of the descriptors of its link and of its map.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate(&self) -> io::Result<[OwnedFd; 2]> {
        Ok([self.link.try_clone()?, self.map.try_clone()?])
    }

    /// Where it runs.
    #[must_use]
    pub const fn attached(&self) -> Attached {
        self.attached
    }

    /// Whether it runs on the interface with this index. A call that fails is no evidence that it
    /// does not.
    #[must_use]
    pub fn is_on(&self, index: u32) -> bool {
        sys::linked(&self.link).map_or(true, |found| found == index)
    }

    /// Detaches it from its interface, also while others hold it.
    pub fn detach(&self) {
        let _was_detached = sys::unlink(&self.link);
    }

    /// Redirects the selected frames of `queue` to `socket`.
    ///
    /// # Errors
    /// The error of the kernel: there is no such queue, or the socket is not bound to it.
    pub fn set(&self, queue: u32, socket: &Socket) -> io::Result<()> {
        sys::map_set(&self.map, queue, Some(&socket.fd))
    }

    /// Passes all frames of `queue` to the kernel.
    pub fn clear(&self, queue: u32) {
        let _was_not_set = sys::map_set(&self.map, queue, None);
    }
}

fn taken(interface: &Interface) -> OpenError {
    let name = &interface.name;
    OpenError::new(
        format!("'{name}' already has another XDP program"),
        format!(
            "stop the program that uses it ('ip link show {name}' shows its id; 'ip link set {name} \
             xdp off' removes one that was left behind), or use kind = \"af_packet\""
        ),
    )
}

fn refused(interface: &Interface, error: &io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => taken(interface),
        Some(libc::EINVAL | libc::EOPNOTSUPP) => OpenError::new(
            format!("'{}' does not accept XDP programs: {error}", interface.name),
            "use kind = \"af_packet\" (af_xdp needs Linux 5.9 or later)",
        ),
        _ => OpenError::os(
            &format!("attaching the XDP program to '{}'", interface.name),
            error,
            CAPABILITY,
        ),
    }
}
