//! Seeded random numbers: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014).
//!
//! The generator of the whole workspace: for seeds of hash functions, sampling gaps, simulated traffic
//! and tests. Equal seeds give equal sequences on every machine. It is not for secrets: one output
//! reveals all later ones.

/// A random number generator. Equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts the sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 to `n` - 1; 0 when `n` is 0. The bias is below `n` / 2^64.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.bits() as u128 * n as u128) >> 64) as u64
    }

    /// A number from 0 up to, but not including, 1.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The output function of SplitMix64: a fixed, invertible mix of 64 bits.
#[must_use]
#[inline]
pub const fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_sequence() {
        // The first outputs of the reference implementation for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        let got = [rng.bits(), rng.bits(), rng.bits()];
        assert_eq!(
            got,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    /// `below` and `unit` are the upper bits of an output, as a whole number and as a fraction.
    #[test]
    fn numbers_are_made_from_the_upper_bits() {
        let (mut bits, mut below, mut unit) = (Rng::new(3), Rng::new(3), Rng::new(3));
        for n in [1, 2, 10, 1000, 1 << 40, u64::MAX].into_iter().cycle().take(600) {
            let output = bits.bits();
            assert_eq!(u128::from(below.below(n)), u128::from(output) * u128::from(n) / (1 << 64));
            let fraction = unit.unit();
            assert!((fraction - output as f64 / 2_f64.powi(64)).abs() < 2_f64.powi(-52));
        }
    }

    #[test]
    fn numbers_stay_in_bounds_and_spread() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[rng.below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }
}
