//! The aRFS part of a driver, modelled after ice (E810): lists of filters that a task programs.
//!
//! ```text
//!  steer(key, queue, slot) -> list[hash & 1023], newest first: entry {id, slot, queue, INACTIVE}
//!  service task:  INACTIVE -> write to hardware, ACTIVE;  ACTIVE and expired -> delete
//! ```
//!
//! Nothing is programmed inline: until the task has run, packets of the flow arrive at the old queue
//! and repeat the request. The task writes deletes before adds.
//!
//! Invariants: an id identifies one entry among the last 65535 built; the hardware holds at most
//! `capacity` filters, one per flow.
//! Thread-safety: `&mut self`, which corresponds to the driver's lock.

use std::collections::{HashMap, VecDeque};

use flowyard_frame::{FlowKey, Nanos, proto};

use super::steer::NO_FILTER;
use crate::stats::FilterStats;

/// Number of filter lists in the driver; a power of two.
const LISTS: usize = 1024;
/// UDP filters are deleted after five seconds, whether they are used or not.
const UDP_LIFE: Nanos = 5_000_000_000;
/// Period of the timer that also starts the service task.
const PERIOD: Nanos = 1_000_000_000;

/// How the driver recognises a flow that already has an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlowMatch {
    /// Only by slot number: two flows with the same list and slot are taken for one (before mid-2025).
    FlowId,
    /// Also by the 4-tuple.
    #[default]
    Tuple,
}

/// The timing of the driver's service task, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceTask {
    /// Time from scheduling the task to its start.
    pub delay: Nanos,
    /// Time to write or delete one filter. The task runs again only when all writes are done.
    pub write: Nanos,
}

