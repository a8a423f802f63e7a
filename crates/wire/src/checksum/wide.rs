//! The Internet checksum of long runs of bytes.
//!
//! The one's complement sum does not depend on the byte order in which words are read (RFC 1071 section 2),
//! nor on their size, so eight 64-bit words are added at a time, each as two halves that cannot overflow. The same
//! code is compiled for the least processor and for AVX2; the second is taken if the processor has it.
#![allow(unsafe_code, reason = "a function compiled for AVX2 is called where AVX2 was found")]

/// The number of bytes that are added at a time.
const BLOCK: usize = 64;

/// Fewer bytes are summed faster without this.
pub(super) const LEAST: usize = 2 * BLOCK;

/// The folded sum of the 16-bit words of `blocks` in network order, to be added to other sums.
#[inline(never)]
pub(super) fn sum(blocks: &[[u8; BLOCK]]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2(blocks) };
    }
    portable(blocks)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(blocks: &[[u8; BLOCK]]) -> u64 {
    portable(blocks)
}

/// The same without a choice: what a processor without AVX2 runs.
#[inline(always)]
pub(super) fn portable(blocks: &[[u8; BLOCK]]) -> u64 {
    const LANES: usize = BLOCK / 8;
    let (mut low, mut high) = ([0_u64; LANES], [0_u64; LANES]);
    for block in blocks {
        let words = block.as_chunks::<8>().0;
        for lane in 0..LANES {
            let word = u64::from_ne_bytes(words[lane]);
            low[lane] += word & 0xffff_ffff;
            high[lane] += word >> 32;
        }
    }
    // At most 2^32 times the number of words, which is less than 2^60.
    let mut sum: u64 = low.iter().chain(&high).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u64::from((sum as u16).to_be())
}
