//! Which tenant of a file gets each frame of the capture: pools of VMDq and virtual functions, their queues, and what a
//! management controller gets.
//!
//! A frame whose source address is a filter of a pool was transmitted by that tenant; every other frame comes from the
//! network. The queue in a pool follows from the entry that the adapter's indirection table has for the frame.

use std::collections::BTreeMap;

use flowyard_adapter::tenants::{Answer, Place, Tenants};
use flowyard_adapter::vmdq::{L2, Refused, Spoof, Vmdq, each};

use crate::packet::Packet;
use crate::setup::{BadSetup, Setup};
use crate::summary::{PoolSummary, TenantsSummary};

/// The tenants of an analysis, with their counters.
pub(crate) struct Sorting {
    pub(crate) tenants: Tenants,
    pub(crate) card: Vmdq,
    remarks: Vec<String>,
    pools: BTreeMap<u8, PoolSummary>,
    dropped: BTreeMap<&'static str, u64>,
    management: BTreeMap<&'static str, u64>,
}

impl Sorting {
    /// The sorting of the setup, if it has tenants.
    pub(crate) fn new(setup: &Setup) -> Result<Option<Self>, BadSetup> {
        let Some(tenants) = setup.tenants.clone() else { return Ok(None) };
        let can = setup.adapter.capabilities();
        if !can.pools_are_modelled {
            return Err(BadSetup::NoPools(setup.adapter.name));
        }
        let (card, remarks) = tenants.card(can.promiscuous_pools).map_err(|errors| {
            BadSetup::Tenants(errors.into_iter().next().map_or_else(String::new, |e| e.to_string()))
        })?;
        let remarks = remarks
            .iter()
            .map(|remark| format!("{}:{}: {}", tenants.file, remark.line, remark.text));
        let remarks = remarks.collect();
        let mut pools = BTreeMap::new();
        for tenant in &tenants.tenants {
            let pool = tenants.pool(tenant.place);
            let place = match tenant.place {
                Place::Pool(_) => "pool",
                Place::Vf(_) => "vf",
                Place::Physical => "pf",
            };
            let name = Some(tenant.name.clone());
            let place = Some(place.to_owned());
            pools.insert(pool, PoolSummary { pool, tenant: name, place, ..PoolSummary::default() });
        }
        let (dropped, management) = (BTreeMap::new(), BTreeMap::new());
        Ok(Some(Self { tenants, card, remarks, pools, dropped, management }))
    }

    /// Counts a frame.
    pub(crate) fn count(&mut self, packet: &Packet) {
        let frame = L2::of(&packet.key);
        let sender = self.card.macs().iter().find(|filter| filter.mac == frame.src);
        match sender.and_then(|filter| each(filter.pools).next()) {
            Some(pool) => self.sent(pool, &frame, packet),
            None => self.received(&frame, packet),
        }
    }

    fn sent(&mut self, pool: u8, frame: &L2, packet: &Packet) {
        let found = self.card.transmit(pool, frame);
        let own = self.pool(pool);
        own.to_network += u64::from(found.to_network);
        own.local += u64::from(found.pools != 0 && !found.to_network);
        if let Some(why) = found.dropped {
            *own.spoofed.entry(spoof(why).to_owned()).or_default() += 1;
        }
        let sent = L2 { tci: found.tci, ..*frame };
        each(found.pools).for_each(|to| self.deliver(to, &sent, packet, None));
    }

    fn received(&mut self, frame: &L2, packet: &Packet) {
        if let Some(bmc) = &self.tenants.bmc {
            let found = bmc.decide(&packet.key, packet.icmp_type);
            if let Some(by) = found.to_bmc {
                *self.management.entry(by.name()).or_default() += 1;
            }
            if !found.to_host {
                return;
            }
        }
        let found = self.card.receive(frame);
        if found.pools == 0 {
            let why = match found.refused {
                Some(Refused::Address) => "no filter of the address",
                Some(Refused::Vlan) => "no filter of the VLAN",
                None => "no pool left",
            };
            *self.dropped.entry(why).or_default() += 1;
        }
        each(found.pools).for_each(|pool| self.deliver(pool, frame, packet, found.queue));
    }

    fn deliver(&mut self, pool: u8, frame: &L2, packet: &Packet, queue: Option<u16>) {
        let by_type = queue.filter(|queue| queue / self.card.layout.queues() == u16::from(pool));
        let hashed = || self.tenants.queue(&self.card, pool, frame.tci, packet.own_queue);
        let queue = by_type.unwrap_or_else(hashed);
        let to = self.pool(pool);
        to.packets += 1;
        to.bytes += u64::from(packet.wire_len);
        *to.queues.entry(queue).or_default() += 1;
    }

    fn pool(&mut self, pool: u8) -> &mut PoolSummary {
        self.pools.entry(pool).or_insert_with(|| PoolSummary { pool, ..PoolSummary::default() })
    }

    /// Who gets a frame, and why.
    pub(crate) fn answer(&self, packet: &Packet) -> Answer {
        self.tenants.answer(&self.card, &L2::of(&packet.key), packet.own_queue)
    }

    pub(crate) fn summary(&self) -> TenantsSummary {
        let owned = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().map(|(why, frames)| ((*why).to_owned(), *frames)).collect()
        };
        TenantsSummary {
            file: self.tenants.file.clone(),
            layout: self.card.layout.name().to_owned(),
            default_pool: self.card.default_pool,
            pools: self.pools.values().cloned().collect(),
            dropped: owned(&self.dropped),
            management: self.tenants.bmc.as_ref().map(|_| owned(&self.management)),
            remarks: self.remarks.clone(),
        }
    }
}

const fn spoof(why: Spoof) -> &'static str {
    match why {
        Spoof::Disabled => "may not transmit",
        Spoof::Mac => "foreign source address",
        Spoof::Vlan => "foreign VLAN",
    }
}
