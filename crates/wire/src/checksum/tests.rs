//! Checksums against their definitions, bit by bit and word by word.

use super::*;
use proptest::prelude::*;

/// RFC 1071 section 4.1, word by word with the end-around carry at each step.
fn slow_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn slow_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[test]
fn the_example_of_rfc_1071() {
    assert_eq!(!checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    assert_eq!(checksum(&[]), 0xffff);
}

#[test]
fn the_example_of_rfc_1624() {
    // Section 4: the header sums to 0xdd2f complemented; the field goes from 5555 to 3285.
    let word = |word| Sum::ZERO.word(word);
    assert_eq!(update(0xdd2f, word(0x5555), word(0x3285)), 0x0000);
}

#[test]
fn an_update_needs_whole_words_of_equal_length() {
    assert_eq!(update_bytes(1, &[0; 2], &[0; 4]), None);
    assert_eq!(update_bytes(1, &[0; 3], &[0; 3]), None);
    assert_eq!(update_bytes(0x1234, &[], &[]), Some(0x1234));
}

#[test]
fn an_ipv4_header_has_twenty_bytes() {
    let mut header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let sum = slow_checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    assert!(verify_ipv4_header(&header));
    // The last two bytes are in the sum, which is right without them too.
    let mut short = header;
    short[18..].fill(0);
    short[10..12].fill(0);
    let sum = slow_checksum(&short).to_be_bytes();
    short[10..12].copy_from_slice(&sum);
    assert!(verify_ipv4_header(&short) && !verify_ipv4_header(&short[..18]));
    header[19] ^= 1;
    assert!(!verify_ipv4_header(&header));
}

/// The longest sums: the carries of the fold, and of the accumulator itself.
#[test]
fn sums_carry_around() {
    let ones = [0xff; 65_535];
    for len in [0, 1, 2, 3, 4, 65_534, 65_535] {
        assert_eq!(checksum(&ones[..len]), slow_checksum(&ones[..len]), "{len}");
    }
    for word in [u64::MAX, u64::MAX - 1, 1 << 63, 0xffff_ffff, 0x1_ffff_ffff, 0xffff_0001] {
        for other in [0, 1, 0xffff, u64::MAX] {
            let bytes = [word.to_be_bytes(), other.to_be_bytes()].concat();
            let sum = Sum::ZERO.word(word).word(other).finish();
            assert_eq!(sum, slow_checksum(&bytes), "{word:#x} and {other:#x}");
        }
    }
}

#[test]
fn the_examples_of_rfc_7143() {
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    let read = [
        1, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0,
        0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
    ];
    for (bytes, wire) in [
        (&[0; 32][..], [0xaa, 0x36, 0x91, 0x8a]),
        (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        (&up, [0x4e, 0x79, 0xdd, 0x46]),
        (&down, [0x5c, 0xdb, 0x3f, 0x11]),
        (&read, [0x56, 0x3a, 0x96, 0xd9]),
    ] {
        assert_eq!(crc32c(&[bytes]).to_le_bytes(), wire, "{bytes:x?}");
    }
}

/// The instructions of this processor and the portable code, at each length and each place in a line.
#[test]
fn every_length_at_every_alignment() {
    let mut state = 1_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let bytes: Vec<u8> = (0..2048 + 64).map(|_| next()).collect();
    for start in 0..64 {
        let (mut sum, mut crc) = (0, u32::MAX);
        for len in 0..=2048 {
            let part = &bytes[start..start + len];
            let want = !(sum as u16);
            assert_eq!(checksum(part), want, "{len} bytes at {start}");
            let (blocks, rest) = part.as_chunks();
            let portable = Sum::ZERO.word(wide::portable(blocks)).short(rest);
            assert_eq!(portable.finish(), want, "{len} bytes at {start}");
            assert_eq!(crc32c(&[part]), !crc, "{len} bytes at {start}");
            // One byte more, as the models do it.
            let byte = u32::from(bytes[start + len]);
            sum += byte << if len % 2 == 0 { 8 } else { 0 };
            sum = (sum & 0xffff) + (sum >> 16);
            crc ^= byte;
            (0..8).for_each(|_| crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 });
        }
    }
}

#[test]
fn the_check_value_of_crc32c() {
    assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
    assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
}

proptest! {
    #[test]
    fn the_checksum_equals_the_model(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(checksum(&bytes), slow_checksum(&bytes));
    }

    #[test]
    fn pieces_add_up(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..150) {
        let (a, b) = bytes.split_at((cut * 2).min(bytes.len() & !1));
        prop_assert_eq!(Sum::ZERO.bytes(b).bytes(a).finish(), slow_checksum(&bytes));
    }

    #[test]
    fn crc32c_equals_the_model(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(crc32c(&[&bytes]), slow_crc32c(&bytes));
    }

    #[test]
    fn an_update_is_a_new_sum(
        mut bytes in prop::collection::vec(any::<u8>(), 2..100),
        new in prop::collection::vec(any::<u8>(), 2..20),
        at in any::<prop::sample::Index>(),
    ) {
        bytes.push(1); // the sum of zeros has two representations
        let at = at.index(bytes.len()) & !1;
        let len = new.len().min(bytes.len() - at) & !1;
        let old: Vec<u8> = bytes[at..at + len].to_vec();
        let check = checksum(&bytes);
        bytes[at..at + len].copy_from_slice(&new[..len]);
        let updated = update_bytes(check, &old, &new[..len]).unwrap();
        let rest_is_zero = bytes.iter().all(|b| *b == 0);
        prop_assert!(updated == slow_checksum(&bytes) || rest_is_zero);
    }
}
