//! What a management controller (BMC) gets of the frames from the network: NC-SI pass-through filters.
//!
//! ```text
//!  frame ─> MAC, VLAN filters (AND) ─> broadcast, ARP, RMCP, port, neighbor filters (OR) ─> BMC
//!                                                                   exclusive? ──no──> host, too
//! ```
//!
//! Source: Intel's X550 datasheet 333369-009, section 11.3 (the 82599 datasheet has the same filters): 4 MAC addresses, 8 VLANs, 16 ports,
//! the fixed RMCP ports 0x26F and 0x298, eight decision filters of AND and OR inputs (11.3.5.1), and filters that make a
//! frame exclusive (11.3.5.2). Control frames of NC-SI (EtherType 0x88F8) and flow control (0x8808) that come from the
//! network are always blocked (11.3.2.2).
//!
//! A [`Bmc`] stands for two of the decision filters: one for its addresses, and one for broadcast with ARP. Thread-safety:
//! plain data.

use flowyard_frame::{FlowKey, proto};
use serde::Serialize;

/// EtherType of NC-SI control frames.
pub const NCSI: u16 = 0x88f8;
/// EtherType of flow control.
pub const FLOW_CONTROL: u16 = 0x8808;
/// The RMCP ports: 623 and 664 (IANA: asf-rmcp, asf-secure-rmcp).
pub const RMCP: [u16; 2] = [0x26f, 0x298];

/// The filters of a management controller. Without an OR filter, everything that the AND filters pass goes to it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bmc {
    /// Its MAC addresses.
    pub macs: Vec<[u8; 6]>,
    /// Its VLANs; none accepts frames with and without a tag.
    pub vlans: Vec<u16>,
    /// TCP and UDP destination ports that it gets, of frames to its addresses.
    pub ports: Vec<u16>,
    /// Whether it gets ARP requests and responses, also by broadcast.
    pub arp: bool,
    /// Whether it gets the RMCP ports, of frames to its addresses.
    pub rmcp: bool,
    /// Whether it gets all broadcast frames.
    pub broadcast: bool,
    /// Whether it gets IPv6 neighbor discovery (ICMPv6 types 134 to 137), also by multicast.
    pub neighbors: bool,
    /// Whether the host does not get what it gets (MNGONLY).
    pub exclusive: bool,
}

/// Which filter gave a frame to the management controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Passed {
    /// Its address, and no further filter is set.
    Mac,
    /// ARP.
    Arp,
    /// An RMCP port.
    Rmcp,
    /// One of its ports.
    Port,
    /// Broadcast.
    Broadcast,
    /// Neighbor discovery.
    Neighbor,
}

impl Passed {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mac => "mac",
            Self::Arp => "arp",
            Self::Rmcp => "rmcp",
            Self::Port => "port",
            Self::Broadcast => "broadcast",
            Self::Neighbor => "neighbor",
        }
    }
}

/// What becomes of a frame from the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Management {
    /// The filter that gave it to the management controller, if one did.
    pub to_bmc: Option<Passed>,
    /// Whether the host can get it.
    pub to_host: bool,
    /// Whether it is of a kind that never reaches the management controller from the network.
    pub blocked: bool,
}

impl Bmc {
    /// What becomes of the frame with `key`, of which `icmp_type` is the type if it is ICMPv6.
    #[must_use]
    pub fn decide(&self, key: &FlowKey, icmp_type: Option<u8>) -> Management {
        let blocked = matches!(key.eth_type, NCSI | FLOW_CONTROL);
        let to_bmc = if blocked { None } else { self.passes(key, icmp_type) };
        Management { to_bmc, to_host: to_bmc.is_none() || !self.exclusive, blocked }
    }

