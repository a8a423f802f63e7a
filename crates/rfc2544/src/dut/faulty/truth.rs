//! The truth about a run of the faulty device, computed from its log by the plain definitions.

use std::collections::BTreeMap;

use flowyard_frame::Nanos;

use super::{Left, Offered};

/// What the device really did, over all ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Truth {
    /// Frames offered to the device.
    pub offered: u64,
    /// Frames of which an undamaged copy left.
    pub good: u64,
    /// Undamaged copies after the first.
    pub duplicates: u64,
    /// Copies that left with wrong bits.
    pub corrupt: u64,
    /// First copies that left after a later frame of their flow.
    pub reordered: u64,
    /// The largest reordering extent: the number of frames of the flow from the earliest one that
    /// overtook the reordered frame.
    pub max_extent: u64,
    /// Runs of frames of which no undamaged copy left.
    pub gaps: u64,
    /// The time at which the last lost frame was offered.
    pub last_lost: Option<Nanos>,
    /// Latencies of first copies in ascending order.
    pub latencies: Vec<Nanos>,
}

/// Computes the truth from the offered frames and the log, both in order.
pub(super) fn of(offered: &[Offered], log: &[Left]) -> Truth {
    let mut truth = Truth { offered: offered.len() as u64, ..Truth::default() };
    let mut came: BTreeMap<(u8, u64), ()> = BTreeMap::new();
    let mut flows: BTreeMap<(u8, [u8; 12]), Vec<u64>> = BTreeMap::new();
    for left in log {
        let source = left.port ^ 1;
        if !left.whole {
            truth.corrupt += 1;
            continue;
        }
        if came.insert((source, left.number), ()).is_some() {
            truth.duplicates += 1;
            continue;
        }
        truth.latencies.push(left.at - left.offered);
        let flow = flows.entry((source, left.flow)).or_default();
        if let Some(overtook) = flow.iter().position(|&number| number > left.number) {
            truth.reordered += 1;
            truth.max_extent = truth.max_extent.max((flow.len() - overtook) as u64);
        }
        flow.push(left.number);
    }
    truth.good = came.len() as u64;
    truth.latencies.sort_unstable();
    for &Offered { port, number, at } in offered {
        if came.contains_key(&(port, number)) {
            continue;
        }
        truth.last_lost = truth.last_lost.max(Some(at));
        let follows = number > 0 && !came.contains_key(&(port, number - 1));
        truth.gaps += u64::from(!follows);
    }
    truth
}
