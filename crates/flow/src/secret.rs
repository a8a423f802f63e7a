//! The secret from which the keys of all hashes are derived.
//!
//! ```text
//!  16 random bytes ──SipHash-2-4 of the name──> the key of one table       drawn: other keys at every start
//!  a written number ────────────────────────> the key of every table     written: equal keys at every start
//! ```
//!
//! Who knows the key of a table's hash can compute flows that all fall into one bucket. So a program that
//! receives frames from strangers draws its secret from the operating system. The keys of two tables are
//! then independent: what one table shows of its key tells nothing about the keys of the others. A written
//! number makes runs repeatable; it is a secret itself wherever strangers send frames.
//!
//! Invariant: neither the secret nor the number is ever formatted.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// A secret. Its `Debug` form does not contain it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(Source);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Written(u64),
    Drawn(u64, u64),
}

impl Secret {
    /// The secret of simulations, tests and benches, which everybody knows.
    pub const FIXED: Self = Self::written(1);

    /// A number that the user wrote: equal numbers give equal keys, on every machine.
    #[must_use]
    pub const fn written(seed: u64) -> Self {
        Self(Source::Written(seed))
    }

    /// Random bytes of the operating system.
    #[must_use]
    pub const fn drawn(bytes: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self(Source::Drawn(both as u64, (both >> 64) as u64))
    }

    /// The key of the table (or other use) with this name. Of a written number, it is the number.
    #[must_use]
    pub fn key(self, name: &str) -> u64 {
        match self.0 {
            Source::Written(seed) => seed,
            Source::Drawn(a, b) => {
                let mut hasher = SipHasher24::new_with_keys(a, b);
                hasher.write(name.as_bytes());
                hasher.finish()
            }
        }
    }
}

impl Default for Secret {
    /// The fixed one.
    fn default() -> Self {
        Self::FIXED
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_secrets_give_each_name_a_key_of_its_own() {
        let [one, two] = [1, 2].map(|byte| Secret::drawn([byte; 16]));
        assert_eq!(one.key("stations"), one.key("stations"));
        assert_ne!(one.key("stations"), one.key("settle"));
        assert_ne!(one.key("stations"), two.key("stations"));
        // Both halves count.
        let mut bytes = [1; 16];
        bytes[15] = 2;
        assert_ne!(one.key("stations"), Secret::drawn(bytes).key("stations"));
    }

    #[test]
    fn a_written_number_is_every_key() {
        assert_eq!(Secret::written(7).key("stations"), 7);
        assert_eq!(Secret::written(7).key("settle"), 7);
        assert_eq!(Secret::FIXED, Secret::written(1));
    }

    #[test]
    fn a_secret_is_not_printed() {
        let written = format!("{:?}", Some(Secret::written(0x1234_5678_9abc)));
        assert_eq!(written, "Some(Secret(..))");
        assert_eq!(format!("{:?}", Secret::drawn([7; 16])), "Secret(..)");
    }
}
