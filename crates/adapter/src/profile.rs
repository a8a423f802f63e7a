//! What each adapter can do: table sizes, queue limits, defaults, as plain static data.
//!
//! ```text
//!  Profile ── rss:  indirection table, queues, key, fields       (rss::Rss enforces)
//!          ├─ fdir: which filter table, how large, which actions (fdir::Table enforces)
//!          └─ atr:  whether the driver teaches the filters by itself
//! ```
//!
//! Sources, in the doc of each field: the adapters' Linux drivers and DPDK's (read, not copied),
//! Intel's *Ethernet Adapters and Devices User Guide* 705831, Microsoft's RSS pages, virtio 1.2.
//! What no source says is `None` or [`Support::Unknown`], never a guess. Sizes that firmware
//! decides are the usual ones; on a live port ask the device.
//!
//! Invariant: every table size is a power of two (tested). Thread-safety: static data.

use serde::Serialize;

use crate::hash_fields::HashFields;

mod data;

/// Whether an adapter can do a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Support {
    /// It can.
    Yes,
    /// It cannot, or no driver lets it.
    No,
    /// No source says.
    Unknown,
}

/// Which header of a tunnelled frame the adapter looks at (user guide 705831).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Tunnels {
    /// The outer one.
    Outer,
    /// The inner one.
    Inner,
}

/// Which RSS input fields software may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Changeable {
    /// Only whether UDP hashes its ports (`ethtool -N DEV rx-flow-hash udp4 sd|sdfn`).
    UdpPorts,
    /// Any set of fields, for each flow type.
    PerFlowType,
    /// Hash types go on and off (virtio 1.2, 5.1.6.4.3): ports for TCP and UDP, and IP at all.
    HashTypes,
}

/// What the RSS hash of SCTP frames takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SctpHash {
    /// There is no SCTP hash type; SCTP hashes as bare IP.
    AsIp,
    /// The ports.
    Ports,
    /// The ports and the verification tag. A flow key has no tag: the model hashes the ports
    /// alone, and `explain` says so.
    PortsAndTag,
}

/// RSS: sizes, limits and the driver's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RssLimits {
    /// Entries of the indirection table (RETA) of the physical function.
    pub reta: u16,
    /// The same while SR-IOV is on.
    pub reta_sriov: u16,
    /// Entries that a virtual function sees; `None` without virtual functions.
    pub reta_vf: Option<u16>,
    /// Queues that an entry can name; `None` where firmware says (its "entry width" capability).
    pub queues: Option<u16>,
    /// Key length in bytes.
    pub key_len: usize,
    /// What each flow type hashes by the Linux driver's default.
    pub fields: HashFields,
    /// What may be changed.
    pub changeable: Changeable,
    /// Symmetric-XOR as the hash function (`ethtool -X ... xfrm symmetric-xor`, Linux 6.8).
    pub symmetric_xor: Support,
    /// What SCTP hashes.
    pub sctp: SctpHash,
    /// The `*_IPV6_EX` hash types: home address and routing header instead of the addresses.
    pub ipv6_ex: Support,
    /// Whether fragments, the first one too, hash addresses alone, as Microsoft's rule asks.
    pub fragments_as_ip: Support,
}

/// Which kind of filter table an adapter has in front of RSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FdirKind {
    /// None.
    None,
    /// The 500 series: filters in the receive packet buffer, one mask set. See [`crate::fdir`].
    Ixgbe {
        /// The carve-out both Linux drivers choose.
        pballoc: crate::fdir::Pballoc,
    },
    /// The 700 series: one input set for each flow type, device-wide.
    I40e {
        /// Filters of the device, over all functions.
        filters: u32,
    },
    /// The 800 series: one input set for each flow type and port.
    Ice {
        /// Filters of the device, over all functions.
        filters: u32,
    },
}

/// What a matching filter may do: the actions of the Flow Director paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FdirActions {
    /// The highest queue a filter can name; `None`: any queue of the function.
    pub max_queue: Option<u16>,
    /// To a group of queues that RSS then spreads over.
    pub queue_group: Support,
    /// Drop. On the 500 series in perfect mode only.
    pub drop: Support,
    /// How many hardware counters a filter can choose from; 0: none.
    pub counters: u16,
    /// Interrupt at once, for low latency.
    pub low_latency: Support,
    /// A slower interrupt class, for bandwidth.
    pub high_bandwidth: Support,
    /// Bits of the software-defined value that a hit reports; 0: none.
    pub value_bits: u8,
}

/// How a driver takes filters out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AtrEvict {
    /// Never: the table fills up and is flushed whole (ixgbe).
    Flush,
    /// The driver removes the filter when it sends a FIN or RST (i40e on X710 and XL710).
    Driver,
    /// The hardware does, on FIN or RST (i40e on X722).
    Hardware,
}

/// Application targeting routing: the driver teaches filters from what it transmits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AtrLimits {
    /// Every how many packets of a transmit ring one is sampled.
    pub sample_rate: u32,
    /// Queues that ATR can steer to; `None`: all of the function.
    pub queues: Option<u16>,
    /// How filters leave.
    pub evict: AtrEvict,
}

/// One adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// The name that [`Profile::find`] knows, lower case.
    pub name: &'static str,
    /// Other names, lower case.
    pub aliases: &'static [&'static str],
    /// The name on the box.
    pub title: &'static str,
    /// The Linux driver.
    pub driver: &'static str,
    /// RSS; `None` when the adapter computes no hash.
    pub rss: Option<RssLimits>,
    /// Which header of a tunnelled frame counts.
    pub tunnels: Tunnels,
    /// The filter table.
    pub fdir: FdirKind,
    /// What its filters can do; `None` without a filter table.
    pub actions: Option<FdirActions>,
    /// ATR; `None` when the driver has none.
    pub atr: Option<AtrLimits>,
    /// What a user should know besides.
    pub notes: &'static [&'static str],
}

impl Profile {
    /// The adapter called `name`, in any case: `82599`, `x520`, `X710`, `ixgbe`, `none`, ...
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let is = |other: &&str| name.eq_ignore_ascii_case(other);
        Self::ALL.iter().find(|p| is(&p.name) || p.aliases.iter().any(is))
    }

    /// How many queues a frame can reach by RSS or by a filter, when `queues` are open: the
    /// number behind "Flow Director reaches 32 queues, RSS 16" on one and the same card.
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

/// Queues reachable, by stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// By RSS.
    pub rss: u16,
    /// By a filter that someone programs.
    pub filters: u16,
    /// By ATR.
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
        assert_eq!(Profile::ALL.len(), 10);
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
