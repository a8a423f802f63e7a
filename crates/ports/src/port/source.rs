//! A port that receives from a source: a capture file, or frames in memory.
//!
//! A burst of the source is copied into the pool at once; its frames are then released when they
//! are due. A source can wait: while the pool is empty it is not read, and nothing is lost.

use crate::burst::{Burst, Progress, Skipped, Source};
use crate::error::{Damage, Error};
use crate::mem::Frames;
use flowyard_frame::{Batch, FlowKey, Frame, LANES, Nanos};

use super::pace::{Clockwork, Pace};
use flowyard_pool::{Copied, Meta, Pool};
use flowyard_yard::port::{Received, Rx};

/// Receives the frames of a [`Source`].
pub struct SourceRx {
    port: u16,
    source: Box<dyn Source + Send>,
    clockwork: Clockwork,
    /// Frames of the last burst in order; those from `next` on are not yet received. `None` is a
    /// frame that fits into no buffer.
    ahead: [Option<Frame>; LANES],
    times: [Nanos; LANES],
    next: usize,
    len: usize,
    ended: bool,
    failed: Option<String>,
}

impl SourceRx {
    /// Port `port` receives the frames of `source` at `pace`.
    #[must_use]
    pub fn new(port: u16, source: Box<dyn Source + Send>, pace: Pace) -> Self {
        Self {
            port,
            source,
            clockwork: Clockwork::new(pace),
            ahead: [const { None }; LANES],
            times: [0; LANES],
            next: 0,
            len: 0,
            ended: false,
            failed: None,
        }
    }

    /// Reads the next burst directly into the batch, if every frame is due immediately.
    fn read_into(&mut self, into: &mut Batch, pool: &mut Pool) -> Received {
        let mut got = Received::default();
        if !self.ended && pool.has(LANES) {
            match self.source.read() {
                Ok(burst) => {
                    self.ended = burst.is_empty();
                    // There are buffers and lanes for all frames of a burst: see above.
                    let frames = burst.iter().map(|(record, data)| {
                        let (time, wire_len, link) = (record.time, record.wire_len, record.link);
                        (Meta { time, wire_len, in_port: self.port, link, ..Meta::default() }, data)
                    });
                    let (all, before) = (burst.len(), into.len());
                    let Copied { too_long, empty } = pool.copy_batch(into, frames);
                    (got.too_long, got.empty) = (too_long, empty);
                    // Only buffers of the second size can be missing.
                    let copied = into.len() - before + (too_long + empty) as usize;
                    got.no_buffer = all.saturating_sub(copied) as u32;
                }
                Err(error) => {
                    self.failed = Some(error.to_string());
                    self.ended = true;
                }
            }
        }
        got.ended = self.ended;
        got
    }

    /// Reads the next burst into the pool.
    fn read(&mut self, pool: &mut Pool) {
        if self.ended || !pool.has(LANES) {
            return;
        }
        let burst = match self.source.read() {
            Ok(burst) => burst,
            Err(error) => {
                self.failed = Some(error.to_string());
                self.ended = true;
                return;
            }
        };
        (self.next, self.len) = (0, burst.len().min(LANES));
        self.ended = burst.is_empty();
        for (lane, (record, data)) in burst.iter().take(LANES).enumerate() {
            let (time, wire_len, link) = (record.time, record.wire_len, record.link);
            let meta = Meta { time, wire_len, in_port: self.port, link, ..Meta::default() };
            self.times[lane] = time;
            // The pool has buffers for a burst, as checked above, so an error means that the frame
            // is too long.
            self.ahead[lane] = pool.copy(data, meta).ok();
        }
    }
}

impl Rx for SourceRx {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        if self.next == self.len && into.is_empty() && self.clockwork.is_fast() {
            return self.read_into(into, pool);
        }
        if self.next == self.len {
            self.read(pool);
        }
        let mut got = Received::default();
        while self.next < self.len && self.clockwork.due(self.times[self.next], now) {
            match self.ahead[self.next].take() {
                Some(frame) if frame.is_empty() => {
                    pool.put(frame);
                    got.empty += 1;
                }
                Some(frame) => match into.push(frame, FlowKey::ZERO) {
                    Ok(_) => {}
                    Err(frame) => {
                        self.ahead[self.next] = Some(frame);
                        break;
                    }
                },
                None => got.too_long += 1,
            }
            self.next += 1;
        }
        got.ended = self.ended && self.next == self.len;
        got
    }

    fn close(&mut self, pool: &mut Pool) {
        self.ahead.iter_mut().filter_map(Option::take).for_each(|frame| pool.put(frame));
        (self.next, self.len, self.ended) = (0, 0, true);
    }

    fn remarks(&self) -> Vec<String> {
        let skipped = self.source.skipped().into_iter();
        skipped.map(|s| format!("{} frames skipped: {}", s.packets, s.reason)).collect()
    }

    fn failure(&self) -> Option<String> {
        self.failed.clone().or_else(|| self.source.damage().map(ToString::to_string))
    }
}

/// A source that repeats frames in memory.
#[derive(Debug)]
pub struct Repeat {
    frames: Frames,
    left: u32,
}

impl Repeat {
    /// Repeats `frames` `times` times in total.
    #[must_use]
    pub const fn new(frames: Frames, times: u32) -> Self {
        Self { frames, left: times }
    }
}

impl Source for Repeat {
    fn read(&mut self) -> Result<Burst<'_>, Error> {
        let Progress { done, total } = self.frames.progress();
        if Some(done) == total && self.left > 1 {
            self.left -= 1;
            self.frames.rewind();
        }
        self.frames.read()
    }

    /// The progress in captured bytes of the current pass.
    fn progress(&self) -> Progress {
        self.frames.progress()
    }

    fn damage(&self) -> Option<&Damage> {
        self.frames.damage()
    }

    fn skipped(&self) -> Vec<Skipped> {
        self.frames.skipped()
    }
}
