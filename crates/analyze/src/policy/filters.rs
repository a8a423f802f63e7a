//! ATR: a filter table in front of RSS, which the driver fills from transmitted packets.

use flowyard_adapter::FilterStats;
use flowyard_adapter::atr::{Atr82599, Conditions};
use flowyard_adapter::i40e::{AtrI40e, Chip, I40eConfig};
use flowyard_adapter::profile::AtrEvict;

use crate::landing::{Stage, Steered};
use crate::packet::Packet;
use crate::setup::{BadSetup, Setup};

/// ATR of the adapter's driver.
#[derive(Clone, Debug)]
pub(crate) enum Atr {
    Ixgbe {
        atr: Atr82599,
        rings: u16,
        /// The reason for which the driver turns ATR off, if it does.
        off: Option<&'static str>,
    },
    I40e {
        atr: AtrI40e,
        rings: u16,
    },
}

impl Atr {
    pub(crate) fn new(setup: &Setup) -> Result<Self, BadSetup> {
        let none = BadSetup::NoAtr(setup.adapter.name);
        let limits = setup.adapter.atr.ok_or(none)?;
        let rings = setup.adapter.reach(setup.queues).atr;
        let (rings, sample_rate) = (rings.min(setup.queues), setup.sample_rate);
        let chip = match limits.evict {
            AtrEvict::Flush => {
                let conditions = Conditions {
                    rss_queues: setup.adapter.reach(setup.queues).rss,
                    sample_rate,
                    ..Conditions::default()
                };
                let off = conditions.off();
                let sample_rate = if off.is_some() { 0 } else { sample_rate };
                let atr = Atr82599::new(rings, sample_rate, setup.pballoc)?;
                return Ok(Self::Ixgbe { atr, rings, off });
            }
            AtrEvict::Driver => Chip::Xl710,
            AtrEvict::Hardware => Chip::X722,
        };
        let config = I40eConfig { chip, rings, sample_rate, ..I40eConfig::default() };
        Ok(Self::I40e { atr: AtrI40e::new(config), rings })
    }

    /// The decision of the filter that matches a frame, or that of RSS.
    #[inline]
    pub(crate) fn receive(&mut self, packet: &Packet, by_rss: Steered) -> Steered {
        let hit = match self {
            Self::Ixgbe { atr, .. } => atr.receive(&packet.key, packet.now),
            Self::I40e { atr, .. } => atr.receive(&packet.key, packet.now),
        };
        hit.map_or(by_rss, |queue| Steered { queue, stage: Stage::Filter })
    }

    /// Reports a frame that `core` transmits. Its ring has the number of the core, as XPS configures
    /// it, modulo the number of rings.
    #[inline]
    pub(crate) fn transmit(&mut self, packet: &Packet, core: u16) {
        match self {
            Self::Ixgbe { atr, rings, .. } => {
                atr.transmit(core % *rings, &packet.key, packet.now);
            }
            Self::I40e { atr, rings } => atr.transmit(core % *rings, &packet.key, packet.now),
        }
    }

    /// The reason for which the driver turns ATR off, if it does.
    pub(crate) const fn off(&self) -> Option<&'static str> {
        match self {
            Self::Ixgbe { off, .. } => *off,
            Self::I40e { .. } => None,
        }
    }

    pub(crate) fn stats(&self) -> FilterStats {
        match self {
            Self::Ixgbe { atr, .. } => atr.stats(),
            Self::I40e { atr, .. } => atr.stats(),
        }
    }
}
