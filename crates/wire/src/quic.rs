//! What all versions of QUIC have in common (RFC 8999): the destination connection ID at the front of a packet.
//!
//! ```text
//!  long:   1....... | version 4 | length | connection ID ...
//!  short:  0....... | connection ID ...
//! ```

/// The destination connection ID of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination<'a> {
    /// Whether the header is long, and has the length of the ID.
    pub is_long: bool,
    /// The ID. In a short header, whose receiver knows the length, the rest of the packet follows it.
    pub bytes: &'a [u8],
}

/// The destination connection ID in the UDP payload `packet`; `None` if the packet ends before it, or within it.
#[must_use]
pub fn destination(packet: &[u8]) -> Option<Destination<'_>> {
    let (first, rest) = packet.split_first()?;
    if first & 0x80 == 0 {
        return Some(Destination { is_long: false, bytes: rest });
    }
    let (_version, rest) = rest.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first()?;
    let bytes = rest.get(..usize::from(*len))?;
    Some(Destination { is_long: true, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_have_the_id() {
        // The first packet of RFC 9001, appendix A.2, which has a source ID of no bytes.
        let initial = [0xc0, 0, 0, 0, 1, 8, 0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 8, 0];
        let long = destination(&initial).unwrap();
        assert_eq!((long.is_long, long.bytes), (true, &initial[6..14]));
        let short = destination(&[0x4c, 1, 2, 3]).unwrap();
        assert_eq!((short.is_long, short.bytes), (false, &[1, 2, 3][..]));
    }

    #[test]
    fn cut_packets_have_none() {
        let initial = [0xc0, 0, 0, 0, 1, 2, 7, 8];
        for len in 0..initial.len() {
            assert_eq!(destination(&initial[..len]), None, "{len} bytes");
        }
        assert!(destination(&initial).is_some());
    }
}
