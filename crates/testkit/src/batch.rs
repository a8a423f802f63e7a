//! Batches for tests and benches of code that does not read the bytes of frames.

use flowyard_frame::{Batch, FlowKey, Frame};

/// A batch with these keys; its frames have 60 bytes and name no buffer.
///
/// # Panics
/// When there are more than [`flowyard_frame::LANES`] keys.
#[must_use]
pub fn batch(keys: impl IntoIterator<Item = FlowKey>) -> Batch {
    batch_of(keys.into_iter().map(|key| (key, Frame::unbacked(60))))
}

/// A batch with these keys and receive hashes; its frames have 60 bytes and name no buffer.
///
/// # Panics
/// As [`batch`].
#[must_use]
pub fn hashed_batch(keys: impl IntoIterator<Item = (FlowKey, u32)>) -> Batch {
    batch_of(keys.into_iter().map(|(key, hash)| {
        let mut frame = Frame::unbacked(60);
        frame.hash = hash;
        (key, frame)
    }))
}

fn batch_of(frames: impl Iterator<Item = (FlowKey, Frame)>) -> Batch {
    let mut batch = Batch::default();
    for (key, frame) in frames {
        assert!(batch.push(frame, key).is_ok(), "too many keys for a batch");
    }
    batch
}
