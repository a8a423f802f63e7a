//! The profiles of adapters whose rules are not modelled. The source of a value is named beside it; "driver" is
//! the driver of Linux below `drivers/net/ethernet`.

use super::{Changeable, DefaultTable, FdirKind, Profile, RssLimits, SctpHash, Support, Tunnels};
use crate::hash_fields::{Fields, FlowType, HashFields, Hfunc};

/// What all of them have in common: a Toeplitz hash with a key of 40 bytes, spread by a table that the driver
/// fills with the queues in turn. Nobody states which fields fragments hash.
const PLAIN: RssLimits = RssLimits {
    reta: 128,
    reta_sriov: 128,
    reta_vf: None,
    queues: None,
    key_len: 40,
    fields: HashFields::SCTP_AS_IP,
    changeable: Changeable::HashTypes,
    default_table: DefaultTable::InTurn,
    hfunc: Hfunc::Toeplitz,
    symmetric_xor: Support::Unknown,
    symmetric_or_xor: Support::Unknown,
    sctp: SctpHash::AsIp,
    ipv6_ex: Support::Unknown,
    fragments_as_ip: Support::Unknown, // modelled as Yes, as Microsoft specifies
};

/// Rules that no model here describes.
const fn not_modelled(filters: Option<u32>, ip_flows: Support, contexts: Support) -> FdirKind {
    FdirKind::NotModelled { filters, ip_flows, contexts }
}

/// mlx5 of Linux 6.17. `en/rqt.h`: at least 256 entries, and at least twice the number of channels, rounded up to a
/// power of two (`mlx5e_rqt_size`); kernels before 6.6 have 128 or 256 for any number. `en.h`: 256 channels.
/// `en/rss.c` (`rss_default_config`): TCP and UDP hash the ports, AH and ESP the addresses and the security parameter
/// index, everything else the addresses; the hash is symmetric unless `ethtool -X` says otherwise, and `ethtool -x` calls it symmetric-or-xor (Linux 6.15). The same driver serves
/// virtual functions.
const CONNECTX_RSS: RssLimits = RssLimits {
    reta: 256,
    reta_sriov: 256,
    reta_vf: Some(256),
    queues: Some(256),
    // en_fs_ethtool.c, mlx5e_set_rss_hash_opt (mlx5e_ethtool_set_rxfh_fields from Linux 6.17 on): EOPNOTSUPP for every flow
    // type but TCP and UDP; of these, any set of addresses and ports.
    changeable: Changeable::TcpAndUdp,
    hfunc: Hfunc::SymmetricOrXor,
    symmetric_xor: Support::No, // not among the transformations that en_ethtool.c names
    symmetric_or_xor: Support::Yes,
    ..PLAIN
};

pub(super) const CONNECTX: Profile = Profile {
    name: "mlx5",
    aliases: &[
        "connectx",
        "connectx-4",
        "connectx-5",
        "connectx-6",
        "connectx-7",
        "cx4",
        "cx5",
        "cx6",
        "cx7",
    ],
    title: "NVIDIA (Mellanox) ConnectX-4 to ConnectX-7",
    driver: "mlx5_core",
    rss: Some(CONNECTX_RSS),
    // lib/fs_ttc.c (mlx5_tunnel_inner_ft_supported) and en_fs.c (inner_ttc): GRE and IP in IP get a table of their own, which
    // hashes the inner header, if the device parses that tunnel; VXLAN and Geneve are UDP to it.
    tunnels: Tunnels::Unknown,
    // MAX_NUM_OF_ETHTOOL_RULES; en_fs_ethtool.c, en/rss.c
    fdir: not_modelled(Some(1024), Support::Yes, Support::Yes),
    actions: None,
    atr: None,
    notes: &[
        "the indirection table has 256 entries up to 128 channels, and twice the number of channels above that, rounded up to a power of two",
        "the driver makes the hash symmetric by default: Toeplitz over (src|dst, src^dst, sport|dport, sport^dport); ethtool -x calls it symmetric-or-xor and tells it from Linux 6.15 on",
        "hfunc xor (ethtool -X eth0 hfunc xor) is a hash of 8 bits and is not modelled",
        "GRE and IP in IP are hashed by the inner header where the device can (the driver asks it), other tunnels by the outer header; the model uses the outer header",
        "AH and ESP are hashed by the addresses and the security parameter index, which a flow does not have here: their queue is modelled by the addresses only",
        "ethtool -N takes rules for queues, for RSS contexts and for drops; which of them the device accepts is not modelled",
    ],
};

