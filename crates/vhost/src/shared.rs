//! What the control thread and the cores share, and one core's part of a port.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::Log;
use crate::handover::Holder;
use crate::receive::Receiver;
use crate::send::Sender;
use crate::violation::Violation;

/// The ring that a core transmits into.
#[derive(Debug)]
pub(crate) enum Way {
    /// No other core does.
    Own(Box<Sender>),
    /// The guest has fewer queues than the port has cores.
    Shared(Arc<Mutex<Sender>>),
}

/// The rings that bring frames to a core.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    pub(crate) receivers: Vec<Receiver>,
    /// The guest's driver is ready.
    pub(crate) is_up: bool,
    /// A ring broke the rules: the core uses none of them.
    pub(crate) has_failed: bool,
    /// How often the guest broke the rules since this was last reported.
    pub(crate) violations: u32,
}

/// The ring that takes frames of a core.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) way: Option<Way>,
    /// As of [`Incoming`].
    pub(crate) has_failed: bool,
}

impl Incoming {
    /// The rings, by bit, about which the guest wants a call and has not been called.
    pub(crate) fn uncalled(&mut self) -> u64 {
        let wanting =
            self.receivers.iter_mut().filter_map(|one| one.wants_call().then(|| one.number()));
        wanting.fold(0, |bits, ring| bits | 1 << (ring % 64))
    }
}

impl Outgoing {
    /// As of [`Incoming`].
    pub(crate) fn uncalled(&mut self) -> u64 {
        // A ring of several cores calls for each batch.
        let Some(Way::Own(sender)) = &mut self.way else { return 0 };
        u64::from(sender.wants_call()) << (sender.number() % 64)
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// Rings that broke the rules, with the reason.
    pub(crate) broken: Mutex<Vec<(u16, Violation)>>,
    /// Rings whose guest must be called, by bit.
    pub(crate) calls: AtomicU64,
    pub(crate) stops: AtomicBool,
    pub(crate) wake: OwnedFd,
    /// The connection, to end it from another thread.
    pub(crate) stream: Mutex<Option<UnixStream>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn notify(&self) {
        // It fails only if the counter is full, and then the thread wakes anyway.
        let _full = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Lets the control thread call the guest about the ring with this number.
    fn call(&self, ring: u16) {
        // A thread that has not taken the bits yet has been woken already.
        if self.calls.fetch_or(1 << (ring % 64), Ordering::AcqRel) == 0 {
            self.notify();
        }
    }

    #[cold]
    fn fail(&self, ring: u16, violation: Violation) {
        lock(&self.broken).push((ring, violation));
        self.notify();
    }
}

/// The work of the control thread.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// The control thread: begins when a core first calls the port, because the process gives up its privileges
/// before that, and can only do so while it has one thread. Ends when the last core has left the port.
pub(crate) struct Thread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Log,
    /// What the thread will do, until it has begun.
    pub(crate) work: Mutex<Option<Work>>,
    pub(crate) handle: Mutex<Option<JoinHandle<()>>>,
    /// The processors of the process; the core that starts the thread may be pinned to one.
    pub(crate) processors: Option<CpuSet>,
}

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Thread").finish_non_exhaustive()
    }
}

