//! Edits: header fields changed in place, and the checksums over them.
//!
//! ```text
//!  changed          IPv4 header   TCP, UDP          ICMPv6    ICMP      SCTP
//!  TTL, TOS         follows       -                 -         -         -
//!  address          follows       pseudo header     as TCP    -         -
//!  port             -             follows           -         -         CRC-32C
//!  other bytes of
//!  the transport    -             follows           follows   follows   CRC-32C
//! ```
//!
//! A checksum is updated by the change alone (RFC 1624 for the Internet checksum; a CRC is linear, too),
//! so a checksum that was wrong stays wrong by as much: an edit does not hide damage. A UDP checksum that
//! the sender left out (0) stays 0, and one that becomes 0 is stored as 0xffff (RFC 768).
//!
//! A partial checksum ([`crate::Offload::PARTIAL`]) holds the sum of the pseudo header, not its complement: it
//! follows addresses, and nothing else that this module changes.
//!
//! All functions accept any bytes: a field of which a byte is missing is not changed.
//! Thread-safety: plain functions.

use std::net::IpAddr;

use crate::checksum::{self, Sum, crc32c_of_change};
use crate::ip::proto;
use crate::{Headers, Net, Offload};

pub mod tags;

/// UDP-Lite (RFC 3828) and DCCP (RFC 4340) use the pseudo header of UDP and have their checksum in the
/// same place.
const UDP_LIKE: [u8; 3] = [proto::UDP, 136, 33];

/// The SCTP checksum cannot follow: the packet is a fragment, or was cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incomplete;

/// One end of a packet's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The source.
    Src,
    /// The destination.
    Dst,
}

/// Where the headers of an IP packet are, and what its checksums cover. Offsets count from the first of
/// the bytes that are given to the functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// Nothing is changed unless this is IPv4 or IPv6.
    pub net: Net,
    /// Offset of the IP header.
    pub l3: usize,
    /// Offset of the transport header; 0 if the packet has none, as a later fragment.
    pub l4: usize,
    /// Offset of the end of the IP packet, or of the bytes if they end earlier.
    pub end: usize,
    /// The protocol at `l4`.
    pub proto: u8,
    /// The bytes hold everything that the transport checksum covers.
    pub is_whole: bool,
    /// Whether the transport checksum covers the source and the destination address of the IP header. It
    /// covers others if the packet has a home address or is on a source route (RFC 8200 section 8.1).
    pub covers: [bool; 2],
    /// The transport checksum is partial: it covers the pseudo header only.
    pub is_partial: bool,
}

impl Packet {
    /// The packet whose headers were parsed from `bytes`.
    #[must_use]
    pub fn of(headers: &Headers, bytes: &[u8]) -> Self {
        let is_later = headers.fragment.is_later();
        Self {
            net: headers.net,
            l3: headers.l3 as usize,
            l4: if is_later { 0 } else { headers.l4 as usize },
            end: headers.end as usize,
            proto: headers.proto,
            is_whole: headers.segment(bytes).is_some(),
            covers: [headers.home_address == 0, headers.covers_dst(bytes)],
            is_partial: false,
        }
    }

    /// The packet, with a partial checksum if `offload` has one for its transport header. `shift` is how far
    /// the offsets of this packet are behind those of the frame that the offload belongs to.
    #[must_use]
    pub fn with_offload(self, offload: Offload, shift: usize) -> Self {
        let is_partial = offload.has(Offload::PARTIAL)
            && self.l4 != 0
            && self.l4 + shift == usize::from(offload.checksum_start);
        Self { is_partial, ..self }
    }

    /// Sets the IPv4 time to live or the IPv6 hop limit.
    #[inline]
    pub fn set_ttl(&self, bytes: &mut [u8], ttl: u8) {
        set_ttl(bytes, self.net, self.l3, ttl);
    }

    /// Sets the bits of `mask` in the IPv4 TOS or the IPv6 traffic class: the upper six bits are the
    /// DSCP (RFC 2474), the lower two ECN (RFC 3168).
    pub fn set_tos(&self, bytes: &mut [u8], mask: u8, tos: u8) {
        let Some(&[first, second]) = chunk(bytes, self.l3) else { return };
        match self.net {
            Net::Ipv4 => {
                replace(bytes, self.l3, [first, second & !mask | tos & mask], self.l3 + 10);
            }
            Net::Ipv6 => {
                let tos = (first << 4 | second >> 4) & !mask | tos & mask;
                put(bytes, self.l3, &[first & 0xf0 | tos >> 4, second & 0x0f | tos << 4]);
            }
            Net::Arp | Net::Other => {}
        }
    }

