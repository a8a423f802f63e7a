//! What the control thread and the cores share, and one core's part of an interface.
//!
//! The halves of a core's part share nothing that is locked, because an atomic read-modify-write waits until all earlier
//! stores, among them those to the peer's memory, have left the processor.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowyard_mem::Pending;
use rustix::event::{EventfdFlags, eventfd};

use crate::control::Log;
use crate::receive::Receiver;
use crate::ring::{Ring, Violation};
use crate::send::Sender;

/// The rings of one core.
#[derive(Debug, Default)]
pub(crate) struct Share {
    receivers: Vec<Receiver>,
    sender: Option<Held>,
    /// The number and the ring of `sender`: for wake-ups.
    wakes: Option<(usize, Ring)>,
    is_connected: bool,
}

/// A ring to transmit into.
#[derive(Debug)]
enum Held {
    /// Of this core alone.
    Own(Sender),
    /// Of several cores, because the peer has fewer rings.
    Common(Arc<Mutex<Sender>>),
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// Grows when a connection begins or ends.
    pub(crate) generation: AtomicU64,
    pub(crate) shares: Mutex<Vec<Share>>,
    /// Why the connection must end.
    pub(crate) broken: Mutex<Option<String>>,
    /// Senders whose peers must be woken, by bit.
    pub(crate) sleepers: AtomicU64,
    pub(crate) stops: AtomicBool,
    pub(crate) wake: OwnedFd,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// For `cores` cores, without a connection.
    pub(crate) fn new(cores: usize) -> rustix::io::Result<Self> {
        Ok(Self {
            generation: AtomicU64::new(1), // a queue starts at 0, so its first look starts the thread
            shares: Mutex::new((0..cores).map(|_| Share::default()).collect()),
            broken: Mutex::new(None),
            sleepers: AtomicU64::new(0),
            stops: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(crate) fn notify(&self) {
        // It fails only if the counter is full, and then the thread wakes anyway.
        let _full = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Gives the rings of `link` to the cores, or takes them away.
    pub(crate) fn publish(&self, link: Option<(Vec<Receiver>, Vec<Sender>)>) {
        let mut shares = lock(&self.shares);
        let cores = shares.len();
        shares.iter_mut().for_each(|share| *share = Share::default());
        if let Some((receivers, senders)) = link {
            for (at, receiver) in receivers.into_iter().enumerate() {
                shares[at % cores].receivers.push(receiver);
            }
            let rings: Vec<_> = senders.iter().map(Sender::ring).collect();
            let mut held: Vec<_> = if senders.len() >= cores {
                senders.into_iter().map(Held::Own).map(Some).collect()
            } else {
                let common: Vec<_> =
                    senders.into_iter().map(|sender| Arc::new(Mutex::new(sender))).collect();
                let of = |core: usize| common.get(core % common.len().max(1)).map(Arc::clone);
                (0..cores).map(|core| of(core).map(Held::Common)).collect()
            };
            for (at, share) in shares.iter_mut().enumerate() {
                let ring = at % rings.len().max(1);
                share.sender = held.get_mut(at).and_then(Option::take);
                share.wakes = rings.get(ring).map(|one| (ring, one.clone()));
                share.is_connected = share.sender.is_some();
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// The control thread: starts when a core looks for a connection first, and ends when the last core has left.
pub(crate) struct Thread {
    shared: Arc<Shared>,
    id: u32,
    log: Log,
    state: Mutex<State>,
}

/// What the control thread does.
type Run = Box<dyn FnOnce() + Send>;

enum State {
    Waits(Run),
    Runs(JoinHandle<()>),
    Ended,
}

impl Thread {
    pub(crate) fn new(shared: Arc<Shared>, id: u32, log: Log, run: Run) -> Self {
        Self { shared, id, log, state: Mutex::new(State::Waits(run)) }
    }

    fn start(&self) {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Ended) {
            State::Waits(run) => {
                match thread::Builder::new().name(format!("memif {}", self.id)).spawn(run) {
                    Ok(handle) => *state = State::Runs(handle),
                    Err(error) => (self.log)(&format!(
                        "not connected: starting a thread failed: {error}; raise the limit of threads (ulimit -u)"
                    )),
                }
            }
            other => *state = other,
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        self.shared.notify();
        // The thread ends at once, unless a peer's descriptor blocks it; then it ends with the process.
        if let State::Runs(handle) = std::mem::replace(&mut *lock(&self.state), State::Ended) {
            for _ in 0..100 {
                if handle.is_finished() {
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// An open interface.
pub struct Port {
    /// One for each core.
    pub queues: Vec<Queue>,
}

/// One core's part of an interface.
pub struct Queue {
    /// What brings frames.
    pub rx: RxQueue,
    /// What takes frames.
    pub tx: TxQueue,
}

/// What both halves know.
struct Half {
    shared: Arc<Shared>,
    thread: Arc<Thread>,
    at: usize,
    /// The generation that was looked at last; 0 before the first look.
    seen: u64,
    is_connected: bool,
}

/// The receiving half.
pub struct RxQueue {
    half: Half,
    receivers: Vec<Receiver>,
}

/// The transmitting half.
pub struct TxQueue {
    half: Half,
    sender: Option<Held>,
    /// The number and the ring of `sender`: for wake-ups.
    wakes: Option<(usize, Ring)>,
    /// Batches since the last look whether the peer sleeps.
    pending: Pending,
}

impl Half {
    #[inline]
    fn is_old(&self) -> bool {
        self.shared.generation.load(Ordering::Acquire) != self.seen
    }

    /// Takes from what the control thread has published; starts that thread at the first call.
    #[cold]
    fn take<T>(&mut self, part: impl FnOnce(&mut Share) -> T) -> T {
        if self.seen == 0 {
            self.thread.start();
        }
        let mut shares = lock(&self.shared.shares);
        self.seen = self.shared.generation.load(Ordering::Acquire);
        let share = &mut shares[self.at];
        self.is_connected = share.is_connected;
        part(share)
    }

    #[cold]
    fn fail(&mut self, violation: &Violation) {
        self.is_connected = false;
        *lock(&self.shared.broken) = Some(violation.to_string());
        self.shared.notify();
    }
}

impl Queue {
    pub(crate) fn new(shared: &Arc<Shared>, thread: &Arc<Thread>, at: usize) -> Self {
        let half = || Half {
            shared: Arc::clone(shared),
            thread: Arc::clone(thread),
            at,
            seen: 0,
            is_connected: false,
        };
        Self {
            rx: RxQueue { half: half(), receivers: Vec::new() },
            tx: TxQueue { half: half(), sender: None, wakes: None, pending: Pending::default() },
        }
    }
}

impl RxQueue {
    /// Takes what the control thread has published, and starts that thread at the first call. To be called often. Returns
    /// whether there is a connection.
    #[inline]
    pub fn attend(&mut self) -> bool {
        if self.half.is_old() {
            self.receivers = self.half.take(|share| std::mem::take(&mut share.receivers));
        }
        self.half.is_connected
    }

    /// The rings that bring frames to this core.
    #[inline]
    pub fn receivers(&mut self) -> &mut [Receiver] {
        &mut self.receivers
    }

    /// Ends the connection, because the peer broke the protocol.
    #[cold]
    pub fn fail(&mut self, violation: &Violation) {
        self.receivers = Vec::new();
        self.half.fail(violation);
    }
}

impl TxQueue {
    /// As [`RxQueue::attend`].
    #[inline]
    pub fn attend(&mut self) -> bool {
        if self.half.is_old() {
            (self.sender, self.wakes) =
                self.half.take(|share| (share.sender.take(), share.wakes.take()));
        }
        self.half.is_connected
    }

    /// Wakes the peer if it sleeps and frames were transmitted. To be called once in each turn of the core, behind
    /// [`Self::send`], also if nothing was sent.
    #[inline]
    pub fn wake(&mut self) {
        if !self.pending.is_due() {
            return;
        }
        let Some((at, ring)) = &self.wakes else { return };
        // The peer allows wake-ups and then looks at the index; this side does so in the other order.
        fence(Ordering::SeqCst);
        if ring.wants_wakeups() {
            self.half.shared.sleepers.fetch_or(1 << (at % 64), Ordering::Release);
            self.half.shared.notify();
        }
    }

    /// Transmits by `write`, which begins and writes, but does not finish. `None`: there is no connection.
    ///
    /// # Errors
    /// Those of `write`, after which the connection ends.
    #[inline]
    pub fn send<T>(
        &mut self,
        write: impl FnOnce(&mut Sender) -> Result<T, Violation>,
    ) -> Result<Option<T>, Violation> {
        let all = |sender: &mut Sender| {
            let result = write(sender);
            // Also after an error: the frames before it count as transmitted.
            if sender.finish() {
                self.pending.shown();
            }
            result.map(Some)
        };
        match &mut self.sender {
            None => Ok(None),
            Some(Held::Own(sender)) => all(sender),
            Some(Held::Common(sender)) => all(&mut lock(sender)),
        }
    }

    /// Ends the connection, because the peer broke the protocol.
    #[cold]
    pub fn fail(&mut self, violation: &Violation) {
        (self.sender, self.wakes) = (None, None);
        self.half.fail(violation);
    }
}
