//! The messages of `grpc.health.v1.Health/Check`, in the Protocol Buffers encoding, with the prefix that gRPC puts in front of a message.
//!
//! ```text
//!  | 0: not compressed | length, 4 bytes | message: fields, each a tag (number << 3 | type) and a value |
//! ```

/// The length of the prefix: a flag and the length of the message.
const PREFIX: usize = 5;
/// The status of a service that accepts requests.
pub const SERVING: u64 = 1;

/// The request for the health of a service; the empty name is the server.
#[must_use]
pub fn question(service: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(service.len() + 8);
    if !service.is_empty() {
        message.push(1 << 3 | 2); // field 1, a string
        write_number(&mut message, service.len() as u64);
        message.extend_from_slice(service.as_bytes());
    }
    let mut all = Vec::with_capacity(PREFIX + message.len());
    all.push(0);
    all.extend_from_slice(&(message.len() as u32).to_be_bytes());
    all.extend_from_slice(&message);
    all
}

/// The status in the first message of a response; `None` if it is incomplete, compressed, or not a message.
#[must_use]
pub fn answer(bytes: &[u8]) -> Option<u64> {
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX>()?;
    let [0, length @ ..] = *prefix else { return None };
    let mut message = rest.get(..usize::try_from(u32::from_be_bytes(length)).ok()?)?;
    let mut status = 0; // a field with the value 0 is left out
    while !message.is_empty() {
        let tag = number(&mut message)?;
        let length = match tag & 7 {
            0 => {
                let value = number(&mut message)?;
                status = if tag >> 3 == 1 { value } else { status };
                0
            }
            1 => 8,
            2 => usize::try_from(number(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        message = message.get(length..)?;
    }
    Some(status)
}

/// The name of a status.
#[must_use]
pub const fn name(status: u64) -> &'static str {
    match status {
        0 => "UNKNOWN",
        SERVING => "SERVING",
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "a status that is not defined",
    }
}

fn write_number(into: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        into.push(number as u8 | 128);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Reads a number of seven bits a byte, the lowest first.
fn number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message with its prefix.
    fn framed(message: &[u8]) -> Vec<u8> {
        [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat()
    }

    #[test]
    fn messages_have_the_bytes_that_other_programs_read_and_write() {
        // As grpcio 1.85.3 with grpcio-health-checking writes them.
        assert_eq!(question(""), [0, 0, 0, 0, 0]);
        assert_eq!(question("a.B"), [0, 0, 0, 0, 5, 10, 3, b'a', b'.', b'B']);
        for (bytes, status) in [(&[8, 1][..], 1), (&[8, 2], 2), (&[], 0)] {
            assert_eq!(answer(&framed(bytes)), Some(status));
        }
        let long = "x".repeat(300);
        assert_eq!(question(&long)[..8], [0, 0, 0, 1, 0x2f, 10, 0xac, 2]);
        // Other fields are ignored, whatever their type; the last value of a field counts.
        let other =
            [17, 0, 0, 0, 0, 0, 0, 0, 1, 8, 2, 26, 2, 8, 3, 37, 1, 0, 0, 0, 16, 0x80, 1, 8, 1];
        assert_eq!(answer(&framed(&other)), Some(1));
    }

    #[test]
    fn what_is_no_message_has_no_status() {
        let good = framed(&[8, 1]);
        for end in 0..good.len() {
            assert_eq!(answer(&good[..end]), None, "{end}");
        }
        let compressed = [&[1], &good[1..]].concat();
        assert_eq!(answer(&compressed), None);
        for bad in [&[8][..], &[8, 0x80], &[10, 5, 1], &[9, 1], &[13, 1], &[11], &[15], &[8; 0]] {
            assert_eq!(answer(&framed(bad)).is_none(), !bad.is_empty(), "{bad:?}");
        }
        assert_eq!(answer(&framed(&[0xff; 11])), None, "a number has at most ten bytes");
        assert_eq!(
            answer(&framed(&[26, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])),
            None
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..60), status: u64) {
            let _any = answer(&bytes);
            let _any = answer(&framed(&bytes));
            let mut message = vec![8];
            write_number(&mut message, status);
            prop_assert_eq!(answer(&framed(&message)), Some(status));
        }
    }
}
