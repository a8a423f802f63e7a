//! Views of the three most frequent messages, without copying them.
//!
//! Each view checks what [`crate::decode`] checks of the same message: the lengths of the message,
//! of the match and of the lists. The contents of match, actions and instructions are checked when
//! they are read.
#![allow(missing_docs, reason = "the fields are the specification's own")]

use crate::Version;
use crate::message::Header;
use crate::problem::{self, Problem};

/// The bytes of a match and those that follow it.
fn matching(bytes: &[u8], at: usize) -> Result<(&[u8], &[u8]), Problem> {
    let long = bytes.get(at + 2..at + 4).ok_or(problem::MATCH_BAD_LEN)?;
    let len = usize::from(u16::from_be_bytes([long[0], long[1]]));
    let end = at + len.next_multiple_of(8);
    if len < 4 || end > bytes.len() {
        return Err(problem::MATCH_BAD_LEN);
    }
    Ok((&bytes[at + 4..at + len], &bytes[end..]))
}

fn check(bytes: &[u8], kind: u8, least: [usize; 2]) -> Result<Version, Problem> {
    let header = Header::read(bytes).ok_or(problem::REQUEST_BAD_LEN)?;
    let version = Version::of(header.version).ok_or(problem::REQUEST_BAD_VERSION)?;
    if header.kind != kind {
        return Err(problem::REQUEST_BAD_TYPE);
    }
    let least = least[usize::from(version != Version::V10)];
    if usize::from(header.length) != bytes.len() || bytes.len() < least {
        return Err(problem::REQUEST_BAD_LEN);
    }
    Ok(version)
}

/// A field at a position that has been checked; 0 outside.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk::<N>()).copied().unwrap_or([0; N])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(bytes, at))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

/// A port number of 1.0 as the number of 1.3.
fn port(port: u16) -> u32 {
    if port >= 0xff00 { 0xffff_0000 | u32::from(port) } else { port.into() }
}

/// A flow-mod.
#[derive(Clone, Copy, Debug)]
pub struct FlowMod<'a> {
    bytes: &'a [u8],
    version: Version,
    /// The fields of the match; for 1.0, its 40 bytes.
    pub matching: &'a [u8],
    /// The instructions; for 1.0, the actions.
    pub instructions: &'a [u8],
}

impl<'a> FlowMod<'a> {
    /// Views the bytes of a message.
    ///
    /// # Errors
    /// When the message is no flow-mod, or too short.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Problem> {
        let version = check(bytes, 14, [72, 56])?;
        let (matching, instructions) = match version {
            Version::V10 => (&bytes[8..48], &bytes[72..]),
            _ => matching(bytes, 48)?,
        };
        Ok(Self { bytes, version, matching, instructions })
    }

    /// Reads a number at one of two offsets: that of 1.0, or that of later versions.
    const fn at(&self, old: usize, new: usize) -> usize {
        if matches!(self.version, Version::V10) { old } else { new }
    }

    #[must_use]
    pub fn cookie(&self) -> u64 {
        u64::from_be_bytes(field(self.bytes, self.at(48, 8)))
    }

    #[must_use]
    pub fn table(&self) -> u8 {
        if self.version == Version::V10 { 0 } else { self.bytes[24] }
    }

    #[must_use]
    pub fn command(&self) -> u16 {
        if self.version == Version::V10 { half(self.bytes, 56) } else { self.bytes[25].into() }
    }

    #[must_use]
    pub fn priority(&self) -> u16 {
        half(self.bytes, self.at(62, 30))
    }

    #[must_use]
    pub fn buffer(&self) -> u32 {
        word(self.bytes, self.at(64, 32))
    }
}

/// A packet-in.
#[derive(Clone, Copy, Debug)]
pub struct PacketIn<'a> {
    bytes: &'a [u8],
    version: Version,
    /// The fields of the match; for 1.0 it is empty.
    pub matching: &'a [u8],
    /// The frame.
    pub data: &'a [u8],
}

impl<'a> PacketIn<'a> {
    /// Views the bytes of a message.
    ///
    /// # Errors
    /// When the message is no packet-in, or too short.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Problem> {
        let version = check(bytes, 10, [18, 34])?;
        let (matching, data) = match version {
            Version::V10 => (&bytes[..0], &bytes[18..]),
            _ => {
                let (matching, rest) = matching(bytes, 24)?;
                (matching, rest.get(2..).ok_or(problem::REQUEST_BAD_LEN)?)
            }
        };
        Ok(Self { bytes, version, matching, data })
    }

    #[must_use]
    pub fn buffer(&self) -> u32 {
        word(self.bytes, 8)
    }

    #[must_use]
    pub fn total(&self) -> u16 {
        half(self.bytes, 12)
    }

    #[must_use]
    pub fn reason(&self) -> u8 {
        self.bytes[if self.version == Version::V10 { 16 } else { 14 }]
    }
}

/// A packet-out.
#[derive(Clone, Copy, Debug)]
pub struct PacketOut<'a> {
    bytes: &'a [u8],
    version: Version,
    /// The actions.
    pub actions: &'a [u8],
    /// The frame.
    pub data: &'a [u8],
}

impl<'a> PacketOut<'a> {
    /// Views the bytes of a message.
    ///
    /// # Errors
    /// When the message is no packet-out, or too short.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Problem> {
        let version = check(bytes, 13, [16, 24])?;
        let (len, start) =
            if version == Version::V10 { (half(bytes, 14), 16) } else { (half(bytes, 16), 24) };
        let split = bytes[start..].split_at_checked(len.into());
        let (actions, data) = split.ok_or(problem::ACTION_BAD_LEN)?;
        Ok(Self { bytes, version, actions, data })
    }

    #[must_use]
    pub fn buffer(&self) -> u32 {
        word(self.bytes, 8)
    }

    #[must_use]
    pub fn in_port(&self) -> u32 {
        match self.version {
            Version::V10 => port(half(self.bytes, 12)),
            _ => word(self.bytes, 12),
        }
    }
}
