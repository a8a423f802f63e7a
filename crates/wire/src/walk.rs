//! The general parser: one cursor over the bytes of one level, and one short function for each header.
//!
//! ```text
//!  frame ─> ethernet ─> ether_type ─┬─> tags ─┐ (back to ether_type)
//!           sll, null, ppp ─────────┤         │
//!                                   ├─> llc, mpls, pppoe
//!                                   └─> ipv4, ipv6 ─> extensions ─> transport ─> tunnel
//! ```
//!
//! Invariants: `at <= bytes.len()`; `bytes` ends where the innermost length field so far says, or where
//! the capture ends; `at` only moves over complete headers.

use crate::{Fault, Headers, Labels, LinkType, Net, Next, Tags};

/// The result of parsing a header: continue, or the reason to stop.
pub(crate) type Step = Result<(), Fault>;

/// EtherTypes (IEEE registry) that are parsed.
pub(crate) mod ether {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const ARP: u16 = 0x0806;
    pub(crate) const TRANSPARENT_ETHERNET: u16 = 0x6558;
    pub(crate) const RARP: u16 = 0x8035;
    pub(crate) const VLAN: u16 = 0x8100;
    pub(crate) const IPV6: u16 = 0x86dd;
    pub(crate) const PPP: u16 = 0x880b;
    pub(crate) const MPLS: u16 = 0x8847;
    pub(crate) const MPLS_UPSTREAM: u16 = 0x8848;
    pub(crate) const PPPOE_SESSION: u16 = 0x8864;
    pub(crate) const SERVICE_VLAN: u16 = 0x88a8;
    /// The largest value of the type field that is an 802.3 length.
    pub(crate) const MAX_LENGTH: u16 = 1500;
}

/// Whether `eth_type` announces a VLAN tag: 802.1Q, 802.1ad, and the old QinQ numbers.
#[must_use]
pub const fn is_tag(eth_type: u16) -> bool {
    matches!(eth_type, ether::VLAN | ether::SERVICE_VLAN | 0x9100 | 0x9200 | 0x9300)
}

/// The cursor of one level.
pub(crate) struct Walk<'a, 'h> {
    /// The level parsed so far; borrowed, so that it is written in place.
    pub(crate) h: &'h mut Headers,
    /// The frame, up to the innermost end known.
    pub(crate) bytes: &'a [u8],
    /// Offset of the next header.
    pub(crate) at: usize,
    /// Whether a length field cut `bytes`, not the capture.
    pub(crate) bounded: bool,
}

impl<'a, 'h> Walk<'a, 'h> {
    #[inline]
    pub(crate) fn new(h: &'h mut Headers, bytes: &'a [u8]) -> Self {
        Self { h, bytes, at: 0, bounded: false }
    }

    /// A walk over the payload of `outer`; `None` when `bytes` is not the frame of `outer`.
    pub(crate) fn inside(h: &'h mut Headers, outer: &Headers, bytes: &'a [u8]) -> Option<Self> {
        let (at, end) = (outer.payload as usize, outer.end as usize);
        let payload = bytes.get(..end).filter(|_| at <= end)?;
        h.tunnel_id = outer.next_id;
        Some(Self { h, bytes: payload, at, bounded: end < bytes.len() })
    }

    /// Completes the level.
    #[inline]
    pub(crate) fn finish(self, step: Step) {
        self.h.fault = step.err();
        self.h.payload = self.at as u32;
        self.h.end = self.bytes.len() as u32;
    }