/// igb: `igb.h` (`IGB_RETA_SIZE` 128), `igb_setup_mrqc`: blocks; the types IPV4, TCP_IPV4, IPV6, TCP_IPV6 and
/// TCP_IPV6_EX (of the EX types only this one); UDP ports on request. `igb_init_queue_configuration`: the number of
/// queues. igbvf has one queue, hence no table.
const IGB_RSS: RssLimits = RssLimits {
    queues: Some(8),
    fields: HashFields::UDP_AND_SCTP_AS_IP,
    changeable: Changeable::UdpPorts,
    default_table: DefaultTable::Blocks,
    symmetric_xor: Support::No,
    symmetric_or_xor: Support::No,
    ..PLAIN
};

const IGB_NOTES: &[&str] = &[
    "the driver fills the default indirection table in blocks, not in turn",
    "igb takes at most 16 rules of flow type ether, which match the MAC addresses, the EtherType or the VLAN priority; rules for IP flows are refused",
    "many versions of igb do not tell the key: ethtool -x then prints no key",
];

pub(super) const E82576: Profile = Profile {
    name: "82576",
    aliases: &["igb"],
    title: "Intel 82576 Gigabit Ethernet Controller",
    driver: "igb",
    rss: Some(IGB_RSS),
    tunnels: Tunnels::Outer,
    fdir: not_modelled(Some(16), Support::No, Support::No), // IGB_MAX_RXNFC_FILTERS
    actions: None,
    atr: None,
    notes: &[
        IGB_NOTES[0],
        IGB_NOTES[1],
        IGB_NOTES[2],
        "the adapter has 16 queues, of which the driver uses 8, and 2 for each pool while SR-IOV is on",
    ],
};

pub(super) const E82580: Profile = Profile {
    name: "82580",
    aliases: &["i350", "i354"],
    title: "Intel 82580, I350 and I354 Gigabit Ethernet Controllers",
    notes: &[
        IGB_NOTES[0],
        IGB_NOTES[1],
        IGB_NOTES[2],
        "an I350 has one queue while SR-IOV is on: it cannot do both",
    ],
    ..E82576
};

pub(super) const I210: Profile = Profile {
    name: "i210",
    aliases: &["i211"],
    title: "Intel I210 and I211 Gigabit Ethernet Controllers",
    rss: Some(RssLimits { queues: Some(4), ..IGB_RSS }),
    notes: &[IGB_NOTES[0], IGB_NOTES[1], IGB_NOTES[2], "an I211 has 2 queues"],
    ..E82576
};

/// igc: `igc.h` (`IGC_RETA_SIZE` 128, key 40 bytes; `IGC_MAX_RXNFC_RULES` 64, and 65 with the rule for the default
/// queue); `igc_main.c` (`igc_setup_mrqc`): entry j of 128 is j * queues / 128, as igb.
pub(super) const IGC: Profile = Profile {
    name: "igc",
    aliases: &["i225", "i226"],
    title: "Intel I225 and I226 Ethernet Controllers (2.5 Gbit/s)",
    driver: "igc",
    rss: Some(RssLimits { queues: Some(4), ..IGB_RSS }),
    tunnels: Tunnels::Outer,
    fdir: not_modelled(Some(64), Support::No, Support::No), // IGC_MAX_RXNFC_RULES
    actions: None,
    atr: None,
    notes: &[
        IGB_NOTES[0],
        "igc takes 64 rules (65 in newer kernels) of flow type ether: 16 by MAC address, 8 by VLAN priority, 8 by EtherType, 32 flexible ones; rules for IP flows are refused",
        "some versions of igc do not tell the key: ethtool -x then prints no key",
    ],
};

/// bnxt: `bnxt.h` (128 entries, key 40 bytes); `bnxt_set_dflt_rss_hash_type`: TCP, and UDP with firmware 1.5.1 or
/// newer, hash the ports. `bnxt_srxfh` (`bnxt_set_rxfh_fields` from Linux 6.17 on): a flow type hashes all four fields, the
/// addresses, or nothing; the addresses are one setting for all types of IPv4, and one for those of IPv6; UDP ports
/// need the firmware's capability. The same driver serves virtual functions.
const BNXT_RSS: RssLimits = RssLimits { reta_vf: Some(128), ..PLAIN };

