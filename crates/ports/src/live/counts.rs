//! The kernel's counters of an interface, from `/proc/net/dev` (proc(5)).
//!
//! The file belongs to the network namespace of the thread that opened it. It is read without the
//! lock of the kernel's network configuration; its numbers are those of IFLA_STATS64.
//!
//! Thread-safety: used by one thread at a time.

use std::fs::File;
use std::io::{Read, Seek};

/// Counters of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets that the interface received.
    pub received: u64,
    /// Packets that the host sent by the interface and the interface dropped.
    pub unsent: u64,
}

/// Reads the counters.
#[derive(Debug)]
pub(crate) struct CountsFile {
    file: File,
    text: String,
}

impl CountsFile {
    /// Opens the counters in the network namespace of this thread.
    pub(crate) fn open() -> Option<Self> {
        let file = File::open("/proc/thread-self/net/dev").ok()?;
        Some(Self { file, text: String::with_capacity(4096) })
    }

    pub(crate) fn read(&mut self, name: &str) -> Option<Counts> {
        self.text.clear();
        self.file.rewind().ok()?;
        self.file.read_to_string(&mut self.text).ok()?;
        counts_in(&self.text, name)
    }
}

/// The counters of the interface `name`: the second and the twelfth number of its line.
fn counts_in(text: &str, name: &str) -> Option<Counts> {
    let of = |line: &str| {
        let (found, numbers) = line.split_once(':')?;
        if found.trim() != name {
            return None;
        }
        let mut numbers = numbers.split_whitespace().skip(1);
        let received = numbers.next()?.parse().ok()?;
        let unsent = numbers.nth(9)?.parse().ok()?;
        Some(Counts { received, unsent })
    };
    text.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes ...\n    \
                    lo: 1 2 3 4 5 6 7 8 9 10 11 0 13 14 15 16\n  \
                    tap0: 1 7 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let counts = |received, unsent| Some(Counts { received, unsent });
        assert_eq!((counts_in(text, "tap0"), counts_in(text, "lo")), (counts(7, 12), counts(2, 0)));
        assert_eq!((counts_in(text, "tap"), counts_in("tap0: 1", "tap0")), (None, None));
    }
}
