//! Which services a packet from a backend may be a reply of.
//!
//! ```text
//!  web, 192.0.2.1:80 ──> 10.0.1.1:8080 <── shop, 192.0.2.2:80
//!  10.0.1.1:8080 > client:  192.0.2.1:80 > client, or 192.0.2.2:80 > client
//! ```
//!
//! Services may use one address and port of a backend. The connection tables decide between them. Ranges of ports are cut, so that
//! those of one address are equal or have no port in common; the services of a range follow each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use flowyard_frame::FlowKey;

use super::{Front, Plan, Target};

impl Plan {
    /// For a packet from the address and port of DNAT backends: these, in the order of their services.
    #[inline]
    pub(crate) fn answering(&self, reply: &FlowKey) -> &[Front] {
        let (fronts, proto, port) = (&self.fronts.returns, reply.proto, reply.sport);
        let Some(addr) = reply.src_ip() else { return &[] };
        let end = fronts.partition_point(|f| (f.addr, f.proto, f.first) <= (addr, proto, port));
        let Some(last) = end.checked_sub(1).and_then(|at| fronts.get(at)) else { return &[] };
        if last.addr != addr || last.proto != proto || port > last.last {
            return &[];
        }
        &fronts[end - 1 - usize::from(last.before)..end]
    }

    /// One of [`Self::answering`], and the flow of the client's packets that `reply` would answer.
    pub(crate) fn asked(&self, front: &Front, reply: &FlowKey) -> Option<(&Target, FlowKey)> {
        let table = self.services.get(usize::from(front.service))?;
        let target = self.member(table, front.index)?;
        let service = &table.service;
        let port = if target.port.is_some() { *service.ports.start() } else { reply.sport };
        let (client, vip) = (reply.dst_ip()?, service.vip);
        Some((target, FlowKey::five_tuple(reply.proto, client, reply.dport, vip, port)))
    }

    /// For a packet from the address and port of a DNAT backend of one service: the backend, and the flow of the client's
    /// packets if this is a reply to them.
    #[must_use]
    pub fn answered(&self, reply: &FlowKey) -> Option<(&Target, FlowKey)> {
        match self.answering(reply) {
            [front] => self.asked(front, reply),
            _ => None,
        }
    }

    /// The flows of other services that would have the same replies as a connection of `target` with this flow, and their
    /// backends.
    pub(crate) fn alike<'a>(
        &'a self,
        target: &'a Target,
        flow: &FlowKey,
    ) -> impl Iterator<Item = (&'a Target, FlowKey)> + use<'a> {
        let from = target.port.unwrap_or(flow.dport);
        let client = flow.src_ip().zip(Some(flow.sport));
        let reply = client
            .map(|(client, port)| FlowKey::five_tuple(flow.proto, target.addr, from, client, port));
        let all = reply.into_iter().flat_map(move |reply| {
            self.answering(&reply).iter().filter_map(move |front| self.asked(front, &reply))
        });
        all.filter(|(other, _)| other.service != target.service)
    }
}

/// Cuts ranges that have some ports in common, and sorts them. Returns also which backends have ports in common with others.
pub(crate) fn cut(all: Vec<Front>) -> (Vec<Front>, Vec<(u16, u16)>) {
    let mut cuts: BTreeMap<(IpAddr, u8), BTreeSet<u32>> = BTreeMap::new();
    for front in &all {
        let set = cuts.entry((front.addr, front.proto)).or_default();
        set.extend([u32::from(front.first), u32::from(front.last) + 1]);
    }
    let mut parts = Vec::with_capacity(all.len());
    for front in all {
        let Some(set) = cuts.get(&(front.addr, front.proto)) else { continue };
        let mut first = front.first;
        for end in set.range(u32::from(front.first) + 1..=u32::from(front.last) + 1) {
            let last = (end - 1) as u16; // at most that of the range
            parts.push(Front { first, last, ..front });
            first = last.wrapping_add(1);
        }
    }
    parts.sort_unstable();
    let mut shared = BTreeSet::new();
    for at in 1..parts.len() {
        let (one, next) = (parts[at - 1], parts[at]);
        if (one.addr, one.proto, one.first) == (next.addr, next.proto, next.first) {
            parts[at].before = one.before + 1;
            shared.extend([one, next].map(|front| (front.service, front.index)));
        }
    }
    (parts, shared.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each port of each range is found again, with all services that have it, and no other is.
        #[test]
        fn every_port_has_all_its_services(ranges in prop::collection::vec((0u8..3, 1u16..30, 0u16..10), 0..12)) {
            let all: Vec<Front> = (0..).zip(&ranges).map(|(service, &(host, first, more))| Front {
                addr: IpAddr::from([10, 0, 0, host]),
                proto: 6,
                first,
                last: first + more,
                service,
                index: 0,
                before: 0,
            }).collect();
            let (parts, shared) = cut(all.clone());
            let control = crate::Control::new(Vec::new(), 7, 1).unwrap();
            let mut plan = (*control.plan()).clone();
            plan.fronts.returns = parts;
            for host in 0..3 {
                for port in 1..45 {
                    let addr = IpAddr::from([10, 0, 0, host]);
                    let has = |front: &&Front| front.addr == addr && (front.first..=front.last).contains(&port);
                    let wanted: Vec<u16> = all.iter().filter(has).map(|front| front.service).collect();
                    let reply = FlowKey::five_tuple(6, addr, port, IpAddr::from([1, 2, 3, 4]), 5);
                    let found: Vec<u16> = plan.answering(&reply).iter().map(|front| front.service).collect();
                    if wanted.len() > 1 {
                        prop_assert!(wanted.iter().all(|service| shared.contains(&(*service, 0))));
                    }
                    prop_assert_eq!(found, wanted);
                }
            }
        }
    }

    #[test]
    fn the_last_port_is_cut_like_the_others() {
        let front = |service, first| Front {
            addr: IpAddr::from([10, 0, 0, 1]),
            proto: 17,
            first,
            last: u16::MAX,
            service,
            index: 0,
            before: 0,
        };
        let (parts, shared) = cut(vec![front(0, 1), front(1, u16::MAX)]);
        let ranges: Vec<_> = parts.iter().map(|f| (f.first, f.last, f.service, f.before)).collect();
        assert_eq!(ranges, [(1, 65_534, 0, 0), (65_535, 65_535, 0, 0), (65_535, 65_535, 1, 1)]);
        assert_eq!(shared, [(0, 0), (1, 0)]);
    }
}
