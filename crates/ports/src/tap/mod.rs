//! TAP: flowyard acts as a multi-queue adapter of its host.
//!
//! ```text
//!  host's stack <──write── queue 0 ── core 0     the queue that a frame is written to decides
//!       │      <──write── queue 1 ── core 1     which CPU of the host processes it
//!       └────────read───> the queue that a program of module `choose` chooses
//! ```
//!
//! With offloads, the host leaves checksums and the cutting of long frames to the receiver of the frames, and describes them in
//! a virtio-net header in front of each. Without, it completes checksums and cuts frames before they come here.
//! An interface that this program created is removed with it; one that existed before remains.
//!
//! Invariants: one frame per call, complete or reported as too long.
//! Thread-safety: a queue is used by one thread at a time.

mod choose;
mod sys;

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use flowyard_wire::Offload;

use crate::live::{Carries, Interface, OpenError, is_detached};
pub use choose::HostQueue;

/// Creates a TUN interface that exists until the file is closed, however the process ends. Packets that the host routes
/// to it are lost unless the file is read.
///
/// # Errors
/// `EBUSY` if there is an interface of this name, `EPERM` without CAP_NET_ADMIN, `ENOENT` without the TUN driver,
/// `EINVAL` if the name is not one of an interface.
pub fn tun(name: &str) -> io::Result<File> {
    sys::tun(name)
}

/// Settings of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// MTU; `None` leaves it unchanged.
    pub mtu: Option<u32>,
    /// Hardware address; `None` leaves it unchanged.
    pub mac: Option<[u8; 6]>,
}

/// One queue of a TAP interface.
#[derive(Debug)]
pub struct Queue {
    /// Shared with its detacher.
    file: Arc<File>,
    /// The network namespace in which it was attached, if the kernel tells.
    home: Option<(u64, u64)>,
    /// The unfinished frames that it carries: then each has a virtio-net header in front.
    carries: Carries,
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Got {
    /// No frame was available.
    Nothing,
    /// A frame of this length in bytes.
    Frame(usize),
    /// A frame was longer than the buffer and was dropped.
    TooLong,
}

impl Queue {
    /// Attaches `count` queues to the interface `name`, which is created if necessary and may be up. No queue delivers frames
    /// before all are attached, because otherwise flows would move to a new queue while an older
    /// queue still holds frames of theirs. Returns the number of frames that arrived earlier and
    /// were dropped; while the queues are being attached, the kernel drops frames and counts them.
    /// Only a frame that the host sends at that very instant can be early or late.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn attach(name: &str, count: usize, programs: &Programs) -> io::Result<(Vec<Self>, u32)> {
        Self::attach_for(name, count, programs, Carries::NONE)
    }

