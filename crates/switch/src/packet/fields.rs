//! Header fields of a packet: set-field, times to live, and what OpenFlow 1.0 has actions of its own for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowyard_openflow::{Field, Oxm};
use flowyard_wire::edit::{self, Incomplete, Side};
use flowyard_wire::{Headers, LinkType};

use super::{Done, Fault, Packet};
use crate::parse::{Layout, Net, u32_at};

impl From<Incomplete> for Fault {
    fn from(_: Incomplete) -> Self {
        Self::Incomplete
    }
}

impl From<Net> for flowyard_wire::Net {
    fn from(net: Net) -> Self {
        match net {
            Net::Ipv4 => Self::Ipv4,
            Net::Ipv6 => Self::Ipv6,
            Net::Arp => Self::Arp,
            Net::Other | Net::Mpls | Net::Pbb => Self::Other,
        }
    }
}

impl From<Layout> for edit::Packet {
    fn from(layout: Layout) -> Self {
        let Layout { net, l3, l4, end, proto, whole: is_whole, .. } = layout;
        Self { net: net.into(), l3, l4, end, proto, is_whole, covers: [true; 2], is_partial: false }
    }
}

/// Where a field is whose bytes no checksum covers: offset and length.
const fn plain(field: Field, layout: &Layout) -> Option<(usize, usize)> {
    Some(match field {
        Field::EthDst => (0, 6),
        Field::EthSrc => (6, 6),
        Field::EthType => (layout.type_at, 2),
        Field::ArpOp => (layout.l3 + 6, 2),
        Field::ArpSha => (layout.l3 + 8, 6),
        Field::ArpSpa => (layout.l3 + 14, 4),
        Field::ArpTha => (layout.l3 + 18, 6),
        Field::ArpTpa => (layout.l3 + 24, 4),
        _ => return None,
    })
}

/// Where a field is that consists of some bits of the 32-bit word at `l3`: the lowest bit and the mask.
const fn bits(field: Field) -> Option<(u32, u32)> {
    Some(match field {
        Field::Ipv6Flabel => (0, 0xf_ffff),
        Field::MplsLabel => (12, 0xffff_f000),
        Field::MplsTc => (9, 0xe00),
        Field::MplsBos => (8, 0x100),
        Field::PbbIsid => (0, 0xff_ffff),
        Field::PbbUca => (27, 1 << 27),
        _ => return None,
    })
}

/// Where a field of the transport header is, or of what it carries: offset and length.
const fn transport(field: Field, layout: &Layout) -> Option<(usize, usize)> {
    Some(match field {
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => (layout.l4, 2),
        Field::TcpDst | Field::UdpDst | Field::SctpDst => (layout.l4 + 2, 2),
        Field::Icmpv4Type | Field::Icmpv6Type => (layout.l4, 1),
        Field::Icmpv4Code | Field::Icmpv6Code => (layout.l4 + 1, 1),
        Field::Ipv6NdTarget => (layout.target, 16),
        Field::Ipv6NdSll | Field::Ipv6NdTll => (layout.link, 6),
        _ => return None,
    })
}

