//! The anti-replay window of an inbound SA (RFC 4303 section 3.4.3, RFC 6479).
//!
//! ```text
//!  accepted:   [ top - size + 1 ........ top ]     a ring of words; a word is cleared when the window moves into it
//!              too old <──                ──> new
//! ```
//!
//! A frame is checked twice: before it is decrypted, without a lock, and after that, when [`Window::accept`] records its
//! number. Several cores decrypt frames of one SA at the same time, so frames that arrived in order are accepted in
//! another order. The window is therefore larger than the configured one by the frames that a queue can have in flight
//! (`docs/decisions/0069-sequence-numbers-of-one-tunnel.md`).
//!
//! Extended sequence numbers: the high 32 bits are inferred from the window (RFC 4304, RFC 4303 appendix A2).
//!
//! Invariants: no number is accepted twice; a number below the window is never accepted.
//! Thread-safety: any thread. The lock is held for the update of some words.

use crate::sync::{AtomicU64, Mutex, Ordering};

/// The largest window that can be configured.
pub const LARGEST: u32 = 4096;

/// Bits of a word.
const BITS: u64 = u64::BITS as u64;

/// Why a number is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It is below the window.
    Old,
    /// It was accepted before.
    Twice,
}

/// A window, in cache lines of its own: the cores that read the key of the SA do not wait for it.
#[derive(Debug)]
#[repr(align(128))]
pub struct Window {
    /// Numbers that are accepted below the highest.
    size: u64,
    top: AtomicU64,
    /// The bit of number `n` is bit `n` of the ring. The ring has at least one word more than the window.
    words: Box<[AtomicU64]>,
    lock: Mutex<()>,
}

impl Window {
    /// A window of `size` numbers, whose highest accepted number is `top`; every number up to `top` counts as accepted.
    /// A size of 0 accepts every number, as the kernel does with `replay-window 0`.
    #[must_use]
    pub fn new(size: u64, top: u64) -> Self {
        let words = (size.div_ceil(BITS) + 1).next_power_of_two();
        let words = (0..words).map(|_| AtomicU64::new(u64::MAX)).collect();
        let window = Self { size, top: AtomicU64::new(top), words, lock: Mutex::new(()) };
        // Bits above `top` in its word are numbers that have not come yet.
        let in_word = top % BITS;
        if in_word != BITS - 1 {
            window.word(top).store((1 << (in_word + 1)) - 1, Ordering::Relaxed);
        }
        window
    }

    /// The highest number that was accepted.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.top.load(Ordering::Acquire)
    }

    /// The number of accepted numbers below the highest.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The full number of a packet that carries `low`. Without extended sequence numbers that is `low`.
    #[must_use]
    pub fn number(&self, low: u32, is_extended: bool) -> u64 {
        if is_extended { infer(self.top(), self.size.max(1), low) } else { low.into() }
    }

    /// Whether `number` would be refused now. Another thread may accept it meanwhile.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self, number: u64) -> Result<(), Refused> {
        if self.size == 0 {
            return Ok(());
        }
        let top = self.top();
        if number > top {
            return Ok(());
        }
        if top - number >= self.size || number == 0 {
            return Err(Refused::Old);
        }
        let is_set = self.word(number).load(Ordering::Relaxed) >> (number % BITS) & 1 == 1;
        if is_set { Err(Refused::Twice) } else { Ok(()) }
    }

    /// Records `number`, whose packet is authentic.
    ///
    /// # Errors
    /// When it is old, or was accepted before.
    pub fn accept(&self, number: u64) -> Result<(), Refused> {
        if self.size == 0 {
            self.top.fetch_max(number, Ordering::AcqRel);
            return Ok(());
        }
        #[cfg(not(loom))]
        let _guard = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        #[cfg(loom)]
        let _guard = self.lock.lock().unwrap();
        self.check(number)?;
        let (top, bit) = (self.top(), 1 << (number % BITS));
        let words = self.words.len() as u64;
        let fresh = (number / BITS).saturating_sub(top / BITS).min(words);
        for step in 0..fresh {
            // The words between the old and the new highest number are those of numbers that have not come yet.
            self.word_at(number / BITS - step).store(0, Ordering::Relaxed);
        }
        let word = self.word(number);
        word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        if number > top {
            self.top.store(number, Ordering::Release);
        }
        Ok(())
    }

    fn word(&self, number: u64) -> &AtomicU64 {
        self.word_at(number / BITS)
    }

    fn word_at(&self, at: u64) -> &AtomicU64 {
        &self.words[(at & (self.words.len() as u64 - 1)) as usize]
    }
}

/// The number with the low bits `low` that is nearest to a window of `size` below `top` (RFC 4303, appendix A2.2).
fn infer(top: u64, size: u64, low: u32) -> u64 {
    let (high, tl, seq) = (top >> 32, top & 0xffff_ffff, u64::from(low));
    let high = if tl >= size - 1 {
        // The window lies in one subspace.
        if seq >= tl - (size - 1) { high } else { high + 1 }
    } else if seq >= tl + (1 << 32) - (size - 1) {
        high.saturating_sub(1)
    } else {
        high
    };
    high << 32 | seq
}

#[cfg(test)]
mod tests;
