//! The hash as a carry-less product.
//!
//! Let P be an input of n bits as a big-endian number and K the key, its bit m (from the left) at
//! position m + 1. Bit n + j of P * K sums P's bit i (from the left) times key bit i + j: it is
//! bit j of the hash, from the left. So the hash is 32 bits of a product, reversed.
//!
//! ```text
//!  IPv4   four frames in a register, 96 bits each:   0 src dst ports | 0 src dst ports | ...
//!         times the same key; fields that are not hashed are masked out
//!  any    one frame in a register, three inputs whose hashes add up:  src | dst | ports | -
//!         times the key from the bit where each input starts: selected multipliers
//! ```
//!
//! Neither branches on the fields that are hashed. A batch without IPv6 uses the first way.
//!
//! The `unsafe` blocks call functions that need these instructions, and move plain bytes to and from
//! registers.
#![allow(unsafe_code, reason = "vector registers: each block says why it is sound")]

use std::arch::x86_64::*;
use std::mem::transmute;

use flowyard_frame::{FlowKey, LANES};

use super::Fields;

/// The multipliers of one [`Fields`]: by input, words 0 and 1 of the key, and word 2.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Multiplier {
    low: [u64; 8],
    high: [u64; 8],
}

/// The multipliers of a key; exists only on processors with the instructions.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    /// The first 127 bits of the key, as two words.
    ipv4: [u64; 2],
    by_fields: Box<[Multiplier; 6]>,
}

impl Wide {
    /// The multipliers of `key`, if this processor has VPCLMULQDQ, GFNI and AVX-512.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let able = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("vpclmulqdq");
        able.then(|| Self {
            ipv4: [0, 1].map(|word| multiplier(key, &[(0, 96)]).low[word]),
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

    /// The hashes of the first `len` keys; the others have no meaning. `long` if any key is IPv6.
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
            // SAFETY: a `Wide` exists only where `new` found every feature that these two name.
            *out = unsafe {
                if long {
                    any(&self.by_fields, keys, fields)
                } else {
                    ipv4(self.ipv4, keys, fields)
                }
            };
        }
        hashes
    }
}

/// The multipliers for inputs that start at key bit `from` and have `bits` bits.
fn multiplier(key: &[u8], slots: &[(usize, usize)]) -> Multiplier {
    let mut m = Multiplier { low: [0; 8], high: [0; 8] };
    for (slot, &(from, bits)) in slots.iter().enumerate() {
        // The last window ends at bit + 31. Key bits after it would be multiplied by zeros.
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

/// Sixteen hashes of frames that are IPv4 or not IP.
#[target_feature(enable = "avx512f,avx512bw,bmi2,gfni,vpclmulqdq")]
fn ipv4(key: [u64; 2], keys: &[FlowKey; 16], fields: &[Fields; 16]) -> [u32; 16] {
    let key = _mm512_broadcast_i32x4(_mm_set_epi64x(key[1].cast_signed(), key[0].cast_signed()));
    // Dwords 8, 4 and 0 of a key are its ports, destination and source.
    let one_two = _mm512_setr_epi32(8, 4, 0, 0, 24, 20, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    let three_four = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 8, 4, 0, 0, 24, 20, 16, 0);
    let order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 0, 1, 7, 6, 5, 4, 11, 10, 9, 8, 12, 13, 14, 15));
    let mut sums = _mm512_setzero_si512();
    let quads = keys.as_chunks::<4>().0.iter().zip(fields.as_chunks::<4>().0);
    for (i, (keys, fields)) in quads.enumerate() {
        // Bit 0 keeps the ports; bit 1, and its copy in bit 2, keep the addresses.
        let bits = u32::from_le_bytes(fields.map(|f| f as u8));
        let kept = _pext_u32(bits | (bits & 0x0202_0202) << 1, 0x0f0f_0f0f) as __mmask16;
        let [a, b, c, d] = [0, 1, 2, 3].map(|lane| register(&keys[lane]));
        let ab = _mm512_permutex2var_epi32(a, one_two, b);
        let cd = _mm512_permutex2var_epi32(c, three_four, d);
        let four = _mm512_mask_blend_epi32(0xff00, ab, cd);
        let four = _mm512_shuffle_epi8(_mm512_maskz_mov_epi32(kept, four), order);
        let p0k0 = _mm512_clmulepi64_epi128::<0x00>(four, key);
        let p0k1 = _mm512_clmulepi64_epi128::<0x10>(four, key);
        let p1k0 = _mm512_clmulepi64_epi128::<0x01>(four, key);
        // Product bits 96..128: dword 3 of the first product, dword 1 of the others.
        let p0k0 = _mm512_shuffle_epi32::<0b11_11_11_11>(p0k0);
        let sum = _mm512_ternarylogic_epi32::<0x96>(p0k0, p0k1, p1k0);
        sums = _mm512_mask_shuffle_epi32::<0b01_01_01_01>(sums, 0x1111 << i, sum);
    }
    // Dword 4 * lane + quad is the hash of key 4 * quad + lane.
    let across = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    reversed(_mm512_permutexvar_epi32(across, sums))
}

