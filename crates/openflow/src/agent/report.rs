//! Multipart requests, with which a controller reads the state of the switch (1.3.5, section 7.3.5).

use super::flows::SECOND;
use super::peers::{Part, Peer};
use super::pieces::What;
use super::table::{Installed, Table};
use super::{Agent, Ask, Out, groups, memory, sum, wire};
use crate::Message;
use crate::group;
use crate::multipart::{FlowFilter, GroupStats, MeterStats, Reply, Request};
use crate::port::reserved;
use crate::problem::{self, Problem};
use crate::table::{self, TableStats};

/// The largest number of elements in a request that is split over several messages.
const PARTS: usize = 4096;
/// The largest number of such requests that wait for more messages, for each connection.
const WAITING: usize = 16;
/// The time for which they wait after each message.
const PATIENCE: u64 = 10 * SECOND;

impl Agent {
    /// Answers a multipart request; `None` if more messages of the same request are to come.
    pub(super) fn multipart(
        &mut self,
        ask: Ask,
        more: bool,
        body: &Request,
        out: &mut Vec<Out>,
    ) -> Result<Option<Message>, Problem> {
        let whole = self.gather(ask, more, body)?;
        let Some(whole) = whole else { return Ok(None) };
        let body = match whole.as_ref().unwrap_or(body) {
            Request::FlowMonitor(list) => {
                let added = self.watch(ask, list)?;
                return self.begin(ask, What::Initial(added)).map(Some);
            }
            Request::Flow(filter) => {
                return self.begin(ask, What::Flows(filter.clone())).map(Some);
            }
            Request::GroupDesc => return self.begin(ask, What::Groups).map(Some),
            Request::TableFeatures(list) => self.table_features(ask, list, out)?,
            request => self.report(ask, request)?,
        };
        Ok(Some(Message::MultipartReply { more: false, body }))
    }

    /// Joins the messages of a split request. Returns `None` until the last message; then
    /// `Some(None)` if the request is one message, else the joined request.
    #[allow(clippy::option_option, reason = "incomplete, a single message, or joined")]
    fn gather(
        &mut self,
        ask: Ask,
        more: bool,
        body: &Request,
    ) -> Result<Option<Option<Request>>, Problem> {
        let Some(peer) = self.peers.get_mut(&ask.from) else { return Ok(None) };
        // Messages of other requests may come in between; each request has its own xid.
        let at = peer.parts.iter().position(|part| part.xid == ask.xid);
        let before = at.map(|at| peer.parts.remove(at).body);
        let whole = match (before, body) {
            (None, _) if !more => return Ok(Some(None)),
            (None, _) if peer.parts.len() >= WAITING => return Err(problem::MULTIPART_OVERFLOW),
            (None, body) => body.clone(),
            (Some(Request::TableFeatures(mut list)), Request::TableFeatures(next)) => {
                list.extend_from_slice(next);
                Request::TableFeatures(list)
            }
            (Some(Request::FlowMonitor(mut list)), Request::FlowMonitor(next)) => {
                list.extend_from_slice(next);
                Request::FlowMonitor(list)
            }
            // A message may have no additional elements; these requests have none at all.
            (Some(before), next) if before == *next && before.is_empty() => before,
            _ => return Err(problem::REQUEST_BAD_MULTIPART),
        };
        let parts = match &whole {
            Request::TableFeatures(list) => list.len(),
            Request::FlowMonitor(list) => list.len(),
            _ => 0,
        };
        if parts > PARTS {
            return Err(problem::MULTIPART_OVERFLOW);
        }
        if more {
            let bytes = memory::of_request(&whole);
            let waits = |peer: &Peer| -> usize {
                peer.parts.iter().map(|part| memory::of_request(&part.body)).sum()
            };
            let own = self.peers.get(&ask.from).map_or(0, waits);
            let all: usize = self.peers.values().map(waits).sum();
            if own + bytes > self.memory.pieces || all + bytes > self.memory.all_pieces {
                return Err(problem::MULTIPART_OVERFLOW);
            }
            if let Some(peer) = self.peers.get_mut(&ask.from) {
                peer.parts.push(Part { xid: ask.xid, since: ask.now, body: whole });
            }
            return Ok(None);
        }
        Ok(Some(Some(whole)))
    }

