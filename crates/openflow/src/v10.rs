//! The match of 1.0, which has 40 bytes (1.0.0, section 5.2.3).
//!
//! ```text
//!   wildcards 4 | in_port 2 | dl_src 6 | dl_dst 6 | vlan 2 | pcp 1 | - 1 | dl_type 2 |
//!   tos 1 | proto 1 | - 2 | nw_src 4 | nw_dst 4 | tp_src 2 | tp_dst 2
//! ```
//!
//! A field is ignored if the field that it depends on is not matched, as in the reference switch:
//! an IP protocol without the EtherType of IP or ARP, and ports without a protocol that has ports.
//! 1.0 does not describe IPv6. For the EtherType of IPv6, TOS, protocol and ports are those of
//! IPv6, and addresses are ignored. Open vSwitch does the same, and controllers expect it.

use crate::io::Io;
use crate::matching::Match;
use crate::oxm::{Field, Oxm, VID_PRESENT};
use crate::problem::{self, Problem};

const ARP: u128 = 0x0806;
const IPV6: u128 = 0x86dd;
const NO_VLAN: u16 = 0xffff;

/// The fields in the order of the wire.
#[derive(Default)]
struct Fixed {
    wild: u32,
    in_port: u32,
    dl: [[u8; 6]; 2],
    vlan: u16,
    pcp: u8,
    dl_type: u16,
    tos: u8,
    proto: u8,
    nw: [u32; 2],
    tp: [u16; 2],
}

/// The wildcards: all bits that have a meaning, the VLAN priority, TOS, and protocol.
const ALL: u32 = 0x3f_ffff;
const PCP: u32 = 1 << 20;
const TOS: u32 = 1 << 21;
const PROTO: u32 = 1 << 5;
/// The EtherType and the fields of Ethernet.
const ETHERNET: u32 = 0x1f | PCP;
const ADDRESSES: u32 = 0x3f << 8 | 0x3f << 14;
const PORTS: u32 = 3 << 6;

/// Reads or writes a match. Returns whether it has no wildcards: flow entries with such matches
/// have the highest priority (1.0.0, section 3.4).
pub(crate) fn matching<C: Io>(c: &mut C, wanted: &mut Match) -> Result<bool, Problem> {
    let mut fixed = if C::READS { Fixed::default() } else { Fixed::of(wanted)? };
    c.u32(&mut fixed.wild)?;
    c.port(&mut fixed.in_port)?;
    c.bytes(&mut fixed.dl[0])?;
    c.bytes(&mut fixed.dl[1])?;
    c.u16(&mut fixed.vlan)?;
    c.u8(&mut fixed.pcp)?;
    c.pad(1)?;
    c.u16(&mut fixed.dl_type)?;
    c.u8(&mut fixed.tos)?;
    c.u8(&mut fixed.proto)?;
    c.pad(2)?;
    c.u32(&mut fixed.nw[0])?;
    c.u32(&mut fixed.nw[1])?;
    c.u16(&mut fixed.tp[0])?;
    c.u16(&mut fixed.tp[1])?;
    if C::MAKES && fixed.is_icmp() {
        fixed.tp = fixed.tp.map(|value| value & 0xff);
    }
    if C::READS {
        *wanted = fixed.fields()?;
    }
    Ok(fixed.wild & ALL & !fixed.useless() == 0)
}

impl Match {
    /// Whether the match has every field that 1.0 can match in such frames.
    #[must_use]
    pub fn is_exact_in_v10(&self) -> bool {
        Fixed::of(self).is_ok_and(|fixed| {
            let ip = if fixed.dl_type == ARP as u16 { PROTO } else { PROTO | TOS };
            let needed = match fixed.dl_type {
                0x0800 | 0x0806 => ETHERNET | ip | ADDRESSES,
                0x86dd => ETHERNET | ip,
                _ => ETHERNET,
            };
            let ports = tp_fields(fixed.dl_type.into(), fixed.proto.into());
            let needed = needed | if ports.is_some() { PORTS } else { 0 };
            fixed.wild & needed == 0
        })
    }
}

fn mac(bytes: [u8; 6]) -> u128 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// The fields that hold addresses and ports, for an EtherType and a protocol.
const fn nw_fields(eth: u128) -> Option<[Field; 2]> {
    match eth {
        0x0800 => Some([Field::Ipv4Src, Field::Ipv4Dst]),
        ARP => Some([Field::ArpSpa, Field::ArpTpa]),
        _ => None,
    }
}

const fn tp_fields(eth: u128, proto: u128) -> Option<[Field; 2]> {
    match (eth, proto) {
        (0x0800 | IPV6, 6) => Some([Field::TcpSrc, Field::TcpDst]),
        (0x0800 | IPV6, 17) => Some([Field::UdpSrc, Field::UdpDst]),
        (IPV6, 58) => Some([Field::Icmpv6Type, Field::Icmpv6Code]),
        (0x0800, 1) => Some([Field::Icmpv4Type, Field::Icmpv4Code]),
        _ => None,
    }
}

impl Fixed {
    const fn has(&self, bit: u32) -> bool {
        self.wild & 1 << bit == 0
    }

    /// Wildcards without a meaning: an untagged frame has no priority.
    const fn useless(&self) -> u32 {
        if self.has(1) && self.vlan == NO_VLAN { PCP } else { 0 }
    }

    /// Whether the match is one of ICMP frames, whose type and code are in the fields of the ports.
    const fn is_icmp(&self) -> bool {
        let is_icmp = matches!((self.dl_type, self.proto), (0x0800, 1) | (0x86dd, 58));
        is_icmp && self.has(4) && self.has(5)
    }