impl Default for ServiceTask {
    /// One millisecond, and no time for a write.
    fn default() -> Self {
        Self { delay: 1_000_000, write: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: FlowKey,
    flow_id: u32,
    id: u16,
    queue: u16,
    active: bool,
    activated: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Add(u16),
    Del,
}

/// The driver and the adapter's filter table.
#[derive(Clone, Debug)]
pub(super) struct Ice {
    lists: Vec<Vec<Entry>>, // newest last
    last_id: u32,
    matching: FlowMatch,
    task: ServiceTask,
    due: Option<Nanos>,
    timer: Nanos,
    free: Nanos, // when the last write was done
    writes: VecDeque<(Nanos, FlowKey, Write)>,
    hardware: HashMap<FlowKey, u16>,
    pub(super) filters: FilterStats,
    pub(super) built: u64,
    pub(super) calls: u64,
    pub(super) walked: u64,
}

impl Ice {
    pub(super) fn new(capacity: u32, matching: FlowMatch, task: ServiceTask) -> Self {
        Self {
            lists: vec![Vec::new(); LISTS],
            last_id: 0,
            matching,
            task,
            due: None,
            timer: PERIOD,
            free: 0,
            writes: VecDeque::new(),
            hardware: HashMap::new(),
            filters: FilterStats { capacity, ..FilterStats::default() },
            built: 0,
            calls: 0,
            walked: 0,
        }
    }

    /// The queue of the hardware filter that a packet matches.
    pub(super) fn lookup(&mut self, key: &FlowKey) -> Option<u16> {
        let queue = self.hardware.get(&key.flow()).copied().filter(|_| key.frag == 0);
        match queue {
            Some(_) => self.filters.hits += 1,
            None => self.filters.misses += 1,
        }
        queue
    }

    /// `ndo_rx_flow_steer`: the id of the filter of the flow, which may not be programmed yet.
    pub(super) fn steer(
        &mut self,
        key: &FlowKey,
        hash: u32,
        queue: u16,
        flow_id: u32,
        now: Nanos,
    ) -> Option<u16> {
        self.calls += 1;
        let ports = matches!(key.proto, proto::TCP | proto::UDP);
        if !ports || !key.is_ip() || key.frag != 0 || key.tunnel_id != 0 {
            return None; // not supported: plain RFS applies
        }
        let key = key.flow();
        let list = &mut self.lists[hash as usize & (LISTS - 1)];
        for entry in list.iter_mut().rev() {
            self.walked += 1;
            if entry.flow_id != flow_id || (self.matching == FlowMatch::Tuple && entry.key != key) {
                continue;
            }
            if entry.active && entry.queue != queue {
                entry.queue = queue;
                entry.active = false;
                schedule(&mut self.due, now.saturating_add(self.task.delay));
            }
            return Some(entry.id);
        }
        self.last_id = self.last_id.wrapping_add(1);
        let id = (self.last_id % u32::from(NO_FILTER)) as u16;
        list.push(Entry { key, flow_id, id, queue, active: false, activated: 0 });
        self.built += 1;
        schedule(&mut self.due, now.saturating_add(self.task.delay));
        Some(id)
    }

    /// Applies the writes that are done by `now`, and runs the service task if it is due. `expired` is
    /// the kernel's `rps_may_expire_flow(queue, slot, id)`.
    pub(super) fn tick(&mut self, now: Nanos, expired: impl Fn(u16, u32, u16) -> bool) {
        loop {
            while let Some(&(done, key, write)) = self.writes.front().filter(|w| w.0 <= now) {
                self.writes.pop_front();
                self.apply(key, write);
                self.free = done;
            }
            let start = self.due.map_or(self.timer, |due| due.min(self.timer)).max(self.free);
            if start > now || start == Nanos::MAX || !self.writes.is_empty() {
                return;
            }
            // Time may jump forward, as in captures: idle periods of the timer count as one.
            let idle = if self.due.is_none() { (now - start) / PERIOD * PERIOD } else { 0 };
            let start = start + idle;
            self.due = None;
            self.timer = start.saturating_add(PERIOD);
            self.run(start, &expired);
        }
    }

    /// Whether no task is scheduled and no write is pending.
    #[cfg(test)]
    pub(super) fn idle(&self) -> bool {
        self.due.is_none() && self.writes.is_empty()
    }

    /// One run of the service task: every list, deletes before adds.
    fn run(&mut self, start: Nanos, expired: &impl Fn(u16, u32, u16) -> bool) {
        let mut adds = Vec::new();
        let mut done = start;
        for list in &mut self.lists {
            list.retain_mut(|entry| {
                if !entry.active {
                    entry.active = true;
                    entry.activated = start;
                    adds.push((entry.key, entry.queue));
                    return true;
                }
                let udp = entry.key.proto == proto::UDP
                    && start.saturating_sub(entry.activated) >= UDP_LIFE;
                let keep = !udp && !expired(entry.queue, entry.flow_id, entry.id);
                if !keep {
                    done = done.saturating_add(self.task.write);
                    self.writes.push_back((done, entry.key, Write::Del));
                }
                keep
            });
        }
        for (key, queue) in adds {
            done = done.saturating_add(self.task.write);
            self.writes.push_back((done, key, Write::Add(queue)));
        }
    }

    fn apply(&mut self, key: FlowKey, write: Write) {
        let stats = &mut self.filters;
        match write {
            Write::Del => {
                if self.hardware.remove(&key).is_some() {
                    stats.evictions += 1;
                }
            }
            Write::Add(queue) if self.hardware.contains_key(&key) => {
                self.hardware.insert(key, queue);
                stats.updates += 1;
            }
            // The driver ignores the failure and considers the filter active until it expires.
            Write::Add(_) if self.hardware.len() as u64 >= u64::from(stats.capacity) => {
                stats.failed_adds += 1;
            }
            Write::Add(queue) => {
                self.hardware.insert(key, queue);
                stats.adds += 1;
            }
        }
        stats.occupancy = self.hardware.len() as u32;
    }
}

fn schedule(due: &mut Option<Nanos>, at: Nanos) {
    *due = Some(due.map_or(at, |due| due.min(at)));
}