    /// Discards requests whose next message has not come in time.
    pub(super) fn forget_parts(&mut self, now: u64, out: &mut Vec<Out>) {
        let after = self.changes;
        for (&to, peer) in &mut self.peers {
            let version = peer.version;
            peer.parts.retain(|part| {
                let waits = now.saturating_sub(part.since) < PATIENCE;
                if !waits {
                    let request = Message::MultipartRequest { more: true, body: part.body.clone() };
                    let request = wire(&request, version, part.xid);
                    let message = Message::error(problem::MULTIPART_TIMEOUT, version, &request);
                    out.push(Out { to, xid: part.xid, message, after, counts: None });
                }
                waits
            });
        }
    }

    /// A filter with its match in normal form.
    pub(super) fn checked(&self, filter: &FlowFilter) -> Result<FlowFilter, Problem> {
        filter.matching.check()?;
        let all = filter.table == table::ALL;
        if !all && usize::from(filter.table) >= self.tables.len() {
            return Err(problem::REQUEST_BAD_TABLE);
        }
        Ok(FlowFilter { matching: filter.matching.normal(), ..filter.clone() })
    }

    /// The flow entries that a filter selects.
    fn chosen(&self, filter: &FlowFilter) -> Result<Vec<&Installed>, Problem> {
        let filter = self.checked(filter)?;
        let all = filter.table == table::ALL;
        let tables = (0..=u8::MAX).zip(&self.tables).filter(|(at, _)| all || filter.table == *at);
        let flows = tables.flat_map(|(_, table)| table.iter()).filter(|flow| flow.is_in(&filter));
        let mut chosen: Vec<&Installed> = flows.collect();
        if all || filter.table == 0 {
            chosen.extend(self.own.chosen(&filter));
        }
        Ok(chosen)
    }

    fn report(&self, ask: Ask, request: &Request) -> Result<Reply, Problem> {
        let now = ask.now;
        Ok(match request {
            Request::Desc => Reply::Desc(Box::new(self.desc.clone())),
            Request::Aggregate(filter) => {
                let flows = self.chosen(filter)?;
                let add = |(packets, bytes): (u64, u64), flow: &&Installed| {
                    let (more, longer) = flow.counted();
                    let sum = |to: u64, more: Option<u64>| to.wrapping_add(more.unwrap_or(0));
                    (sum(packets, more), sum(bytes, longer))
                };
                let (packets, bytes) = flows.iter().fold((0, 0), add);
                Reply::Aggregate { packets, bytes, flows: flows.len() as u32 }
            }
            Request::Table => {
                let tables = (0..=u8::MAX).zip(&self.tables);
                Reply::Table(tables.map(|(at, table)| self.table_stats(at, table)).collect())
            }
            Request::PortStats(port) => {
                let any = *port == reserved::ANY;
                if !any && !self.ports.has(*port) {
                    return Err(problem::REQUEST_BAD_PORT);
                }
                Reply::PortStats(self.ports.stats(Some(*port).filter(|_| !any), ask.version, now))
            }
            Request::QueueStats { port, queue } | Request::QueueDesc { port, queue } => {
                if !matches!(*port, reserved::ANY | reserved::ALL) && !self.ports.has(*port) {
                    return Err(problem::QUEUE_BAD_PORT);
                }
                if *queue != u32::MAX {
                    return Err(problem::QUEUE_BAD_QUEUE);
                }
                match request {
                    Request::QueueDesc { .. } => Reply::QueueDesc(Vec::new()),
                    _ => Reply::QueueStats(Vec::new()),
                }
            }
            Request::Group(number) => Reply::Group(self.group_stats(*number, now)),
            Request::GroupFeatures => self.group_features(),
            Request::Meter(number) => Reply::Meter(self.meter_stats(*number, now)?),
            Request::MeterConfig(number) => {
                let all = *number == group::METER_ALL;
                if !all && !self.meters.contains_key(number) {
                    return Err(problem::METER_UNKNOWN);
                }
                let meters = self.meters.iter().filter(|(at, _)| all || *at == number);
                Reply::MeterConfig(meters.map(|(_, one)| one.meter.config.clone()).collect())
            }
            Request::MeterFeatures => self.meter_features(),
            Request::PortDesc => Reply::PortDesc(self.ports.list(ask.version)),
            Request::TableDesc => Reply::TableDesc(self.table_desc()),
            Request::Experimenter { .. } => return Err(problem::REQUEST_BAD_EXPERIMENTER),
            Request::TableFeatures(_)
            | Request::FlowMonitor(_)
            | Request::Flow(_)
            | Request::GroupDesc => {
                return Err(problem::REQUEST_BAD_MULTIPART);
            }
        })
    }

