//! The truth about a run of the faulty device, by plain definitions from its log.

use std::collections::BTreeMap;

use flowyard_frame::Nanos;

use super::Left;

/// What really happened, over all ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Truth {
    /// Frames offered.
    pub offered: u64,
    /// Frames of which a whole copy left.
    pub good: u64,
    /// Whole copies after the first.
    pub duplicates: u64,
    /// Copies that left with wrong bits.
    pub corrupt: u64,
    /// First copies that left after a later frame of their flow.
    pub reordered: u64,
    /// How many frames of the flow lay between such a one and the earliest that overtook it.
    pub max_extent: u64,
    /// Runs of frames without a whole copy.
    pub gaps: u64,
    /// When the last frame that was lost was offered.
    pub last_lost: Option<Nanos>,
    /// Latencies of first copies, ascending.
    pub latencies: Vec<Nanos>,
}

/// From the frames offered (port, number, time), in order, and those that left, in order.
pub(super) fn of(offered: &[(u8, u64, Nanos)], log: &[Left]) -> Truth {
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
    for &(port, number, at) in offered {
        if came.contains_key(&(port, number)) {
            continue;
        }
        truth.last_lost = truth.last_lost.max(Some(at));
        let follows = number > 0 && !came.contains_key(&(port, number - 1));
        truth.gaps += u64::from(!follows);
    }
    truth
}
