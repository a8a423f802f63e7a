//! The hash as a carry-less product: one key, one register, four 128-bit products at most.
//!
//! ```text
//!  register   src            dst            sport dport 0 ..   0            four 128-bit slots
//!  times      key from bit   key from bit   key from bit       nothing
//!             0              32 or 128      64 or 256
//! ```
//!
//! Let P be a slot as a big-endian number and K the key from the slot's first bit, its bit m at
//! position m + 1. Bit 128 + j of P * K sums P's bit i (from the left) times key bit i + j: it is
//! bit j of the hash, from the left. So the hash is the XOR of the slots' product bits 128..160,
//! reversed. What is hashed of a frame is only a choice of multipliers, hence no branch on it.
//!
//! The only `unsafe` of this crate: the call into code for these instructions, and the passage
//! of plain bytes to and from registers.
#![allow(unsafe_code, reason = "vector registers: each block says why it is sound")]

use std::arch::x86_64::*;
use std::mem::transmute;

use flowyard_frame::{FlowKey, LANES};

use super::Fields;

/// The multipliers of one [`Fields`]: by slot, product words 0 and 1, and word 2.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Multiplier {
    low: [u64; 8],
    high: [u64; 8],
}

/// The multipliers of a key; made only on processors with the instructions.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    by_fields: Box<[Multiplier; 6]>,
}

impl Wide {
    /// The multipliers of `key`, if this processor has VPCLMULQDQ, GFNI and AVX-512.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let able = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("vpclmulqdq");
        able.then(|| Self {
            by_fields: Box::new([
                multiplier(key, &[]),
                multiplier(key, &[]), // no such fields
                multiplier(key, &[(0, 32), (32, 32)]),
                multiplier(key, &[(0, 32), (32, 32), (64, 32)]),
                multiplier(key, &[(0, 128), (128, 128)]),
                multiplier(key, &[(0, 128), (128, 128), (256, 32)]),
            ]),
        })
    }

    /// The hashes of the first `len` keys; the rest is of no meaning. `long` when any is IPv6.
    #[inline]
    pub(super) fn hash(
        &self,
        keys: &[FlowKey; LANES],
        fields: &[Fields; LANES],
        len: usize,
        long: bool,
    ) -> [u32; LANES] {
        let mut hashes = [0; LANES];
        let groups = hashes.as_chunks_mut::<16>().0.iter_mut();
        let keys = keys.as_chunks::<16>().0.iter().zip(fields.as_chunks::<16>().0);
        for (out, (keys, fields)) in groups.zip(keys).take(len.div_ceil(16)) {
            // SAFETY: a `Wide` exists only where `new` found every feature that `sixteen` names.
            *out = unsafe {
                if long {
                    sixteen::<true>(&self.by_fields, keys, fields)
                } else {
                    sixteen::<false>(&self.by_fields, keys, fields)
                }
            };
        }
        hashes
    }
}

/// The multipliers for slots that start at key bit `from` and have `bits` bits of input.
fn multiplier(key: &[u8], slots: &[(usize, usize)]) -> Multiplier {
    let mut m = Multiplier { low: [0; 8], high: [0; 8] };
    for (slot, &(from, bits)) in slots.iter().enumerate() {
        // The last window ends at bit + 31. Key bits past it would meet zeros only.
        for at in 0..bits + 31 {
            let set = u64::from(key[(from + at) / 8] >> (7 - (from + at) % 8) & 1);
            match at + 1 {
                bit @ 0..128 => m.low[2 * slot + bit / 64] |= set << (bit % 64),
                bit => m.high[2 * slot + bit / 64 - 2] |= set << (bit % 64),
            }
        }
    }
    m
}

/// Sixteen hashes. `LONG` when a slot may have more than 64 bits of input (IPv6).
#[target_feature(enable = "avx512f,avx512bw,gfni,vpclmulqdq")]
fn sixteen<const LONG: bool>(
    by_fields: &[Multiplier; 6],
    keys: &[FlowKey; 16],
    fields: &[Fields; 16],
) -> [u32; 16] {
    let mut quads = [_mm512_setzero_si512(); 4];
    for (i, quad) in quads.iter_mut().enumerate() {
        let one = |j: usize| {
            let lane = 4 * i + j;
            product::<LONG>(&by_fields[fields[lane] as usize], &keys[lane])
        };
        // The dwords a of four keys side by side, slot by slot.
        let [(a0, a1), (b0, b1), (c0, c1), (d0, d1)] = [one(0), one(1), one(2), one(3)];
        let ab = _mm512_xor_si512(_mm512_unpacklo_epi64(a0, b0), _mm512_unpackhi_epi64(a1, b1));
        let cd = _mm512_xor_si512(_mm512_unpacklo_epi64(c0, d0), _mm512_unpackhi_epi64(c1, d1));
        let [ab, cd] = [_mm512_castsi512_ps(ab), _mm512_castsi512_ps(cd)];
        *quad = _mm512_castps_si512(_mm512_shuffle_ps::<0b10_00_10_00>(ab, cd));
    }
    let low = slots_in_pairs(quads[0], quads[1]);
    let high = slots_in_pairs(quads[2], quads[3]);
    let reversed = slots_in_pairs(low, high);
    // Reverse the bits of each byte, then the bytes of each hash.
    let bits = _mm512_gf2p8affine_epi64_epi8::<0>(
        reversed,
        _mm512_set1_epi64(0x8040_2010_0804_0201_u64.cast_signed()),
    );
    let swap =
        _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    // SAFETY: both are 64 bytes in which every bit pattern is valid.
    unsafe { transmute(_mm512_shuffle_epi8(bits, swap)) }
}

/// Word 2 of each slot's product: the XOR of the even words of the first result and the odd
/// words of the second.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni,vpclmulqdq")]
fn product<const LONG: bool>(by: &Multiplier, key: &FlowKey) -> (__m512i, __m512i) {
    const Z: i8 = -1; // a byte of zeros
    // SAFETY: key and multiplier words are 64 bytes of plain data, as a register is.
    let [key, low, high]: [__m512i; 3] =
        unsafe { [transmute::<FlowKey, _>(*key), transmute(by.low), transmute(by.high)] };
    // Addresses become big-endian numbers; the ports are in host order within each field.
    let address = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let ports = _mm_setr_epi8(Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 2, 3, 0, 1);
    let order = _mm512_inserti32x4::<2>(_mm512_broadcast_i32x4(address), ports);
    let slots = _mm512_shuffle_epi8(key, order);
    let even = _mm512_clmulepi64_epi128::<0x11>(slots, low); // P1 * K1
    let odd = _mm512_clmulepi64_epi128::<0x01>(slots, low); // P1 * K0
    if !LONG {
        return (even, odd);
    }
    let p0k2 = _mm512_clmulepi64_epi128::<0x00>(slots, high);
    let p0k1 = _mm512_clmulepi64_epi128::<0x10>(slots, low);
    (_mm512_xor_si512(even, p0k2), _mm512_xor_si512(odd, p0k1))
}

/// Halves the slots to sum: `[a0^a1, a2^a3, b0^b1, b2^b3]`.
#[inline]
#[target_feature(enable = "avx512f")]
fn slots_in_pairs(a: __m512i, b: __m512i) -> __m512i {
    let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b);
    let odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b);
    _mm512_xor_si512(even, odd)
}
