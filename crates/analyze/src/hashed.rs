//! What RSS hashes of a frame in place of the addresses and ports of its key.

use flowyard_adapter::Rss;
use flowyard_adapter::rss::RssExplanation;
use flowyard_flow::Quic;
use flowyard_frame::FlowKey;
use flowyard_wire::Headers;

/// Bytes of a frame that are hashed, and that its key does not have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hashed {
    /// A QUIC connection ID, or the hashed part of it.
    Id {
        /// The bytes, followed by zeros.
        bytes: [u8; 20],
        /// Their number.
        len: u8,
    },
    /// The addresses of mobile IPv6: home address, and that in a type 2 routing header.
    Addresses {
        /// In place of the source.
        src: Option<[u8; 16]>,
        /// In place of the destination.
        dst: Option<[u8; 16]>,
    },
}

impl Hashed {
    /// What is hashed of a frame with this key and these headers, if it is not in the key.
    #[inline]
    pub(crate) fn of(
        quic: Option<&Quic>,
        key: &FlowKey,
        headers: &Headers,
        frame: &[u8],
    ) -> Option<Self> {
        if let Some(id) = quic.and_then(|quic| quic.hashed(key, headers, frame)) {
            let mut bytes = [0; 20];
            bytes.get_mut(..id.len())?.copy_from_slice(id);
            return Some(Self::Id { bytes, len: id.len() as u8 });
        }
        if headers.home_address == 0 && headers.routing2 == 0 {
            return None;
        }
        let address = |at: u32| frame.get(at as usize..)?.first_chunk().copied();
        let [src, dst] = [headers.home_address, headers.routing2].map(|at| match at {
            0 => None,
            at => address(at),
        });
        Some(Self::Addresses { src, dst })
    }

    /// The hash of a frame with this key.
    pub(crate) fn hash(&self, rss: &Rss, key: &FlowKey) -> Option<u32> {
        match self {
            Self::Id { bytes, len } => Some(rss.hash_id(&bytes[..usize::from(*len)])),
            Self::Addresses { src, dst } => rss.hash_with(key, *src, *dst),
        }
    }

    /// Whether the bytes stand for the ports, too.
    pub(crate) const fn is_id(&self) -> bool {
        matches!(self, Self::Id { .. })
    }

    /// The explanation of the hash.
    pub(crate) fn explain(&self, rss: &Rss, key: &FlowKey) -> RssExplanation {
        match self {
            Self::Id { bytes, len } => rss.explain_id(&bytes[..usize::from(*len)]),
            Self::Addresses { src, dst } => rss.explain(&rss.seen(key, *src, *dst)),
        }
    }
}
