//! TCP connections with an inserted PROXY protocol header in front of the client's first byte.
//!
//! ```text
//!  client    ISN | bytes of the client ...           seq          ack
//!                  first                              │ + header   ▲ - header
//!  backend   ISN | header | bytes of the client ...   ▼            │
//!                  first
//! ```
//!
//! The header is inserted into the client's first segment after the SYN, usually the ACK of the
//! handshake, and into every segment that begins with the first byte until the backend has
//! acknowledged the header. It is thus retransmitted like any other bytes, without a timer or a buffer.
//!
//! Sequence numbers wrap (RFC 9293 section 3.4). The distance of an acknowledgement from the first
//! byte is ambiguous once it has reached 2^30, so this is recorded as a stage.
//!
//! Thread-safety: plain values.

/// The progress of the header of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Proxied {
    /// The sequence number of the client's first byte.
    pub first: u32,
    /// Whether the header was acknowledged, and how far the sequence numbers have advanced since.
    pub stage: Stage,
}

/// Stages of an inserted header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Stage {
    /// The connection has no inserted header.
    #[default]
    None,
    /// The backend has not acknowledged the header.
    Waiting,
    /// The backend has acknowledged the header, and less than 2^30 bytes after the first one.
    Near,
    /// At least 2^30 bytes were acknowledged, so that sequence numbers may have wrapped.
    Far,
}

/// How a segment from the client is modified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Not at all.
    Keep,
    /// The header is inserted in front of the payload.
    Insert,
    /// The sequence number is increased by the length of the header.
    Shift,
}

impl Proxied {
    /// A connection whose SYN has this sequence number.
    #[must_use]
    pub const fn new(isn: u32) -> Self {
        Self { first: isn.wrapping_add(1), stage: Stage::Waiting }
    }

    /// How a segment from the client with this sequence number is modified.
    #[must_use]
    pub const fn step(&self, seq: u32, is_reset: bool) -> Step {
        match self.stage {
            Stage::None => Step::Keep,
            Stage::Waiting => match seq.wrapping_sub(self.first) as i32 {
                0 if !is_reset => Step::Insert,
                ..0 => Step::Keep,
                _ => Step::Shift, // a backend without the header answers with an ACK (RFC 5961)
            },
            Stage::Near | Stage::Far => Step::Shift,
        }
    }

    /// Translates `number`, an acknowledgement from the backend that includes a header of `len` bytes,
    /// to the client's sequence numbers.
    #[must_use]
    pub const fn back(&self, number: u32, len: u32) -> u32 {
        let past = number.wrapping_sub(self.first) as i32;
        match self.stage {
            Stage::None => number,
            Stage::Far => number.wrapping_sub(len),
            Stage::Waiting | Stage::Near if past <= 0 => number,
            Stage::Waiting | Stage::Near if past < len as i32 => self.first, // a part of the header
            Stage::Waiting | Stage::Near => number.wrapping_sub(len),
        }
    }

    /// The progress after the backend has acknowledged everything before `ack`.
    #[must_use]
    pub const fn after(self, ack: u32, len: u32) -> Self {
        let past = ack.wrapping_sub(self.first);
        let stage = match self.stage {
            Stage::Waiting if past >= len && past < 1 << 31 => Stage::Near,
            Stage::Near if past >= 1 << 30 && past < 1 << 31 => Stage::Far,
            stage => stage,
        };
        Self { stage, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_and_the_header_goes_once_it_is_acknowledged() {
        for isn in [0, 7, 1 << 31, u32::MAX - 40, u32::MAX - 1, u32::MAX] {
            let at = |n: u32| isn.wrapping_add(1).wrapping_add(n);
            let mut one = Proxied::new(isn);
            assert_eq!(one.step(isn, false), Step::Keep, "a probe");
            assert_eq!(one.step(at(0), false), Step::Insert);
            assert_eq!(one.step(at(0), true), Step::Shift);
            assert_eq!(one.step(at(9), false), Step::Shift);
            assert_eq!((one.back(at(0), 28), one.back(at(9), 28)), (at(0), at(0)));
            assert_eq!(one.after(at(27), 28).stage, Stage::Waiting);
            one = one.after(at(28), 28);
            assert_eq!((one.stage, one.step(at(0), false)), (Stage::Near, Step::Shift));
            assert_eq!((one.back(at(0), 28), one.back(at(100), 28)), (at(0), at(72)));
            // The sequence numbers wrap more than once.
            let mut acked = 28u64;
            while acked < 3 << 32 {
                acked += 1 << 20;
                let ack = at(acked as u32);
                one = one.after(ack, 28);
                assert_eq!(one.back(ack, 28), at((acked - 28) as u32), "{acked}");
                assert_eq!(one.step(at((acked - 28) as u32), false), Step::Shift);
            }
            assert_eq!(one.stage, Stage::Far);
        }
    }
}
