//! RFS: deliver a packet where its flow is consumed, without overtaking packets still queued elsewhere.
//!
//! Two tables. The global one says where a flow *wants* to be; each receive queue has one that says
//! where the flow *is*, and the tail of that CPU's backlog when its last packet was enqueued.
//! A flow moves only when its old CPU's head has passed that tail: everything it sent there is done.
//! Flows that share a slot share the record, so they may move each other.
//!
//! Invariants: table sizes are powers of two; counters are free-running and compared by signed
//! difference, so they may wrap.
//! Thread-safety: `&mut self`; the kernel's unlocked reads are modelled as atomic.

use super::backlog::CpuQueues;
use super::rps::Rps;
use super::steer::{ArfsFix, NO_FILTER, Steer};

/// No CPU: the slot was never used.
const NO_CPU: u16 = u16::MAX;
/// How the slot of a device table is chosen from the hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SlotIndex {
    /// The low bits (kernels before 2025).
    Mask,
    /// The high bits of the hash times the golden ratio (`hash_32`, kernels since 2025).
    #[default]
    Hash32,
}

/// Sizes of RFS.
#[derive(Clone, Debug)]
pub struct RfsConfig {
    /// `rps_sock_flow_entries`; rounded up to a power of two.
    pub sock_flow_entries: u32,
    /// `rps_flow_cnt` of every queue; rounded up to a power of two. 0 turns RFS off.
    pub flow_cnt: u32,
    /// Receive queues.
    pub queues: u16,
    /// CPUs, numbered from 0.
    pub cpus: u16,
    /// How a slot is chosen.
    pub slot: SlotIndex,
    /// `rps_cpus` of every queue: the fallback.
    pub rps: Rps,
}

impl Default for RfsConfig {
    /// 32768 global entries shared out to one queue, one CPU, no RPS.
    fn default() -> Self {
        Self {
            sock_flow_entries: 32768,
            flow_cnt: 32768,
            queues: 1,
            cpus: 1,
            slot: SlotIndex::default(),
            rps: Rps::default(),
        }
    }
}

/// One slot of a device table.
#[derive(Clone, Copy, Debug)]
struct DevFlow {
    cpu: u16,
    filter: u16,
    last_qtail: u32,
    /// The flow that owns the filter; only kernels with [`ArfsFix::After`] keep it.
    hash: u32,
}

/// Plain RFS: no adapter to ask.
struct NoSteer;

impl Steer for NoSteer {
    fn fix(&self) -> ArfsFix {
        ArfsFix::After
    }
    fn queue_of(&self, _cpu: u16) -> Option<u16> {
        None
    }
    fn steer(&mut self, _queue: u16, _flow_id: u32) -> Option<u16> {
        None
    }
}

/// Receive flow steering of one device.
#[derive(Clone, Debug)]
pub struct Rfs {
    wanted: Vec<u32>,
    cpu_mask: u32,
    flows: Vec<DevFlow>,
    log: u32,
    config: RfsConfig,
}

impl Rfs {
    /// RFS with empty tables. Sizes are capped at 2^29 global and 2^20 device entries per queue.
    #[must_use]
    pub fn new(config: RfsConfig) -> Self {
        let entries = config.sock_flow_entries.clamp(1, 1 << 29).next_power_of_two();
        let cpu_mask = u32::from(config.cpus.max(1)).next_power_of_two() - 1;
        let per_queue = match config.flow_cnt {
            0 => 0,
            n => n.min(1 << 20).next_power_of_two(),
        };
        let unset = DevFlow { cpu: NO_CPU, filter: NO_FILTER, last_qtail: 0, hash: 0 };
        Self {
            wanted: vec![u32::from(NO_CPU); entries as usize],
            cpu_mask,
            flows: vec![unset; per_queue as usize * usize::from(config.queues)],
            log: per_queue.max(1).ilog2(),
            config,
        }
    }

    /// A thread on `cpu` consumed (recvmsg) or fed (sendmsg) the flow: it wants its packets there.
    #[inline]
    pub fn consume(&mut self, hash: u32, cpu: u16) {
        let slot = hash as usize & (self.wanted.len() - 1);
        self.wanted[slot] = (hash & !self.cpu_mask) | (u32::from(cpu) & self.cpu_mask);
    }

    /// The CPU on which the flow was consumed last; `None` where its entry is unset or another
    /// flow's.
    #[must_use]
    pub fn wanted(&self, hash: u32) -> Option<u16> {
        let wanted = self.wanted[hash as usize & (self.wanted.len() - 1)];
        let cpu = (wanted & self.cpu_mask) as u16;
        ((wanted ^ hash) & !self.cpu_mask == 0 && cpu < self.config.cpus).then_some(cpu)
    }

    /// Where a packet that came in by `rxq` is processed; `None` is the CPU that took the
    /// interrupt. The caller then enqueues it there: the slot already records the tail that the
    /// packet will have.
    pub fn receive(&mut self, hash: u32, rxq: u16, backlog: &mut impl CpuQueues) -> Option<u16> {
        self.decide(hash, rxq, backlog, &mut NoSteer)
    }