pub(super) const BNXT: Profile = Profile {
    name: "bnxt",
    aliases: &["bnxt_en", "bcm573xx", "bcm574xx"],
    title: "Broadcom NetXtreme-C and NetXtreme-E (BCM573xx, BCM574xx)",
    driver: "bnxt_en",
    rss: Some(BNXT_RSS),
    tunnels: Tunnels::Unknown, // no source
    // BNXT_NTP_FLTR_MAX_FLTR; contexts depend on the chip and its firmware
    fdir: not_modelled(Some(4096), Support::Yes, Support::Unknown),
    actions: None,
    atr: None,
    notes: &[
        "with firmware interface 1.5.0 or older, UDP is hashed by addresses only",
        "no source states which header of a tunnelled frame is hashed; the model uses the outer header",
        "the 4096 filters are shared with aRFS, and the firmware may have fewer",
        "the driver closes and opens the interface when key, table or fields change (bnxt_set_rxfh, bnxt_srxfh): frames are lost meanwhile; newer drivers also delete the rules of ethtool -N (bnxt_clear_usr_fltrs)",
        "drivers up to that of Linux 6.8 refuse a new key (EOPNOTSUPP)",
    ],
};

/// bnxt on P5 (Thor) and newer: tables of 64 entries, up to 8 of them in a row (`BNXT_RSS_TABLE_ENTRIES_P5`,
/// `BNXT_RSS_TABLE_MAX_TBL_P5`), one for each 64 rings (`bnxt_get_nr_rss_ctxs`).
pub(super) const BNXT_P5: Profile = Profile {
    name: "bnxt-p5",
    aliases: &["bcm575xx", "thor"],
    title: "Broadcom NetXtreme-E P5 (BCM575xx)",
    rss: Some(RssLimits {
        reta: 64,
        reta_sriov: 64,
        reta_vf: Some(64),
        queues: Some(512),
        ..PLAIN
    }),
    notes: &[
        "the indirection table has 64 entries for each 64 receive rings, at most 512; with large RSS contexts, which newer drivers and firmware have, always 512",
        BNXT.notes[1],
        BNXT.notes[2],
        BNXT.notes[3],
        BNXT.notes[4],
    ],
    ..BNXT
};

/// ena: `ena_netdev.h` (`ENA_RX_RSS_TABLE_LOG_SIZE` 7, key 40 bytes); `ena_com_set_default_hash_ctrl`: the ports of
/// TCP and UDP, the addresses of other IP frames and of IPv4 fragments, the MAC addresses of everything else.
pub(super) const ENA: Profile = Profile {
    name: "ena",
    aliases: &["elastic-network-adapter"],
    title: "Amazon Elastic Network Adapter",
    driver: "ena",
    rss: Some(RssLimits {
        changeable: Changeable::PerFlowType,
        fragments_as_ip: Support::Yes, // for IPv4
        ..PLAIN
    }),
    tunnels: Tunnels::Unknown, // no source
    fdir: FdirKind::None,      // not in the driver of Linux
    actions: None,
    atr: None,
    notes: &[
        "the type of the instance decides the number of queues, and whether key, table and fields can be changed at all",
        "frames that are not IP are hashed by their MAC addresses; the model sends them to queue 0",
        "older drivers and devices hash by CRC-32 instead of Toeplitz, which is not modelled; ethtool -x tells the function",
        "no source states how the device uses the initial hash value that the driver passes: compare a prediction with the counters once",
        "the driver asks the device to sort addresses and ports before it hashes them (ena_com_set_hash_ctrl: L3_SORT, L4_SORT), after which both directions of a connection had the same hash; no source states which devices do so, and the model does not: prove a prediction by probes",
        "no source states which header of a tunnelled frame is hashed; the model uses the outer header",
    ],
};

