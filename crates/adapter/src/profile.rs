//! The capabilities of each adapter as static data: table sizes, queue limits and defaults.
//!
//! ```text
//!  Profile ── rss:  indirection table, queues, key, fields       (rss::Rss enforces)
//!          ├─ fdir: which filter table, how large, which actions (fdir::Table enforces)
//!          └─ atr:  whether the driver learns filters from what it transmits
//! ```
//!
//! Sources, named at each field: the adapters' Linux drivers and DPDK's (read, not copied),
//! Intel's *Ethernet Adapters and Devices User Guide* 705831, Microsoft's RSS pages, virtio 1.2.
//! A value that no source gives is `None` or [`Support::Unknown`]; no value is a guess. Where the
//! firmware decides a size, the usual size is given; a live port must be queried.
//!
//! Invariant: every table size is a power of two (tested). Thread-safety: static data.

use schemars::JsonSchema;
use serde::Serialize;

use crate::hash_fields::{HashFields, Hfunc};

mod data;
mod more;

/// Whether an adapter supports a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Support {
    /// Supported.
    Yes,
    /// Not supported by the adapter, or by none of its drivers.
    No,
    /// No source states it.
    Unknown,
}

/// The header of a tunnelled frame that the adapter hashes and matches (user guide 705831).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Tunnels {
    /// The outer header.
    Outer,
    /// The header inside the tunnel.
    Inner,
    /// The device decides, or no source states it; the models use the outer header.
    Unknown,
}

/// The RSS input fields that software may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Changeable {
    /// Only whether UDP ports are hashed (`ethtool -N DEV rx-flow-hash udp4 sd|sdfn`).
    UdpPorts,
    /// Any set of fields for each flow type.
    PerFlowType,
    /// Any set of fields for TCP and for UDP; the fields of the other types are fixed.
    TcpAndUdp,
    /// None through the Linux driver.
    Nothing,
    /// Hash types are switched on or off (virtio 1.2, 5.1.6.4.3): IP, and the ports of TCP and UDP.
    HashTypes,
}

/// The indirection table that the Linux driver writes when no table is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum DefaultTable {
    /// Entry i holds queue i modulo the number of queues.
    InTurn,
    /// Entry i of n holds queue i * queues / n: each queue has one block of entries.
    Blocks,
}

/// The fields that the RSS hash of an SCTP frame covers besides the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum SctpHash {
    /// None: there is no SCTP hash type, so SCTP is hashed as IP.
    AsIp,
    /// The ports.
    Ports,
    /// The ports and the verification tag. A flow key has no tag, so the model hashes only the
    /// ports, and `explain` reports the difference.
    PortsAndTag,
}

/// Sizes, limits and driver defaults of RSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RssLimits {
    /// Entries of the indirection table (RETA) of the physical function.
    pub reta: u16,
    /// Entries of the physical function's indirection table while SR-IOV is on.
    pub reta_sriov: u16,
    /// Entries of a virtual function's indirection table; `None` without virtual functions.
    pub reta_vf: Option<u16>,
    /// Number of queues that an entry can address; `None` where the firmware decides (its "entry
    /// width" capability).
    pub queues: Option<u16>,
    /// Length of the hash key in bytes.
    pub key_len: usize,
    /// The fields that each flow type hashes, as the Linux driver sets them by default.
    pub fields: HashFields,
    /// The fields that software may change.
    pub changeable: Changeable,
    /// The table that the driver writes by default.
    pub default_table: DefaultTable,
    /// The hash function that the driver sets by default.
    pub hfunc: Hfunc,
    /// Symmetric-XOR as the hash function (`ethtool -X ... xfrm symmetric-xor`, Linux 6.8).
    pub symmetric_xor: Support,
    /// Symmetric-OR-XOR as the hash function (`ethtool -X ... xfrm symmetric-or-xor`).
    pub symmetric_or_xor: Support,
    /// The fields that SCTP hashes.
    pub sctp: SctpHash,
    /// The `*_IPV6_EX` hash types, which hash the home address and the routing header's address in
    /// place of the IPv6 header's addresses.
    pub ipv6_ex: Support,
    /// Whether every fragment, also the first, is hashed by its addresses only, as Microsoft
    /// specifies.
    pub fragments_as_ip: Support,
}

/// The kind of filter table that an adapter has in front of RSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum FdirKind {
    /// No filter table.
    None,
    /// The 500 series: filters in the receive packet buffer, one mask set per port. See
    /// [`crate::fdir`].
    Ixgbe {
        /// The part of the packet buffer that both Linux drivers give to filters.
        pballoc: crate::fdir::Pballoc,
    },
    /// The 700 series: one input set for each flow type on the whole device.
    I40e {
        /// Filters of the device, shared by all its functions.
        filters: u32,
    },
    /// The 800 series: one input set for each flow type and port.
    Ice {
        /// Filters of the device, shared by all its functions.
        filters: u32,
    },
    /// Rules by `ethtool -N`, which no model here describes.
    NotModelled {
        /// The number of rules that the driver takes; `None` where the device or its firmware decides.
        filters: Option<u32>,
        /// Whether the driver takes rules for IP flows.
        ip_flows: Support,
        /// Whether the driver has RSS contexts, over which rules spread frames.
        contexts: Support,
    },
}

