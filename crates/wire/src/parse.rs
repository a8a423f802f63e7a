//! From bytes to levels: the entry points of the parser.

use crate::{Headers, LinkType, Next, fast_path::fast_path, walk::Walk};

impl Headers {
    /// Parses the outermost level of a frame, as far as its bytes allow; [`Headers::fault`] is the
    /// reason if that is not the whole level. Frames must be shorter than 4 GiB, or offsets would wrap.
    #[must_use]
    #[inline]
    pub fn parse(link: LinkType, bytes: &[u8]) -> Self {
        if link == LinkType::Ethernet
            && let Some(common) = fast_path(bytes)
        {
            return common.level();
        }
        let mut h = Self::default();
        h.walk(link, bytes);
        h
    }

    /// Parses a frame that the fast path does not accept.
    #[inline(never)]
    pub(crate) fn walk(&mut self, link: LinkType, bytes: &[u8]) {
        let mut walk = Walk::new(self, bytes);
        let step = walk.frame(link);
        walk.finish(step);
    }

    /// Parses the next level: the packet or frame in this level's tunnel. `bytes` is the whole captured
    /// frame, as for [`Headers::parse`]. `None` if the payload is not a tunnel's.
    #[must_use]
    pub fn inner(&self, bytes: &[u8]) -> Option<Self> {
        if self.next == Next::None {
            return None;
        }
        let mut h = Self::default();
        let mut walk = Walk::inside(&mut h, self, bytes)?;
        let step = match self.next {
            Next::None => Ok(()),
            Next::Ip => walk.ip(),
            Next::Ipv4 => walk.ipv4(),
            Next::Ipv6 => walk.ipv6(),
            Next::Ethernet => walk.ethernet(),
            Next::EtherType(eth_type) => walk.ether_type(eth_type),
            Next::Ppp => walk.ppp(),
        };
        walk.finish(step);
        Some(h)
    }

    /// All levels of a frame, outermost first. A frame of n bytes has at most n / 4 levels; the caller
    /// may take fewer.
    pub fn levels(link: LinkType, bytes: &[u8]) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self::parse(link, bytes)), |level| level.inner(bytes))
    }
}