    /// The walk of `get_rps_cpu`.
    pub(super) fn decide(
        &mut self,
        hash: u32,
        rxq: u16,
        backlog: &impl CpuQueues,
        nic: &mut impl Steer,
    ) -> Option<u16> {
        let wanted = self.wanted[hash as usize & (self.wanted.len() - 1)];
        let Some(mut slot) = self.slot(hash, rxq) else {
            return self.config.rps.cpu(hash, backlog);
        };
        if (wanted ^ hash) & !self.cpu_mask != 0 {
            return self.config.rps.cpu(hash, backlog); // another flow's entry, or none
        }
        let next = (wanted & self.cpu_mask) as u16;
        let mut cpu = self.flows[slot].cpu;
        if cpu != next && self.may_move(slot, backlog) {
            cpu = next;
            slot = self.set_cpu(hash, rxq, slot, next, backlog, nic);
        }
        if cpu >= self.config.cpus || !backlog.online(cpu) {
            return self.config.rps.cpu(hash, backlog);
        }
        self.flows[slot].last_qtail = backlog.tail(cpu).wrapping_add(1);
        Some(cpu)
    }

    /// Whether everything recorded in `slot` has left its CPU's backlog.
    fn may_move(&self, slot: usize, backlog: &impl CpuQueues) -> bool {
        let flow = &self.flows[slot];
        flow.cpu >= self.config.cpus
            || !backlog.online(flow.cpu)
            || backlog.head(flow.cpu).wrapping_sub(flow.last_qtail).cast_signed() >= 0
    }

    /// The walk of `set_rps_cpu`: moves the flow to `next`, by the adapter if it can. Returns the
    /// slot to record the packet in: the target queue's once a filter was asked for.
    fn set_cpu(
        &mut self,
        hash: u32,
        rxq: u16,
        mut slot: usize,
        next: u16,
        backlog: &impl CpuQueues,
        nic: &mut impl Steer,
    ) -> usize {
        if next < self.config.cpus {
            if let Some(target) = nic.queue_of(next).filter(|&queue| queue != rxq)
                && let Some(wanted) = self.slot(hash, target)
                && self.may_program(wanted, hash, next, backlog, nic.fix())
                && let Some(filter) = nic.steer(target, self.flow_id(hash))
            {
                let old = std::mem::replace(&mut slot, wanted);
                self.flows[slot].filter = filter;
                self.flows[slot].hash = hash;
                if self.flows[old].filter == filter {
                    self.flows[old].filter = NO_FILTER; // the filter moved with the flow
                }
            }
            self.flows[slot].last_qtail = backlog.head(next);
        }
        self.flows[slot].cpu = next;
        slot
    }

    /// Before the fix any flow may take the slot. After it (netdev, July 2025), a slot whose filter
    /// is active is taken only by the same hash, and only to change the CPU.
    fn may_program(
        &self,
        slot: usize,
        hash: u32,
        next: u16,
        backlog: &impl CpuQueues,
        fix: ArfsFix,
    ) -> bool {
        let flow = &self.flows[slot];
        fix == ArfsFix::Before
            || flow.filter == NO_FILTER
            || !self.active(slot, backlog)
            || (flow.hash == hash && flow.cpu != next)
    }

    /// Whether the slot's CPU has processed fewer than 10 times the table size since its last packet.
    fn active(&self, slot: usize, backlog: &impl CpuQueues) -> bool {
        let flow = &self.flows[slot];
        let limit = 10i64 << self.log;
        flow.cpu < self.config.cpus
            && i64::from(backlog.head(flow.cpu).wrapping_sub(flow.last_qtail).cast_signed()) < limit
    }

    /// `rps_may_expire_flow`: whether a driver may remove its filter `id` of slot `flow_id`.
    pub(super) fn may_expire(
        &self,
        rxq: u16,
        flow_id: u32,
        id: u16,
        backlog: &impl CpuQueues,
    ) -> bool {
        match self.index(flow_id, rxq) {
            Some(slot) => self.flows[slot].filter != id || !self.active(slot, backlog),
            None => true,
        }
    }

    /// The slot of `hash` in a device table, as drivers know it.
    fn flow_id(&self, hash: u32) -> u32 {
        match self.config.slot {
            SlotIndex::Mask => hash & ((1 << self.log) - 1),
            SlotIndex::Hash32 if self.log == 0 => 0,
            SlotIndex::Hash32 => hash.wrapping_mul(0x61c8_8647) >> (32 - self.log),
        }
    }

    fn slot(&self, hash: u32, rxq: u16) -> Option<usize> {
        self.index(self.flow_id(hash), rxq)
    }

    fn index(&self, flow_id: u32, rxq: u16) -> Option<usize> {
        let slot = (usize::from(rxq) << self.log) + flow_id as usize;
        (slot < self.flows.len()).then_some(slot)
    }
}

#[cfg(test)]
mod tests;