impl Thread {
    /// Starts the thread, unless it has been started.
    #[cold]
    fn start(&self) {
        let Some(work) = lock(&self.work).take() else { return };
        let processors = self.processors;
        let spawned = std::thread::Builder::new().name("vhost-user".to_owned()).spawn(move || {
            if let Some(processors) = processors {
                // Without it the thread shares a processor with a core.
                let _kept = sched_setaffinity(None, &processors);
            }
            work();
        });
        match spawned {
            Ok(handle) => *lock(&self.handle) = Some(handle),
            Err(error) => (self.log)(&format!(
                "the port stays down: starting a thread failed: {error}; raise the limit of threads (ulimit -u)"
            )),
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        if let Some(stream) = &*lock(&self.shared.stream) {
            let _gone = stream.shutdown(Shutdown::Both);
        }
        self.shared.notify();
        // A thread that has not begun ends what has been opened for it.
        if let Some(work) = lock(&self.work).take() {
            return work();
        }
        // The thread ends at once, unless a front end's descriptor blocks it; then it ends with the process.
        if let Some(handle) = lock(&self.handle).take() {
            for _ in 0..200 {
                if handle.is_finished() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    /// One for each core.
    pub queues: Vec<Queue>,
}

/// One core's part of a port.
#[derive(Debug)]
pub struct Queue {
    /// The half that receives.
    pub rx: RxQueue,
    /// The half that transmits.
    pub tx: TxQueue,
}

/// The half of a queue that receives. [`Self::attend`] is called again and again, also when nothing is to be
/// received: it gives back the rings, for which the control thread waits.
///
/// Thread-safety: belongs to one thread, which may be another one than that of the other half. The halves share nothing that is
/// locked, because an atomic read-modify-write waits until all earlier stores, among them those to the guest's memory, have left
/// the processor.
#[derive(Debug)]
pub struct RxQueue {
    pub(crate) holder: Holder<Incoming>,
    /// Whether this half has started the thread.
    pub(crate) has_started: bool,
    pub(crate) shared: Arc<Shared>,
    /// Dropped after `holder`.
    pub(crate) thread: Arc<Thread>,
}

/// The half of a queue that transmits. Thread-safety: as of [`RxQueue`].
#[derive(Debug)]
pub struct TxQueue {
    pub(crate) holder: Holder<Outgoing>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) _thread: Arc<Thread>,
}

impl RxQueue {
    /// Takes what the control thread has placed, and gives back what it wants. Returns whether the guest's
    /// driver is ready. The first call starts the control thread.
    #[inline]
    pub fn attend(&mut self) -> bool {
        if !std::mem::replace(&mut self.has_started, true) {
            self.thread.start();
        }
        self.holder.attend().is_some_and(|share| share.is_up && !share.has_failed)
    }

    /// How often the guest of this port broke the rules since the last call. The port's first core counts.
    #[inline]
    pub fn violations(&mut self) -> u32 {
        self.holder.attend().map_or(0, |share| std::mem::take(&mut share.violations))
    }

    /// The number of rings that bring frames to this core.
    #[inline]
    pub fn receivers(&mut self) -> usize {
        match self.holder.attend() {
            Some(share) if !share.has_failed => share.receivers.len(),
            _ => 0,
        }
    }

    /// Receives by `read`, which begins and reads, but does not finish, from the ring at `at`. `None`: there
    /// is no such ring. A guest that breaks the rules has its port taken down.
    #[inline]
    pub fn receive<T>(
        &mut self,
        at: usize,
        read: impl FnOnce(&mut Receiver) -> Result<T, Violation>,
    ) -> Option<Result<T, Violation>> {
        let share = self.holder.attend().filter(|share| !share.has_failed)?;
        let receiver = share.receivers.get_mut(at)?;
        let (result, ring) = (read(receiver), receiver.number());
        // Frames in front of a broken one have been read, and are the yard's.
        receiver.finish();
        if receiver.must_call() {
            self.shared.call(ring);
        }
        if let Err(violation) = result {
            share.has_failed = true;
            self.shared.fail(ring, violation);
        }
        Some(result)
    }

    /// Calls the guest if it waits for buffers that were given back to it. For a turn of the core in which it does not receive.
    pub fn call_waiting(&mut self) {
        let Some(share) = self.holder.attend() else { return };
        for receiver in &mut share.receivers {
            if receiver.wants_call() {
                self.shared.call(receiver.number());
            }
        }
    }
}

impl TxQueue {
    /// To be called once in each turn of the core, behind [`Self::send`], also when nothing is to be transmitted: gives back the
    /// ring, for which the control thread waits, and calls the guest if it wants that. Returns whether there is a ring to
    /// transmit into.
    #[inline]
    pub fn attend(&mut self) -> bool {
        let Some(share) = self.holder.attend().filter(|share| !share.has_failed) else {
            return false;
        };
        if let Some(Way::Own(sender)) = &mut share.way
            && sender.must_call()
        {
            self.shared.call(sender.number());
        }
        share.way.is_some()
    }

    /// Transmits by `write`, which begins and writes, but does not finish. `None`: there is no ring. A guest
    /// that breaks the rules has its port taken down.
    #[inline]
    pub fn send<T>(
        &mut self,
        write: impl FnOnce(&mut Sender) -> Result<T, Violation>,
    ) -> Option<Result<T, Violation>> {
        let share = self.holder.attend().filter(|share| !share.has_failed)?;
        let work = |sender: &mut Sender| {
            let result = write(sender);
            sender.finish();
            (result, sender.number())
        };
        let (result, ring) = match share.way.as_mut()? {
            Way::Own(sender) => work(sender),
            Way::Shared(sender) => {
                let mut sender = lock(sender);
                let (result, ring) = work(&mut sender);
                if sender.wants_call() {
                    self.shared.call(ring);
                }
                (result, ring)
            }
        };
        if let Err(violation) = result {
            share.has_failed = true;
            self.shared.fail(ring, violation);
        }
        Some(result)
    }
}