impl FdirKind {
    /// Whether the models of this crate decide which rules the table takes and which frames they match.
    #[must_use]
    pub const fn is_modelled(self) -> bool {
        !matches!(self, Self::None | Self::NotModelled { .. })
    }
}

/// The actions that a matching filter can take, as the Flow Director paper lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FdirActions {
    /// The highest queue that a filter can address; `None`: every queue of the function.
    pub max_queue: Option<u16>,
    /// Steering to a group of queues, over which RSS then spreads the frames.
    pub queue_group: Support,
    /// Dropping; on the 500 series only in perfect mode.
    pub drop: Support,
    /// Number of hardware counters that a filter can select from; 0 if there are none.
    pub counters: u16,
    /// An immediate interrupt, for low latency.
    pub low_latency: Support,
    /// An interrupt class with stronger moderation, for high bandwidth.
    pub high_bandwidth: Support,
    /// Width in bits of the software-defined value that a hit reports; 0 if there is none.
    pub value_bits: u8,
}

/// How filters that ATR learned are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum AtrEvict {
    /// Never one by one: the table fills up and is then emptied as a whole (ixgbe).
    Flush,
    /// The driver removes the filter when it transmits a FIN or RST (i40e on X710 and XL710).
    Driver,
    /// The hardware removes the filter on a FIN or RST (i40e on X722).
    Hardware,
}

/// Application targeting routing (ATR): the driver programs filters for the flows it transmits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AtrLimits {
    /// The driver samples one of every `sample_rate` packets of a transmit ring.
    pub sample_rate: u32,
    /// Number of queues that ATR can steer to; `None`: every queue of the function.
    pub queues: Option<u16>,
    /// How filters are removed.
    pub evict: AtrEvict,
}

/// The capabilities of one adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Profile {
    /// The name in lower case, as given to [`Profile::find`].
    pub name: &'static str,
    /// Other names that [`Profile::find`] accepts, in lower case.
    pub aliases: &'static [&'static str],
    /// The manufacturer's product name.
    pub title: &'static str,
    /// The name of the Linux driver.
    pub driver: &'static str,
    /// RSS limits; `None` when the adapter computes no hash.
    pub rss: Option<RssLimits>,
    /// The header of a tunnelled frame that is hashed and matched.
    pub tunnels: Tunnels,
    /// The kind and size of the filter table.
    pub fdir: FdirKind,
    /// The actions of its filters; `None` without a filter table that is modelled.
    pub actions: Option<FdirActions>,
    /// ATR limits; `None` when the driver has no ATR.
    pub atr: Option<AtrLimits>,
    /// Further facts for the user, one sentence each.
    pub notes: &'static [&'static str],
}

impl Profile {
    /// The adapter named `name`, in upper or lower case: `82599`, `x520`, `X710`, `ixgbe`, `none`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let is = |other: &&str| name.eq_ignore_ascii_case(other);
        Self::ALL.iter().find(|p| is(&p.name) || p.aliases.iter().any(is))
    }

    /// The number of queues that RSS, filters and ATR can each address when `queues` are open. They
    /// differ on one adapter: with 32 queues, RSS of an X520 reaches 16 of them, a filter all 32.
    #[must_use]
    pub fn reach(&self, queues: u16) -> Reach {
        let limit = |limit: Option<u16>| limit.map_or(queues, |l| l.min(queues));
        Reach {
            rss: self.rss.map_or(queues.min(1), |r| limit(r.queues)),
            filters: self.actions.map_or(0, |a| limit(a.max_queue.map(|q| q.saturating_add(1)))),
            atr: self.atr.map_or(0, |a| limit(a.queues)),
        }
    }
}

