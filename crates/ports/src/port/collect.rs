//! Transmitting into memory, or nowhere.

use std::sync::{Arc, Mutex, PoisonError};

use flowyard_frame::{Batch, FlowKey, Lanes, Nanos};

use flowyard_pool::{Meta, Pool};
use flowyard_yard::Tx;

/// Transmits into memory.
#[derive(Clone, Debug, Default)]
pub struct Collect(Arc<Mutex<Collected>>);

/// The frames that a [`Collect`] port transmitted, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    sent: Vec<Sent>,
    bytes: Vec<u8>,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// When it was transmitted.
    pub at: Nanos,
    /// What the port it came in by knew of it.
    pub meta: Meta,
    /// Its key.
    pub key: FlowKey,
    start: usize,
    len: usize,
}

impl Collect {
    /// A port with room for `frames` frames of `bytes` bytes in all; more are taken, but then
    /// memory is allocated on the way.
    #[must_use]
    pub fn with_room(frames: usize, bytes: usize) -> Self {
        let (sent, bytes) = (Vec::with_capacity(frames), Vec::with_capacity(bytes));
        Self(Arc::new(Mutex::new(Collected { sent, bytes })))
    }

    /// What was transmitted so far, which the port then forgets.
    #[must_use]
    pub fn take(&self) -> Collected {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Collected {
    /// How many frames there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// The frames with their bytes, in the order they were transmitted.
    pub fn iter(&self) -> impl Iterator<Item = (&Sent, &[u8])> {
        self.sent.iter().map(|sent| (sent, &self.bytes[sent.start..][..sent.len]))
    }
}

impl Tx for Collect {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        // One lock for each batch; nobody else wants it while cores run, but a test that looks.
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in lanes {
            let frame = &from.frames[lane];
            let (start, data) = (to.bytes.len(), pool.bytes(frame));
            to.bytes.extend_from_slice(data);
            let (meta, key) = (pool.meta(frame), from.keys[lane]);
            to.sent.push(Sent { at: now, meta, key, start, len: data.len() });
        }
        Lanes::NONE
    }
}
