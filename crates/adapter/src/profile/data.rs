//! The profile of each adapter. The source of a value is named beside it.

use super::{
    AtrEvict, AtrLimits, Changeable, DefaultTable, FdirActions, FdirKind, Profile, RssLimits,
    SctpHash, Support, Tunnels, more,
};
use crate::fdir::Pballoc;
use crate::hash_fields::{HashFields, Hfunc};

/// 82599 and X540: 4-bit RETA entries, hence 16 queues (ixgbe: `MAX_RSS_INDICES`). ixgbe turns on
/// the hash types IPV4, TCP_IPV4, IPV6 and TCP_IPV6: UDP and SCTP are hashed as IP.
const IXGBE_RSS: RssLimits = RssLimits {
    reta: 128,
    reta_sriov: 128,
    reta_vf: Some(128), // ixgbevf requests the table from the physical function
    queues: Some(16),
    key_len: 40,
    fields: HashFields::UDP_AND_SCTP_AS_IP,
    changeable: Changeable::UdpPorts,
    default_table: DefaultTable::InTurn,
    hfunc: Hfunc::Toeplitz,
    symmetric_or_xor: Support::No,
    symmetric_xor: Support::No,
    sctp: SctpHash::AsIp,
    ipv6_ex: Support::Unknown, // ixgbe never enables these types
    fragments_as_ip: Support::Yes,
};

/// X550: 6-bit entries; ixgbe opens 63 queues for RSS (`MAX_RSS_INDICES_X550`), 512 entries, 64
/// with SR-IOV (`ixgbe_rss_indir_tbl_entries`).
const X550_RSS: RssLimits =
    RssLimits { reta: 512, reta_sriov: 64, reta_vf: Some(64), queues: Some(63), ..IXGBE_RSS };

/// 500 series filters: a 7-bit queue field whose last value, 127, is the drop queue of both
/// Linux drivers; a 16-bit soft id; the INT action; no counter per filter.
const IXGBE_ACTIONS: FdirActions = FdirActions {
    max_queue: Some(126),
    queue_group: Support::No,
    drop: Support::Yes,
    counters: 0,
    low_latency: Support::Yes, // the INT action
    high_bandwidth: Support::No,
    value_bits: 16,
};

/// ixgbe: `IXGBE_MAX_FDIR_INDICES` 63; sample rate 20.
const IXGBE_ATR: AtrLimits =
    AtrLimits { sample_rate: 20, queues: Some(63), evict: AtrEvict::Flush };

const IXGBE_NOTES: &[&str] = &[
    "by default filters take 64 KB of the packet buffer: 2048 perfect or 8191 signature filters; in-tree ixgbe cannot change it",
    "perfect mode (ntuple filters) turns ATR off",
    "enabling ntuple resets the port and its indirection table",
];

const NIANTIC: Profile = Profile {
    name: "82599",
    aliases: &["ixgbe", "niantic", "82599es", "82599eb"],
    title: "Intel 82599 10 Gigabit Ethernet Controller",
    driver: "ixgbe",
    rss: Some(IXGBE_RSS),
    tunnels: Tunnels::Outer,
    fdir: FdirKind::Ixgbe { pballoc: Pballoc::K64 },
    actions: Some(IXGBE_ACTIONS),
    atr: Some(IXGBE_ATR),
    notes: IXGBE_NOTES,
};

/// i40e: the lookup table (HLUT) is 128 registers of 4 entries; the key is 13 words; every
/// non-fragment type of the default `hena` hashes the ports, including UDP. The entry width of the
/// table comes from the firmware.
const I40E_RSS: RssLimits = RssLimits {
    reta: 512,
    reta_sriov: 512,
    reta_vf: Some(64),
    queues: None,
    key_len: 52,
    fields: HashFields::ALL_PORTS,
    changeable: Changeable::PerFlowType,
    default_table: DefaultTable::InTurn,
    hfunc: Hfunc::Toeplitz,
    symmetric_or_xor: Support::No,
    symmetric_xor: Support::No,  // not through ethtool
    sctp: SctpHash::PortsAndTag, // DPDK's default input set
    ipv6_ex: Support::Unknown,
    fragments_as_ip: Support::Yes, // flow types FRAG_IPV4, FRAG_IPV6
};

const I40E_ACTIONS: FdirActions = FdirActions {
    max_queue: None, // an 11-bit field, which exceeds the queues of any function
    queue_group: Support::Yes,
    drop: Support::Yes,
    counters: 512,                 // GLQF_PCNT[0..511]; Linux uses three per function
    low_latency: Support::Unknown, // named in the Flow Director paper; no driver uses it
    high_bandwidth: Support::Unknown,
    value_bits: 32, // FD_ID
};

const I40E_NOTES: &[&str] = &[
    "8192 filters per device, shared by its functions; the firmware reports the share of each function",
    "filters are programmed asynchronously: the driver reports a full table only after ethtool has returned",
    "frames that are not IP are in the driver's default hash set, but the fields they hash are not documented; the model sends them to queue 0",
];

