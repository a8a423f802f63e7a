//! One walk over the fields of a message serves all directions: a [`Reader`] fills the fields, a
//! [`Writer`] puts them on the wire, and for tests a maker fills them with random values.
//!
//! ```text
//!   open ── kind ── len ── field field list ── close [align]
//!    │               └─ reading: no field may extend beyond start + len; writing: filled in at close
//!    └─ lengths and alignment are counted from here
//! ```
//!
//! Reading and writing therefore cannot disagree, and lengths are checked in one place.
//!
//! Invariants: a reader never reads beyond the end of the innermost record. An element of a list
//! takes at least one byte, so a message never produces more elements than it has bytes.
//! Thread-safety: plain data.

use crate::Version;
use crate::problem::{self, Problem};

pub(crate) type Res = Result<(), Problem>;

/// An open record: its start, the position of its length, and the end of the record around it.
pub(crate) struct Mark {
    pub(crate) start: usize,
    pub(crate) len_at: usize,
    pub(crate) outer: usize,
}

/// A direction: reading, writing, or making random messages.
pub(crate) trait Io: Sized {
    /// Whether the walk fills the fields.
    const READS: bool;
    /// Whether the walk fills the fields with random values; values out of range are brought into
    /// range.
    const MAKES: bool;

    fn version(&self) -> Version;
    fn bytes(&mut self, bytes: &mut [u8]) -> Res;
    /// All bytes up to the end of the record.
    fn rest(&mut self, bytes: &mut Vec<u8>) -> Res;
    /// An OpenFlow message inside the message.
    fn message(&mut self, bytes: &mut Vec<u8>) -> Res;
    /// Whether the record has more bytes; only used when reading.
    fn more(&mut self) -> bool;
    /// A number of `width` bytes. A maker chooses one of `known`; a reader accepts every number.
    fn draw(&mut self, number: &mut u32, width: usize, known: &[u32]) -> Res;
    fn open(&mut self) -> Mark;
    fn len(&mut self, mark: &mut Mark) -> Res;
    /// The length of the bytes that follow after another `gap` bytes.
    fn len_behind(&mut self, mark: &mut Mark, gap: usize) -> Res;
    fn close(&mut self, mark: &Mark) -> Res;
    /// Closes a record that turned out to have no length.
    fn unmark(&mut self, _: &Mark) {}
    /// Zeros up to a multiple of 8 from the start of the record.
    fn align(&mut self, mark: &Mark) -> Res;
    /// Sets the problem to report for a record that is too short or too long, from here on. Returns
    /// the previous one.
    fn blame(&mut self, problem: Problem) -> Problem;
    /// A multipart body may be split here.
    fn cut(&mut self) {}

    fn pad(&mut self, bytes: usize) -> Res {
        let mut zeros = [0; 16];
        match zeros.get_mut(..bytes) {
            Some(zeros) => self.bytes(zeros),
            None => Ok(()),
        }
    }

    fn u8(&mut self, to: &mut u8) -> Res {
        let mut bytes = [*to];
        self.bytes(&mut bytes)?;
        *to = bytes[0];
        Ok(())
    }

    fn u16(&mut self, to: &mut u16) -> Res {
        let mut bytes = to.to_be_bytes();
        self.bytes(&mut bytes)?;
        *to = u16::from_be_bytes(bytes);
        Ok(())
    }

    fn u32(&mut self, to: &mut u32) -> Res {
        let mut bytes = to.to_be_bytes();
        self.bytes(&mut bytes)?;
        *to = u32::from_be_bytes(bytes);
        Ok(())
    }

    fn u64(&mut self, to: &mut u64) -> Res {
        let mut bytes = to.to_be_bytes();
        self.bytes(&mut bytes)?;
        *to = u64::from_be_bytes(bytes);
        Ok(())
    }

    /// A port number. In 1.0 it has 16 bits, and the reserved ports are the highest 256.
    fn port(&mut self, to: &mut u32) -> Res {
        if self.version() != Version::V10 {
            return self.u32(to);
        }
        let mut port = match *to {
            0..0xff00 | 0xffff_ff00.. => *to as u16,
            _ if Self::READS => 0,
            _ => return Err(Problem { why: "1.0 has no such port", ..problem::REQUEST_BAD_PORT }),
        };
        self.u16(&mut port)?;
        *to = if port >= 0xff00 { 0xffff_0000 | u32::from(port) } else { port.into() };
        Ok(())
    }

    /// One of a closed set of numbers, `width` bytes wide.
    fn choice<T: Choice>(&mut self, to: &mut T, width: usize, problem: Problem) -> Res {
        let mut number = to.number();
        if Self::MAKES {
            let known: Vec<u32> = T::ALL.iter().map(|one| one.number()).collect();
            self.draw(&mut number, width, &known)?;
        } else {
            self.draw(&mut number, width, &[])?;
        }
        *to = *T::ALL.iter().find(|one| one.number() == number).ok_or(problem)?;
        Ok(())
    }

    /// Elements up to the end of the record.
    fn list<T: Default>(
        &mut self,
        list: &mut Vec<T>,
        mut each: impl FnMut(&mut Self, &mut T) -> Res,
    ) -> Res {
        if Self::READS {
            while self.more() {
                let mut element = T::default();
                each(self, &mut element)?;
                list.push(element);
            }
            return Ok(());
        }
        list.iter_mut().try_for_each(|element| each(self, element))
    }

    /// Elements of a multipart body.
    fn items<T: Default>(
        &mut self,
        list: &mut Vec<T>,
        mut each: impl FnMut(&mut Self, &mut T) -> Res,
    ) -> Res {
        self.list(list, |c, element| {
            c.cut();
            each(c, element)
        })
    }
}

