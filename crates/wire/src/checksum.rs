//! Checksums: the Internet checksum (RFC 1071), its update in place (RFC 1624), and the CRC-32C
//! of SCTP (RFC 9260 appendix A).
//!
//! Long runs of bytes are summed by `wide`, with AVX2 where the processor has it. The CRC-32C of whole packets
//! is computed by the crate `crc32c`, with SSE 4.2 where the processor has it. Both are chosen at run time.

use std::net::IpAddr;

mod wide;

/// A one's complement sum of 16-bit words in network order, not yet folded.
///
/// Pieces may be added in any order, if each but the last has an even number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// Adds `bytes`; an odd last byte is the upper half of a word.
    #[must_use]
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        if bytes.len() < wide::LEAST {
            return self.short(bytes);
        }
        let (blocks, rest) = bytes.as_chunks();
        self.word(wide::sum(blocks)).short(rest)
    }

    /// As [`Sum::bytes`], for headers and remainders.
    #[inline]
    fn short(self, bytes: &[u8]) -> Self {
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

    /// The sum of both, each of whole words but the last.
    #[must_use]
    #[inline]
    pub const fn plus(self, other: Self) -> Self {
        self.word(other.0)
    }

    /// Adds an address, as it is in a pseudo header.
    #[must_use]
    #[inline]
    pub fn address(self, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => self.bytes(&v4.octets()),
            IpAddr::V6(v6) => self.bytes(&v6.octets()),
        }
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
    let pseudo = Sum::ZERO.address(src).address(dst).word(proto.into());
    pseudo.word(segment.len() as u64).bytes(segment).finish()
}

/// The checksum `check` after words that it covers changed from those with the sum `old` to those with the sum
/// `new`: RFC 1624 equation 3, `HC' = ~(~HC + ~m + m')`, for all words at once.
#[must_use]
#[inline]
pub const fn update(check: u16, old: Sum, new: Sum) -> u16 {
    new.word(!check as u64).word(old.finish() as u64).finish()
}

/// As [`update`], for a field at an even offset, such as an address. `None` unless both have the same even
/// length.
#[must_use]
#[inline]
pub fn update_bytes(check: u16, old: &[u8], new: &[u8]) -> Option<u16> {
    let fits = old.len() == new.len() && old.len().is_multiple_of(2);
    fits.then(|| update(check, Sum::ZERO.bytes(old), Sum::ZERO.bytes(new)))
}

/// Tables for the CRC-32C of a change, in which most bytes are zero: `TABLE[k][b]` is the remainder of byte `b` followed by `k` zero bytes.
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
    pieces.iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece))
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
mod tests;