    /// As [`Queue::attach`]; the host may leave the offloads of `carries` to the queues, if it can.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn attach_for(
        name: &str,
        count: usize,
        programs: &Programs,
        carries: Carries,
    ) -> io::Result<(Vec<Self>, u32)> {
        let one = || {
            let file = sys::attach(name, count > 1, carries)?;
            let home = sys::namespace(&file);
            // Also without any: an existing interface may have those of a process that was killed.
            let carries = sys::offload(&file, carries)?;
            Ok(Self { file: Arc::new(file), home, carries })
        };
        let mut first: Self = one()?;
        if count == 1 {
            return Ok((vec![first], 0));
        }
        if let Some(gate) = &programs.gate {
            sys::filter(&first.file, Some(gate))?;
        }
        let made = (1..count).map(|_| one()).collect::<io::Result<Vec<_>>>().and_then(|more| {
            // Also without a chooser: an existing interface may still have the chooser of a process
            // that was killed.
            sys::steer(&first.file, programs.chooser.as_deref())?;
            Ok(more)
        });
        let mut gone = 0;
        if programs.has_gate() {
            while !matches!(first.read(&mut [0; 64]), Ok(Got::Nothing) | Err(_)) {
                gone += 1;
            }
        }
        // Also without a gate: a process that was killed may have left its own.
        let opened = sys::filter(&first.file, None);
        let more = made?;
        if programs.has_gate() {
            opened?;
        }
        Ok((std::iter::once(first).chain(more).collect(), gone))
    }

    /// Continues with the queue of another process, which carried the unfinished frames of `carries` there.
    #[must_use]
    pub fn adopt(fd: OwnedFd, carries: Carries) -> Self {
        let file = File::from(fd);
        let home = sys::namespace(&file);
        Self { file: Arc::new(file), home, carries }
    }

    /// A duplicate of its descriptor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from)
    }

    /// Whether the queue is still attached to the interface that has the name `name` in the
    /// namespace where it was attached, whatever its index. A call that fails is no evidence that it
    /// is not, except that the interface was deleted.
    #[must_use]
    pub fn is_attached(&self, name: &str) -> bool {
        self.is_here(sys::name(&self.file), name)
    }

    /// Whether the interface of the queue has the name `name` in the namespace where the queue was
    /// attached, also if the queue was detached since. The interface may end with the queue.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        self.is_here(sys::attached(&self.file).map(|(name, _)| Some(name)), name)
    }

    fn is_here(&self, found: io::Result<Option<String>>, name: &str) -> bool {
        match found {
            Ok(Some(found)) if found == name => {}
            Ok(_) => return false,
            Err(error) => return !is_detached(&error),
        }
        match (self.home, sys::namespace(&self.file)) {
            (Some(home), Some(now)) => home == now,
            _ => true,
        }
    }

    /// A function that detaches the queue, from any thread, and returns the number of frames that
    /// waited in it and were discarded. A queue that is the only one of its kind cannot be detached.
    ///
    /// The host's frames are then spread over the other queues of the interface. An interface that
    /// this program created remains until this queue is closed.
    pub fn detacher(&self) -> impl FnOnce() -> u32 + Send + 'static {
        // Not a duplicate of the descriptor: that would keep the queue open.
        let file = Arc::downgrade(&self.file);
        move || {
            let Some(file) = file.upgrade() else { return 0 };
            // The kernel does not count what it discards; what arrives between the two calls is lost.
            let (mut waited, mut buffer) = (0, [0; 64]);
            while waited < MOST_WAITING
                && !matches!(read(&file, &mut buffer), Ok(Got::Nothing) | Err(_))
            {
                waited += 1;
            }
            let _refused = sys::detach(&file);
            waited
        }
    }

    /// Removes the filters of the interface, which keep frames of the host from its queues.
    pub fn unfilter(&mut self) {
        let _none = sys::filter(&self.file, None);
        let _none = sys::detach_filter(&self.file);
    }

    /// The unfinished frames that the queue carries.
    #[must_use]
    pub const fn carries(&self) -> Carries {
        self.carries
    }

    /// As [`Queue::read`], into `parts` one after the other. Also returns the virtio-net header of the frame; it has
    /// zeros if the queue carries no unfinished frames. A frame that fills all parts may be longer.
    ///
    /// # Errors
    /// As [`Queue::read`].
    #[inline]
    pub fn read_parts(
        &mut self,
        parts: [&mut [u8]; 3],
    ) -> io::Result<(Got, [u8; Offload::VIRTIO_LEN])> {
        let mut header = [0; Offload::VIRTIO_LEN];
        let room: usize = parts.iter().map(|part| part.len()).sum();
        let [a, b, c] = parts.map(IoSliceMut::new);
        let (got, front) = match self.carries.csum() {
            true => (
                (&*self.file).read_vectored(&mut [IoSliceMut::new(&mut header), a, b, c]),
                Offload::VIRTIO_LEN,
            ),
            false => ((&*self.file).read_vectored(&mut [a, b, c]), 0),
        };
        Ok((seen(got, front, room)?, header))
    }

    /// Reads one frame into `buffer` without waiting; the queue carries no unfinished frames.
    ///
    /// # Errors
    /// The error of the kernel: the interface is down, or gone, or the call was interrupted.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        read(&self.file, buffer)
    }

    /// Writes one frame; the host has received it when this returns.
    ///
    /// # Errors
    /// The error of the kernel.
    #[inline]
    pub fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.write_unfinished(Offload::NONE, frame)
    }

    /// As [`Queue::write`], with what the host is to do to the frame. A queue that carries no unfinished frames writes
    /// finished ones only.
    ///
    /// # Errors
    /// The error of the kernel.
    #[inline]
    pub fn write_unfinished(&mut self, offload: Offload, frame: &[u8]) -> io::Result<()> {
        if !self.carries.csum() {
            return (&*self.file).write(frame).map(drop);
        }
        let header = offload.to_virtio();
        (&*self.file).write_vectored(&[IoSlice::new(&header), IoSlice::new(frame)]).map(drop)
    }
}