/// A closed set of numbers.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    const ALL: &'static [Self];
    fn number(self) -> u32;
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "the names are the specification's own")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum $name { #[default] $($variant = $number,)* }

        impl $crate::io::Choice for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];
            fn number(self) -> u32 {
                self as u32
            }
        }
    };
}
pub(crate) use choice;

/// Reads bytes into fields.
pub(crate) struct Reader<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) at: usize,
    end: usize,
    version: Version,
    blame: Problem,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(data: &'a [u8], version: Version) -> Self {
        Self { data, at: 0, end: data.len(), version, blame: problem::REQUEST_BAD_LEN }
    }

    /// The next bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Problem> {
        let end = self.at.checked_add(bytes).filter(|end| *end <= self.end).ok_or(self.blame)?;
        let found = self.data.get(self.at..end).ok_or(self.blame)?;
        self.at = end;
        Ok(found)
    }

    pub(crate) const fn left(&self) -> usize {
        self.end - self.at
    }
}

impl Io for Reader<'_> {
    const READS: bool = true;
    const MAKES: bool = false;

    fn version(&self) -> Version {
        self.version
    }

    fn bytes(&mut self, bytes: &mut [u8]) -> Res {
        bytes.copy_from_slice(self.take(bytes.len())?);
        Ok(())
    }

    fn rest(&mut self, bytes: &mut Vec<u8>) -> Res {
        *bytes = self.take(self.left())?.to_vec();
        Ok(())
    }

    fn message(&mut self, bytes: &mut Vec<u8>) -> Res {
        let len = self.data.get(self.at + 2..self.at + 4).ok_or(self.blame)?;
        let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
        if len < 8 {
            return Err(self.blame);
        }
        *bytes = self.take(len)?.to_vec();
        Ok(())
    }

    fn more(&mut self) -> bool {
        self.left() > 0
    }

    fn draw(&mut self, number: &mut u32, width: usize, _: &[u32]) -> Res {
        *number = self.take(width)?.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        Ok(())
    }

    fn open(&mut self) -> Mark {
        Mark { start: self.at, len_at: self.at, outer: self.end }
    }

    fn len(&mut self, mark: &mut Mark) -> Res {
        let mut len = 0;
        self.u16(&mut len)?;
        let end = mark.start + usize::from(len);
        if end < self.at || end > self.end {
            return Err(self.blame);
        }
        self.end = end;
        Ok(())
    }

    fn len_behind(&mut self, mark: &mut Mark, gap: usize) -> Res {
        let mut len = 0;
        self.u16(&mut len)?;
        self.pad(gap)?;
        let end = self.at + usize::from(len);
        if end > self.end {
            return Err(self.blame);
        }
        (mark.start, self.end) = (self.at, end);
        Ok(())
    }

    fn close(&mut self, mark: &Mark) -> Res {
        if self.at != self.end {
            return Err(self.blame);
        }
        self.end = mark.outer;
        Ok(())
    }

    fn align(&mut self, mark: &Mark) -> Res {
        let behind = (self.at - mark.start) % 8;
        self.take((8 - behind) % 8).map(drop)
    }

    fn blame(&mut self, problem: Problem) -> Problem {
        std::mem::replace(&mut self.blame, problem)
    }
}

/// Writes fields as bytes.
pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    /// Positions at which a multipart body may be split.
    pub(crate) cuts: Vec<usize>,
    version: Version,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, version: Version) -> Self {
        Self { out, cuts: Vec::new(), version }
    }
}

impl Io for Writer<'_> {
    const READS: bool = false;
    const MAKES: bool = false;

    fn version(&self) -> Version {
        self.version
    }

    fn bytes(&mut self, bytes: &mut [u8]) -> Res {
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn rest(&mut self, bytes: &mut Vec<u8>) -> Res {
        self.bytes(bytes)
    }

    fn message(&mut self, bytes: &mut Vec<u8>) -> Res {
        self.bytes(bytes)
    }

    fn more(&mut self) -> bool {
        false
    }

    fn draw(&mut self, number: &mut u32, width: usize, _: &[u32]) -> Res {
        let bytes = number.to_be_bytes();
        self.out.extend_from_slice(&bytes[4 - width.min(4)..]);
        Ok(())
    }

    fn open(&mut self) -> Mark {
        Mark { start: self.out.len(), len_at: self.out.len(), outer: 0 }
    }

    fn len(&mut self, mark: &mut Mark) -> Res {
        mark.len_at = self.out.len();
        self.pad(2)
    }

    fn len_behind(&mut self, mark: &mut Mark, gap: usize) -> Res {
        mark.len_at = self.out.len();
        self.pad(2 + gap)?;
        mark.start = self.out.len();
        Ok(())
    }

    fn close(&mut self, mark: &Mark) -> Res {
        let len = u16::try_from(self.out.len() - mark.start);
        let len = len.map_err(|_| Problem {
            why: "a record is longer than 65,535 bytes",
            ..problem::REQUEST_BAD_LEN
        })?;
        self.out[mark.len_at..mark.len_at + 2].copy_from_slice(&len.to_be_bytes());
        Ok(())
    }

    fn align(&mut self, mark: &Mark) -> Res {
        let behind = (self.out.len() - mark.start) % 8;
        self.pad((8 - behind) % 8)
    }

    fn blame(&mut self, problem: Problem) -> Problem {
        problem
    }

    fn cut(&mut self) {
        self.cuts.push(self.out.len());
    }
}
