//! A port that transmits into memory.

use std::sync::{Arc, Mutex, PoisonError};

use flowyard_frame::{Batch, FlowKey, Lanes, Nanos};

use flowyard_pool::{Meta, Pool};
use flowyard_yard::Tx;

/// Collects transmitted frames in memory. Clones share the frames.
#[derive(Clone, Debug, Default)]
pub struct Collect(Arc<Mutex<Collected>>);

/// The frames that a [`Collect`] port transmitted, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    sent: Vec<Sent>,
    bytes: Vec<u8>,
}

/// A transmitted frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Time of transmission.
    pub at: Nanos,
    /// The metadata from the port at which the frame was received.
    pub meta: Meta,
    /// The flow key.
    pub key: FlowKey,
    start: usize,
    len: usize,
}

impl Collect {
    /// A port with memory for `frames` frames of `bytes` bytes in total. Further frames are
    /// accepted, but allocate memory.
    #[must_use]
    pub fn with_room(frames: usize, bytes: usize) -> Self {
        let (sent, bytes) = (Vec::with_capacity(frames), Vec::with_capacity(bytes));
        Self(Arc::new(Mutex::new(Collected { sent, bytes })))
    }

    /// Removes and returns the frames transmitted so far.
    #[must_use]
    pub fn take(&self) -> Collected {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Collected {
    /// Number of frames.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether there are no frames.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// The frames with their bytes, in order of transmission.
    pub fn iter(&self) -> impl Iterator<Item = (&Sent, &[u8])> {
        self.sent.iter().map(|sent| (sent, &self.bytes[sent.start..][..sent.len]))
    }
}

impl Tx for Collect {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        // Locked once per batch; only a test may hold the lock at the same time.
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in lanes {
            let frame = &from.frames[lane];
            let (start, data) = (to.bytes.len(), pool.bytes(frame));
            to.bytes.extend_from_slice(data);
            let (meta, key) = (pool.meta(frame), pool.key(from, lane));
            to.sent.push(Sent { at: now, meta, key, start, len: data.len() });
        }
        Lanes::NONE
    }
}
