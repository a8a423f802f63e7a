//! The rings of a connection, in this process's memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::buffers::Buffers;
use crate::handshake::Parts;
use crate::layout::Layout;
use crate::message::AddRing;
use crate::receive::Receiver;
use crate::ring::Ring;
use crate::send::Sender;
use crate::sys::Region;

/// The side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Listens, and uses the client's memory.
    Server,
    /// Connects, and owns the memory.
    Client,
}

/// Both directions of a connection.
#[derive(Debug)]
pub struct Link {
    /// One for each ring that brings frames.
    pub receivers: Vec<Receiver>,
    /// One for each ring that takes frames.
    pub senders: Vec<Sender>,
    /// By sender: what wakes the peer.
    pub(crate) wakers: Vec<OwnedFd>,
}

impl Link {
    /// Maps the memory of a client. An error says what is wrong with it.
    pub(crate) fn adopt(parts: Parts<OwnedFd>) -> Result<Self, String> {
        let map = |(size, fd): &(u64, OwnedFd)| Region::adopt(fd, *size).map(Arc::new);
        let regions: Result<Vec<_>, _> = parts.regions.iter().map(map).collect();
        let regions: Arc<[_]> = regions.map_err(|error| error.to_string())?.into();
        let ring = |of: &AddRing| {
            let region = regions.get(usize::from(of.region)).ok_or("a region is missing")?;
            let ring = Ring::new(Arc::clone(region), of.offset as usize, of.log2_ring)
                .map_err(|error| error.to_string())?;
            if ring.is_valid() { Ok(ring) } else { Err("a ring lacks the cookie".to_owned()) }
        };
        let buffers = || Buffers::Named(Arc::clone(&regions));
        let mut link = Self { receivers: Vec::new(), senders: Vec::new(), wakers: Vec::new() };
        for (of, _) in &parts.to_server {
            link.receivers.push(Receiver::new(ring(of)?, buffers()));
        }
        for (of, fd) in parts.to_client {
            link.senders.push(Sender::new(ring(&of)?, buffers()));
            link.wakers.push(fd);
        }
        Ok(link)
    }
}

/// The memory of a client, before the server uses it.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) fd: OwnedFd,
    link: Link,
}

impl Memory {
    /// `wakers`: by ring to the server.
    pub(crate) fn create(layout: Layout, wakers: Vec<OwnedFd>) -> Result<Self, String> {
        let bytes = layout.bytes().ok_or("the rings are too large")?;
        let (region, fd) = Region::create(bytes).map_err(|error| error.to_string())?;
        let region = Arc::new(region);
        let parts = |to_server, index| {
            let at = layout.ring(to_server, index);
            let ring = Ring::new(Arc::clone(&region), at.offset as usize, at.log2_ring)
                .map_err(|error| error.to_string())?;
            ring.init();
            let region = Arc::clone(&region);
            Ok::<_, String>((ring, Buffers::Own { region, layout, to_server, index }))
        };
        let mut link = Link { receivers: Vec::new(), senders: Vec::new(), wakers };
        for index in 0..layout.rings.0 {
            let (ring, buffers) = parts(true, index)?;
            link.senders.push(Sender::new(ring, buffers));
        }
        for index in 0..layout.rings.1 {
            let (ring, buffers) = parts(false, index)?;
            link.receivers.push(Receiver::new(ring, buffers));
        }
        Ok(Self { fd, link })
    }

    pub(crate) fn link(self) -> Link {
        self.link
    }
}
