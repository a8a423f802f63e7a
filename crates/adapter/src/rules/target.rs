//! The rule engines: an adapter and the driver that programs it.

use flowyard_frame::FlowKey;
use serde::Serialize;

use super::rule::Rule;
use crate::fdir::Pballoc;

/// ICE_FDIR_MAX_FLTRS. A live function may have fewer: read GLQF_FD_SIZE.
const ICE_FILTERS: u32 = 16384;

/// Which ixgbe drives an 82599.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize)]
pub enum Driver {
    /// The kernel's own: installs duplicates without a word.
    #[default]
    InTree,
    /// Intel's separate driver: compares bucket hash and action, so it also refuses strangers.
    OutOfTree,
}

/// A rule engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize)]
pub enum Target {
    /// 82599, X540, X550 in perfect mode, under ixgbe.
    E82599 {
        /// The packet buffer given to filters.
        pballoc: Pballoc,
        /// The driver.
        driver: Driver,
    },
    /// 700 series under i40e.
    I40e {
        /// Filters guaranteed to the function.
        guaranteed: u32,
        /// Filters shared by all functions.
        best_effort: u32,
    },
    /// E810 under ice.
    Ice,
    /// virtio-net: no rules.
    Virtio,
    /// No adapter to speak of: no rules.
    Software,
}

impl Target {
    /// Locations the engine has, counted from 0.
    #[must_use]
    pub fn locations(self) -> u32 {
        match self {
            Self::E82599 { pballoc, .. } => pballoc.locations(),
            Self::I40e { guaranteed, best_effort } => guaranteed.saturating_add(best_effort),
            Self::Ice => ICE_FILTERS,
            Self::Virtio | Self::Software => 0,
        }
    }

    /// The driver's name, for messages.
    #[must_use]
    pub const fn driver_name(self) -> &'static str {
        match self {
            Self::E82599 { .. } => "ixgbe",
            Self::I40e { .. } => "i40e",
            Self::Ice => "ice",
            Self::Virtio => "virtio_net",
            Self::Software => "the kernel",
        }
    }

    /// The key and mask that the hardware compares: the rule's, less what it cannot compare.
    #[must_use]
    pub fn filter(self, rule: &Rule) -> (FlowKey, FlowKey) {
        let mut mask = rule.mask;
        if let Self::E82599 { .. } = self {
            mask.vlan_tci &= 0xefff; // the CFI bit is never matched
        }
        (rule.key.masked(&mask), mask)
    }
}
