//! The frame stream of one port in real time: frames are tagged and sent in batches.
//!
//! ```text
//!  prebuilt frame of the step ─ copy ─> buffer ─ tag ─┐
//!  ...                                    ... up to 64 ├─> Wire::send
//! ```
//!
//! All frames of the plan are built before the first one is sent; after that there is no allocation
//! and no hash lookup.
//!
//! Invariants: the wire accepted `row` frames in the order of the plan, `index` of them tagged.
//! Thread-safety: used by one thread.

use flowyard_frame::Nanos;

use super::templates::Prebuilt;
use super::wire::Wire;
use crate::measure::MeasureError;
use crate::setup::Setup;
use crate::tag::{self, Cover, Tag};

/// Maximum number of frames sent by one call.
pub const BURST: usize = 64;

/// The frames of one port.
#[derive(Debug)]
pub struct Stream {
    frames: Prebuilt,
    source: u8,
    cover: Cover,
    row: u64,
    index: u64,
    /// The step of the plan for frame `row`.
    at: usize,
    buffers: Vec<Vec<u8>>,
}

impl Stream {
    /// The stream that port `port` sends with `setup`, from its first frame.
    ///
    /// # Errors
    /// When the traffic specification is invalid, or the port does not send.
    pub fn new(setup: &Setup, port: u8) -> Result<Self, MeasureError> {
        let routes = setup.topology.routes();
        let (has, wants) = (setup.topology.senders(), port.saturating_add(1));
        let to = routes.get(usize::from(port)).ok_or(MeasureError::Ports { has, wants })?;
        let plan = setup.traffic.plan(port)?;
        let frames = Prebuilt::new(&plan, setup.traffic.hosts(), port, to);
        let buffers = (0..BURST).map(|_| Vec::with_capacity(frames.longest())).collect();
        Ok(Self { frames, source: port, cover: setup.cover, row: 0, index: 0, at: 0, buffers })
    }

    /// Sends the next frames, at most `most` and never more than [`BURST`]. Returns how many the
    /// wire accepted.
    ///
    /// # Errors
    /// The error of the wire.
    #[inline]
    pub fn send(&mut self, wire: &mut impl Wire, most: usize, now: Nanos) -> Result<usize, String> {
        let ready = most.min(BURST);
        let (mut at, mut index) = (self.at, self.index);
        for buffer in &mut self.buffers[..ready] {
            let step = self.frames.step(at);
            buffer.clear();
            buffer.extend_from_slice(self.frames.bytes(step));
            if step.is_tagged {
                let (source, flow, sent) = (self.source, step.flow, now % tag::SENT_WRAP);
                tag::write(buffer, &Tag { source, flow, index: index as u32, sent }, self.cover);
                index += 1;
            }
            at += 1;
            if at == self.frames.period() {
                at = 0;
            }
        }
        let mut frames: [&[u8]; BURST] = [&[]; BURST];
        for (slot, buffer) in frames.iter_mut().zip(&self.buffers[..ready]) {
            *slot = buffer;
        }
        let taken = wire.send(&frames[..ready])?.min(ready);
        for _ in 0..taken {
            self.index += u64::from(self.frames.step(self.at).is_tagged);
            self.row += 1;
            self.at += 1;
            if self.at == self.frames.period() {
                self.at = 0;
            }
        }
        Ok(taken)
    }

    /// Number of frames sent, tagged or not.
    #[must_use]
    pub const fn row(&self) -> u64 {
        self.row
    }

    /// Number of tagged frames sent.
    #[must_use]
    pub const fn index(&self) -> u64 {
        self.index
    }
}
