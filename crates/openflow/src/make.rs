//! Random messages of every kind, for tests and fuzzing: a third direction of [`crate::io`].
//!
//! A random message is one that a reader could have read: its values are in range, and it is not
//! too long.

use flowyard_frame::Rng;

use crate::io::{Io, Mark, Res};
use crate::problem::Problem;
use crate::{Message, Version, message};

/// A random message that depends only on the seed.
#[must_use]
pub fn make(version: Version, seed: u64) -> Option<Message> {
    let mut maker = Maker { version, random: Rng::new(seed), depth: 0 };
    let kinds = message::kinds(version);
    let kind = kinds[maker.next() as usize % kinds.len()];
    let mut message = Message::blank(kind, version)?;
    message::body(&mut maker, &mut message).ok().map(|()| message)
}

struct Maker {
    version: Version,
    random: Rng,
    depth: u32,
}

impl Maker {
    const fn next(&mut self) -> u64 {
        self.random.bits()
    }
}

impl Io for Maker {
    const READS: bool = true;
    const MAKES: bool = true;

    fn version(&self) -> Version {
        self.version
    }

    fn bytes(&mut self, bytes: &mut [u8]) -> Res {
        // All zeros and all ones are frequent, because special cases are there.
        let style = self.next() % 6;
        for byte in bytes {
            *byte = match style {
                0 => 0,
                1 => 0xff,
                _ => self.next() as u8,
            };
        }
        Ok(())
    }

    fn rest(&mut self, bytes: &mut Vec<u8>) -> Res {
        *bytes = (0..self.next() % 20).map(|_| 0).collect();
        self.bytes(bytes)
    }

    fn message(&mut self, bytes: &mut Vec<u8>) -> Res {
        *bytes = vec![self.version as u8, 2, 0, 9, 0, 0, 0, 7, 0x55];
        Ok(())
    }

    fn more(&mut self) -> bool {
        !self.next().is_multiple_of(3 + u64::from(self.depth)) && self.depth < 5
    }

    fn draw(&mut self, number: &mut u32, _: usize, known: &[u32]) -> Res {
        *number = known.get(self.next() as usize % known.len().max(1)).copied().unwrap_or(0);
        Ok(())
    }

    fn open(&mut self) -> Mark {
        self.depth += 1;
        Mark { start: 0, len_at: 0, outer: 0 }
    }

    fn len(&mut self, _: &mut Mark) -> Res {
        Ok(())
    }

    fn len_behind(&mut self, _: &mut Mark, _: usize) -> Res {
        Ok(())
    }

    fn close(&mut self, _: &Mark) -> Res {
        self.depth -= 1;
        Ok(())
    }

    fn unmark(&mut self, _: &Mark) {
        self.depth -= 1;
    }

    fn align(&mut self, _: &Mark) -> Res {
        Ok(())
    }

    fn blame(&mut self, problem: Problem) -> Problem {
        problem
    }
}
