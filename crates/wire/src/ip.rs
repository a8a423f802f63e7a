//! IPv4, IPv6 and the extension headers between them and the transport.
//!
//! Parsing ends at a later fragment: only data follows, at `l4`, and the protocol is the one in the
//! fragment's header. An IPv6 atomic fragment (RFC 6946) is a whole packet.

use crate::{
    Fault, Fragment, Headers, Net,
    walk::{Step, Walk},
};

/// IP protocol numbers (IANA) that are parsed.
pub(crate) mod proto {
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const IPIP: u8 = 4;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const IPV6: u8 = 41;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(crate) const GRE: u8 = 47;
    pub(crate) const AH: u8 = 51;
    pub(crate) const ICMPV6: u8 = 58;
    pub(crate) const DESTINATION: u8 = 60;
    pub(crate) const ETHERIP: u8 = 97;
    pub(crate) const SCTP: u8 = 132;
    pub(crate) const MOBILITY: u8 = 135;
    pub(crate) const MPLS: u8 = 137;
    pub(crate) const HIP: u8 = 139;
    pub(crate) const SHIM6: u8 = 140;
    pub(crate) const ETHERNET: u8 = 143;
}

/// The type of the home address option: RFC 6275 section 6.3.
const HOME_ADDRESS: u8 = 0xc9;
/// The type of the jumbo payload option: RFC 2675 section 2.
const JUMBO_PAYLOAD: u8 = 0xc2;

impl Walk<'_, '_> {
    /// An IP packet, version by its first nibble.
    pub(crate) fn ip(&mut self) -> Step {
        self.h.l3 = self.at as u32;
        match self.peek::<1>() {
            None => Err(self.short(Fault::TruncatedIp)),
            Some([first]) => match first >> 4 {
                4 => self.ipv4(),
                6 => self.ipv6(),
                _ => Err(Fault::BadIpVersion),
            },
        }
    }

    #[inline]
    pub(crate) fn ipv4(&mut self) -> Step {
        self.h.l3 = self.at as u32;
        let Some(ip) = self.peek::<20>() else {
            return Err(self.short(Fault::TruncatedIp));
        };
        if ip[0] >> 4 != 4 {
            return Err(Fault::BadIpVersion);
        }
        let header = usize::from(ip[0] & 0xf) * 4;
        if header < 20 {
            return Err(Fault::BadIpv4HeaderLength);
        }
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        // Zero: the packet was captured before segmentation offload wrote the field.
        if total != 0 {
            if total < header {
                return Err(Fault::BadIpv4TotalLength);
            }
            self.bound(self.at + total);
        }
        self.h.net = Net::Ipv4;
        self.h.proto = ip[9];
        let word = u16::from_be_bytes([ip[6], ip[7]]);
        self.h.fragment = Fragment { offset: word << 3, more: word & 0x2000 != 0, header: false };
        if self.left() < header {
            return Err(self.short(Fault::TruncatedIp));
        }
        self.at += header;
        if self.h.fragment.is_later() {
            self.h.l4 = self.at as u32;
            return Ok(());
        }
        match ip[9] {
            proto::AH => self.extensions(proto::AH),
            upper => self.transport(upper),
        }
    }

    #[inline]
    pub(crate) fn ipv6(&mut self) -> Step {
        self.h.l3 = self.at as u32;
        let Some(ip) = self.peek::<40>() else {
            return Err(self.short(Fault::TruncatedIp));
        };
        if ip[0] >> 4 != 6 {
            return Err(Fault::BadIpVersion);
        }
        self.h.net = Net::Ipv6;
        self.at += 40;
        let payload = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        // Zero: a jumbogram, whose option has the length; or captured before segmentation offload.
        if payload != 0 {
            self.bound(self.at + payload);
        }
        match ip[6] {
            upper @ (proto::TCP | proto::UDP | proto::ICMPV6) => {
                self.h.proto = upper;
                self.transport(upper)
            }
            next => self.extensions(next),
        }
    }

    /// Extension headers (RFC 8200 section 4) and AH, up to the transport.
    #[inline(never)]
    fn extensions(&mut self, mut next: u8) -> Step {
        for _ in 0..=Headers::MAX_EXTENSIONS {
            self.h.proto = next;
            if !is_extension(next) {
                return self.transport(next);
            }
            let Some(header) = self.peek::<8>() else {
                return Err(self.short(Fault::TruncatedExtension));
            };
            let size = extension_size(next, header[1]);
            if self.left() < size {
                return Err(self.short(Fault::TruncatedExtension));
            }
            match next {
                proto::AH if size < 12 => return Err(Fault::BadAuthLength),
                proto::HOP_BY_HOP => self.jumbo_payload(size)?,
                proto::DESTINATION => {
                    if let Some(address) = self.option(size, HOME_ADDRESS, 16) {
                        self.h.home_address = address as u32;
                    }
                }
                proto::ROUTING if header[2] == 2 && size >= 24 => {
                    self.h.routing2 = self.at as u32 + 8;
                }
                proto::FRAGMENT => {
                    let word = u16::from_be_bytes([header[2], header[3]]);
                    self.h.fragment =
                        Fragment { offset: word & !7, more: word & 1 != 0, header: true };
                }
                _ => {}
            }
            self.at += size;
            next = header[0];
            if self.h.fragment.is_later() {
                self.h.proto = next;
                self.h.l4 = self.at as u32;
                return Ok(());
            }
        }
        Err(Fault::TooManyExtensions)
    }

    /// The jumbo payload option (RFC 2675): the length of a packet whose length field is zero.
    fn jumbo_payload(&mut self, size: usize) -> Step {
        let Some(at) = self.option(size, JUMBO_PAYLOAD, 4) else { return Ok(()) };
        let l3 = self.h.l3 as usize;
        let word: [u8; 4] = std::array::from_fn(|i| self.bytes[at + i]);
        let length = u32::from_be_bytes(word);
        if self.bytes[l3 + 4..l3 + 6] != [0, 0] || length <= 0xffff {
            return Err(Fault::BadJumboPayload);
        }
        self.bound((l3 + 40).saturating_add(length as usize));
        Ok(())
    }

    /// The offset of the data of the first option `kind` with `len` bytes, in the options header of
    /// `size` bytes at the cursor (RFC 8200 section 4.2).
    fn option(&self, size: usize, kind: u8, len: u8) -> Option<usize> {
        let (mut at, end) = (self.at + 2, self.at + size);
        while at + 2 <= end {
            match self.bytes[at] {
                0 => at += 1, // Pad1 has no length
                found => {
                    let data = self.bytes[at + 1];
                    let next = at + 2 + usize::from(data);
                    if found == kind && data == len && next <= end {
                        return Some(at + 2);
                    }
                    at = next;
                }
            }
        }
        None
    }
}

/// Whether `next` is an extension header. ESP encrypts the next header, and 59 means that none follows.
pub(crate) const fn is_extension(next: u8) -> bool {
    matches!(
        next,
        proto::HOP_BY_HOP
            | proto::ROUTING
            | proto::FRAGMENT
            | proto::AH
            | proto::DESTINATION
            | proto::MOBILITY
            | proto::HIP
            | proto::SHIM6
    )
}

/// The size of an extension header by its length field, which counts words of 4 bytes less two in AH
/// (RFC 4302 section 2.2), and words of 8 bytes less one in all others.
pub(crate) const fn extension_size(next: u8, length: u8) -> usize {
    match next {
        proto::AH => (length as usize + 2) * 4,
        proto::FRAGMENT => 8,
        _ => (length as usize + 1) * 8,
    }
}
