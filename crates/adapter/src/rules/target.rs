//! The rule engines: each is an adapter with the driver that programs it.

use flowyard_frame::FlowKey;
use serde::Serialize;

use super::rule::Rule;
use crate::fdir::Pballoc;

/// ICE_FDIR_MAX_FLTRS. A live function may have fewer, as GLQF_FD_SIZE reports.
const ICE_FILTERS: u32 = 16384;

/// The variant of the ixgbe driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize)]
pub enum Driver {
    /// The driver of the Linux kernel, which installs duplicates without a warning.
    #[default]
    InTree,
    /// Intel's separate driver. It compares only bucket hash and action, and therefore also refuses
    /// some rules that are not duplicates.
    OutOfTree,
}

/// A rule engine: an adapter with its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize)]
pub enum Target {
    /// 82599, X540 and X550 in perfect mode, with ixgbe.
    E82599 {
        /// The part of the packet buffer that holds filters.
        pballoc: Pballoc,
        /// The variant of the driver.
        driver: Driver,
    },
    /// 700 series with i40e.
    I40e {
        /// Filters guaranteed to the function.
        guaranteed: u32,
        /// Filters shared by all functions.
        best_effort: u32,
    },
    /// E810 with ice.
    Ice,
    /// virtio-net, which has no rules.
    Virtio,
    /// An adapter without rules.
    Software,
}

impl Target {
    /// The number of locations, which are counted from 0.
    #[must_use]
    pub fn locations(self) -> u32 {
        match self {
            Self::E82599 { pballoc, .. } => pballoc.locations(),
            Self::I40e { guaranteed, best_effort } => guaranteed.saturating_add(best_effort),
            Self::Ice => ICE_FILTERS,
            Self::Virtio | Self::Software => 0,
        }
    }

    /// The name of the driver for messages.
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

    /// The key and the mask that the hardware compares: those of the rule without the bits that the
    /// hardware cannot compare.
    #[must_use]
    pub fn filter(self, rule: &Rule) -> (FlowKey, FlowKey) {
        let mut mask = rule.mask;
        if let Self::E82599 { .. } = self {
            mask.vlan_tci &= 0xefff; // the CFI bit is never matched
        }
        (rule.key.masked(&mask), mask)
    }
}
