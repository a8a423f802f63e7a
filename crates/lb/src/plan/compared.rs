//! Choices that compare the weights and the connections of all backends, as the schedulers of IPVS do.
//!
//! | choice | compared | of IPVS |
//! |---|---|---|
//! | least | the fewest connections and one more, for the weight | `sed` |
//! | wlc | the fewest connections for the weight | `wlc` |
//! | nq | the first without connections, or else as least | `nq` |
//! | fo | the largest weight | `fo` |
//! | ovf | the largest weight of those with less connections than that | `ovf` |
//!
//! Among equals, the first one is chosen. Connections are those of all cores, in any state; IPVS compares established ones only, with
//! `wlc` 256 times as much as others.

use std::cmp::Reverse;

use super::{Plan, Table, Target};
use crate::service::Choice;

impl Plan {
    /// The backend of a service with such a choice, of those that `may` have another connection.
    pub(super) fn compared(&self, table: &Table, may: impl Fn(&Target) -> bool) -> Option<&Target> {
        let all = || {
            let all = table.members.iter();
            let all = all.filter_map(|&place| self.targets.get(place as usize)?.as_ref());
            all.filter(|target| target.weight > 0 && may(target))
        };
        let has = |target: &Target| u64::from(target.active.get());
        // The fewest connections and `more`, for the weight.
        let least = |more: u64| {
            let load = |a: &Target, b: &Target| (has(a) + more) * u64::from(b.weight);
            all().min_by(|a, b| load(a, b).cmp(&load(b, a)))
        };
        match table.service.choice {
            Choice::WeightedLeast => least(0),
            Choice::NeverQueue => all().find(|target| has(target) == 0).or_else(|| least(1)),
            Choice::Failover => all().min_by_key(|target| Reverse(target.weight)),
            Choice::Overflow => {
                let free = all().filter(|target| has(target) * 100 < u64::from(target.weight));
                free.min_by_key(|target| Reverse(target.weight))
            }
            _ => least(1),
        }
    }
}

#[cfg(test)]
mod tests;
