//! What the control thread and the cores share, and one core's part of an interface.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::receive::Receiver;
use crate::ring::Violation;
use crate::send::Sender;

/// The rings of one core.
#[derive(Debug, Default)]
pub(crate) struct Share {
    receivers: Vec<Receiver>,
    sender: Option<(usize, Arc<Mutex<Sender>>)>,
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
            let senders: Vec<_> =
                senders.into_iter().map(|sender| Arc::new(Mutex::new(sender))).collect();
            for (at, share) in shares.iter_mut().enumerate() {
                let at = at % senders.len().max(1);
                share.sender = senders.get(at).map(|sender| (at, Arc::clone(sender)));
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// Ends the thread when the last core has left the interface.
pub(crate) struct Thread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Option<JoinHandle<()>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        self.shared.notify();
        // The thread ends at once, unless a peer's descriptor blocks it; then it ends with the process.
        if let Some(handle) = self.handle.take() {
            for _ in 0..100 {
                if handle.is_finished() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
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
    pub(crate) shared: Arc<Shared>,
    pub(crate) _thread: Arc<Thread>,
    pub(crate) at: usize,
    pub(crate) seen: u64,
    pub(crate) share: Share,
}

impl Queue {
    /// Takes what the thread has published. Returns whether there is a connection.
    #[inline]
    pub fn attend(&mut self) -> bool {
        if self.shared.generation.load(Ordering::Acquire) != self.seen {
            self.take();
        }
        self.share.sender.is_some()
    }

    #[cold]
    fn take(&mut self) {
        let mut shares = lock(&self.shared.shares);
        self.seen = self.shared.generation.load(Ordering::Acquire);
        self.share = std::mem::take(&mut shares[self.at]);
    }

    /// The rings that bring frames to this core.
    #[inline]
    pub fn receivers(&mut self) -> &mut [Receiver] {
        &mut self.share.receivers
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
        let Some((at, sender)) = &self.share.sender else { return Ok(None) };
        let mut sender = lock(sender);
        let result = write(&mut sender)?;
        if sender.finish() {
            self.shared.sleepers.fetch_or(1 << (at % 64), Ordering::Release);
            self.shared.notify();
        }
        Ok(Some(result))
    }

    /// Ends the connection, because the peer broke the protocol.
    #[cold]
    pub fn fail(&mut self, violation: &Violation) {
        self.share = Share::default();
        *lock(&self.shared.broken) = Some(violation.to_string());
        self.shared.notify();
    }
}