impl Packet<'_> {
    /// Set-field. A field that the frame does not have is not set.
    pub(crate) fn set(&mut self, oxm: &Oxm) -> Done {
        let (field, value) = (oxm.field, oxm.value);
        if field == Field::TunnelId {
            self.key.set(field, value);
            return Ok(());
        }
        if !self.key.has(field) {
            return Ok(());
        }
        match field {
            Field::VlanVid => return self.set_tag(value as u16, 0xfff),
            Field::VlanPcp => return self.set_tag((value as u16) << 13, 0xe000),
            _ => {}
        }
        if !self.write(field, value)? {
            return Ok(());
        }
        match field {
            // These decide which headers follow.
            Field::EthType | Field::IpProto | Field::Icmpv6Type => self.parse_again(),
            _ => self.key.set(field, value),
        }
        Ok(())
    }

    /// Writes a field to the bytes. Returns whether it is a field of the bytes that can be set.
    fn write(&mut self, field: Field, value: u128) -> Result<bool, Fault> {
        let layout = self.layout;
        let packet = self.editor();
        let bytes = value.to_be_bytes();
        if let Some((at, len)) = transport(field, &layout) {
            packet.change(self.own(), at, &bytes[16 - len..])?;
        } else if let Some((at, len)) = plain(field, &layout) {
            self.own()[at..at + len].copy_from_slice(&bytes[16 - len..]);
        } else if let Some((lowest, mask)) = bits(field) {
            let word = u32_at(self.bytes(), layout.l3).unwrap_or(0);
            let word = word & !mask | (value as u32) << lowest & mask;
            self.own()[layout.l3..layout.l3 + 4].copy_from_slice(&word.to_be_bytes());
        } else {
            let v4 = IpAddr::from(Ipv4Addr::from(value as u32));
            let v6 = IpAddr::from(Ipv6Addr::from(value));
            match field {
                Field::IpDscp => packet.set_tos(self.own(), 0xfc, (value as u8) << 2),
                Field::IpEcn => packet.set_tos(self.own(), 3, value as u8),
                Field::IpProto => self.set_protocol(value as u8),
                Field::Ipv4Src => self.set_address(Side::Src, v4),
                Field::Ipv4Dst => self.set_address(Side::Dst, v4),
                Field::Ipv6Src => self.set_address(Side::Src, v6),
                Field::Ipv6Dst => self.set_address(Side::Dst, v6),
                // Fields of the pipeline, and those that no action sets.
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Sets an address. The transport checksum follows, unless it covers another address, because the packet is on a source
    /// route or has a home address.
    fn set_address(&mut self, side: Side, address: IpAddr) {
        let Layout { net, l3, l4, next_at, .. } = self.layout;
        let is_plain = l4 == 0 || if net == Net::Ipv4 { l4 == l3 + 20 } else { next_at == l3 + 6 };
        let mut packet = self.editor();
        if !is_plain {
            let ip = self.bytes().get(l3..).unwrap_or_default();
            packet.covers = edit::Packet::of(&Headers::parse(LinkType::RawIp, ip), ip).covers;
        }
        let _same_family = packet.set_address(self.own(), side, address);
    }

    /// Sets the number of the protocol above IP, which is also in the pseudo header.
    fn set_protocol(&mut self, protocol: u8) {
        let Layout { net, l3, next_at, proto, .. } = self.layout;
        let packet = self.editor();
        let bytes = self.own();
        if net == Net::Ipv4 {
            let ttl = bytes[l3 + 8];
            edit::replace(bytes, l3 + 8, [ttl, protocol], l3 + 10);
        } else {
            bytes[next_at] = protocol;
        }
        packet.pseudo_header_changed(bytes, &[0, proto], &[0, protocol]);
    }

    /// OpenFlow 1.0: sets the source or destination port of TCP or UDP, or the type or code of ICMP.
    pub(crate) fn set_transport(&mut self, dst: bool, value: u16) -> Done {
        let pair = [
            (Field::TcpSrc, Field::TcpDst),
            (Field::UdpSrc, Field::UdpDst),
            (Field::Icmpv4Type, Field::Icmpv4Code),
        ];
        let mut fields = pair.iter().map(|&(s, d)| if dst { d } else { s });
        // A type or code of ICMP has 8 bits; a larger number is none, and nothing is set.
        match fields.find(|field| self.key.has(*field)) {
            Some(field) if u128::from(value) > field.full() => Ok(()),
            Some(field) => self.set(&Oxm::exact(field, value.into())),
            None => Ok(()),
        }
    }

    /// Meter band: raises the drop precedence of an assured forwarding class (RFC 2597).
    pub(crate) fn remark(&mut self, levels: u8) {
        if !self.key.has(Field::IpDscp) {
            return;
        }
        let dscp = self.key.bits(Field::IpDscp) as u8;
        let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
        if (1..=4).contains(&class) && precedence != 0 && dscp & 1 == 0 {
            let precedence = (precedence + levels.min(3)).min(3);
            let _done = self.set(&Oxm::exact(Field::IpDscp, (class << 3 | precedence << 1).into()));
        }
    }

    pub(crate) fn set_mpls_ttl(&mut self, ttl: u8) {
        if self.layout.net == Net::Mpls {
            let at = self.layout.l3 + 3;
            self.own()[at] = ttl;
        }
    }

    pub(crate) fn dec_mpls_ttl(&mut self) -> Done {
        if self.layout.net != Net::Mpls {
            return Ok(());
        }
        match self.bytes()[self.layout.l3 + 3] {
            0 | 1 => Err(Fault::Ttl),
            ttl => {
                self.set_mpls_ttl(ttl - 1);
                Ok(())
            }
        }
    }

    /// The kind of the IP header at `at`, if the bytes of the shortest one are there.
    fn ip_at(&self, at: usize) -> Option<flowyard_wire::Net> {
        let net = match self.bytes().get(at)? >> 4 {
            4 => flowyard_wire::Net::Ipv4,
            6 => flowyard_wire::Net::Ipv6,
            _ => return None,
        };
        (self.bytes().len() >= at + 20).then_some(net)
    }

    pub(crate) fn set_nw_ttl(&mut self, ttl: u8) {
        if let net @ (Net::Ipv4 | Net::Ipv6) = self.layout.net {
            let l3 = self.layout.l3;
            edit::set_ttl(self.own(), net.into(), l3, ttl);
        }
    }

    pub(crate) fn dec_nw_ttl(&mut self) -> Done {
        match edit::ttl(self.bytes(), self.layout.net.into(), self.layout.l3) {
            None => Ok(()),
            Some(0 | 1) => Err(Fault::Ttl),
            Some(ttl) => {
                self.set_nw_ttl(ttl - 1);
                Ok(())
            }
        }
    }

    /// From the header behind the outermost label to the label.
    pub(crate) fn copy_ttl_out(&mut self) {
        let Layout { net: Net::Mpls, l3, .. } = self.layout else { return };
        let inner = if self.key.bits(Field::MplsBos) == 0 {
            self.bytes().get(l3 + 7).copied()
        } else {
            self.ip_at(l3 + 4).and_then(|net| edit::ttl(self.bytes(), net, l3 + 4))
        };
        if let Some(ttl) = inner {
            self.set_mpls_ttl(ttl);
        }
    }

    /// From the outermost label to the header behind it.
    pub(crate) fn copy_ttl_in(&mut self) {
        let Layout { net: Net::Mpls, l3, .. } = self.layout else { return };
        let ttl = self.bytes()[l3 + 3];
        if self.key.bits(Field::MplsBos) == 0 {
            if self.bytes().len() >= l3 + 8 {
                self.own()[l3 + 7] = ttl;
            }
        } else if let Some(net) = self.ip_at(l3 + 4) {
            edit::set_ttl(self.own(), net, l3 + 4, ttl);
        }
    }
}
