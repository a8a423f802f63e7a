//! The policies with a hardware filter table in front of RSS: the user's rules, and ATR.

use flowyard_adapter::FilterStats;
use flowyard_adapter::atr::{Atr82599, Conditions};
use flowyard_adapter::i40e::{AtrI40e, Chip, I40eConfig};
use flowyard_adapter::profile::AtrEvict;

use crate::landing::Stage;
use crate::packet::Packet;
use crate::setup::{BadSetup, Setup};

/// ATR as the adapter's driver does it.
#[derive(Clone, Debug)]
pub(crate) enum Atr {
    /// `off` says why the driver does not sample, where it does not.
    Ixgbe {
        atr: Atr82599,
        rings: u16,
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

    /// The queue of a filter that matches, or what RSS said.
    #[inline]
    pub(crate) fn receive(&mut self, packet: &Packet, queue: u16, stage: Stage) -> (u16, Stage) {
        let hit = match self {
            Self::Ixgbe { atr, .. } => atr.receive(&packet.key, packet.now),
            Self::I40e { atr, .. } => atr.receive(&packet.key, packet.now),
        };
        hit.map_or((queue, stage), |queue| (queue, Stage::Filter))
    }

    /// A frame leaves by the transmit ring of `core`: the ring with the core's number, as XPS sets
    /// it up, or modulo the rings where there are more cores.
    #[inline]
    pub(crate) fn transmit(&mut self, packet: &Packet, core: u16) {
        match self {
            Self::Ixgbe { atr, rings, .. } => {
                atr.transmit(core % *rings, &packet.key, packet.now);
            }
            Self::I40e { atr, rings } => atr.transmit(core % *rings, &packet.key, packet.now),
        }
    }

    /// Why the driver keeps ATR off, if it does.
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