    fn passes(&self, key: &FlowKey, icmp_type: Option<u8>) -> Option<Passed> {
        let vlan = key.vlan_tci & 0xfff;
        if !self.vlans.is_empty() && !self.vlans.contains(&vlan) {
            return None;
        }
        let own = self.macs.contains(&key.eth_dst);
        let broadcast = key.eth_dst == [0xff; 6];
        if self.broadcast && broadcast {
            return Some(Passed::Broadcast);
        }
        if self.arp && key.eth_type == 0x0806 && (own || broadcast) {
            return Some(Passed::Arp);
        }
        let group = key.eth_dst[..2] == [0x33, 0x33];
        let is_neighbor = matches!(icmp_type, Some(134..=137)) && key.proto == proto::ICMPV6;
        if self.neighbors && is_neighbor && (own || group) {
            return Some(Passed::Neighbor);
        }
        if !own {
            return None;
        }
        // Fragments are not parsed beyond the IP header (11.3.1); a key has no ports of later fragments.
        let has_ports = matches!(key.proto, proto::TCP | proto::UDP) && key.frag == 0;
        if self.rmcp && has_ports && RMCP.contains(&key.dport) {
            return Some(Passed::Rmcp);
        }
        if has_ports && self.ports.contains(&key.dport) {
            return Some(Passed::Port);
        }
        let only_addresses = !self.arp && !self.rmcp && !self.neighbors && self.ports.is_empty();
        only_addresses.then_some(Passed::Mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BMC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

    fn key(dst: [u8; 6], eth_type: u16, protocol: u8, dport: u16) -> FlowKey {
        FlowKey { eth_dst: dst, eth_type, proto: protocol, dport, ..FlowKey::ZERO }
    }

    /// Each row: the filters, a frame, and which filter passes it (X550 datasheet, section 11.3).
    #[test]
    fn filters_pass_what_the_datasheet_says() {
        let base = Bmc { macs: vec![BMC], ..Bmc::default() };
        let bmc = |set: fn(&mut Bmc)| {
            let mut bmc = base.clone();
            set(&mut bmc);
            bmc
        };
        let udp = |dst, port| key(dst, 0x0800, proto::UDP, port);
        let (other, all) = ([2, 0, 0, 0, 0, 1], [0xff; 6]);
        for (set, frame, passed) in [
            ((|_| {}) as fn(&mut Bmc), udp(BMC, 53), Some(Passed::Mac)),
            (|_| {}, udp(other, 623), None),
            (|bmc| bmc.rmcp = true, udp(BMC, 623), Some(Passed::Rmcp)),
            (|bmc| bmc.rmcp = true, udp(BMC, 664), Some(Passed::Rmcp)),
            (|bmc| bmc.rmcp = true, key(BMC, 0x0800, proto::TCP, 623), Some(Passed::Rmcp)),
            (|bmc| bmc.rmcp = true, udp(BMC, 53), None),
            (|bmc| bmc.rmcp = true, udp(other, 623), None),
            (|bmc| bmc.arp = true, key(all, 0x0806, 0, 0), Some(Passed::Arp)),
            (|bmc| bmc.arp = true, key(other, 0x0806, 0, 0), None),
            (|bmc| bmc.arp = true, udp(all, 67), None),
            (|bmc| bmc.broadcast = true, udp(all, 67), Some(Passed::Broadcast)),
            (|bmc| bmc.ports = vec![443], key(BMC, 0x0800, proto::TCP, 443), Some(Passed::Port)),
            (|bmc| bmc.ports = vec![443], key(BMC, 0x0800, proto::TCP, 80), None),
            (|bmc| bmc.vlans = vec![7], udp(BMC, 53), None),
            (
                |bmc| bmc.vlans = vec![7],
                FlowKey { vlan_tci: 0x6007, ..udp(BMC, 53) },
                Some(Passed::Mac),
            ),
            (|_| {}, key(BMC, NCSI, 0, 0), None),
            (|_| {}, key(BMC, FLOW_CONTROL, 0, 0), None),
        ] {
            assert_eq!(bmc(set).decide(&frame, None).to_bmc, passed, "{frame:?}");
        }
    }

    #[test]
    fn neighbor_discovery_passes_by_type() {
        let bmc = Bmc { macs: vec![BMC], neighbors: true, ..Bmc::default() };
        let group = key([0x33, 0x33, 0xff, 0, 0, 1], 0x86dd, proto::ICMPV6, 0);
        assert_eq!(bmc.decide(&group, Some(135)).to_bmc, Some(Passed::Neighbor));
        assert_eq!(bmc.decide(&group, Some(128)).to_bmc, None);
    }

    /// Section 11.3.5.2: the host does not get exclusive frames, and gets all others as its own filters say.
    #[test]
    fn exclusive_frames_do_not_reach_the_host() {
        let shared = Bmc { macs: vec![BMC], ..Bmc::default() };
        let alone = Bmc { exclusive: true, ..shared.clone() };
        let frame = key(BMC, 0x0800, proto::UDP, 1);
        assert!(shared.decide(&frame, None).to_host);
        assert!(!alone.decide(&frame, None).to_host);
        assert!(alone.decide(&key([2, 0, 0, 0, 0, 1], 0x0800, 17, 1), None).to_host);
        assert!(alone.decide(&key(BMC, NCSI, 0, 0), None).blocked);
    }
}
