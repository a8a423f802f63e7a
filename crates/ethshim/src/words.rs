//! Requests other than those about rules: structures of 32-bit words whose length is in the request.
#![allow(unsafe_code, reason = "reads and writes the memory of the caller")]

use std::ffi::c_int;

use crate::driver::driver;
use crate::rss;

const GDRVINFO: u32 = 0x03;
const GSTRINGS: u32 = 0x1b;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const GCHANNELS: u32 = 0x3c;
const SCHANNELS: u32 = 0x3d;
const GRSSH: u32 = 0x46;
const SRSSH: u32 = 0x47;

/// Bytes of a name.
const NAME: usize = 32;

/// The sets of names: features, and hash functions.
const SETS: [(u32, &[&str]); 2] = [(4, &["rx-ntuple-filter"]), (10, &["toeplitz", "xor", "crc32"])];

/// The request in the caller's memory.
pub(crate) struct Words(*mut u32);

impl Words {
    pub(crate) fn get(&self, at: usize) -> u32 {
        // SAFETY: the caller of `answer` guarantees that the request has the words of its command.
        unsafe { self.0.add(at).read_unaligned() }
    }

    pub(crate) fn put(&self, at: usize, word: u32) {
        // SAFETY: as for `get`.
        unsafe { self.0.add(at).write_unaligned(word) }
    }

    /// Writes a text into a field of 32 bytes.
    fn name(&self, at: usize, text: &str) {
        let mut bytes = [0; NAME];
        bytes[..text.len().min(NAME - 1)].copy_from_slice(text.as_bytes());
        for (word, part) in bytes.chunks_exact(4).enumerate() {
            self.put(at + word, u32::from_ne_bytes([part[0], part[1], part[2], part[3]]));
        }
    }
}

/// # Safety
/// `data` must point to the request of `command`, with the room that it says.
pub(crate) unsafe fn answer(command: u32, data: *mut u8) -> Result<(), c_int> {
    let words = Words(data.cast());
    match command {
        GDRVINFO => words.name(1, &driver().ok_or(libc::EOPNOTSUPP)?),
        GSSET_INFO => {
            let wanted = words.get(2);
            let sets = SETS.iter().filter(|(set, _)| wanted >> set & 1 == 1);
            let mut mask = 0;
            for (at, (set, names)) in sets.enumerate() {
                words.put(4 + at, names.len() as u32);
                mask |= 1 << set;
            }
            words.put(2, mask);
        }
        GSTRINGS => {
            let set = words.get(1);
            let (_, names) = SETS.iter().find(|(of, _)| *of == set).ok_or(libc::EOPNOTSUPP)?;
            words.put(2, names.len() as u32);
            names.iter().enumerate().for_each(|(at, name)| words.name(3 + at * NAME / 4, name));
        }
        // Available, requested, active, never changed.
        GFEATURES => (0..4).for_each(|part| words.put(2 + part, u32::from(part < 3))),
        // The largest numbers, then the current ones, of rx, tx, other and combined channels.
        GCHANNELS => {
            let now = rss::channels()?;
            [0, 0, 0, rss::MOST, 0, 0, 0, now]
                .iter()
                .enumerate()
                .for_each(|(at, n)| words.put(1 + at, *n));
        }
        SCHANNELS if (5..8).any(|at| words.get(at) != 0) => return Err(libc::EINVAL),
        SCHANNELS => rss::set_channels(words.get(8))?,
        GRSSH => rss::get(&words)?,
        SRSSH => rss::set(&words)?,
        _ => return Err(libc::EOPNOTSUPP),
    }
    Ok(())
}
