//! Tunnels: the header between the outer IP (or UDP) and the inner frame.
//!
//! An IP protocol number identifies its tunnel, so a header that does not fit is a fault. A UDP port
//! does not: if the bytes are not a valid header of the tunnel, the datagram is plain UDP. UDP tunnels
//! are recognized by the destination port; the source port is entropy (RFC 7348 section 5).

use crate::{
    Fault, Next,
    ip::proto,
    walk::{Step, Walk, ether},
};

const ERSPAN_I_II: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;

/// The largest number of GTP-U extension headers that are parsed (3GPP TS 29.281 section 5.2).
const MAX_GTP_EXTENSIONS: usize = 8;

/// Whether a datagram to UDP port `dport` may be a tunnel's.
#[inline]
pub(crate) const fn is_tunnel_port(dport: u16) -> bool {
    matches!(dport, 2152 | 4789 | 4790 | 6081 | 8472)
}

impl Walk<'_, '_> {
    /// Parses the tunnel header of IP protocol `upper`, if that is a tunnel.
    #[inline(never)]
    pub(crate) fn ip_tunnel(&mut self, upper: u8) -> Step {
        match upper {
            proto::IPIP => self.h.next = Next::Ipv4,
            proto::IPV6 => self.h.next = Next::Ipv6,
            proto::MPLS => self.h.next = Next::EtherType(ether::MPLS), // RFC 4023
            proto::ETHERNET => self.h.next = Next::Ethernet,           // RFC 8986 section 4.9
            proto::GRE => return self.gre(),
            proto::ETHERIP => return self.etherip(),
            _ => {}
        }
        Ok(())
    }

    /// EtherIP (RFC 3378): version 3, then an Ethernet frame.
    fn etherip(&mut self) -> Step {
        let Some(header) = self.peek::<2>() else {
            return Err(self.short(Fault::TruncatedTunnel));
        };
        if header[0] >> 4 == 3 {
            self.at += 2;
            self.h.next = Next::Ethernet;
        }
        Ok(())
    }

    /// GRE version 0 (RFC 2784, 2890; routing of RFC 1701) and 1 (PPTP, RFC 2637).
    fn gre(&mut self) -> Step {
        let Some(header) = self.peek::<4>() else {
            return Err(self.short(Fault::TruncatedTunnel));
        };
        let flags = u16::from_be_bytes([header[0], header[1]]);
        let protocol = u16::from_be_bytes([header[2], header[3]]);
        let has = |bit: u16| usize::from(flags & bit != 0);
        let (checksum, routing, key, sequence) =
            (has(0x8000), has(0x4000), has(0x2000), has(0x1000));
        let (key_at, mut size) = match flags & 7 {
            0 => {
                let key_at = 4 + 4 * (checksum | routing);
                (key_at, key_at + 4 * (key + sequence))
            }
            1 => (4, 4 + 4 * (key + sequence + has(0x0080))),
            _ => return Err(Fault::BadGreVersion),
        };
        if self.left() < size {
            return Err(self.short(Fault::TruncatedTunnel));
        }
        if key == 1 {
            let word = std::array::from_fn(|i| self.bytes[self.at + key_at + i]);
            // Version 1 has the payload's length in the upper half, the call in the lower.
            let mask = if flags & 7 == 1 { 0xffff } else { u32::MAX };
            self.h.next_id = u32::from_be_bytes(word) & mask;
        }
        if routing == 1 && flags & 7 == 0 {
            size += self.source_routes(self.at + size)?;
        }
        self.at += size;
        self.h.next = match protocol {
            // Version 1 without a sequence number is an acknowledgement without payload.
            ether::PPP if flags & 7 == 1 && sequence == 0 => Next::None,
            ether::PPP => Next::Ppp,
            ether::TRANSPARENT_ETHERNET => Next::Ethernet,
            ether::IPV4 => Next::Ipv4,
            ether::IPV6 => Next::Ipv6,
            ERSPAN_I_II if sequence == 0 => Next::Ethernet, // type I has no header
            ERSPAN_I_II | ERSPAN_III => return self.erspan(),
            eth_type if eth_type > ether::MAX_LENGTH => Next::EtherType(eth_type),
            _ => Next::None,
        };
        Ok(())
    }

    /// The size of the source route entries of RFC 1701 that start at `first`.
    fn source_routes(&self, first: usize) -> Result<usize, Fault> {
        let mut at = first;
        while let Some(entry) = self.bytes.get(at..at + 4) {
            at += 4 + usize::from(entry[3]);
            // Address family 0 and length 0 end the list.
            if at <= self.bytes.len() && entry[..2] == [0, 0] && entry[3] == 0 {
                return Ok(at - first);
            }
        }
        Err(self.short(Fault::TruncatedTunnel))
    }

    /// ERSPAN II (version 1) and III (version 2): draft-foschiano-erspan-03.
    fn erspan(&mut self) -> Step {
        let Some(header) = self.peek::<8>() else {
            return Err(self.short(Fault::TruncatedTunnel));
        };
        let session = u32::from(u16::from_be_bytes([header[2], header[3]]) & 0x3ff);
        let (size, next) = match header[0] >> 4 {
            1 => (8, Next::Ethernet),
            2 => {
                let Some(header) = self.peek::<12>() else {
                    return Err(self.short(Fault::TruncatedTunnel));
                };
                let platform = if header[11] & 1 == 1 { 8 } else { 0 };
                let next = match header[10] >> 2 & 0x1f {
                    0 => Next::Ethernet,
                    2 => Next::Ip,
                    _ => Next::None,
                };
                (12 + platform, next)
            }
            _ => return Ok(()),
        };
        if self.left() < size {
            return Err(self.short(Fault::TruncatedTunnel));
        }
        self.at += size;
        self.h.next = next;
        self.h.next_id = session;
        Ok(())
    }

