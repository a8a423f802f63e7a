//! Checksums: the Internet checksum (RFC 1071), its update in place (RFC 1624), and the CRC-32C
//! of SCTP (RFC 9260 appendix A).

use std::net::IpAddr;

/// A one's complement sum of 16-bit words in network order, not yet folded.
///
/// Pieces may be added in any order, if each but the last has an even number of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// Adds `bytes`; an odd last byte is the upper half of a word.
    #[must_use]
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        // 2^32 words of 32 bits fit in the accumulator: more than any frame has.
        let (words, rest) = bytes.as_chunks::<4>();
        let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_be_bytes(last));
        self.word(sum)
    }

    /// Adds a number, such as the length or the protocol of a pseudo header.
    #[must_use]
    #[inline]
    pub const fn word(self, word: u64) -> Self {
        let (sum, carry) = self.0.overflowing_add(word);
        Self(sum + carry as u64)
    }

    /// The checksum: the complement of the folded sum.
    #[must_use]
    #[inline]
    pub const fn finish(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 32) + (sum & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        !(sum as u16)
    }
}

/// The Internet checksum of `bytes` (RFC 1071). If the checksum field in `bytes` is zero, the result is
/// the value to store; if the field has the correct checksum, the result is zero.
#[must_use]
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::ZERO.bytes(bytes).finish()
}

/// Whether an IPv4 header, with its options, has the correct checksum.
#[must_use]
#[inline]
pub fn verify_ipv4_header(header: &[u8]) -> bool {
    header.len() >= 20 && checksum(header) == 0
}

/// The checksum of a TCP, UDP or ICMPv6 `segment` with its pseudo header (RFC 9293 section 3.1, RFC 8200
/// section 8.1). If the checksum field in `segment` is zero, the result is the value to store (UDP stores
/// 0 as 0xffff); if the field has the correct checksum, the result is zero. Both addresses have the same
/// family.
#[must_use]
pub fn transport_checksum(src: IpAddr, dst: IpAddr, proto: u8, segment: &[u8]) -> u16 {
    let add = |sum: Sum, ip: IpAddr| match ip {
        IpAddr::V4(v4) => sum.bytes(&v4.octets()),
        IpAddr::V6(v6) => sum.bytes(&v6.octets()),
    };
    let pseudo = add(add(Sum::ZERO, src), dst).word(proto.into());
    pseudo.word(segment.len() as u64).bytes(segment).finish()
}

/// The checksum `check` after one 16-bit word that it covers changed from `old` to `new`: RFC 1624
/// equation 3, `HC' = ~(~HC + ~m + m')`.
#[must_use]
#[inline]
pub const fn update(check: u16, old: u16, new: u16) -> u16 {
    Sum::ZERO.word(!check as u64).word(!old as u64).word(new as u64).finish()
}

/// As [`update`], for a field of several words at an even offset, such as an address. `None` unless
/// both have the same even length.
#[must_use]
pub fn update_bytes(check: u16, old: &[u8], new: &[u8]) -> Option<u16> {
    if old.len() != new.len() || !old.len().is_multiple_of(2) {
        return None;
    }
    let word = |bytes: &[u8; 2]| u16::from_be_bytes(*bytes);
    let pairs = old.as_chunks::<2>().0.iter().zip(new.as_chunks::<2>().0);
    Some(pairs.fold(check, |check, (old, new)| update(check, word(old), word(new))))
}

/// The CRC-32C tables: `TABLE[k][b]` is the remainder of byte `b` followed by `k` zero bytes.
static CRC32C: [[u32; 256]; 8] = {
    let mut table = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = table[zeros - 1][byte];
            table[zeros][byte] = crc >> 8 ^ table[0][(crc & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    table
};

/// The CRC-32C (Castagnoli) of the concatenated pieces. SCTP stores it least significant byte first.
#[must_use]
pub fn crc32c(pieces: &[&[u8]]) -> u32 {
    let step = |crc: u32, byte: u8| crc >> 8 ^ CRC32C[0][usize::from(crc as u8 ^ byte)];
    let mut crc = u32::MAX;
    for piece in pieces {
        // Eight bytes per step: each byte looks up its remainder after the bytes that follow it.
        let (words, rest) = piece.as_chunks::<8>();
        for word in words {
            let mixed = (u64::from_le_bytes(*word) ^ u64::from(crc)).to_le_bytes();
            crc = mixed.iter().zip(CRC32C.iter().rev()).fold(0, |c, (b, t)| c ^ t[usize::from(*b)]);
        }
        crc = rest.iter().fold(crc, |crc, byte| step(crc, *byte));
    }
    !crc
}

/// What the change of some bytes, with `zeros` unchanged bytes behind it, changes in the CRC-32C: to be
/// added (XOR) to the old CRC. `change` is the XOR of the old and the new bytes. A CRC is linear, so the bytes
/// in front of the change do not matter, and those behind it only by their number.
pub(crate) fn crc32c_of_change(change: impl Iterator<Item = u8>, zeros: usize) -> u32 {
    let step = |crc: u32, byte: u8| crc >> 8 ^ CRC32C[0][usize::from(crc as u8 ^ byte)];
    let mut crc = change.fold(0, step);
    for _ in 0..zeros / 8 {
        let bytes = crc.to_le_bytes();
        let tables = bytes.iter().zip(CRC32C.iter().rev());
        crc = tables.fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)]);
    }
    (0..zeros % 8).fold(crc, |crc, _| step(crc, 0))
}

/// Whether an SCTP packet, from its common header to its last chunk, has the correct CRC-32C, which is
/// computed with the field as zero.
#[must_use]
pub fn verify_sctp(packet: &[u8]) -> bool {
    let Some((header, chunks)) = packet.split_first_chunk::<12>() else { return false };
    let stored = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    crc32c(&[&header[..8], &[0; 4], chunks]) == stored
}

#[cfg(test)]
mod tests {
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
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
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
}
