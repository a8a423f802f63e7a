//! The Toeplitz hash of receive-side scaling (Microsoft, "RSS Hashing Functions").

/// A hash key in a form that is quick to apply.
#[derive(Clone, Debug)]
pub struct Toeplitz {
    key: Vec<u8>,
}

/// The key of Microsoft's verification suite: a test key, public, never a default on a live port.
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

impl Toeplitz {
    /// A hash with `key`: 40 bytes (500 series) or 52 (700 and 800 series).
    ///
    /// # Panics
    /// When the key is shorter than 40 bytes.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        assert!(key.len() >= 40, "a Toeplitz key has at least 40 bytes, this one {}", key.len());
        Self { key: key.to_vec() }
    }

    /// The hash of `input`, at most 36 bytes, in network order.
    #[must_use]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let mut window = u32::from_be_bytes([self.key[0], self.key[1], self.key[2], self.key[3]]);
        let mut hash = 0;
        for (i, byte) in input.iter().enumerate() {
            for bit in (0..8).rev() {
                if byte >> bit & 1 == 1 {
                    hash ^= window;
                }
                window = window << 1 | u32::from(self.key[i + 4] >> bit & 1);
            }
        }
        hash
    }
}