    /// Parses the tunnel header in a UDP datagram to port `dport`, if there is one.
    #[inline]
    pub(crate) fn udp_tunnel(&mut self, dport: u16) -> Step {
        match dport {
            2152 => self.gtp(),
            4789 | 8472 => self.vxlan(),
            4790 => self.vxlan_gpe(),
            6081 => self.geneve(),
            _ => Ok(()),
        }
    }

    /// The first `N` bytes of a tunnel header in UDP: `None` if the datagram is too short for one, a fault
    /// if only the capture is.
    fn udp_header<const N: usize>(&self) -> Result<Option<&[u8; N]>, Fault> {
        match self.peek() {
            None if !self.bounded => Err(Fault::TruncatedTunnel),
            header => Ok(header),
        }
    }

    /// Moves the cursor over a tunnel header of `size` bytes.
    fn enter(&mut self, size: usize, next: Next, id: u32) -> Step {
        if self.left() < size {
            return if self.bounded { Ok(()) } else { Err(Fault::TruncatedTunnel) };
        }
        self.at += size;
        self.h.next = next;
        self.h.next_id = id;
        Ok(())
    }

    /// VXLAN (RFC 7348); the group policy bits are ignored.
    #[inline(never)]
    fn vxlan(&mut self) -> Step {
        match self.udp_header::<8>()? {
            Some(header) if header[0] & 0x08 != 0 => {
                let vni = vni(header);
                self.enter(8, Next::Ethernet, vni)
            }
            _ => Ok(()),
        }
    }

    /// VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe section 3): with the P bit there is a next protocol field.
    #[inline(never)]
    fn vxlan_gpe(&mut self) -> Step {
        let Some(header) = self.udp_header::<8>()? else { return Ok(()) };
        if header[0] & 0x08 == 0 {
            return Ok(());
        }
        let next = match (header[0] & 0x04 != 0, header[3]) {
            (false, _) | (true, 3) => Next::Ethernet,
            (true, 1) => Next::Ipv4,
            (true, 2) => Next::Ipv6,
            (true, 5) => Next::EtherType(ether::MPLS),
            _ => Next::None,
        };
        let vni = vni(header);
        self.enter(8, next, vni)
    }

    /// Geneve (RFC 8926 section 3.4): version 0, then options.
    #[inline(never)]
    fn geneve(&mut self) -> Step {
        let Some(header) = self.udp_header::<8>()? else { return Ok(()) };
        if header[0] >> 6 != 0 {
            return Ok(());
        }
        let next = match u16::from_be_bytes([header[2], header[3]]) {
            ether::TRANSPARENT_ETHERNET => Next::Ethernet,
            ether::IPV4 => Next::Ipv4,
            ether::IPV6 => Next::Ipv6,
            eth_type if eth_type > ether::MAX_LENGTH => Next::EtherType(eth_type),
            _ => Next::None,
        };
        let (size, vni) = (8 + 4 * usize::from(header[0] & 0x3f), vni(header));
        self.enter(size, next, vni)
    }

    /// GTP-U version 1 (3GPP TS 29.281 section 5.1); only a T-PDU carries a packet.
    #[inline(never)]
    fn gtp(&mut self) -> Step {
        let Some(header) = self.udp_header::<8>()? else { return Ok(()) };
        let (flags, teid) = (header[0], [header[4], header[5], header[6], header[7]]);
        if flags & 0xf0 != 0x30 || header[1] != 255 {
            return Ok(());
        }
        let mut size = 8;
        if flags & 0x07 != 0 {
            let Some(optional) = self.udp_header::<12>()? else { return Ok(()) };
            size = 12;
            // Without the E bit the next type has no meaning.
            let mut kind = if flags & 0x04 != 0 { optional[11] } else { 0 };
            for _ in 0..MAX_GTP_EXTENSIONS {
                if kind == 0 {
                    break;
                }
                let words = match self.bytes.get(self.at + size) {
                    Some(&words) if words != 0 => usize::from(words),
                    None if !self.bounded => return Err(Fault::TruncatedTunnel),
                    _ => return Ok(()),
                };
                size += 4 * words;
                match self.bytes.get(self.at + size - 1) {
                    Some(&next) => kind = next,
                    None if !self.bounded => return Err(Fault::TruncatedTunnel),
                    None => return Ok(()),
                }
            }
            if kind != 0 {
                return Ok(());
            }
        }
        let next = match self.bytes.get(self.at + size).map(|first| first >> 4) {
            Some(4 | 6) => Next::Ip,
            _ => Next::None,
        };
        self.enter(size, next, u32::from_be_bytes(teid))
    }
}

/// The 24-bit network identifier, at the same offset in VXLAN and Geneve.
const fn vni(header: &[u8; 8]) -> u32 {
    u32::from_be_bytes([0, header[4], header[5], header[6]])
}
