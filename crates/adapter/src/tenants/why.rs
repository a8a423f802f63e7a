//! Which tenants get a frame, and why, in words.

use serde::Serialize;

use super::Tenants;
use crate::vmdq::{L2, Pools, Received, Refused, Step, Vmdq, each};

/// A copy of a frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Copy {
    /// The pool.
    pub pool: u8,
    /// The name of the tenant; `None` for a pool that no line names.
    pub tenant: Option<String>,
    /// The receive queue, counted over the whole port.
    pub queue: u16,
}

/// Who gets a frame, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Answer {
    /// The copies, by pool. None means that the frame is dropped.
    pub copies: Vec<Copy>,
    /// The steps that led there, in sentences.
    pub why: Vec<String>,
}

impl Tenants {
    /// Who gets `frame` from `card`, the switch of these tenants. `rss` is the entry of the indirection table for the
    /// frame's hash.
    #[must_use]
    pub fn answer(&self, card: &Vmdq, frame: &L2, rss: u16) -> Answer {
        let found = card.receive(frame);
        let copies = each(found.pools).map(|pool| self.copy(card, pool, frame, &found, rss));
        Answer { copies: copies.collect(), why: self.why(frame, &found) }
    }

    /// The queue of a pool for a frame.
    #[must_use]
    pub fn queue(&self, card: &Vmdq, pool: u8, tci: Option<u16>, rss: u16) -> u16 {
        let queues = self.of_pool(pool).and_then(|tenant| tenant.queues);
        card.layout.queue(pool, queues.unwrap_or(card.layout.queues()), rss, tci)
    }

    fn copy(&self, card: &Vmdq, pool: u8, frame: &L2, found: &Received, rss: u16) -> Copy {
        let by_type = found.queue.filter(|queue| queue / card.layout.queues() == u16::from(pool));
        let queue = by_type.unwrap_or_else(|| self.queue(card, pool, frame.tci, rss));
        Copy { pool, tenant: self.of_pool(pool).map(|tenant| tenant.name.clone()), queue }
    }

    /// `web (pool 1) and pool 3`.
    #[must_use]
    pub fn names(&self, pools: Pools) -> String {
        let name = |pool| match self.of_pool(pool) {
            Some(tenant) => format!("{} (pool {pool})", tenant.name),
            None => format!("pool {pool}"),
        };
        match pools {
            0 => "nobody".to_owned(),
            u64::MAX => "every pool".to_owned(),
            pools => each(pools).map(name).collect::<Vec<_>>().join(", "),
        }
    }

    fn why(&self, frame: &L2, found: &Received) -> Vec<String> {
        let vlan = frame.vlan().map_or_else(|| "no VLAN".to_owned(), |vid| format!("VLAN {vid}"));
        match found.refused {
            Some(Refused::Address) => {
                return vec![
                    "no filter has the destination address, and the port is not promiscuous: dropped".to_owned(),
                ];
            }
            Some(Refused::Vlan) => return vec![format!("no tenant has {vlan}: dropped")],
            None => {}
        }
        let mut before = 0;
        let mut why: Vec<String> = Vec::new();
        for cause in found.trace.causes() {
            let (added, removed) = (cause.pools & !before, before & !cause.pools);
            why.push(self.sentence(cause.step, added, removed, &vlan));
            before = cause.pools;
        }
        if found.pools == 0 {
            why.push("no pool is left: dropped".to_owned());
        }
        why
    }

    fn sentence(&self, step: Step, added: Pools, removed: Pools, vlan: &str) -> String {
        let (added, removed) = (self.names(added), self.names(removed));
        let what = match step {
            Step::Exact => format!("the destination address is a filter of {added}"),
            Step::Enabled => format!("{removed} may not receive"),
            Step::Broadcast => format!("broadcast is accepted by {added}"),
            Step::UnicastHash => format!("the unicast hash table has the address: {added}"),
            Step::MulticastHash => format!("the multicast hash table has the address: {added}"),
            Step::AllMulticast => format!("all multicast is accepted by {added}"),
            Step::AllUnicast => format!("all unicast is accepted by {added}"),
            Step::Vlan => format!("{removed} is not a member of {vlan}"),
            Step::Default => format!("no pool is left, so the default pool gets it: {added}"),
            Step::EtherType => format!("an EtherType filter sends it to {added}"),
            Step::Source => format!("the source address belongs to {removed}"),
            Step::Mirror => format!("a mirroring rule gives a copy to {added}"),
        };
        format!("{what} (step {})", step.number())
    }
}
