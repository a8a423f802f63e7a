//! Router: IPv4 and IPv6 by the longest prefix that contains the destination (RFC 1812, RFC 8200).
//!
//! ```text
//!  [dst src | tags | type | IP header: checked (RFC 1812, 5.2.2), TTL > 1 | ...]
//!   ^^^ ^^^   kept                                      └──> TTL - 1, checksum by RFC 1624
//!   next hop, port's own                                destination ──> longest prefix: port, next hop
//! ```
//!
//! A packet that cannot be forwarded is dropped with a reason of its own. No ICMP errors are sent,
//! options and extension headers are ignored, and VLAN tags are kept. Destination addresses are not
//! restricted: a route to 127.0.0.0/8 is possible. Fragments are routed like whole packets, and no
//! packet is fragmented.
//!
//! Invariants: the header of a frame that leaves is correct if it was when the frame came in, and
//! the updated checksum equals a full computation. All input bytes are handled, and nothing is
//! allocated after start.
//! Thread-safety: a router belongs to one core; the routes are shared and never changed. A message [`NewRoutes`] replaces
//! them between two batches.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use flowyard_flow::table::{Lpm, Reason};
use flowyard_frame::{Action, Batch, FlowKey, LANES, Lanes, Nanos, To};
use flowyard_wire::edit::{self, tags};
use flowyard_wire::{LinkType, Net, checksum};
use ipnet::IpNet;

use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;
use flowyard_yard::work::{ControlMessage, Work, todo};

/// The length of the two addresses at the start of an Ethernet frame.
const ADDRESSES: usize = 12;

/// The next hop of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The port.
    pub port: u16,
    /// The source MAC address of its frames: that of the port.
    pub src: [u8; 6],
    /// The destination MAC address of its frames: that of the next hop.
    pub dst: [u8; 6],
}

/// Routes.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The table. The mark of an action is the index of a hop.
    routes: Lpm,
    hops: Vec<Hop>,
}

impl Routes {
    /// No routes, with space for `routes` prefixes.
    #[must_use]
    pub fn new(routes: usize) -> Self {
        Self { routes: Lpm::new(routes), hops: Vec::with_capacity(routes) }
    }

    /// Adds a route, or replaces the one with an equal prefix.
    ///
    /// # Errors
    /// When the table is full.
    pub fn put(&mut self, prefix: &IpNet, hop: Hop) -> Result<(), Reason> {
        let known = self.hops.iter().position(|other| *other == hop);
        let mark = known.unwrap_or(self.hops.len()) as u32;
        self.routes.put(prefix, Action { to: To::Port(hop.port), counter: 0, mark })?;
        if known.is_none() {
            self.hops.push(hop);
        }
        Ok(())
    }
}

/// New routes for [`Router`]. It keeps the ones before until it is dropped, so that no core frees a large table.
#[derive(Debug)]
pub struct NewRoutes {
    new: Arc<Routes>,
    old: OnceLock<Arc<Routes>>,
}

impl NewRoutes {
    /// A message with these routes.
    #[must_use]
    pub fn new(routes: Routes) -> Self {
        Self { new: Arc::new(routes), old: OnceLock::new() }
    }
}

/// A router.
#[derive(Clone, Debug)]
pub struct Router {
    table: Arc<Routes>,
}

impl Router {
    /// A router with these routes.
    #[must_use]
    pub fn new(routes: Routes) -> Self {
        Self { table: Arc::new(routes) }
    }

    /// Looks up the packet's own destination if `key` has another one, and otherwise keeps the
    /// result of the batch lookup. The two can differ if the frame has more tags than a key is made
    /// through.
    #[inline]
    fn look_again(&self, key: &FlowKey, packet: &[u8]) -> Option<Option<Action>> {
        let dst = destination(packet)?;
        let same = match dst {
            IpAddr::V4(v4) => key.is_ipv4() && key.dst[..4] == v4.octets(),
            IpAddr::V6(v6) => key.is_ipv6() && key.dst == v6.octets(),
        };
        (!same).then(|| self.table.routes.get(dst).copied())
    }
}

impl Work for Router {
    fn hand_over(&self, _now: Nanos) -> Option<Vec<u8>> {
        Some(Vec::new()) // its routes are configured
    }

    fn go_on(&mut self, _state: &[u8], _now: Nanos) -> Result<(), String> {
        Ok(())
    }