/// The number of queues that each stage can address; see [`Profile::reach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reach {
    /// Through the indirection table.
    pub rss: u16,
    /// Through a filter that the user programs.
    pub filters: u16,
    /// Through a filter that ATR programs.
    pub atr: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_adapter_is_found_under_every_name() {
        for profile in Profile::ALL {
            for name in std::iter::once(&profile.name).chain(profile.aliases) {
                assert_eq!(Profile::find(&name.to_uppercase()), Some(profile), "{name}");
            }
        }
        assert_eq!(Profile::find("no such card"), None);
        assert_eq!(Profile::ALL.len(), 19);
    }

    #[test]
    fn names_are_not_shared() {
        let mut names: Vec<_> = Profile::ALL
            .iter()
            .flat_map(|p| std::iter::once(p.name).chain(p.aliases.iter().copied()))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn every_adapter_has_a_title_of_its_own() {
        let mut titles: Vec<_> = Profile::ALL.iter().map(|profile| profile.title).collect();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), Profile::ALL.len());
    }

    /// Entries of the table: of the physical function, of the same while virtual functions are on, and of a
    /// virtual function.
    #[test]
    fn the_sizes_of_the_tables() {
        for (name, physical, with_virtual, of_virtual) in [
            ("82599", 128, 128, Some(128)),
            ("x550", 512, 64, Some(64)),
            ("x710", 512, 512, Some(64)),
            ("e810", 2048, 2048, Some(64)),
            ("mlx5", 256, 256, Some(256)),
            ("82576", 128, 128, None),
            ("82580", 128, 128, None),
            ("i210", 128, 128, None),
            ("igc", 128, 128, None),
            ("bnxt", 128, 128, Some(128)),
            ("bnxt-p5", 64, 64, Some(64)),
            ("ena", 128, 128, None),
            ("gve", 128, 128, None),
            ("virtio", 128, 128, None),
        ] {
            let rss = Profile::find(name).unwrap().rss.unwrap();
            let sizes = (rss.reta, rss.reta_sriov, rss.reta_vf);
            assert_eq!(sizes, (physical, with_virtual, of_virtual), "{name}");
        }
    }

    /// What the drivers accept and set by default, as the comments of the profiles say with their sources: queues,
    /// fields that can be changed, the table, the hash function, its symmetric forms, the IPv6 types with
    /// extensions, and fragments hashed by their addresses.
    #[test]
    fn what_the_drivers_accept_and_set_by_default() {
        use Changeable::{HashTypes, Nothing, PerFlowType, TcpAndUdp, UdpPorts};
        use DefaultTable::{Blocks, InTurn};
        use Hfunc::{SymmetricOrXor, Toeplitz};
        use Support::{No, Unknown, Yes};
        let ixgbe = (UdpPorts, InTurn, Toeplitz, [No, No, Unknown, Yes]);
        let i40e = (PerFlowType, InTurn, Toeplitz, [No, No, Unknown, Yes]);
        let igb = (UdpPorts, Blocks, Toeplitz, [No, No, Unknown, Unknown]);
        let unknown = [Unknown; 4];
        for (names, queues, wanted) in [
            (&["82599", "x520", "x540"][..], Some(16), ixgbe),
            (&["x550"], Some(63), ixgbe),
            (&["x710", "xl710", "x722"], None, i40e),
            (&["e810"], None, (PerFlowType, InTurn, Toeplitz, [Yes, No, Unknown, Unknown])),
            (
                &["mlx5"],
                Some(256),
                (TcpAndUdp, InTurn, SymmetricOrXor, [No, Yes, Unknown, Unknown]),
            ),
            (&["82576", "82580"], Some(8), igb),
            (&["i210", "igc"], Some(4), igb),
            (&["bnxt"], None, (HashTypes, InTurn, Toeplitz, unknown)),
            (&["bnxt-p5"], Some(512), (HashTypes, InTurn, Toeplitz, unknown)),
            (&["ena"], None, (PerFlowType, InTurn, Toeplitz, [Unknown, Unknown, Unknown, Yes])),
            (&["gve"], None, (Nothing, InTurn, Toeplitz, unknown)),
            (&["virtio"], Some(32_768), (HashTypes, InTurn, Toeplitz, [No, No, Yes, Yes])),
        ] {
            for name in names {
                let rss = Profile::find(name).unwrap().rss.unwrap();
                let support =
                    [rss.symmetric_xor, rss.symmetric_or_xor, rss.ipv6_ex, rss.fragments_as_ip];
                let found = (rss.changeable, rss.default_table, rss.hfunc, support);
                assert_eq!((rss.queues, found), (queues, wanted), "{name}");
            }
        }
    }

    /// Every adapter says what its users must know; a note is not said twice.
    #[test]
    fn every_adapter_has_notes_of_its_own() {
        for profile in Profile::ALL {
            assert!(!profile.notes.is_empty(), "{}", profile.name);
            let notes: std::collections::BTreeSet<_> = profile.notes.iter().collect();
            assert_eq!(notes.len(), profile.notes.len(), "{}", profile.name);
        }
        // Where a profile is that of another adapter but for a few fields, its notes are its own.
        let notes = |name: &str| Profile::find(name).unwrap().notes;
        for (one, other) in
            [("82576", "82580"), ("82576", "i210"), ("82580", "i210"), ("82576", "igc")]
        {
            assert_ne!(notes(one), notes(other), "{one} {other}");
        }
    }

    #[test]
    fn tables_are_powers_of_two_and_keys_long_enough() {
        for rss in Profile::ALL.iter().filter_map(|p| p.rss) {
            for size in [rss.reta, rss.reta_sriov, rss.reta_vf.unwrap_or(1)] {
                assert!(size.is_power_of_two());
            }
            assert!(rss.key_len >= 40);
        }
    }

    #[test]
    fn the_papers_card_reaches_more_queues_by_atr_than_by_rss() {
        let reach = Profile::find("x520").unwrap().reach(32);
        assert_eq!(reach, Reach { rss: 16, filters: 32, atr: 32 });
        assert_eq!(Profile::find("82599").unwrap().reach(128).atr, 63);
        assert_eq!(
            Profile::find("software").unwrap().reach(8),
            Reach { rss: 1, filters: 0, atr: 0 }
        );
    }

    #[test]
    fn profiles_serialise() {
        let text = serde_json::to_string(Profile::ALL).unwrap();
        assert!(text.contains("\"e810\""));
    }
}
