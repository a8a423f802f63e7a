//! Stream: the frames of one port in real time, tagged and sent a batch at a time.
//!
//! ```text
//!  prebuilt frame of the step ─ copy ─> buffer ─ tag ─┐
//!  ...                                    ... up to 64 ├─> Wire::send
//! ```
//!
//! All frames of the plan are built before the first one is sent; after that nothing is allocated,
//! and nothing is looked up by key.
//!
//! Invariants: `row` frames were taken by the wire, `index` of them tagged, in the order of the plan.
//! Thread-safety: one thread's.

use flowyard_frame::Nanos;

use super::templates::Prebuilt;
use super::{MeasureError, Wire};
use crate::setup::Setup;
use crate::tag::{self, Cover, Tag};

/// Frames that are sent by one call.
pub const BURST: usize = 64;

/// The frames of one port.
#[derive(Debug)]
pub struct Stream {
    frames: Prebuilt,
    source: u8,
    cover: Cover,
    row: u64,
    index: u64,
    /// The step of the plan that `row` is.
    at: usize,
    buffers: Vec<Vec<u8>>,
}

impl Stream {
    /// What port `port` sends with `setup`, from the beginning.
    ///
    /// # Errors
    /// Traffic that cannot be, or a port that sends nothing.
    pub fn new(setup: &Setup, port: u8) -> Result<Self, MeasureError> {
        let routes = setup.topology.routes();
        let (has, wants) = (setup.topology.senders(), port.saturating_add(1));
        let to = routes.get(usize::from(port)).ok_or(MeasureError::Ports { has, wants })?;
        let plan = setup.traffic.plan(port)?;
        let frames = Prebuilt::new(&plan, setup.traffic.hosts(), port, to);
        let buffers = (0..BURST).map(|_| Vec::with_capacity(frames.longest())).collect();
        Ok(Self { frames, source: port, cover: setup.cover, row: 0, index: 0, at: 0, buffers })
    }

    /// Sends the next frames, up to `most` and never more than [`BURST`]; how many the wire took.
    ///
    /// # Errors
    /// What the wire says.
    #[inline]
    pub fn send(&mut self, wire: &mut impl Wire, most: usize, now: Nanos) -> Result<usize, String> {
        let ready = most.min(BURST);
        let (mut at, mut index) = (self.at, self.index);
        for buffer in &mut self.buffers[..ready] {
            let (frame, flow, is_tagged) = self.frames.get(at);
            buffer.clear();
            buffer.extend_from_slice(frame);
            if is_tagged {
                let (source, sent) = (self.source, now % tag::SENT_WRAP);
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
            self.index += u64::from(self.frames.get(self.at).2);
            self.row += 1;
            self.at += 1;
            if self.at == self.frames.period() {
                self.at = 0;
            }
        }
        Ok(taken)
    }

    /// Frames sent, with tag or without.
    #[must_use]
    pub const fn row(&self) -> u64 {
        self.row
    }

    /// Frames sent with a tag.
    #[must_use]
    pub const fn index(&self) -> u64 {
        self.index
    }
}
