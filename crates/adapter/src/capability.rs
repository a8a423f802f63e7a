//! What each adapter has for virtual machines, interrupts, storage and management, with the sources.
//!
//! A value that no source that was read states is `None` or [`Support::Unknown`]; no value is a guess. Thread-safety:
//! static data.

use schemars::JsonSchema;
use serde::Serialize;

use crate::fcoe::Sizes;
use crate::profile::{Profile, Support};

/// How the Linux driver adapts the moderation of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Adaptive {
    /// `ixgbe_update_itr`, which is modelled.
    Ixgbe,
    /// Linux's dynamic interrupt moderation (`lib/dim`), which is modelled.
    Dim,
    /// An algorithm of its own, which is not modelled.
    Own,
    /// No source states it.
    Unknown,
}

/// The capabilities of one adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Capabilities {
    /// Pools of queues for virtual machines (VMDq).
    pub pools: Option<u8>,
    /// Whether [`crate::vmdq`] models them.
    pub pools_are_modelled: bool,
    /// Whether a pool can get all unicast frames; meaningful if pools are modelled.
    pub promiscuous_pools: bool,
    /// Virtual functions of a port at most (SR-IOV), as its Linux driver limits them.
    pub virtual_functions: Option<u16>,
    /// Whether source addresses and VLANs of virtual functions are checked.
    pub anti_spoof: Support,
    /// Mirroring rules.
    pub mirrors: Option<u8>,
    /// MSI-X vectors of a physical function.
    pub vectors: Option<u16>,
    /// The unit of the interval of interrupt moderation.
    pub moderation_unit_ns: Option<u32>,
    /// How the driver adapts moderation.
    pub adaptive: Adaptive,
    /// FCoE offloads: sizes of direct data placement; `None` if no source states that it has them.
    #[schemars(with = "Option<FcoeSizes>")]
    pub fcoe: Option<Sizes>,
    /// Pass-through to a management controller by NC-SI.
    pub ncsi: Support,
    /// The sources of these values.
    pub sources: &'static [&'static str],
}

/// The sizes of FCoE offloads, for the schema.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "describes the JSON of `Sizes`")]
struct FcoeSizes {
    /// DDP contexts.
    contexts: u16,
    /// Buffers of a context.
    buffers: u16,
    /// Entries of the redirection table.
    redirection: u8,
}

const UNKNOWN: Capabilities = Capabilities {
    pools: None,
    pools_are_modelled: false,
    promiscuous_pools: false,
    virtual_functions: None,
    anti_spoof: Support::Unknown,
    mirrors: None,
    vectors: None,
    moderation_unit_ns: None,
    adaptive: Adaptive::Unknown,
    fcoe: None,
    ncsi: Support::Unknown,
    sources: &[],
};

const NIANTIC: Capabilities = Capabilities {
    pools: Some(64),
    pools_are_modelled: true,
    promiscuous_pools: false,
    virtual_functions: Some(63),
    anti_spoof: Support::Yes,
    mirrors: Some(4),
    vectors: Some(64),
    moderation_unit_ns: Some(2048),
    adaptive: Adaptive::Ixgbe,
    fcoe: Some(crate::fcoe::E82599),
    ncsi: Support::Yes,
    sources: &[
        "Snabb intel_mp: 64 pools, mirrors, run on an 82599",
        "ixgbe: IXGBE_MAX_VFS_DRV_LIMIT, ixgbe_update_itr, IXGBE_FCOE_DDP_MAX, no promiscuous virtual functions up to the 82599",
        "82599 datasheet 331520: vectors, EITR",
        "Lanner paper: FCoE, NC-SI",
    ],
};

const X540: Capabilities = Capabilities {
    promiscuous_pools: true,
    ncsi: Support::Unknown,
    sources: &["ixgbe: treats it as the 82599, and accepts promiscuous virtual functions"],
    ..NIANTIC
};

const X550: Capabilities = Capabilities {
    promiscuous_pools: true,
    fcoe: Some(crate::fcoe::X550),
    sources: &[
        "X550 datasheet 333369-009: sections 7.8 (pools), 7.11 (FCoE), 11.3 and 11.6 (management)",
        "ixgbe",
    ],
    ..NIANTIC
};

const DIM: Capabilities = Capabilities { adaptive: Adaptive::Dim, ..UNKNOWN };

impl Profile {
    /// What the adapter has for virtual machines, interrupts, storage and management.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        match self.name {
            "82599" | "x520" => NIANTIC,
            "x540" => X540,
            "x550" => X550,
            "x710" | "xl710" | "x722" => Capabilities {
                moderation_unit_ns: Some(2000),
                adaptive: Adaptive::Own,
                sources: &["i40e: i40e_update_itr, ITR_TO_REG"],
                ..UNKNOWN
            },
            "e810" => Capabilities { sources: &["ice: net_dim with profiles of its own"], ..DIM },
            "mlx5" => Capabilities { sources: &["mlx5: mlx5e_handle_rx_dim"], ..DIM },
            "bnxt" | "bnxt-p5" => Capabilities { sources: &["bnxt_en: bnxt_dim.c"], ..DIM },
            "ena" => Capabilities { sources: &["ena: net_dim"], ..DIM },
            "82576" | "82580" | "i210" => Capabilities {
                moderation_unit_ns: if matches!(self.name.as_bytes(), b"i210") {
                    Some(1000)
                } else {
                    None
                },
                adaptive: Adaptive::Own,
                sources: &["igb: igb_update_itr", "I210 register EITR: 1 us"],
                ..UNKNOWN
            },
            "software" => Capabilities {
                pools: Some(0),
                virtual_functions: Some(0),
                anti_spoof: Support::No,
                mirrors: Some(0),
                ncsi: Support::No,
                sources: &["no adapter: the kernel only"],
                ..UNKNOWN
            },
            _ => UNKNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known has a source, and what has none is unknown.
    #[test]
    fn values_have_sources() {
        for profile in Profile::ALL {
            let can = profile.capabilities();
            let bare = Capabilities { sources: &[], ..can };
            assert_eq!(can.sources.is_empty(), bare == UNKNOWN, "{}", profile.name);
            assert!(!can.pools_are_modelled || can.pools.is_some(), "{}", profile.name);
        }
    }

    #[test]
    fn the_500_series_differs_as_its_sources_say() {
        let of = |name: &str| Profile::find(name).unwrap().capabilities();
        assert_eq!((of("x520").promiscuous_pools, of("x550").promiscuous_pools), (false, true));
        let contexts = |name: &str| of(name).fcoe.map(|sizes| sizes.contexts);
        assert_eq!(
            (contexts("82599"), contexts("x550"), contexts("e810")),
            (Some(512), Some(2048), None)
        );
        assert_eq!(of("x540").ncsi, Support::Unknown);
        assert_eq!(of("x710").virtual_functions, None);
    }
}
