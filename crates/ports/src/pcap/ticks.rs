//! pcapng time stamps: converts ticks of an interface's resolution to nanoseconds since the Unix
//! epoch.

use flowyard_frame::Nanos;

/// The conversion from ticks to nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ticks {
    /// A tick is this many nanoseconds.
    Times(u64),
    /// This many ticks are a nanosecond; 0 stands for a number that exceeds 64 bits.
    Per(u64),
    /// A second has 2 to the power of this value ticks.
    Binary(u8),
}

impl Ticks {
    /// From the option `if_tsresol`: a negative power of 10, or of 2 if the top bit is set.
    pub(super) const fn new(resolution: u8) -> Self {
        match resolution {
            0x80.. => Self::Binary(resolution & 0x7f),
            0..=9 => Self::Times(10_u64.pow(9 - resolution as u32)),
            10..=28 => Self::Per(10_u64.pow(resolution as u32 - 9)),
            _ => Self::Per(0),
        }
    }

    /// Converts `ticks` since the epoch and adds the interface's `if_tsoffset`; saturates at both
    /// ends.
    #[inline]
    pub(super) fn nanos(self, ticks: u64, offset_seconds: i64) -> Nanos {
        let nanos = match self {
            Self::Times(factor) => ticks.saturating_mul(factor),
            Self::Per(divisor) => ticks.checked_div(divisor).unwrap_or(0),
            // The product is below 2^94, so it fits into 128 bits.
            Self::Binary(power) => {
                let nanos = (u128::from(ticks) * 1_000_000_000) >> power;
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        };
        if offset_seconds == 0 {
            return nanos;
        }
        let moved = i128::from(nanos) + i128::from(offset_seconds) * 1_000_000_000;
        moved.clamp(0, u64::MAX.into()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resolution_agrees_with_exact_arithmetic() {
        let ticks = [0, 1, 999, 1_700_000_000_123_456, u64::MAX / 3, u64::MAX];
        for resolution in 0..=u8::MAX {
            for ticks in ticks {
                let power = u32::from(resolution & 0x7f);
                let exact = if resolution >= 0x80 {
                    u128::from(ticks) * 1_000_000_000 / (1_u128 << power)
                } else if power <= 28 {
                    u128::from(ticks) * 1_000_000_000 / 10_u128.pow(power)
                } else {
                    0 // 1.8e19 ticks * 1e9 / 1e29 is less than 1
                };
                let exact = u64::try_from(exact).unwrap_or(u64::MAX);
                assert_eq!(Ticks::new(resolution).nanos(ticks, 0), exact, "{resolution} {ticks}");
            }
        }
    }

    #[test]
    fn the_offset_is_added_and_saturates() {
        let micros = Ticks::new(6);
        assert_eq!(micros.nanos(5, 3), 3_000_005_000);
        assert_eq!(micros.nanos(5_000_000, -3), 2_000_000_000);
        assert_eq!(micros.nanos(5, -3), 0);
        assert_eq!(micros.nanos(u64::MAX, i64::MAX), u64::MAX);
        assert_eq!(micros.nanos(0, i64::MIN), 0);
    }
}