    fn control(
        &mut self,
        message: &ControlMessage,
        _now: Nanos,
        _send: &mut dyn FnMut(u16, &[u8]),
    ) {
        if let Some(NewRoutes { new, old }) = message.downcast_ref() {
            let before = std::mem::replace(&mut self.table, Arc::clone(new));
            let _kept_already = old.set(before);
        }
    }

    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        let (wanted, mut right) = (todo(batch), Lanes::NONE);
        let (mut starts, mut marks) = ([0; LANES], [0; LANES]);
        for lane in wanted {
            let frame = &batch.frames[lane];
            let (bytes, meta) = (pool.bytes(frame), pool.meta(frame));
            let checked = match meta.link {
                LinkType::Ethernet => check(bytes, meta.wire_len as usize),
                _ => Err(DropReason::LinkType),
            };
            match checked {
                Ok(l3) => {
                    (starts[lane], marks[lane]) = (l3, batch.actions[lane].mark);
                    right = right.with(lane);
                }
                Err(reason) => refuse(batch, lane, reason),
            }
        }
        let missed = self.table.routes.look_up(batch, right);
        for lane in right {
            let l3 = starts[lane];
            let found = (!missed.has(lane)).then_some(batch.actions[lane]);
            let packet = pool.bytes(&batch.frames[lane]).get(l3..).unwrap_or_default();
            let found = self.look_again(&batch.keys[lane], packet).unwrap_or(found);
            let hop = found.and_then(|action| self.table.hops.get(action.mark as usize));
            let Some(Hop { port, src, dst }) = hop else {
                refuse(batch, lane, DropReason::NoRoute);
                continue;
            };
            batch.actions[lane] = Action { to: To::Port(*port), counter: 0, mark: marks[lane] };
            let bytes = pool.bytes_mut(&mut batch.frames[lane]);
            if let Some((addresses, rest)) = bytes.split_first_chunk_mut::<ADDRESSES>() {
                addresses[..6].copy_from_slice(dst);
                addresses[6..].copy_from_slice(src);
                one_hop(rest.get_mut(l3 - ADDRESSES..).unwrap_or_default());
            }
        }
        now
    }
}

/// The offset of the IP packet in the Ethernet frame `bytes`, which has `wire_len` bytes on the
/// wire, if it may be forwarded.
fn check(bytes: &[u8], wire_len: usize) -> Result<usize, DropReason> {
    let malformed = DropReason::Malformed;
    let (eth_type, l3) = tags::ether_type(bytes).ok_or(malformed)?;
    let packet = bytes.get(l3..).unwrap_or_default();
    let room = wire_len.max(bytes.len()) - l3; // a capture may hold only the start of a frame
    let ttl = match eth_type {
        0x0800 => ipv4(packet, room),
        0x86dd => ipv6(packet, room),
        _ => return Err(DropReason::NotIp),
    };
    let ttl = ttl.ok_or(malformed)?;
    if bytes[0] & 1 != 0 {
        return Err(DropReason::Filtered); // a group address, which a router does not forward (RFC 1812, 5.3.4)
    }
    if ttl < 2 { Err(DropReason::TtlExpired) } else { Ok(l3) }
}

/// The TTL of a correct IPv4 header: the checks of RFC 1812, section 5.2.2.
#[inline]
fn ipv4(packet: &[u8], room: usize) -> Option<u8> {
    let first = *packet.first()?;
    let header = packet.get(..usize::from(first & 0xf) * 4)?;
    let total = usize::from(word(header, 2)?);
    let right = first >> 4 == 4
        && (header.len()..=room).contains(&total)
        && checksum::verify_ipv4_header(header);
    right.then(|| header[8])
}

/// The hop limit of a correct IPv6 header (RFC 8200, section 3).
#[inline]
fn ipv6(packet: &[u8], room: usize) -> Option<u8> {
    let header = packet.first_chunk::<40>()?;
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    (header[0] >> 4 == 6 && 40 + payload <= room).then_some(header[7])
}

/// The destination of a packet that has been checked.
#[inline]
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => packet.get(16..)?.first_chunk::<4>().map(|dst| IpAddr::from(*dst)),
        _ => packet.get(24..)?.first_chunk::<16>().map(|dst| IpAddr::from(*dst)),
    }
}

/// Decrements the TTL, or hop limit, of a packet that has been checked.
#[inline]
fn one_hop(packet: &mut [u8]) {
    let Some((header, _)) = packet.split_first_chunk_mut::<20>() else { return };
    let net = if header[0] >> 4 == 4 { Net::Ipv4 } else { Net::Ipv6 };
    if let Some(ttl) = edit::ttl(header, net, 0) {
        edit::set_ttl(header, net, 0, ttl.saturating_sub(1));
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk::<2>().map(|word| u16::from_be_bytes(*word))
}

#[cfg(test)]
mod tests;
