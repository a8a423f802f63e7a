//! Why an RSS configuration is refused, in words with the mend.

use crate::hash_fields::{Fields, FlowType};

/// Why a configuration is not one that the adapter takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No RSS at all.
    #[error("{0}: this adapter computes no RSS hash; model its spreading with RPS")]
    NoRss(&'static str),
    /// Zero queues.
    #[error("{0}: RSS over no queues; give at least 1")]
    NoQueues(&'static str),
    /// No virtual functions.
    #[error("{0}: no virtual function with a table of its own; choose the physical function")]
    NoVirtual(&'static str),
    /// A key of the wrong length.
    #[error("{name}: a hash key of {got} bytes; give 40, or the adapter's {want}")]
    KeyLength {
        /// The adapter.
        name: &'static str,
        /// Bytes given.
        got: usize,
        /// The adapter's length.
        want: usize,
    },
    /// An indirection table of the wrong length.
    #[error("{name}: an indirection table of {got} entries; this function's has {want}")]
    RetaLength {
        /// The adapter.
        name: &'static str,
        /// Entries given.
        got: usize,
        /// The adapter's entries.
        want: u16,
    },
    /// An entry names a queue that it cannot.
    #[error(
        "{name}: indirection table entry {entry} names queue {queue}; RSS reaches queues 0 to {} here, use a filter for the others", limit - 1
    )]
    RetaQueue {
        /// The adapter.
        name: &'static str,
        /// The entry.
        entry: usize,
        /// The queue it names.
        queue: u16,
        /// How many queues it could.
        limit: u16,
    },
    /// Fields that the adapter cannot choose.
    #[error("{name}: {flow} cannot hash {fields}; {mend}")]
    Fields {
        /// The adapter.
        name: &'static str,
        /// The flow type.
        flow: FlowType,
        /// The fields asked for.
        fields: Fields,
        /// What it can.
        mend: &'static str,
    },
    /// No symmetric-XOR.
    #[error("{0}: no symmetric-XOR hash; use Toeplitz with the key 6d5a repeated instead")]
    NoSymmetricXor(&'static str),
    /// Symmetric-XOR over half a pair.
    #[error("{name}: symmetric-XOR needs pairs, but {flow} hashes {fields}; use sd, fn or sdfn")]
    Unpaired {
        /// The adapter.
        name: &'static str,
        /// The flow type.
        flow: FlowType,
        /// Its fields.
        fields: Fields,
    },
}
