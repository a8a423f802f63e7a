//! What is hashed in place of the addresses and ports of a key: the addresses of mobile IPv6, and connection IDs.

use flowyard_frame::FlowKey;

use super::{InputField, Rss, RssExplanation};

impl Rss {
    /// This RSS with or without the `*_IPV6_EX` types, whatever the adapter's profile says of them.
    #[must_use]
    pub const fn with_ipv6_ex(mut self, hashes: bool) -> Self {
        self.ipv6_ex = hashes;
        self
    }

    /// The key as it is hashed if the IPv6 header is followed by a home address (`src`) or by a type 2 routing header
    /// (`dst`): with these addresses, if this adapter hashes the `*_IPV6_EX` types.
    #[must_use]
    pub fn seen(&self, key: &FlowKey, src: Option<[u8; 16]>, dst: Option<[u8; 16]>) -> FlowKey {
        if !key.is_ipv6() || !self.ipv6_ex {
            return *key;
        }
        FlowKey { src: src.unwrap_or(key.src), dst: dst.unwrap_or(key.dst), ..*key }
    }

    /// The hash of a connection ID, or of the hashed part of it. No adapter is known to do this; programs in front of
    /// one do.
    #[must_use]
    #[inline]
    pub fn hash_id(&self, id: &[u8]) -> u32 {
        self.toeplitz.hash(id)
    }

    /// Explains which queue a packet gets by its connection ID.
    #[must_use]
    pub fn explain_id(&self, id: &[u8]) -> RssExplanation {
        let hash = self.hash_id(id);
        let (index, queue) = (self.index(hash), self.queue(Some(hash)));
        RssExplanation {
            hash_type: "QUIC",
            input: vec![InputField { name: "id", bytes: id.to_vec() }],
            hash: Some(hash),
            index: Some(index),
            queue,
            why: format!(
                "QUIC: {} bytes of the connection ID are hashed, and neither addresses nor ports; index = low {} bits of the hash; entry {index} holds queue {queue}",
                id.len(),
                self.reta.len().trailing_zeros()
            ),
        }
    }
}
