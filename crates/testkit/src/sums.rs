//! Checksums of the headers that [`crate::Build`] writes, in the simplest form.

/// The Internet checksum (RFC 1071) of the concatenated parts. Every part but the last has an even length.
pub(crate) fn internet(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// CRC32c (RFC 9260, appendix A), as SCTP writes it: little-endian.
pub(crate) fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    (!crc).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_examples() {
        // RFC 1071, section 3.
        assert_eq!(internet(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(internet(&[&[1]]), !0x0100);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283_u32.to_le_bytes());
    }
}