    /// The next `N` bytes, if there are at least `N`.
    #[inline]
    pub(crate) fn peek<const N: usize>(&self) -> Option<&'a [u8; N]> {
        self.bytes.get(self.at..)?.first_chunk()
    }

    /// Number of bytes left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The fault for a header that does not fit, because of the capture or of an outer length field.
    #[cold]
    pub(crate) fn short(&self, truncated: Fault) -> Fault {
        if self.bounded { truncated.past_length() } else { truncated }
    }

    /// Ends the packet at `end`, as a length field says. The bytes after it are padding.
    #[inline]
    pub(crate) fn bound(&mut self, end: usize) {
        if let Some(packet) = self.bytes.get(..end) {
            self.bytes = packet;
            self.bounded = true;
        }
    }

    /// The first header of a captured frame.
    #[inline]
    pub(crate) fn frame(&mut self, link: LinkType) -> Step {
        if self.bytes.is_empty() {
            return Err(Fault::Empty);
        }
        match link {
            LinkType::Ethernet => self.ethernet(),
            other => self.other_link(other),
        }
    }

    #[inline]
    pub(crate) fn ethernet(&mut self) -> Step {
        let Some(eth) = self.peek::<14>() else {
            return Err(self.short(Fault::TruncatedLink));
        };
        self.h.eth = Some(self.at as u32);
        self.at += 14;
        self.ether_type(u16::from_be_bytes([eth[12], eth[13]]))
    }

    /// The header after an EtherType or, up to 1500, after an 802.3 length.
    #[inline]
    pub(crate) fn ether_type(&mut self, eth_type: u16) -> Step {
        match eth_type {
            ether::IPV4 => {
                self.h.eth_type = eth_type;
                self.ipv4()
            }
            ether::IPV6 => {
                self.h.eth_type = eth_type;
                self.ipv6()
            }
            tag if is_tag(tag) => self.tags(),
            length if length <= ether::MAX_LENGTH => self.llc(),
            _ => self.other_type(eth_type),
        }
    }

    #[inline(never)]
    fn other_type(&mut self, eth_type: u16) -> Step {
        self.h.eth_type = eth_type;
        self.h.l3 = self.at as u32;
        match eth_type {
            ether::ARP | ether::RARP => self.arp(),
            ether::MPLS | ether::MPLS_UPSTREAM => self.mpls(),
            ether::PPPOE_SESSION => self.pppoe(),
            _ => Ok(()),
        }
    }

    /// VLAN tags: each is a TCI and the next EtherType (802.1Q clause 9.4). The limit is that of the level: LLC may
    /// stand between tags, and without a limit the parser would call itself as often as the frame is long.
    #[inline(never)]
    fn tags(&mut self) -> Step {
        for count in self.h.tags.count.into()..Tags::LIMIT {
            let Some(tag) = self.peek::<4>() else {
                return Err(self.short(Fault::TruncatedTag));
            };
            if let Some(slot) = self.h.tags.tci.get_mut(count) {
                *slot = u16::from_be_bytes([tag[0], tag[1]]);
            }
            self.h.tags.count += 1;
            self.at += 4;
            let eth_type = u16::from_be_bytes([tag[2], tag[3]]);
            if !is_tag(eth_type) {
                return self.ether_type(eth_type);
            }
        }
        Err(Fault::TooManyTags)
    }

    /// IEEE 802.2: only SNAP with an EtherType (OUI 0, or 00-00-F8 of 802.1H) is parsed further.
    #[inline(never)]
    pub(crate) fn llc(&mut self) -> Step {
        self.h.l3 = self.at as u32;
        let Some(llc) = self.peek::<3>() else {
            return Err(self.short(Fault::TruncatedLlc));
        };
        if *llc != [0xaa, 0xaa, 0x03] {
            return Ok(());
        }
        let Some(snap) = self.peek::<8>() else {
            return Err(self.short(Fault::TruncatedLlc));
        };
        if snap[3..6] != [0, 0, 0] && snap[3..6] != [0, 0, 0xf8] {
            return Ok(());
        }
        self.at += 8;
        match u16::from_be_bytes([snap[6], snap[7]]) {
            // A protocol id below 1536 is not an EtherType; treating it as a length could loop.
            0..=ether::MAX_LENGTH => Ok(()),
            eth_type => self.ether_type(eth_type),
        }
    }

    /// The MPLS label stack (RFC 3032). The payload is guessed by its first nibble (RFC 4928 section 3).
    fn mpls(&mut self) -> Step {
        for count in 0.. {
            let Some(entry) = self.peek::<4>() else {
                return Err(self.short(Fault::TruncatedLabel));
            };
            let entry = u32::from_be_bytes(*entry);
            if count == Labels::LIMIT {
                return Err(Fault::TooManyLabels);
            }
            if let Some(slot) = self.h.labels.entry.get_mut(count) {
                *slot = entry;
            }
            self.h.labels.count += 1;
            self.at += 4;
            if entry & 0x100 != 0 {
                break;
            }
        }
        self.h.l3 = self.at as u32;
        match self.bytes.get(self.at).map(|first| first >> 4) {
            Some(4) => self.ipv4(),
            Some(6) => self.ipv6(),
            Some(nibble) => self.pseudowire(nibble),
            None => Ok(()),
        }
    }

    /// An Ethernet pseudowire (RFC 4448), with or without the control word. The frame does not say which,
    /// so the inner EtherType must be a known one.
    fn pseudowire(&mut self, nibble: u8) -> Step {
        let looks_like_ethernet = |at: usize| {
            let eth_type = self.bytes.get(at + 12..at + 14);
            eth_type.map(|t| u16::from_be_bytes([t[0], t[1]])).is_some_and(|eth_type| {
                use ether::{ARP, IPV4, IPV6, MPLS, MPLS_UPSTREAM, PPPOE_SESSION};
                is_tag(eth_type)
                    || matches!(eth_type, IPV4 | ARP | IPV6 | MPLS | MPLS_UPSTREAM | PPPOE_SESSION)
            })
        };
        if nibble == 0 && looks_like_ethernet(self.at + 4) {
            self.at += 4;
            self.h.next = Next::Ethernet;
        } else if looks_like_ethernet(self.at) {
            self.h.next = Next::Ethernet;
        }
        Ok(())
    }

    /// PPPoE session (RFC 2516 section 4), then PPP.
    fn pppoe(&mut self) -> Step {
        let Some(header) = self.peek::<6>() else {
            return Err(self.short(Fault::TruncatedPppoe));
        };
        if header[0] != 0x11 {
            return Err(Fault::BadPppoeVersion);
        }
        self.h.pppoe = Some(u16::from_be_bytes([header[2], header[3]]));
        self.at += 6;
        self.ppp()
    }

    /// A PPP frame: address and control may be absent, the protocol compressed (RFC 1661).
    pub(crate) fn ppp(&mut self) -> Step {
        let truncated =
            if self.h.pppoe.is_some() { Fault::TruncatedPppoe } else { Fault::TruncatedLink };
        if self.peek() == Some(&[0xff, 0x03]) {
            self.at += 2;
        }
        let protocol = match self.peek::<2>() {
            Some(&[first, second]) if first & 1 == 0 => {
                self.at += 2;
                u16::from_be_bytes([first, second])
            }
            _ => {
                let Some(&[compressed]) = self.peek::<1>() else {
                    return Err(self.short(truncated));
                };
                if compressed & 1 == 0 {
                    return Err(self.short(truncated));
                }
                self.at += 1;
                compressed.into()
            }
        };
        self.h.l3 = self.at as u32;
        match protocol {
            0x0021 => self.ipv4(),
            0x0057 => self.ipv6(),
            0x0281 | 0x0283 => self.mpls(),
            _ => Ok(()),
        }
    }

    /// ARP and RARP (RFC 826): the fixed part and four addresses, whose sizes are in the fixed part.
    fn arp(&mut self) -> Step {
        self.h.net = Net::Arp;
        let Some(arp) = self.peek::<8>() else {
            return Err(self.short(Fault::TruncatedArp));
        };
        let size = 8 + 2 * (usize::from(arp[4]) + usize::from(arp[5]));
        if self.left() < size {
            return Err(self.short(Fault::TruncatedArp));
        }
        self.at += size;
        Ok(())
    }
}