    fn group_features(&self) -> Reply {
        let most = self.limits.groups as u32;
        // All actions of 1.3: bits 0, 11, 12, 15 to 27.
        let actions = super::settings::ACTIONS.iter().fold(0, |sum, bit| sum | 1 << bit);
        Reply::GroupFeatures {
            types: 0xf,
            // Weights, liveness, chains, and checks of chains for loops.
            capabilities: 0xf,
            max: [most; 4],
            actions: [actions; 4],
        }
    }

    const fn meter_features(&self) -> Reply {
        Reply::MeterFeatures {
            max: self.limits.meters as u32,
            // Bands that drop, and bands that remark the DSCP.
            bands: 0b110,
            // Rates in kb/s and in packets/s, bursts, statistics.
            capabilities: 0xf,
            max_bands: groups::BANDS as u8,
            max_color: 8,
        }
    }

    fn table_stats(&self, number: u8, table: &Table) -> TableStats {
        let (looked_up, mut matched, _) = sum(&table.lookups);
        if number == 0 {
            matched = matched.saturating_sub(self.own.matched());
        }
        TableStats {
            table: number,
            name: crate::port::Text::from(format!("table{number}").as_str()),
            wildcards: 0x3f_ffff,
            max_entries: self.limits.flows as u32,
            active: table.len() as u32,
            looked_up,
            matched,
        }
    }

    fn group_stats(&self, number: u32, now: u64) -> Vec<GroupStats> {
        let (references, _) = self.references();
        let all = number == group::ALL;
        let groups = self.groups.iter().filter(|(at, _)| all || **at == number);
        let stats = groups.map(|(at, state)| {
            let (packets, bytes, _) = sum(&state.group.counts);
            let (duration_sec, duration_nsec) = super::flows::age(state.since, now);
            let pair = |counts| {
                let (packets, bytes, _) = sum(counts);
                (packets, bytes)
            };
            GroupStats {
                group: *at,
                references: references.get(at).copied().unwrap_or(0),
                packets,
                bytes,
                duration_sec,
                duration_nsec,
                buckets: state.group.buckets.chunks(self.cores).map(pair).collect(),
            }
        });
        stats.collect()
    }

    fn meter_stats(&self, number: u32, now: u64) -> Result<Vec<MeterStats>, Problem> {
        let all = number == group::METER_ALL;
        if !all && !self.meters.contains_key(&number) {
            return Err(problem::METER_UNKNOWN);
        }
        let (_, references) = self.references();
        let meters = self.meters.iter().filter(|(at, _)| all || **at == number);
        let stats = meters.map(|(at, state)| {
            let (packets, bytes, _) = sum(&state.meter.counts);
            let (duration_sec, duration_nsec) = super::flows::age(state.since, now);
            let pair = |counts| {
                let (packets, bytes, _) = sum(counts);
                (packets, bytes)
            };
            MeterStats {
                meter: *at,
                flows: references.get(at).copied().unwrap_or(0),
                packets,
                bytes,
                duration_sec,
                duration_nsec,
                bands: state.meter.bands.chunks(self.cores).map(pair).collect(),
            }
        });
        Ok(stats.collect())
    }
}