/// gve of Linux 6.12: `gve.h` (`GVE_RSS_INDIR_SIZE` 128, `GVE_RSS_KEY_SIZE` 40); `gve_adminq_configure_rss`: the hash
/// types TCPV4, UDPV4, TCPV6 and UDPV6, and no other.
pub(super) const GVE: Profile = Profile {
    name: "gve",
    aliases: &["gvnic"],
    title: "Google Virtual NIC",
    driver: "gve",
    rss: Some(RssLimits {
        fields: HashFields::SCTP_AS_IP
            .with(FlowType::Ipv4, Fields::NONE)
            .with(FlowType::Sctp4, Fields::NONE)
            .with(FlowType::Ipv6, Fields::NONE)
            .with(FlowType::Sctp6, Fields::NONE),
        changeable: Changeable::Nothing,
        ..PLAIN
    }),
    tunnels: Tunnels::Unknown, // no source
    fdir: not_modelled(None, Support::Unknown, Support::Unknown), // the device states its number
    actions: None,
    atr: None,
    notes: &[
        "the driver asks for the hashes of TCP and UDP only: fragments and every other protocol are not hashed and go to queue 0",
        "drivers before Linux 6.12 set neither key nor table, and the device decides",
        "no source states which header of a tunnelled frame is hashed; the model uses the outer header",
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rss, RssConfig};
    use flowyard_frame::{FlowKey, proto};

    fn rss(name: &str, queues: u16) -> Rss {
        Rss::new(Profile::find(name).unwrap(), queues, RssConfig::default()).unwrap()
    }

    fn key(protocol: u8) -> FlowKey {
        let ip = |x| std::net::Ipv4Addr::new(10, 0, 0, x).into();
        FlowKey::five_tuple(protocol, ip(1), 40_000, ip(2), 443)
    }

    #[test]
    fn igb_fills_its_table_in_blocks() {
        for name in ["82576", "82580", "i210", "igc"] {
            let reta = rss(name, 3).reta().to_vec();
            assert_eq!((reta.len(), reta[0], reta[42], reta[43], reta[127]), (128, 0, 0, 1, 2));
        }
        assert_eq!(rss("i225", 16).queues(), 4);
        assert_eq!(rss("igb", 16).clamped_from(), Some(16));
        // UDP is hashed by addresses unless ethtool says otherwise.
        let udp = rss("82576", 8);
        assert_eq!(udp.hash(&key(proto::UDP)), udp.hash(&key(0)));
    }

    #[test]
    fn mlx5_hashes_both_directions_alike_by_default() {
        let mlx5 = rss("connectx-6", 16);
        assert_eq!(mlx5.reta().len(), 256);
        let tcp = key(proto::TCP);
        assert_eq!(mlx5.hash(&tcp), mlx5.hash(&tcp.reversed()));
        let plain = RssConfig { hfunc: Some(Hfunc::Toeplitz), ..RssConfig::default() };
        let plain = Rss::new(&CONNECTX, 16, plain).unwrap();
        assert_ne!(plain.hash(&tcp), plain.hash(&tcp.reversed()));
        let names: Vec<_> = mlx5.explain(&tcp).input.iter().map(|field| field.name).collect();
        assert_eq!(names, ["src|dst", "src^dst", "sport|dport", "sport^dport"]);
        // The bytes that the kernel's documentation defines, hashed by the plain function.
        let folded = FlowKey {
            src: std::array::from_fn(|i| tcp.src[i] | tcp.dst[i]),
            dst: std::array::from_fn(|i| tcp.src[i] ^ tcp.dst[i]),
            sport: 40_000 | 443,
            dport: 40_000 ^ 443,
            ..tcp
        };
        assert_eq!(mlx5.hash(&tcp), plain.hash(&folded));
    }

    #[test]
    fn gve_leaves_what_is_neither_tcp_nor_udp_on_queue_0() {
        let gve = rss("gve", 16);
        assert!(gve.hash(&key(proto::TCP)).is_some() && gve.hash(&key(proto::UDP)).is_some());
        assert_eq!(gve.hash(&key(proto::SCTP)), None);
        assert_eq!(gve.hash(&key(47)), None);
        let fields = Some(HashFields::SCTP_AS_IP);
        let refused = Rss::new(&GVE, 16, RssConfig { fields, ..RssConfig::default() });
        assert!(refused.unwrap_err().to_string().contains("cannot hash sd"));
    }

    #[test]
    fn mlx5_changes_the_fields_of_tcp_and_udp_only() {
        let with = |flow, fields| {
            let fields = Some(CONNECTX_RSS.fields.with(flow, fields));
            Rss::new(&CONNECTX, 4, RssConfig { fields, ..RssConfig::default() })
        };
        assert!(with(FlowType::Udp4, Fields::TWO_TUPLE).is_ok());
        assert!(with(FlowType::Ipv4, Fields::SRC_IP.or(Fields::DST_IP)).is_ok());
        assert!(with(FlowType::Sctp4, Fields::FOUR_TUPLE).is_err());
        // Symmetric-or-xor needs both fields of a pair.
        assert!(with(FlowType::Tcp4, Fields::SRC_IP).is_err());
    }

    #[test]
    fn bnxt_p5_has_a_table_for_each_64_rings() {
        assert_eq!((rss("bnxt", 16).reta().len(), rss("thor", 16).reta().len()), (128, 64));
        assert_eq!(rss("ena", 8).reta().len(), 128);
    }
}
