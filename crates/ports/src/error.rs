//! Errors of captures: an [`Error`] stops the work, [`Damage`] ends the file early.
//!
//! The message of both is one line with the file, the byte offset, the fault and how to fix it.

use std::{fmt, io};

use crate::limits::MAX_PACKET;

/// Why a capture cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed: no such file, no permission, a full or failing disk.
    #[error("{file}: cannot {doing}{}: {source}; {}", place(*offset), io_fix(doing, source))]
    Io {
        /// The file.
        file: String,
        /// The failed operation: `open`, `read`, `write`, ...
        doing: &'static str,
        /// Bytes read or written before the failure, if the operation reads or writes.
        offset: Option<u64>,
        /// The error of the system.
        source: io::Error,
    },
    /// A capture could be written only in part.
    #[error("{source}; the file has the {records} frames before that")]
    Kept {
        /// Why the rest could not be written.
        source: Box<Self>,
        /// Frames in the file.
        records: u64,
    },
    /// A capture was written but could not get its name.
    #[error(
        "{file}: the capture was written but cannot be renamed: {source}; its {records} frames are in {part}, which you \
         can rename"
    )]
    Unnamed {
        /// The file.
        file: String,
        /// The temporary name, under which the capture is.
        part: String,
        /// Frames in it.
        records: u64,
        /// The error of the system.
        source: io::Error,
    },
    /// A capture could be written only in part, and that part could not get its name.
    #[error("{0}; {1}")]
    Both(Box<Self>, Box<Self>),
    /// The file is not a capture, or has a format that flowyard does not read.
    #[error("{file}: byte 0: {what}; {fix}")]
    Format {
        /// The file.
        file: String,
        /// What the file contains instead.
        what: String,
        /// How to fix it.
        fix: String,
    },
    /// All packets of the capture have a link layer that flowyard does not read.
    #[error(
        "{file}: link type {number} ({}) is not supported; \
         capture on an Ethernet or IP interface (supported: {})",
        crate::linktype::name(*number), crate::linktype::READ
    )]
    LinkType {
        /// The file.
        file: String,
        /// The link type in the LINKTYPE_* registry.
        number: u32,
    },
    /// The capture is damaged before its first packet.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A frame cannot be written because it is longer than any reader accepts.
    #[error(
        "{file}: a frame of {len} bytes exceeds the limit of {MAX_PACKET} bytes per packet of a \
         capture; truncate it before writing"
    )]
    TooLong {
        /// The file.
        file: String,
        /// The frame's length in bytes.
        len: usize,
    },
}

fn place(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" (byte {offset})"))
}

fn io_fix(doing: &str, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if doing == "create" => {
            "create the folder first, or write elsewhere"
        }
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "check the permissions, or run as the file's owner",
        io::ErrorKind::IsADirectory => "give the name of a file in this directory",
        _ if doing == "create" => "name a file in a folder that exists and can be written",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on the disk, or write to another one"
        }
        _ => "check the disk or the pipe, then try again",
    }
}

/// Where and why a capture ended early. Every packet before that place was delivered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Start of the incomplete or invalid record or block, in bytes from the start of the capture,
    /// after decompression.
    pub offset: u64,
    /// Packets before the damage, delivered or counted as skipped.
    pub packets: u64,
    /// The kind of damage.
    pub fault: Fault,
    /// How much of the file is not read, if its size is known.
    pub unread: Option<Unread>,
}

/// The part of a file that is not read because of damage before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unread {
    /// Its bytes: those from the damaged record or block on; of a compressed file, the compressed bytes behind
    /// those that were decompressed.
    pub bytes: u64,
    /// All bytes of the file.
    pub of: u64,
}

/// The kind of damage of a capture. Lengths are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The file ends inside a header, a packet or a block.
    Cut {
        /// The element in which the file ends.
        inside: &'static str,
        /// Bytes of the element that are present.
        have: u64,
        /// Bytes that the element needs at least.
        need: u64,
    },
    /// The compressed data ends early.
    GzipCut,
    /// The compressed data is corrupt.
    Gzip(String),
    /// The length field of a packet is invalid.
    PacketLength {
        /// The value of the length field.
        claimed: u64,
        /// The maximum possible value.
        most: u64,
    },
    /// The length field of a pcapng block is invalid.
    BlockLength {
        /// The block type.
        block: u32,
        /// The value of the length field.
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
    /// A pcapng section header without a byte-order magic; the value is what was found instead.
    ByteOrder(u32),
    /// A pcapng section of an unsupported major version.
    Version(u16),
    /// A pcapng packet of an interface that its section does not describe.
    Interface {
        /// The interface number of the packet.
        wanted: u32,
        /// Number of interfaces described so far.
        known: u32,
    },
    /// A pcapng section describes too many interfaces.
    Interfaces,
    /// The system reports an error.
    Read(String),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, packets, fault, unread } = self;
        write!(f, "{file}: byte {offset}: {fault}; {packets} complete packets precede it")?;
        if let Some(Unread { bytes, of }) = unread {
            write!(f, ", and {bytes} of the {of} bytes of the file are not read")?;
        }
        f.write_str("; ")?;
        f.write_str(match fault {
            Fault::Cut { .. } | Fault::GzipCut => {
                "copy the file again, or wait until the capturing tool has finished it"
            }
            Fault::Gzip(_) => "copy the file again, and check it with gzip -t",
            Fault::Version(_) => "convert it with editcap -F pcapng",
            Fault::Read(_) => "check the disk or the pipe, then try again",
            _ => "the rest is not read: copy the file again, or truncate it at this byte",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { inside, have: 0, .. } => write!(f, "the file ends before {inside}"),
            Self::Cut { inside, have, need } => {
                write!(f, "the file ends inside {inside}: {have} of {need} bytes are present")
            }
            Self::GzipCut => f.write_str("the gzip data ends early"),
            Self::Gzip(why) => write!(f, "the gzip data is corrupt ({why})"),
            Self::PacketLength { claimed, most } => {
                write!(
                    f,
                    "a packet has a length of {claimed} bytes, but at most {most} are possible"
                )
            }
            Self::BlockLength { block, claimed } => {
                write!(f, "a block of type {block:#x} has an invalid length of {claimed} bytes")
            }
            Self::BlockTrailer { block, head, tail } => {
                write!(
                    f,
                    "a block of type {block:#x} has the length {head} in its header and {tail} in its \
                     trailer"
                )
            }
            Self::ByteOrder(magic) => {
                write!(
                    f,
                    "a section header has the byte-order magic {magic:#010x}, expected 0x1a2b3c4d"
                )
            }
            Self::Version(major) => {
                write!(f, "a section has pcapng version {major}, but only version 1 is supported")
            }
            Self::Interface { wanted, known } => {
                write!(
                    f,
                    "a packet refers to interface {wanted}, but the section describes {known}"
                )
            }
            Self::Interfaces => f.write_str("a section describes more than 65,536 interfaces"),
            Self::Read(why) => write!(f, "it cannot be read any further: {why}"),
        }
    }
}
