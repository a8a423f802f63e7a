//! ixgbe's adaptive interrupt moderation: the next interval from the frames and bytes of the last one (`ixgbe_update_itr`).
//!
//! Few frames mean that latency counts: the interval follows from the frame size, for 100,000 to 16,000 interrupts a second.
//! 4 to 47 frames: a little longer. 48 to 95: as it is. 96 to 255: half. More: bulk, by the frame size, 50,000 to 8,000.
//! The driver forgets the counts if it was not asked within a jiffy or two; this model takes 250 jiffies a second.

use flowyard_frame::Nanos;

use super::EITR_UNIT;

/// `IXGBE_ITR_ADAPTIVE_MIN_INC`, in microseconds.
const STEP: u32 = 2;
/// `IXGBE_ITR_ADAPTIVE_MIN_USECS`.
const LEAST: u32 = 10;
/// `IXGBE_ITR_ADAPTIVE_MAX_USECS`.
const MOST: u32 = 84;
/// A jiffy at CONFIG_HZ=250.
const JIFFY: Nanos = 4_000_000;

/// The state of a vector with one receive ring, on a 10 Gbit/s link.
#[derive(Clone, Copy, Debug)]
pub struct IxgbeItr {
    /// The interval in microseconds.
    usecs: u32,
    /// The jiffy up to which counts are fresh.
    next_update: u64,
}

/// The driver starts with 20,000 interrupts a second (`IXGBE_20K_ITR`).
impl Default for IxgbeItr {
    fn default() -> Self {
        Self { usecs: 50, next_update: 0 }
    }
}

impl IxgbeItr {
    /// The interval that the adapter gets: `ixgbe_set_itr` shifts the microseconds to the bits of EITR, as if its unit were
    /// 2 us, so every interval is 2.4 % longer than the driver means.
    #[must_use]
    pub const fn interval(&self) -> Nanos {
        (self.usecs / 2) as Nanos * EITR_UNIT
    }

    /// An interrupt at `now` found this many frames and bytes.
    pub fn update(&mut self, now: Nanos, frames: u64, bytes: u64) {
        let jiffy = now / JIFFY;
        let is_stale = jiffy > self.next_update;
        self.next_update = jiffy + 1;
        self.usecs = match frames {
            _ if is_stale => LEAST,
            0 => (self.usecs + STEP).min(MOST),
            1..=3 if bytes < 9000 => by_size(bytes / frames, true),
            1..=47 => (self.usecs + STEP).min(MOST),
            48..=95 => self.usecs,
            96..=255 => (self.usecs / 2).max(LEAST),
            _ => by_size(bytes / frames, false),
        };
    }
}

/// The interval for frames of this size: `(170 * (size + 24)) / (size + 640)`, in straight pieces, scaled by 256.
fn by_size(size: u64, for_latency: bool) -> u32 {
    let scaled = match size {
        0..=60 => 5120,
        61..=316 => size * 40 + 2720,
        317..=1084 => size * 15 + 11_452,
        1085..=1967 => size * 5 + 22_420,
        _ => 32_256,
    };
    let scaled = if for_latency { scaled / 2 } else { scaled };
    (scaled.div_ceil(u64::from(STEP) * 256) as u32) * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates that the driver's comments name: 50,000, 16,000, 9,200 and 8,000 interrupts a second in bulk, twice that for
    /// latency.
    #[test]
    fn the_pieces_meet_the_rates_of_the_comments() {
        for (size, bulk, latency) in [(60, 20, 10), (316, 60, 30), (1084, 110, 56), (1968, 126, 64)]
        {
            assert_eq!((by_size(size, false), by_size(size, true)), (bulk, latency), "{size}");
        }
    }

    #[test]
    fn the_interval_follows_the_frames() {
        let mut itr = IxgbeItr::default();
        let mut after = |frames, bytes| {
            itr.update(1000, frames, bytes);
            itr.usecs
        };
        assert_eq!(after(1, 60), 10);
        assert_eq!([after(10, 600), after(47, 2820)], [12, 14]);
        assert_eq!(after(60, 3600), 14);
        assert_eq!(after(300, 300 * 1500), by_size(1500, false));
        assert_eq!(after(100, 6000), 59);
        assert_eq!(after(3, 9000), 61, "three jumbo frames are not latency");
    }

    #[test]
    fn the_interval_stays_in_its_range() {
        let mut itr = IxgbeItr::default();
        (0..100).for_each(|_| itr.update(0, 20, 1200));
        assert_eq!(itr.usecs, 84);
        (0..100).for_each(|_| itr.update(0, 200, 12_000));
        assert_eq!(itr.usecs, 10);
    }

    #[test]
    fn stale_counts_are_forgotten() {
        let mut itr = IxgbeItr::default();
        itr.update(0, 60, 3600);
        assert_eq!(itr.usecs, 50);
        itr.update(3 * JIFFY, 60, 3600);
        assert_eq!(itr.usecs, 10);
    }
}
