//! The policies with a hardware filter table in front of RSS: the user's rules, and ATR.

use flowyard_adapter::FilterStats;
use flowyard_adapter::atr::Atr82599;

use super::Stage;
use crate::packet::Packet;
use crate::setup::{BadSetup, RuleFile, Setup};
use crate::summary::RuleSummary;

/// ATR as the adapter's driver does it.
#[derive(Clone, Debug)]
pub(crate) enum Atr {
    Ixgbe(Atr82599),
}

impl Atr {
    pub(crate) fn new(setup: &Setup) -> Result<Self, BadSetup> {
        let rings = setup.adapter.reach(setup.queues).atr;
        Ok(Self::Ixgbe(Atr82599::new(rings, setup.sample_rate, setup.pballoc).unwrap()))
    }

    /// The queue of a filter that matches, or what RSS said.
    #[inline]
    pub(crate) fn receive(&mut self, packet: &Packet, queue: u16, stage: Stage) -> (u16, Stage) {
        let hit = match self {
            Self::Ixgbe(atr) => atr.receive(&packet.key, packet.now),
        };
        hit.map_or((queue, stage), |queue| (queue, Stage::Filter))
    }

    /// A frame leaves by the transmit ring of `core`.
    #[inline]
    pub(crate) fn transmit(&mut self, packet: &Packet, core: u16) {
        match self {
            Self::Ixgbe(atr) => {
                atr.transmit(core, &packet.key, packet.now);
            }
        }
    }

    pub(crate) fn stats(&self) -> FilterStats {
        match self {
            Self::Ixgbe(atr) => atr.stats(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Fdir;
impl Fdir {
    pub(crate) fn new(_: &RuleFile, _: &Setup) -> Result<Self, BadSetup> {
        Ok(Self)
    }
    pub(crate) fn receive(&mut self, _: &Packet, queue: u16, stage: Stage) -> (u16, Stage) {
        (queue, stage)
    }
    pub(crate) fn why(&self, _: &Packet) -> Option<String> { None }
    pub(crate) fn stats(&self) -> FilterStats {
        FilterStats::default()
    }
    pub(crate) fn rules(&self) -> Vec<RuleSummary> {
        Vec::new()
    }
}
