//! Operations that change header fields in place, with [`flowyard_wire::edit`].

use flowyard_wire::edit::{self, Packet, Side, tags};
use flowyard_wire::{Headers, Offload};

use super::Op;
use crate::counters::DropReason;

/// Where the headers of a frame are.
pub(super) struct Fields {
    /// Offset of the Ethernet header. Links without Ethernet have no MAC addresses and no tags.
    eth: Option<usize>,
    packet: Packet,
}

impl Fields {
    /// The fields of `bytes`, whose headers are `headers`, and of which `offload` is left to do.
    pub(super) fn of(headers: &Headers, bytes: &[u8], offload: Offload) -> Self {
        let packet = Packet::of(headers, bytes).with_offload(offload, 0);
        Self { eth: headers.eth.map(|eth| eth as usize), packet }
    }

    /// Applies `op` to the bytes.
    pub(super) fn set(&self, op: Op, bytes: &mut [u8]) -> Result<(), DropReason> {
        let packet = &self.packet;
        let port = |bytes: &mut [u8], side, port| {
            packet.set_port(bytes, side, port).map_err(|_| DropReason::Incomplete)
        };
        match (op, self.eth) {
            (Op::SetEthDst(mac), Some(eth)) => edit::set_eth_dst(bytes, eth, mac),
            (Op::SetEthSrc(mac), Some(eth)) => edit::set_eth_src(bytes, eth, mac),
            (Op::SetVlan(vid), Some(_)) => _ = tags::set_outermost(bytes, 0x0fff, vid),
            (Op::SetPcp(pcp), Some(_)) => {
                tags::set_outermost(bytes, 0xe000, u16::from(pcp) << 13);
            }
            (Op::DecTtl, _) => match edit::ttl(bytes, packet.net, packet.l3) {
                None => {}
                Some(0 | 1) => return Err(DropReason::TtlExpired),
                Some(ttl) => packet.set_ttl(bytes, ttl - 1),
            },
            (Op::SetSrc(ip), _) => _ = packet.set_address(bytes, Side::Src, ip),
            (Op::SetDst(ip), _) => _ = packet.set_address(bytes, Side::Dst, ip),
            (Op::SetSport(new), _) => return port(bytes, Side::Src, new),
            (Op::SetDport(new), _) => return port(bytes, Side::Dst, new),
            (Op::SetDscp(dscp), _) => packet.set_tos(bytes, 0xfc, dscp << 2),
            // The other operations do not change a field in place.
            _ => {}
        }
        Ok(())
    }
}
