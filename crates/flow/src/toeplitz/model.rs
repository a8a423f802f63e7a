//! The reference model: the hash bit by bit, as Microsoft's "RSS Hashing Functions" defines it.

/// The Toeplitz hash of `input` under `key`, where key bits past its end are zero.
///
/// For each input bit from the left: if set, the result takes the XOR of the leftmost 32 bits of
/// the key; then the key moves left by one.
#[must_use]
pub fn hash(key: &[u8], input: &[u8]) -> u32 {
    let bit =
        |bytes: &[u8], i: usize| bytes.get(i / 8).is_some_and(|byte| byte >> (7 - i % 8) & 1 == 1);
    let window = |i: usize| (i..i + 32).fold(0, |word, at| word << 1 | u32::from(bit(key, at)));
    (0..input.len() * 8).filter(|&i| bit(input, i)).fold(0, |hash, i| hash ^ window(i))
}
