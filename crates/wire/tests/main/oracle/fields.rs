//! The parser's results in the columns of tshark's output.

use flowyard_wire::{Headers, Net, Verdict};

/// The columns that are compared, numbered as in tshark's files less the first four.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    VlanId,
    MplsLabel,
    IpSrc,
    IpDst,
    IpProto,
    IpMoreFragments,
    IpFragmentOffset,
    Ipv6Src,
    Ipv6Dst,
    Ipv6Next,
    Ipv6FragmentOffset,
    TcpSrc,
    TcpDst,
    UdpSrc,
    UdpDst,
    SctpSrc,
    SctpDst,
    IcmpType,
    Icmpv6Type,
    IpChecksum,
    TcpChecksum,
    UdpChecksum,
    SctpChecksum,
}

use Column::*;

impl Column {
    /// The columns that are compared field by field.
    pub(crate) const ALL: [Self; 19] = [
        VlanId,
        MplsLabel,
        IpSrc,
        IpDst,
        IpProto,
        IpMoreFragments,
        IpFragmentOffset,
        Ipv6Src,
        Ipv6Dst,
        Ipv6Next,
        Ipv6FragmentOffset,
        TcpSrc,
        TcpDst,
        UdpSrc,
        UdpDst,
        SctpSrc,
        SctpDst,
        IcmpType,
        Icmpv6Type,
    ];
}

/// The results of checksum verification, as tshark's numbers.
#[derive(Default)]
pub(crate) struct Verdicts {
    pub(crate) ip: Vec<String>,
    pub(crate) tcp: Vec<String>,
    pub(crate) udp: Vec<String>,
    pub(crate) sctp: Vec<String>,
}

/// Every field of every level, by column.
pub(crate) fn fields(levels: &[Headers], bytes: &[u8]) -> ([Vec<String>; 19], Verdicts) {
    let mut fields: [Vec<String>; 19] = Default::default();
    let mut verdicts = Verdicts::default();
    for h in levels {
        let l3 = h.l3 as usize;
        let mut put = |column: Column, text: String| fields[column as usize].push(text);
        h.tags.ids().for_each(|id| put(VlanId, id.to_string()));
        h.labels.ids().for_each(|id| put(MplsLabel, id.to_string()));
        let address = |ip: Option<std::net::IpAddr>| ip.expect("IP has addresses").to_string();
        let eighths = (h.fragment.offset / 8).to_string();
        match h.net {
            Net::Ipv4 => {
                put(IpSrc, address(h.src_ip(bytes)));
                put(IpDst, address(h.dst_ip(bytes)));
                put(IpProto, bytes[l3 + 9].to_string());
                put(IpMoreFragments, u8::from(h.fragment.more).to_string());
                put(IpFragmentOffset, eighths);
                verdicts.ip.push(verdict(h.ipv4_checksum(bytes)));
            }
            Net::Ipv6 => {
                put(Ipv6Src, address(h.src_ip(bytes)));
                put(Ipv6Dst, address(h.dst_ip(bytes)));
                put(Ipv6Next, bytes[l3 + 6].to_string());
                if h.fragment.header {
                    put(Ipv6FragmentOffset, eighths);
                }
            }
            Net::Arp | Net::Other => {}
        }
        if let Some((src, dst)) = h.ports {
            let (src_column, dst_column, sums) = match h.proto {
                6 => (TcpSrc, TcpDst, &mut verdicts.tcp),
                17 => (UdpSrc, UdpDst, &mut verdicts.udp),
                _ => (SctpSrc, SctpDst, &mut verdicts.sctp),
            };
            put(src_column, src.to_string());
            put(dst_column, dst.to_string());
            sums.push(verdict(h.transport_verdict(bytes)));
        }
        if let Some(icmp) = h.icmp(bytes) {
            put(if h.net == Net::Ipv4 { IcmpType } else { Icmpv6Type }, icmp.kind.to_string());
        }
    }
    (fields, verdicts)
}

/// tshark has no number for a partial checksum, and calls it bad.
pub(crate) const PARTIAL: u8 = 5;

fn verdict(verdict: Verdict) -> String {
    let number = match verdict {
        Verdict::Bad => 0,
        Verdict::Good => 1,
        Verdict::NotChecked => 2,
        Verdict::Partial => PARTIAL,
    };
    number.to_string()
}
