//! An AF_XDP socket on one queue of an interface.

use std::io;
use std::os::fd::OwnedFd;

use libc::{SOL_XDP, sockaddr_xdp, xdp_mmap_offsets, xdp_statistics};

use super::sys::{CAPABILITY, RawDesc, Ring, request, wake_rx, wake_tx};
use crate::live::{Interface, OpenError, sys};
use flowyard_pool::Umem;

/// How frames get into the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Zero copy if the driver supports it, otherwise copy.
    #[default]
    Auto,
    /// The kernel copies; works with every driver.
    Copy,
    /// The adapter writes into the buffers directly.
    ZeroCopy,
}

/// Parameters for opening a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How frames get into the memory.
    pub mode: Mode,
    /// Entries of each of the four rings; a power of two.
    pub frames: u32,
    /// Whether a frame may be in several buffers ([`Desc::continues`]; Linux 6.6).
    pub multi_buffer: bool,
}

/// Flag of a socket whose frames may be in several buffers (`linux/if_xdp.h`).
const XDP_USE_SG: u16 = 1 << 4;
/// Option of a descriptor after which the frame continues.
const XDP_PKT_CONTD: u32 = 1 << 0;

/// Option for the number of frames that the kernel takes per call in copy mode (`linux/if_xdp.h`).
const MAX_TX_SKB_BUDGET: i32 = 9;

/// A frame in the memory, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Desc {
    /// Start of the part in bytes from the start of the memory.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Whether the next descriptor has the next part of the same frame.
    pub continues: bool,
}

/// An AF_XDP socket.
#[derive(Debug)]
pub struct Socket {
    fill: Ring<u64>,
    rx: Ring<RawDesc>,
    tx: Ring<RawDesc>,
    completion: Ring<u64>,
    is_zero_copy: bool,
    dropped: u64,
    pub(super) fd: OwnedFd,
    /// Dropped after the socket, which must not outlive the memory.
    _umem: Umem,
}

/// The rings of a socket.
struct Rings {
    fill: Ring<u64>,
    rx: Ring<RawDesc>,
    tx: Ring<RawDesc>,
    completion: Ring<u64>,
}

