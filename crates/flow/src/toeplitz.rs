//! The Toeplitz hash of receive-side scaling (Microsoft, "RSS Hashing Functions").
//!
//! ```text
//!  input   src            dst            sport dport        network order, 8 to 36 bytes
//!          |  |  |  |     |  |  |  |     |  |  |  |
//!  table   [256 words] for each byte position; the hash is the XOR of the words found
//! ```
//!
//! The hash is linear: `hash(a ^ b) = hash(a) ^ hash(b)`. The tables and the carry-less product of
//! `x86.rs` use this. It also means that its bits must not be used twice: the indirection table uses
//! Toeplitz, so the buckets of tables use another hash.
//!
//! Invariants: all paths agree bit for bit with [`model::hash`].
//! Thread-safety: immutable once built.

use flowyard_frame::{Batch, FlowKey, LANES, Rng};

mod fields;
pub mod model;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use fields::{Fields, HashTypes, symmetric_xor};

/// The key of Microsoft's verification suite. It is public: a key for tests, not for live ports.
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// 0x6d5a repeated: both directions hash alike (Woo and Park, "Scalable TCP Session Monitoring
/// with Symmetric Receive-side Scaling"). At most 16 bits of entropy: flows with equal ports
/// between two hosts all collapse into one hash. The first 40 bytes serve the 500 series.
pub const SYMMETRIC_KEY: [u8; 52] = {
    let mut key = [0x6d; 52];
    let mut i = 1;
    while i < 52 {
        key[i] = 0x5a;
        i += 2;
    }
    key
};

/// A random key of 52 bytes, as hard to guess as `seed`; adapters of the 500 series use the first 40.
#[must_use]
pub fn random_key(seed: u64) -> [u8; 52] {
    let mut random = Rng::new(seed);
    std::array::from_fn(|_| (random.bits() >> 56) as u8)
}

/// A key of a length that no adapter supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a Toeplitz key has 40 bytes (500 series) or 52 (700, 800 series), at least 40 and at most 256; this one has {len}"
)]
pub struct BadKey {
    /// The length found, in bytes.
    pub len: usize,
}

/// A hash key, prepared for fast hashing.
#[derive(Clone, Debug)]
pub struct Toeplitz {
    key: Box<[u8]>,
    /// By position of the input byte, then by its value.
    tables: Box<[[u32; 256]]>,
    #[cfg(target_arch = "x86_64")]
    wide: Option<x86::Wide>,
}

impl Toeplitz {
    /// A hash with `key`: 40 bytes (500 series) or 52 (700 and 800 series).
    pub fn new(key: &[u8]) -> Result<Self, BadKey> {
        if !(40..=256).contains(&key.len()) {
            return Err(BadKey { len: key.len() });
        }
        Ok(Self {
            key: key.into(),
            tables: (0..key.len() - 4).map(|place| table(key, place)).collect(),
            #[cfg(target_arch = "x86_64")]
            wide: x86::Wide::new(key),
        })
    }

    /// This hash without special processor instructions.
    #[must_use]
    pub fn portable(mut self) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            self.wide = None;
        }
        self
    }

    /// The path that batches take: `"portable"` or `"vpclmulqdq+gfni"`.
    #[must_use]
    pub fn path(&self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        if self.wide.is_some() {
            return "vpclmulqdq+gfni";
        }
        "portable"
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The hash of `input` in network order. Bytes from position `key().len() - 4` on are ignored: the
    /// key is too short for them.
    #[must_use]
    pub fn hash(&self, input: &[u8]) -> u32 {
        lookup(&self.tables, input)
    }

    /// The hash of the `fields` of `key`.
    #[must_use]
    #[inline]
    pub fn hash_key(&self, key: &FlowKey, fields: Fields) -> u32 {
        match fields {
            Fields::None => 0,
            Fields::Ipv4 => self.fixed::<8>(&v4(key)[..8]),
            Fields::Ipv4Ports => self.fixed::<12>(&v4(key)),
            Fields::Ipv6 => self.fixed::<32>(&fields.input(key).0),
            Fields::Ipv6Ports => self.fixed::<36>(&fields.input(key).0),
        }
    }

    /// The hash of a frame with this key, over the fields that `types` selects.
    #[must_use]
    pub fn hash_flow(&self, key: &FlowKey, types: &HashTypes) -> u32 {
        let fields = types.fields(key);
        if types.is_symmetric_xor() {
            self.hash_key(&symmetric_xor(key), fields)
        } else {
            self.hash_key(key, fields)
        }
    }

    /// Writes the hash of every lane into its frame.
    #[inline]
    pub fn hash_batch(&self, types: &HashTypes, batch: &mut Batch) {
        if types.is_symmetric_xor() {
            for lane in batch.lanes() {
                batch.frames[lane].hash = self.hash_flow(&batch.keys[lane], types);
            }
            return;
        }
        let len = batch.len();
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = &self.wide {
            let mut fields = [Fields::None; LANES];
            let mut long = 0; // a bit that only IPv6 has
            for (fields, key) in fields.iter_mut().zip(&batch.keys[..len]) {
                *fields = types.fields(key);
                long |= *fields as u8 & Fields::Ipv6 as u8;
            }
            let hashes = wide.hash(&batch.keys, &fields, len, long != 0);
            for (frame, hash) in batch.frames[..len].iter_mut().zip(hashes) {
                frame.hash = hash;
            }
            return;
        }
        for lane in 0..len.min(LANES) {
            let key = &batch.keys[lane];
            batch.frames[lane].hash = self.hash_key(key, types.fields(key));
        }
    }

    /// The hash of an input of exactly `N` bytes, with a single bounds check.
    #[inline]
    fn fixed<const N: usize>(&self, input: &[u8]) -> u32 {
        match self.tables.first_chunk::<N>() {
            Some(tables) => lookup(tables, &input[..N]),
            None => 0, // not reached: a key of 40 bytes has 36 tables
        }
    }
}

#[inline]
fn lookup(tables: &[[u32; 256]], input: &[u8]) -> u32 {
    tables.iter().zip(input).fold(0, |hash, (table, &byte)| hash ^ table[byte as usize])
}

/// The IPv4 input: the four bytes of each address, then the ports.
#[inline]
fn v4(key: &FlowKey) -> [u8; 12] {
    let [s, d] = [&key.src, &key.dst];
    let [sp, dp] = [key.sport.to_be_bytes(), key.dport.to_be_bytes()];
    [s[0], s[1], s[2], s[3], d[0], d[1], d[2], d[3], sp[0], sp[1], dp[0], dp[1]]
}

/// The contribution of each value of the byte at position `place`: by linearity, 8 windows of the key
/// give 256 words.
fn table(key: &[u8], place: usize) -> [u32; 256] {
    let five = key[place..place + 5].iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let mut table = [0; 256];
    for value in 1..256_usize {
        let lowest = value.trailing_zeros();
        let window = (five >> (lowest + 1)) as u32; // bit 0 is the last of a byte, 7 bits further on
        table[value] = table[value & (value - 1)] ^ window;
    }
    table
}

#[cfg(test)]
mod tests;
