//! Counts the frames of moved entries that could have been overtaken.
//!
//! ```text
//!  old queue:  f f f         f <- a late one: it was in the queue when the table was written
//!  new queue:          ^ f f f f f
//!                    move    └ within the pause after the late one: its like could have been overtaken
//! ```

use flowyard_flow::learn::rebalance::Move;
use flowyard_frame::Nanos;

/// The least time for which an entry is watched after a move.
const LEAST: Nanos = 1_000_000_000;

/// A moved entry.
#[derive(Clone, Copy, Debug)]
struct Watched {
    entry: usize,
    from: u32,
    /// When the old queue had the last frame, as far as is known.
    last: Nanos,
    /// Whether a frame has come on the new queue.
    has_new: bool,
    until: Nanos,
}

/// The entries that moved lately.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pause: Nanos,
    moved: Vec<Watched>,
    could_overtake: u64,
}

impl Watch {
    pub(super) const fn new(pause: Nanos) -> Self {
        Self { pause, moved: Vec::new(), could_overtake: 0 }
    }

    pub(super) const fn could_overtake(&self) -> u64 {
        self.could_overtake
    }

    /// Entries moved at `now`.
    pub(super) fn moved(&mut self, moves: &[Move], now: Nanos) {
        self.moved.retain(|one| now < one.until);
        for one in moves {
            self.moved.retain(|before| before.entry != one.entry);
            let last = if one.forced { now } else { now.saturating_sub(self.pause) };
            let until = now.saturating_add(self.pause.saturating_mul(4).max(LEAST));
            let Move { entry, from, .. } = *one;
            self.moved.push(Watched { entry, from, last, has_new: false, until });
        }
    }

    /// Frames of an entry were received on `queue`. Returns whether that is its old queue. Without a queue, they may be
    /// in either of both.
    pub(super) fn see(
        &mut self,
        entry: usize,
        queue: Option<u32>,
        frames: u64,
        now: Nanos,
    ) -> bool {
        let moved = self.moved.iter_mut().find(|one| one.entry == entry && now < one.until);
        let Some(one) = moved else { return false };
        let is_old = queue == Some(one.from);
        let is_soon = now.saturating_sub(one.last) < self.pause;
        if is_old {
            one.last = now;
        }
        if if is_old { one.has_new } else { is_soon } {
            self.could_overtake += frames;
        }
        one.has_new |= !is_old;
        is_old
    }
}
