//! The fast path for plain Ethernet, IPv4, TCP or UDP.
//!
//! ```text
//!  0       6       12   14 15  16    20      23    24    26      30      34           38     46 47
//!  | dst   | src   |type|45|tos|total|frag   |proto|check| src   | dst   |sport dport|len    |  flags
//! ```

use flowyard_frame::{FlowKey, proto};

/// The length of Ethernet, IPv4 and UDP headers: the shortest frame that the fast path accepts.
const LEAST: usize = 14 + 20 + 8;

/// Parses and checks a frame of untagged Ethernet, IPv4 without options, unfragmented TCP or UDP:
/// the lengths against each other and the frame, and the IPv4 header checksum (RFC 791, RFC 1071).
/// Returns `false`, and does not change `key`, for every other frame: the general parser decides.
#[must_use]
#[inline]
pub fn fast(bytes: &[u8], in_port: u16, key: &mut FlowKey) -> bool {
    let Some(h) = bytes.first_chunk::<LEAST>() else { return false };
    let half = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    let total = usize::from(half(16));
    let fragment = half(20) & 0x3fff; // offset and MF; DF may be set
    let plain = u32::from_be_bytes([h[12], h[13], h[14], h[15]]) >> 8 == 0x0008_0045;
    if !plain || (fragment != 0) | (total + 14 > bytes.len()) || !checksum_holds(h) {
        return false;
    }
    let tcp_flags = match h[23] {
        proto::UDP => {
            let len = usize::from(half(38));
            if (len < 8) | (total < 20 + len) {
                return false;
            }
            0
        }
        // The data offset is at least 5 words and within the datagram; no bit beside the eight flags is
        // set.
        proto::TCP => match bytes.get(46..48) {
            Some(&[offset, flags]) => {
                let header = usize::from(offset >> 4) * 4;
                if (header < 20) | (total < 20 + header) | (offset & 15 != 0) {
                    return false;
                }
                flags
            }
            _ => return false,
        },
        _ => return false,
    };
    // Written as 32-bit words: reading a key that was written in smaller pieces would stall.
    let word = |at: usize| u32::from_ne_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let ports = u32::from_be_bytes([h[34], h[35], h[36], h[37]]);
    let ports = if cfg!(target_endian = "little") { ports.rotate_left(16) } else { ports };
    let [t, i] = [0x0800_u16.to_ne_bytes(), in_port.to_ne_bytes()];
    *key = zerocopy::transmute!([
        [word(26), 0, 0, 0],
        [word(30), 0, 0, 0],
        [ports, u32::from_ne_bytes([h[23], 0, h[15], tcp_flags]), word(0), word(4)],
        [
            word(8),
            u32::from_ne_bytes([t[0], t[1], 0, 0]),
            u32::from_ne_bytes([i[0], i[1], 0, 0]),
            0
        ],
    ]);
    true
}

/// Whether the 20 header bytes sum to all ones. Ones' complement addition is the same in either
/// byte order (RFC 1071, section 2), so the words are added as they stand, four at a time.
#[inline]
fn checksum_holds(h: &[u8; LEAST]) -> bool {
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| h[at + i]));
    let last = u32::from_ne_bytes([h[30], h[31], h[32], h[33]]);
    // 2^64 - 1 is a multiple of 0xffff, so a carry out of 64 bits may come in again as 1.
    let add = |sum: u64, word: u64| {
        let (sum, carry) = sum.overflowing_add(word);
        sum.wrapping_add(carry.into())
    };
    // A right sum is a multiple of 0xffff, and not 0 because the version is not 0: folded, it is all
    // ones.
    add(add(long(14), long(22)), last.into()).is_multiple_of(0xffff)
}