const X710: Profile = Profile {
    name: "x710",
    aliases: &["i40e"],
    title: "Intel Ethernet Controller X710",
    driver: "i40e",
    rss: Some(I40E_RSS),
    tunnels: Tunnels::Inner,
    fdir: FdirKind::I40e { filters: 8192 },
    actions: Some(I40E_ACTIONS),
    atr: Some(AtrLimits { sample_rate: 20, queues: None, evict: AtrEvict::Driver }),
    notes: I40E_NOTES,
};

/// ice: the lookup table has 64 (VSI), 512 (global) or 2048 entries (one function of the device).
const ICE_RSS: RssLimits = RssLimits {
    reta: 2048,
    reta_sriov: 2048,
    reta_vf: Some(64),
    queues: None,
    key_len: 52,
    fields: HashFields::ALL_PORTS,
    changeable: Changeable::PerFlowType,
    default_table: DefaultTable::InTurn,
    hfunc: Hfunc::Toeplitz,
    symmetric_or_xor: Support::No,
    symmetric_xor: Support::Yes,
    sctp: SctpHash::Ports,
    ipv6_ex: Support::Unknown,
    fragments_as_ip: Support::Unknown, // modelled as Yes, as Microsoft specifies
};

const ICE_ACTIONS: FdirActions = FdirActions {
    max_queue: None,
    queue_group: Support::Yes,
    drop: Support::Yes,
    counters: 256, // per block
    low_latency: Support::Unknown,
    high_bandwidth: Support::Unknown,
    value_bits: 32,
};

/// virtio 1.2, 5.1.6.4.3 (`VIRTIO_NET_F_RSS`): the device sets the limits of the table and the key,
/// at least 128 entries and 40 bytes; QEMU and Linux use exactly these. Linux enables every hash
/// type.
const VIRTIO_RSS: RssLimits = RssLimits {
    reta: 128,
    reta_sriov: 128,
    reta_vf: None,
    queues: Some(0x8000), // the limit of max_virtqueue_pairs
    key_len: 40,
    fields: HashFields::SCTP_AS_IP,
    changeable: Changeable::HashTypes,
    default_table: DefaultTable::InTurn,
    hfunc: Hfunc::Toeplitz,
    symmetric_or_xor: Support::No,
    symmetric_xor: Support::No,
    sctp: SctpHash::AsIp,
    ipv6_ex: Support::Yes,
    fragments_as_ip: Support::Yes, // QEMU; not specified
};

impl Profile {
    /// Every modelled adapter.
    pub const ALL: &'static [Self] = ADAPTERS;
}

const ADAPTERS: &[Profile] = &[
    NIANTIC,
    Profile {
        name: "x520",
        aliases: &["x520-da2"],
        title: "Intel Ethernet Converged Network Adapter X520 (82599)",
        ..NIANTIC
    },
    Profile {
        name: "x540",
        aliases: &["x540-at2"],
        title: "Intel Ethernet Controller X540",
        ..NIANTIC
    },
    Profile {
        name: "x550",
        aliases: &["x552", "x553"],
        title: "Intel Ethernet Controller X550",
        rss: Some(X550_RSS),
        notes: &[
            IXGBE_NOTES[0],
            IXGBE_NOTES[1],
            "the filter modes for inner MAC addresses and tunnels (FDIRCTRL 23:21) are not modelled",
        ],
        ..NIANTIC
    },
    X710,
    Profile { name: "xl710", aliases: &[], title: "Intel Ethernet Controller XL710", ..X710 },
    Profile {
        name: "x722",
        aliases: &[],
        title: "Intel Ethernet Connection X722",
        atr: Some(AtrLimits { sample_rate: 20, queues: None, evict: AtrEvict::Hardware }),
        ..X710
    },
    Profile {
        name: "e810",
        aliases: &["ice", "e810-cqda2", "e810-xxvda4"],
        title: "Intel Ethernet Controller E810",
        driver: "ice",
        rss: Some(ICE_RSS),
        tunnels: Tunnels::Inner,
        fdir: FdirKind::Ice { filters: 16384 },
        actions: Some(ICE_ACTIONS),
        atr: None, // its Linux driver implements aRFS instead
        notes: &[
            "only one function of a device gets the indirection table with 2048 entries; the others have 512 or 64",
            "RDMA frames bypass the filters",
        ],
    },
    more::CONNECTX,
    more::E82576,
    more::E82580,
    more::I210,
    more::IGC,
    more::BNXT,
    more::BNXT_P5,
    more::ENA,
    more::GVE,
    Profile {
        name: "virtio",
        aliases: &["virtio-net", "virtio_net"],
        title: "virtio network device (1.2, VIRTIO_NET_F_RSS)",
        driver: "virtio_net",
        rss: Some(VIRTIO_RSS),
        tunnels: Tunnels::Outer,
        fdir: FdirKind::None,
        actions: None,
        atr: None,
        notes: &["the sizes of table and key are those of QEMU; a device may offer more"],
    },
    Profile {
        name: "software",
        aliases: &["none", "rps"],
        title: "an adapter without RSS, under Linux receive packet steering",
        driver: "any",
        rss: None,
        tunnels: Tunnels::Outer,
        fdir: FdirKind::None,
        actions: None,
        atr: None,
        notes: &["one hardware queue; the kernel spreads the frames over CPUs (RPS, RFS)"],
    },
];
