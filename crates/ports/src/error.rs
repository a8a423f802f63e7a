//! What can go wrong with a capture: errors stop the work, damage ends the file early.
//!
//! Both say the file, the byte, what is wrong and the mend, in one line.

use std::{fmt, io};

use crate::pcap::MAX_PACKET;

/// Why a capture cannot be read or written at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused: no such file, no permission, a full or failing disk.
    #[error("{file}: cannot {doing} (byte {offset}): {source}; {}", io_mend(source))]
    Io {
        /// The file.
        file: String,
        /// `open`, `read`, `write`, ...
        doing: &'static str,
        /// Bytes read or written before.
        offset: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The file is no capture, or one of a kind that flowyard does not read.
    #[error("{file}: byte 0: {what}; {mend}")]
    Format {
        /// The file.
        file: String,
        /// What it is instead.
        what: String,
        /// What to do about it.
        mend: String,
    },
    /// The capture's packets, all of them, have a link layer that flowyard does not read.
    #[error(
        "{file}: link type {number} ({}) is not one flowyard reads; \
         capture on an Ethernet or IP interface (it reads {})",
        crate::linktype::name(*number), crate::linktype::READ
    )]
    LinkType {
        /// The file.
        file: String,
        /// The number in the LINKTYPE_* registry.
        number: u32,
    },
    /// The capture is damaged before its first packet.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A frame cannot be written: longer than any reader accepts.
    #[error(
        "{file}: a frame of {len} bytes is longer than the {MAX_PACKET} a capture holds; cut it before writing"
    )]
    TooLong {
        /// The file.
        file: String,
        /// The frame's length in bytes.
        len: usize,
    },
}

fn io_mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "check the permissions, or run as the file's owner",
        io::ErrorKind::IsADirectory => "name a file in it",
        io::ErrorKind::StorageFull => "make room, or write elsewhere",
        _ => "check the disk or the pipe, then try again",
    }
}

/// Where and why a capture ended early. Every packet before it was given.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where the record or block that is not whole starts: bytes from the start of the capture,
    /// after decompression.
    pub offset: u64,
    /// Packets before it, given or counted as skipped.
    pub packets: u64,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a damaged capture. Lengths in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The file ends inside a header, a packet or a block.
    Cut {
        /// What the file ends in.
        inside: &'static str,
        /// How many bytes of it are there.
        have: u64,
        /// How many it needs, at least.
        need: u64,
    },
    /// The compressed data ends early.
    GzipCut,
    /// The compressed data is corrupt.
    Gzip(String),
    /// A packet claims an impossible length.
    PacketLength {
        /// The claim.
        claimed: u64,
        /// The most that would be possible there.
        most: u64,
    },
    /// A pcapng block claims an impossible length.
    BlockLength {
        /// The block type.
        block: u32,
        /// The claim.
        claimed: u32,
    },
    /// The two lengths of a pcapng block differ.
    BlockTrailer {
        /// The block type.
        block: u32,
        /// The length before its body.
        head: u32,
        /// The length after its body.
        tail: u32,
    },
    /// A pcapng section header without a byte-order magic.
    ByteOrder(u32),
    /// A pcapng section of a version unknown to flowyard.
    Version(u16),
    /// A pcapng packet of an interface that the section has not described.
    Interface {
        /// The packet's interface.
        wanted: u32,
        /// How many the section has described.
        known: u32,
    },
    /// A pcapng section describes too many interfaces.
    Interfaces,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, packets, fault } = self;
        write!(f, "{file}: byte {offset}: {fault}; {packets} whole packets come before it; ")?;
        f.write_str(match fault {
            Fault::Cut { .. } | Fault::GzipCut => {
                "copy the file again, or let the capturing tool finish it"
            }
            Fault::Gzip(_) => "copy the file again, and check it with gzip -t",
            Fault::Version(_) => "convert it with editcap -F pcapng",
            _ => "the bytes from there on are not read: copy the file again, or cut it there",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { inside, have: 0, .. } => write!(f, "the file ends before {inside}"),
            Self::Cut { inside, have, need } => {
                write!(f, "the file ends inside {inside}: {have} of {need} bytes are there")
            }
            Self::GzipCut => f.write_str("the gzip data ends early"),
            Self::Gzip(why) => write!(f, "the gzip data is corrupt ({why})"),
            Self::PacketLength { claimed, most } => {
                write!(f, "a packet claims {claimed} captured bytes, at most {most} are possible")
            }
            Self::BlockLength { block, claimed } => {
                write!(
                    f,
                    "a block of type {block:#x} claims an impossible length of {claimed} bytes"
                )
            }
            Self::BlockTrailer { block, head, tail } => {
                write!(
                    f,
                    "a block of type {block:#x} starts as {head} and ends as {tail} bytes long"
                )
            }
            Self::ByteOrder(magic) => {
                write!(
                    f,
                    "a section header has {magic:#010x} where the byte order (0x1a2b3c4d) belongs"
                )
            }
            Self::Version(major) => {
                write!(f, "a section has pcapng version {major}, flowyard reads version 1")
            }
            Self::Interface { wanted, known } => {
                write!(f, "a packet names interface {wanted}, the section has described {known}")
            }
            Self::Interfaces => f.write_str("a section describes more than 65,536 interfaces"),
        }
    }
}