    /// Sets an address of the IP header. Returns `false` and changes nothing if the packet is of the other
    /// family.
    #[inline]
    pub fn set_address(&self, bytes: &mut [u8], side: Side, address: IpAddr) -> bool {
        match (self.net, address) {
            (Net::Ipv4, IpAddr::V4(new)) => {
                let at = self.l3 + if side == Side::Src { 12 } else { 16 };
                if let Some(old) = replace(bytes, at, new.octets(), self.l3 + 10) {
                    self.address_changed(bytes, side, &old, &new.octets());
                }
            }
            (Net::Ipv6, IpAddr::V6(new)) => {
                let at = self.l3 + if side == Side::Src { 8 } else { 24 };
                if let Some(field) = chunk_mut(bytes, at) {
                    let old = std::mem::replace(field, new.octets());
                    self.address_changed(bytes, side, &old, &new.octets());
                }
            }
            _ => return false,
        }
        true
    }

    #[inline]
    fn address_changed<const N: usize>(
        &self,
        bytes: &mut [u8],
        side: Side,
        old: &[u8; N],
        new: &[u8; N],
    ) {
        if self.covers[side as usize] {
            self.pseudo_header_changed(bytes, old, new);
        }
    }

    /// Sets a port of TCP, UDP or SCTP; a packet of another protocol has none.
    ///
    /// # Errors
    /// When the SCTP checksum cannot follow; then nothing is changed.
    #[inline]
    pub fn set_port(&self, bytes: &mut [u8], side: Side, port: u16) -> Result<(), Incomplete> {
        let at = self.l4 + if side == Side::Src { 0 } else { 2 };
        if self.l4 == 0 || at + 2 > self.end {
            return Ok(());
        }
        match self.proto {
            proto::SCTP => return self.change_sctp(bytes, at, &port.to_be_bytes()),
            proto::TCP | proto::UDP => match self.checksum_at(bytes, true) {
                Some(check) => {
                    replace(bytes, at, port.to_be_bytes(), check);
                    self.avoid_zero(bytes, check);
                }
                None => put(bytes, at, &port.to_be_bytes()),
            },
            _ => {}
        }
        Ok(())
    }

    /// Writes `new` at `at`, which lies in the transport's header or data, and updates the transport
    /// checksum. Does nothing unless all of it lies in the packet. The checksum itself must not be among
    /// the bytes.
    ///
    /// # Errors
    /// When the SCTP checksum cannot follow; then nothing is changed.
    pub fn change(&self, bytes: &mut [u8], at: usize, new: &[u8]) -> Result<(), Incomplete> {
        let end = at + new.len();
        if self.l4 == 0 || at < self.l4 || end > self.end.min(bytes.len()) {
            return Ok(());
        }
        if self.proto == proto::SCTP {
            return self.change_sctp(bytes, at, new);
        }
        // The sum is of whole words, counted from the transport header.
        let (from, end) = (at - (at - self.l4) % 2, end + (end - self.l4) % 2);
        let words = from..end.min(bytes.len());
        let before = Sum::ZERO.bytes(&bytes[words.clone()]);
        put(bytes, at, new);
        let after = Sum::ZERO.bytes(&bytes[words]);
        self.sum_changed(bytes, before, after);
        Ok(())
    }

    /// Updates the transport checksum, if it is not that of SCTP, after bytes of the transport's header or
    /// data changed. `old` and `new` are the sums of the changed 16-bit words, or of more words.
    pub fn sum_changed(&self, bytes: &mut [u8], old: Sum, new: Sum) {
        if let Some(check) = self.checksum_at(bytes, true) {
            update(bytes, check, old, new);
            self.avoid_zero(bytes, check);
        }
    }

    /// Updates the transport checksum after a field of the pseudo header changed. `N` is even.
    #[inline]
    pub fn pseudo_header_changed<const N: usize>(
        &self,
        bytes: &mut [u8],
        old: &[u8; N],
        new: &[u8; N],
    ) {
        const { assert!(N.is_multiple_of(2)) };
        let Some(check) = self.checksum_at(bytes, false) else { return };
        let (old, new) = (Sum::ZERO.bytes(old), Sum::ZERO.bytes(new));
        if self.is_partial {
            if let Some(field) = chunk_mut(bytes, check) {
                *field = (!checksum::update(!u16::from_be_bytes(*field), old, new)).to_be_bytes();
            }
            return;
        }
        update(bytes, check, old, new);
        self.avoid_zero(bytes, check);
    }