/// A host that sends faster than frames are discarded does not keep [`Queue::detacher`] busy for
/// longer than this number of frames.
const MOST_WAITING: u32 = 1 << 16;

/// As [`Queue::read`].
#[inline]
fn read(mut queue: &File, buffer: &mut [u8]) -> io::Result<Got> {
    seen(queue.read(buffer), 0, buffer.len())
}

/// What a read of a frame says that has `front` bytes in front of it, into `room` bytes.
#[inline]
fn seen(result: io::Result<usize>, front: usize, room: usize) -> io::Result<Got> {
    match result.map(|len| len.saturating_sub(front)) {
        Ok(0) => Ok(Got::Nothing),
        Ok(len) if len > room => Ok(Got::TooLong),
        Ok(len) => Ok(Got::Frame(len)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(Got::Nothing),
        Err(error) => Err(error),
    }
}

/// The eBPF programs for an interface's queues. They are loaded once, because an interface that
/// comes back is opened with fewer privileges.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// Drops all frames while queues are being attached.
    gate: Option<Arc<OwnedFd>>,
    /// Chooses the queue of a frame. Without it the kernel does, by the queue to which a frame of the
    /// flow was last written.
    chooser: Option<Arc<OwnedFd>>,
}

impl Programs {
    /// Loads the programs for `count` queues.
    ///
    /// # Errors
    /// When the kernel refuses a program that chooses by CPU.
    pub fn new(count: usize, by: &HostQueue) -> Result<Self, OpenError> {
        if count == 1 {
            return Ok(Self::default());
        }
        Ok(Self { gate: choose::nothing().map(Arc::new), chooser: by.load()?.map(Arc::new) })
    }

    /// Whether several queues can be attached without reordering, which needs CAP_BPF.
    #[must_use]
    pub const fn has_gate(&self) -> bool {
        self.gate.is_some()
    }
}

const CAPABILITY: &str = "CAP_NET_ADMIN";

/// Sets the interface `name` up.
///
/// # Errors
/// When the kernel refuses.
pub fn set_up(name: &str, settings: Settings) -> Result<Interface, OpenError> {
    let doing = format!("setting up tap '{name}'");
    let fail = |error| OpenError::os(&doing, &error, CAPABILITY);
    Interface::find(name)?.set_up(settings.mtu, settings.mac).map_err(fail)?;
    Interface::find(name)
}

/// The queues of the interface `name` could not be attached.
pub(crate) fn refused(name: &str, error: &io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => OpenError::new(
            "there is no /dev/net/tun",
            "load the kernel's tun module ('modprobe tun'), or pass the device into the container",
        ),
        Some(libc::EINVAL) => OpenError::new(
            format!("'{name}' cannot be opened as a TAP interface with this number of queues"),
            "an interface of that name is of another kind, or was created with a different \
             multi_queue setting: choose another name",
        ),
        _ => OpenError::os(&format!("opening tap '{name}'"), error, CAPABILITY),
    }
}
