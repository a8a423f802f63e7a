//! The reasons for which an RSS configuration is refused, each with its fix.

use crate::hash_fields::{Fields, FlowType};

/// The reason for which an adapter refuses an RSS configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The adapter has no RSS.
    #[error("{0}: this adapter computes no RSS hash; use RPS to spread its frames")]
    NoRss(&'static str),
    /// Zero queues.
    #[error("{0}: RSS over 0 queues; use at least 1")]
    NoQueues(&'static str),
    /// The adapter has no virtual functions with an indirection table.
    #[error("{0}: no virtual function has an indirection table; choose the physical function")]
    NoVirtual(&'static str),
    /// The hash key has the wrong length.
    #[error("{name}: the hash key has {got} bytes; use 40, or {want} as the adapter holds")]
    KeyLength {
        /// The adapter.
        name: &'static str,
        /// Length given, in bytes.
        got: usize,
        /// Length that the adapter holds, in bytes.
        want: usize,
    },
    /// The indirection table has the wrong length.
    #[error("{name}: the indirection table has {got} entries; this adapter needs {want}")]
    RetaLength {
        /// The adapter.
        name: &'static str,
        /// Entries given.
        got: usize,
        /// Entries that the function has.
        want: u16,
    },
    /// An entry of the indirection table has a queue that RSS cannot address.
    #[error(
        "{name}: entry {entry} of the indirection table has queue {queue}; RSS can only use queues 0 to {} here, use a filter for the others", limit - 1
    )]
    RetaQueue {
        /// The adapter.
        name: &'static str,
        /// Index of the entry.
        entry: usize,
        /// The queue in it.
        queue: u16,
        /// Number of queues that RSS can address.
        limit: u16,
    },
    /// The adapter cannot hash these fields for this flow type.
    #[error("{name}: {flow} cannot hash {fields}; {fix}")]
    Fields {
        /// The adapter.
        name: &'static str,
        /// The flow type.
        flow: FlowType,
        /// The fields requested.
        fields: Fields,
        /// The fields that the adapter supports.
        fix: &'static str,
    },
    /// The adapter has no symmetric-XOR hash.
    #[error("{0}: no symmetric-XOR hash; use Toeplitz with a key of repeated 6d5a instead")]
    NoSymmetricXor(&'static str),
    /// The adapter has no symmetric-OR-XOR hash.
    #[error("{0}: no symmetric-OR-XOR hash; use Toeplitz with a key of repeated 6d5a instead")]
    NoSymmetricOrXor(&'static str),
    /// A symmetric hash over one field of a pair.
    #[error(
        "{name}: a symmetric hash needs both fields of a pair, but {flow} hashes {fields}; use sd, fn or sdfn"
    )]
    Unpaired {
        /// The adapter.
        name: &'static str,
        /// The flow type.
        flow: FlowType,
        /// The fields requested.
        fields: Fields,
    },
}
