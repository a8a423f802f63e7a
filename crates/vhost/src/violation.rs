//! What a guest can do wrong.

/// A guest broke the rules of its rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// Its index is further ahead than the ring is long.
    #[error("its available index is {ahead} entries ahead in a ring of {size}")]
    Index {
        /// Entries between the last one that was taken and its index.
        ahead: u16,
        /// Entries of the ring.
        size: u16,
    },
    /// An entry of the available ring, or a descriptor, names a descriptor that does not exist.
    #[error("descriptor {number} is named in a table of {count}")]
    Number {
        /// The descriptor.
        number: u16,
        /// Descriptors of the table.
        count: u16,
    },
    /// A chain of descriptors does not end.
    #[error("a chain has more than {most} descriptors, or a loop")]
    Chain {
        /// Descriptors that a chain may have.
        most: u16,
    },
    /// A buffer does not lie in memory.
    #[error("a descriptor names {len} bytes at {at:#x}, which are not all in the guest's memory")]
    Address {
        /// The guest's physical address.
        at: u64,
        /// Bytes.
        len: u32,
    },
    /// A buffer is for the other direction.
    #[error("a descriptor of a frame {}", if *.transmits { "to transmit is for writing" } else { "to receive is for reading" })]
    Direction {
        /// Whether it is in a ring of frames that the guest transmits.
        transmits: bool,
    },
    /// An indirect descriptor that is not allowed.
    #[error("an indirect descriptor is not allowed: {0}")]
    Indirect(&'static str),
    /// A frame without the header of virtio-net.
    #[error("a frame is shorter than the {header} bytes of the virtio-net header")]
    Header {
        /// Bytes of the header.
        header: u16,
    },
    /// A part of the ring does not lie in memory.
    #[error(
        "the {part} of a ring of {size} entries at {at:#x} is not in the guest's memory, or not aligned"
    )]
    Place {
        /// Which part.
        part: &'static str,
        /// The address, in the front end.
        at: u64,
        /// Entries of the ring.
        size: u32,
    },
    /// The number of entries is not possible.
    #[error(
        "a ring of {0} entries is not possible: it has at most 32768, and a split ring a power of two"
    )]
    Size(u32),
    /// The file behind the memory was truncated.
    #[error("the file behind the guest's memory was truncated while it was used")]
    Lost,
}