/// Sixteen hashes of any frames.
#[target_feature(enable = "avx512f,avx512bw,gfni,vpclmulqdq")]
fn any(by_fields: &[Multiplier; 6], keys: &[FlowKey; 16], fields: &[Fields; 16]) -> [u32; 16] {
    let mut quads = [_mm512_setzero_si512(); 4];
    for (i, quad) in quads.iter_mut().enumerate() {
        let one = |lane: usize| {
            product(&by_fields[fields[4 * i + lane] as usize], register(&keys[4 * i + lane]))
        };
        // The hashes of four keys side by side, for each input.
        let [(a0, a1), (b0, b1), (c0, c1), (d0, d1)] = [one(0), one(1), one(2), one(3)];
        let ab = _mm512_xor_si512(_mm512_unpacklo_epi64(a0, b0), _mm512_unpackhi_epi64(a1, b1));
        let cd = _mm512_xor_si512(_mm512_unpacklo_epi64(c0, d0), _mm512_unpackhi_epi64(c1, d1));
        let [ab, cd] = [_mm512_castsi512_ps(ab), _mm512_castsi512_ps(cd)];
        *quad = _mm512_castps_si512(_mm512_shuffle_ps::<0b10_00_10_00>(ab, cd));
    }
    let low = inputs_in_pairs(quads[0], quads[1]);
    let high = inputs_in_pairs(quads[2], quads[3]);
    reversed(inputs_in_pairs(low, high))
}

/// Word 2 of the product of each input, 128 bits long: the XOR of the even words of the first
/// result and the odd words of the second.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni,vpclmulqdq")]
fn product(by: &Multiplier, key: __m512i) -> (__m512i, __m512i) {
    const Z: i8 = -1; // a byte of zeros
    // SAFETY: 64 bytes of plain words each, as a register is.
    let [low, high]: [__m512i; 2] = unsafe { transmute([by.low, by.high]) };
    // Addresses become big-endian numbers; the ports are in host order within each field.
    let address = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let ports = _mm_setr_epi8(Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 2, 3, 0, 1);
    let order = _mm512_inserti32x4::<2>(_mm512_broadcast_i32x4(address), ports);
    let inputs = _mm512_shuffle_epi8(key, order);
    let p1k1 = _mm512_clmulepi64_epi128::<0x11>(inputs, low);
    let p1k0 = _mm512_clmulepi64_epi128::<0x01>(inputs, low);
    let p0k2 = _mm512_clmulepi64_epi128::<0x00>(inputs, high);
    let p0k1 = _mm512_clmulepi64_epi128::<0x10>(inputs, low);
    (_mm512_xor_si512(p1k1, p0k2), _mm512_xor_si512(p1k0, p0k1))
}

/// Halves the inputs to sum: `[a0^a1, a2^a3, b0^b1, b2^b3]`.
#[inline]
#[target_feature(enable = "avx512f")]
fn inputs_in_pairs(a: __m512i, b: __m512i) -> __m512i {
    let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b);
    let odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b);
    _mm512_xor_si512(even, odd)
}

/// Every dword with its bits in reverse: those of each byte, then the bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn reversed(hashes: __m512i) -> [u32; 16] {
    let matrix = _mm512_set1_epi64(0x8040_2010_0804_0201_u64.cast_signed());
    let bytes = _mm512_gf2p8affine_epi64_epi8::<0>(hashes, matrix);
    let swap =
        _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    // SAFETY: both are 64 bytes in which every bit pattern is valid.
    unsafe { transmute(_mm512_shuffle_epi8(bytes, swap)) }
}

/// A key in a register.
#[inline]
#[target_feature(enable = "avx512f")]
fn register(key: &FlowKey) -> __m512i {
    // SAFETY: both are 64 bytes of plain data without padding.
    unsafe { transmute::<FlowKey, __m512i>(*key) }
}