impl Rings {
    /// Maps them; each has `frames` entries.
    fn map(fd: &OwnedFd, frames: u32) -> io::Result<Self> {
        let at: xdp_mmap_offsets = sys::get(fd, SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let page = |offset: u64| offset as i64;
        let completed = page(libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        Ok(Self {
            fill: Ring::map(fd, frames, &at.fr, page(libc::XDP_UMEM_PGOFF_FILL_RING))?,
            rx: Ring::map(fd, frames, &at.rx, libc::XDP_PGOFF_RX_RING)?,
            tx: Ring::map(fd, frames, &at.tx, libc::XDP_PGOFF_TX_RING)?,
            completion: Ring::map(fd, frames, &at.cr, completed)?,
        })
    }
}

impl Socket {
    /// Binds a socket to `queue` of `interface` and registers `umem`. It receives no frames until
    /// the interface's program redirects them here ([`super::Program::set`]).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open(
        interface: &Interface,
        queue: u32,
        umem: &Umem,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let parts = if settings.multi_buffer { XDP_USE_SG } else { 0 };
        let bind = |flag: u16| Self::bind(interface, queue, umem, settings.frames, flag | parts);
        let bound = match settings.mode {
            Mode::Copy => bind(libc::XDP_COPY),
            Mode::ZeroCopy => bind(libc::XDP_ZEROCOPY),
            // Drivers differ in the error for missing zero copy, so any error leads to copy mode.
            Mode::Auto => bind(libc::XDP_ZEROCOPY).or_else(|_| bind(libc::XDP_COPY)),
        };
        bound.map_err(|error| {
            let Interface { name, .. } = interface;
            match error.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::EINVAL) if settings.mode == Mode::ZeroCopy => {
                    OpenError::new(
                        format!(
                            "the driver of '{name}' does not support zero copy on queue {queue}"
                        ),
                        "use mode = \"auto\"",
                    )
                }
                Some(libc::EINVAL | libc::EOPNOTSUPP) if settings.multi_buffer => OpenError::new(
                    format!("'{name}' does not support af_xdp with multi_buffer on queue {queue}"),
                    "use kind = \"af_packet\", or remove multi_buffer and lower the MTU (multi_buffer needs Linux 6.6)",
                ),
                Some(libc::EINVAL) => OpenError::new(
                    format!("'{name}' has no queue {queue}, or its driver does not support af_xdp"),
                    "list its queues with 'ethtool -l', or use kind = \"af_packet\"",
                ),
                Some(libc::EBUSY) => OpenError::new(
                    format!("queue {queue} of '{name}' already has an af_xdp socket"),
                    "stop the program that uses it, or choose another queue",
                ),
                _ => {
                    let doing = format!("af_xdp on queue {queue} of '{name}'");
                    OpenError::os(&doing, &error, CAPABILITY)
                }
            }
        })
    }

    fn bind(
        interface: &Interface,
        queue: u32,
        umem: &Umem,
        frames: u32,
        mode: u16,
    ) -> io::Result<Self> {
        let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        sys::set(&fd, SOL_XDP, libc::XDP_UMEM_REG, &request(umem))?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            sys::set(&fd, SOL_XDP, ring, &frames)?;
        }
        let rings = Rings::map(&fd, frames)?;
        let address = sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: mode | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: interface.index,
            sxdp_queue_id: queue,
            ..sys::zeroed()
        };
        sys::bind(&fd, &address)?;
        Self::bound(fd, rings, umem)
    }

    fn bound(fd: OwnedFd, rings: Rings, umem: &Umem) -> io::Result<Self> {
        let Rings { fill, rx, tx, completion } = rings;
        let options: libc::xdp_options = sys::get(&fd, SOL_XDP, libc::XDP_OPTIONS)?;
        let is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        let _umem = umem.clone();
        Ok(Self { fill, rx, tx, completion, is_zero_copy, dropped: 0, fd, _umem })
    }

    /// Continues with a bound socket of another process, whose rings have `frames` entries and which has registered the
    /// memory of `umem`. The rings are read and written from [`Socket::go_on`] on.
    ///
    /// # Errors
    /// The kernel does not map the rings of bound sockets (before Linux 6.4).
    pub fn adopt(fd: OwnedFd, umem: &Umem, frames: u32) -> io::Result<Self> {
        if !frames.is_power_of_two() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let rings = Rings::map(&fd, frames)?;
        Self::bound(fd, rings, umem)
    }

    /// Goes on where the other process has stopped.
    pub fn go_on(&mut self) {
        self.fill.go_on_producing();
        self.rx.go_on_consuming();
        self.tx.go_on_producing();
        self.completion.go_on_consuming();
        let _counted = self.drops(); // the other process has counted them
    }

    /// A duplicate of its descriptor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Whether the adapter writes into the memory directly.
    #[must_use]
    pub const fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Makes the kernel take more than the default of 32 frames per call in copy mode. Kernels
    /// before Linux 6.17 do not know the option and keep the default.
    pub(super) fn hurry(&mut self) {
        let _unknown = sys::set(&self.fd, SOL_XDP, MAX_TX_SKB_BUDGET, &1024_u32);
    }

    /// Whether the socket is still bound to its interface. A call that fails for another reason is no
    /// evidence that it is not.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        // The kernel unbinds the socket when the interface is deleted or moved to another namespace.
        wake_rx(&self.fd).map_or_else(|error| error.raw_os_error() != Some(libc::ENXIO), |()| true)
    }

    /// Whether received frames wait.
    pub fn has_received(&mut self) -> bool {
        self.rx.has_some()
    }

    /// The number of buffers that [`Socket::fill`] accepts.
    #[inline]
    pub fn fill_room(&mut self) -> usize {
        self.fill.room() as usize
    }

    /// Gives the kernel buffers for receiving, by address; at most [`Socket::fill_room`].
    #[inline]
    pub fn fill(&mut self, addrs: &[u64]) {
        let room = self.fill_room();
        addrs.iter().take(room).for_each(|addr| self.fill.put(*addr));
        self.fill.submit();
        if self.fill.wants_wakeup() {
            let _unbound = wake_rx(&self.fd);
        }
    }

    /// Receives up to `into.len()` frames or parts; their buffers belong to the caller again.
    #[inline]
    pub fn receive(&mut self, into: &mut [Desc]) -> usize {
        let mut count = 0;
        for (to, desc) in into.iter_mut().zip(std::iter::from_fn(|| self.rx.take())) {
            let continues = desc.options & XDP_PKT_CONTD != 0;
            *to = Desc { addr: desc.addr, len: desc.len, continues };
            count += 1;
        }
        if count > 0 {
            self.rx.release();
        }
        count
    }

    /// The number of frames that [`Socket::transmit`] accepts.
    #[inline]
    pub fn tx_room(&mut self) -> usize {
        self.tx.room() as usize
    }

    /// Submits frames, at most [`Socket::tx_room`]. They are sent when the kernel is woken, see
    /// [`Socket::wake`].
    #[inline]
    pub fn transmit(&mut self, frames: &[Desc]) {
        let room = self.tx_room();
        for &Desc { addr, len, continues } in frames.iter().take(room) {
            let options = if continues { XDP_PKT_CONTD } else { 0 };
            self.tx.put(RawDesc { addr, len, options });
        }
        self.tx.submit();
    }

    /// Wakes the kernel if necessary to process submitted frames; in copy mode it takes 32 at a
    /// time. Returns the number of frames that it has not taken yet.
    ///
    /// # Errors
    /// When the interface is down (ENETDOWN) or gone (ENXIO). A busy kernel is not an error.
    #[inline]
    pub fn wake(&mut self) -> io::Result<u32> {
        if self.tx.pending() == 0 {
            return Ok(0);
        }
        if self.tx.wants_wakeup() {
            match wake_tx(&self.fd).map_err(|error| (error.raw_os_error(), error)) {
                Ok(())
                | Err((Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR), _)) => {}
                Err((_, error)) => return Err(error),
            }
        }
        Ok(self.tx.pending())
    }

    /// Takes back up to `into.len()` buffers of transmitted frames, by address.
    #[inline]
    pub fn complete(&mut self, into: &mut [u64]) -> usize {
        let mut count = 0;
        for (to, addr) in into.iter_mut().zip(std::iter::from_fn(|| self.completion.take())) {
            *to = addr;
            count += 1;
        }
        if count > 0 {
            self.completion.release();
        }
        count
    }

    /// The number of frames dropped since the last call for lack of ring space or buffers.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn drops(&mut self) -> io::Result<u32> {
        let seen: xdp_statistics = sys::get(&self.fd, SOL_XDP, libc::XDP_STATISTICS)?;
        let all = seen.rx_dropped + seen.rx_ring_full;
        let new = all.saturating_sub(std::mem::replace(&mut self.dropped, all));
        Ok(u32::try_from(new).unwrap_or(u32::MAX))
    }
}