    /// # Errors
    /// When an ICMP type or code has more than 8 bits: no frame has such a value.
    fn fields(&self) -> Result<Match, Problem> {
        let mut fields = Vec::new();
        let has = |bit: u32| self.has(bit);
        let mut put = |there: bool, field, value: u128| {
            if there {
                fields.push(Oxm::exact(field, value));
            }
        };
        put(has(0), Field::InPort, self.in_port.into());
        put(has(2), Field::EthSrc, mac(self.dl[0]));
        put(has(3), Field::EthDst, mac(self.dl[1]));
        let tag =
            if self.vlan == NO_VLAN { 0 } else { VID_PRESENT | u128::from(self.vlan & 0xfff) };
        put(has(1), Field::VlanVid, tag);
        let tagged = !has(1) || self.vlan != NO_VLAN;
        if !has(1) && has(20) {
            fields.push(Oxm::masked(Field::VlanVid, VID_PRESENT, VID_PRESENT));
        }
        let mut put = |there: bool, field, value: u128| {
            if there {
                fields.push(Oxm::exact(field, value));
            }
        };
        put(has(20) && tagged, Field::VlanPcp, self.pcp.into());
        put(has(4), Field::EthType, self.dl_type.into());
        let eth = if has(4) { self.dl_type.into() } else { 0 };
        let nw = nw_fields(eth);
        if nw.is_none() && eth != IPV6 {
            return Ok(Match(fields));
        }
        put(has(21) && eth != ARP, Field::IpDscp, (self.tos >> 2).into());
        let number = if eth == ARP { Field::ArpOp } else { Field::IpProto };
        put(has(5), number, self.proto.into());
        let addresses = [(8, self.nw[0]), (14, self.nw[1])];
        for (field, (shift, value)) in nw.into_iter().flatten().zip(addresses) {
            let open = (self.wild >> shift & 0x3f).min(32);
            let mask = u32::MAX.checked_shl(open).unwrap_or(0);
            if mask != 0 {
                fields.push(Oxm::masked(field, value.into(), mask.into()));
            }
        }
        let proto = if has(5) { self.proto.into() } else { 0xff };
        for (index, field) in tp_fields(eth, proto).into_iter().flatten().enumerate() {
            if has(6 + index as u32) {
                let value = self.tp[index].into();
                if value > field.full() {
                    let why = "an ICMP type or code above 255";
                    return Err(Problem { why, ..problem::MATCH_BAD_VALUE });
                }
                fields.push(Oxm::exact(field, value));
            }
        }
        Ok(Match(fields))
    }

    /// # Errors
    /// When 1.0 cannot express the match.
    fn of(wanted: &Match) -> Result<Self, Problem> {
        let no =
            Problem { why: "OpenFlow 1.0 cannot match on this field", ..problem::MATCH_BAD_FIELD };
        let mut fixed = Self { wild: 0x3f_ffff & !(0x3f << 8 | 0x3f << 14), ..Self::default() };
        fixed.wild |= 32 << 8 | 32 << 14;
        let eth = wanted.exact(Field::EthType).unwrap_or(0);
        let proto = wanted.exact(Field::IpProto).unwrap_or(0xff);
        let mut tagged = false;
        for oxm in &wanted.0 {
            let Oxm { field, value, mask } = *oxm;
            let bytes = value.to_be_bytes();
            let address = [bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]];
            let bit = match field {
                Field::InPort => {
                    fixed.in_port = value as u32;
                    0
                }
                Field::VlanVid if mask == VID_PRESENT && value == VID_PRESENT => {
                    tagged = true;
                    continue;
                }
                Field::VlanVid => {
                    fixed.vlan = if value == 0 { NO_VLAN } else { value as u16 & 0xfff };
                    1
                }
                Field::EthSrc => {
                    fixed.dl[0] = address;
                    2
                }
                Field::EthDst => {
                    fixed.dl[1] = address;
                    3
                }
                Field::EthType => {
                    fixed.dl_type = value as u16;
                    4
                }
                Field::IpProto => {
                    fixed.proto = value as u8;
                    5
                }
                Field::ArpOp => {
                    fixed.proto = u8::try_from(value).map_err(|_| no)?;
                    5
                }
                Field::VlanPcp => {
                    fixed.pcp = value as u8;
                    20
                }
                Field::IpDscp => {
                    fixed.tos = (value << 2) as u8;
                    21
                }
                _ => {
                    fixed.other(oxm, eth, proto).ok_or(no)?;
                    continue;
                }
            };
            if !oxm.is_exact() {
                return Err(no);
            }
            fixed.wild &= !(1 << bit);
        }
        fixed.wild &= !fixed.useless();
        // 1.0 can match "any tag" only together with a priority.
        if tagged && fixed.wild & 1 << 20 != 0 { Err(no) } else { Ok(fixed) }
    }

    /// Reads or writes addresses and ports.
    fn other(&mut self, oxm: &Oxm, eth: u128, proto: u128) -> Option<()> {
        let nw = nw_fields(eth).unwrap_or([Field::InPort; 2]); // never in the match here
        if let Some(index) = nw.iter().position(|field| *field == oxm.field) {
            let shift = 8 + 6 * index as u32;
            let open = (oxm.mask as u32).trailing_zeros();
            let prefix = u32::MAX.checked_shl(open).unwrap_or(0);
            self.nw[index] = oxm.value as u32;
            self.wild = self.wild & !(0x3f << shift) | open << shift;
            return (prefix == oxm.mask as u32).then_some(());
        }
        let index = tp_fields(eth, proto)?.iter().position(|field| *field == oxm.field)?;
        self.tp[index] = oxm.value as u16;
        self.wild &= !(1 << (6 + index));
        Some(())
    }
}