    /// The offset of the transport checksum, if there is one that covers the pseudo header, or the bytes
    /// `inside` the transport.
    #[inline]
    fn checksum_at(&self, bytes: &[u8], inside: bool) -> Option<usize> {
        let l4 = Some(self.l4).filter(|l4| *l4 != 0 && !(inside && self.is_partial))?;
        let at = match (self.proto, self.net) {
            (proto::TCP, _) => l4 + 16,
            (proto::ICMP, Net::Ipv4) if inside => l4 + 2,
            (proto::ICMPV6, Net::Ipv6) => l4 + 2,
            (other, _) if UDP_LIKE.contains(&other) => l4 + 6,
            _ => return None,
        };
        // The sender left it out (RFC 768; in tunnels over IPv6: RFC 6935).
        let is_absent =
            self.proto == proto::UDP && !self.is_partial && chunk(bytes, at) == Some(&[0, 0]);
        (at + 2 <= self.end && !is_absent).then_some(at)
    }

    /// A UDP checksum of 0 would mean that there is none.
    #[inline]
    fn avoid_zero(&self, bytes: &mut [u8], check: usize) {
        if UDP_LIKE.contains(&self.proto) && chunk(bytes, check) == Some(&[0, 0]) {
            put(bytes, check, &[0xff, 0xff]);
        }
    }

    /// A change of the packet changes its CRC by the CRC of the change, wherever the packet begins.
    fn change_sctp(&self, bytes: &mut [u8], at: usize, new: &[u8]) -> Result<(), Incomplete> {
        if !self.is_whole || self.end < self.l4 + 12 || self.end > bytes.len() {
            return Err(Incomplete);
        }
        let Some(field) = bytes.get_mut(at..at + new.len()) else { return Ok(()) };
        if self.is_partial {
            field.copy_from_slice(new);
            return Ok(());
        }
        let change = field.iter().zip(new).map(|(old, new)| old ^ new);
        let change = crc32c_of_change(change, self.end.saturating_sub(at + new.len()));
        field.copy_from_slice(new);
        if let Some(&stored) = chunk(bytes, self.l4 + 8) {
            put(bytes, self.l4 + 8, &(u32::from_le_bytes(stored) ^ change).to_le_bytes());
        }
        Ok(())
    }
}

/// The offset of the TTL or hop limit in the IP header at `l3`.
#[inline]
fn ttl_at(net: Net, l3: usize) -> Option<usize> {
    match net {
        Net::Ipv4 => Some(l3 + 8),
        Net::Ipv6 => Some(l3 + 7),
        Net::Arp | Net::Other => None,
    }
}

/// The IPv4 time to live or the IPv6 hop limit of the IP header at `l3`.
#[must_use]
#[inline]
pub fn ttl(bytes: &[u8], net: Net, l3: usize) -> Option<u8> {
    bytes.get(ttl_at(net, l3)?).copied()
}

/// Sets the IPv4 time to live or the IPv6 hop limit of the IP header at `l3`.
#[inline]
pub fn set_ttl(bytes: &mut [u8], net: Net, l3: usize, ttl: u8) {
    let Some(at) = ttl_at(net, l3) else { return };
    if net == Net::Ipv4 {
        if let Some(&protocol) = bytes.get(at + 1) {
            replace(bytes, at, [ttl, protocol], l3 + 10);
        }
    } else {
        put(bytes, at, &[ttl]);
    }
}

/// Sets the destination MAC address of the Ethernet header at `eth`.
pub fn set_eth_dst(bytes: &mut [u8], eth: usize, mac: [u8; 6]) {
    put(bytes, eth, &mac);
}

/// Sets the source MAC address of the Ethernet header at `eth`.
pub fn set_eth_src(bytes: &mut [u8], eth: usize, mac: [u8; 6]) {
    put(bytes, eth + 6, &mac);
}

/// Writes `new` at `at` and updates the Internet checksum at `check`, which covers it. `N` is even, and so
/// is the distance of `at` from the beginning of what the checksum covers. Returns the old bytes, or `None` if
/// not all of them are here; then nothing is changed.
#[inline]
pub fn replace<const N: usize>(
    bytes: &mut [u8],
    at: usize,
    new: [u8; N],
    check: usize,
) -> Option<[u8; N]> {
    const { assert!(N.is_multiple_of(2)) };
    let old = std::mem::replace(chunk_mut(bytes, at)?, new);
    update(bytes, check, Sum::ZERO.bytes(&old), Sum::ZERO.bytes(&new));
    Some(old)
}

/// Updates the Internet checksum at `check` after a change of words that it covers.
#[inline]
fn update(bytes: &mut [u8], check: usize, old: Sum, new: Sum) {
    if let Some(field) = chunk_mut(bytes, check) {
        *field = checksum::update(u16::from_be_bytes(*field), old, new).to_be_bytes();
    }
}

#[inline]
fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(field) = bytes.get_mut(at..at + new.len()) {
        field.copy_from_slice(new);
    }
}

#[inline]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

#[inline]
fn chunk_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}

#[cfg(test)]
mod tests;
