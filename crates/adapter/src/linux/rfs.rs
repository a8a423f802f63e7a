//! RFS: process a packet on the CPU that consumes its flow, without overtaking packets of the flow.
//!
//! There are two kinds of table. The global table has the CPU that last consumed each flow. The device
//! table of each receive queue has the CPU that processes the flow now, and the tail of that CPU's
//! backlog when the last packet of the flow was enqueued. A flow moves only when the head of the old
//! CPU has passed that tail, that is, when all its packets there are done. Flows with the same slot
//! share one record, so one of them can move the other.
//!
//! Invariants: table sizes are powers of two; counters are free-running and compared by signed
//! difference, so they may wrap.
//! Thread-safety: `&mut self`; unlocked reads of the kernel are modelled as atomic.

use super::backlog::CpuQueues;
use super::rps::Rps;
use super::steer::{ArfsFix, NO_FILTER, Steer};

/// The CPU of a slot that was never used.
const NO_CPU: u16 = u16::MAX;
/// How the hash selects the slot of a device table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SlotIndex {
    /// The low bits (kernels before 2025).
    Mask,
    /// The high bits of the hash times the golden ratio (`hash_32`, kernels since 2025).
    #[default]
    Hash32,
}

/// The parameters of RFS.
#[derive(Clone, Debug)]
pub struct RfsConfig {
    /// `rps_sock_flow_entries`; rounded up to a power of two.
    pub sock_flow_entries: u32,
    /// `rps_flow_cnt` of every queue; rounded up to a power of two. 0 turns RFS off.
    pub flow_cnt: u32,
    /// Number of receive queues.
    pub queues: u16,
    /// Number of CPUs.
    pub cpus: u16,
    /// How the hash selects a slot.
    pub slot: SlotIndex,
    /// `rps_cpus` of every queue: used for flows without a recorded consumer.
    pub rps: Rps,
}

impl Default for RfsConfig {
    /// 32768 global entries, one queue with as many, one CPU, no RPS.
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
    /// The hash of the flow that owns the filter; only kernels with [`ArfsFix::After`] record it.
    hash: u32,
}

/// The adapter of plain RFS, which accepts no filters.
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
    /// RFS with empty tables. Sizes are limited to 2^29 global entries, and 2^20 entries per queue.
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

    /// Reports that a thread on `cpu` received (recvmsg) or sent (sendmsg) data of the flow. From now
    /// on the flow should be processed there.
    #[inline]
    pub fn consume(&mut self, hash: u32, cpu: u16) {
        let slot = hash as usize & (self.wanted.len() - 1);
        self.wanted[slot] = (hash & !self.cpu_mask) | (u32::from(cpu) & self.cpu_mask);
    }

    /// The CPU on which the flow was consumed last; `None` if its entry is unset or belongs to another
    /// flow.
    #[must_use]
    pub fn wanted(&self, hash: u32) -> Option<u16> {
        let wanted = self.wanted[hash as usize & (self.wanted.len() - 1)];
        let cpu = (wanted & self.cpu_mask) as u16;
        ((wanted ^ hash) & !self.cpu_mask == 0 && cpu < self.config.cpus).then_some(cpu)
    }

    /// The CPU that processes a packet which `rxq` received; `None` is the CPU that took the
    /// interrupt. The caller must then enqueue the packet there, because the slot already records the
    /// tail after that.
    pub fn receive(&mut self, hash: u32, rxq: u16, backlog: &mut impl CpuQueues) -> Option<u16> {
        self.decide(hash, rxq, backlog, &mut NoSteer)
    }

    /// The logic of `get_rps_cpu`.
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
            return self.config.rps.cpu(hash, backlog); // the entry is unset or another flow's
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

    /// Whether all packets recorded in `slot` have left the backlog of their CPU.
    fn may_move(&self, slot: usize, backlog: &impl CpuQueues) -> bool {
        let flow = &self.flows[slot];
        flow.cpu >= self.config.cpus
            || !backlog.online(flow.cpu)
            || backlog.head(flow.cpu).wrapping_sub(flow.last_qtail).cast_signed() >= 0
    }

    /// The logic of `set_rps_cpu`: moves the flow to `next`, by a filter if the adapter accepts one.
    /// Returns the slot in which the packet is recorded: that of the target queue if a filter was
    /// requested.
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

    /// Before the fix any flow may take the slot. After it (netdev, July 2025), the slot of an active
    /// filter is only taken by the same hash, and only to change the CPU.
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

    /// Whether the CPU of the slot has processed fewer packets than 10 times the table size since the
    /// last packet of the slot.
    fn active(&self, slot: usize, backlog: &impl CpuQueues) -> bool {
        let flow = &self.flows[slot];
        let limit = 10i64 << self.log;
        flow.cpu < self.config.cpus
            && i64::from(backlog.head(flow.cpu).wrapping_sub(flow.last_qtail).cast_signed()) < limit
    }

    /// `rps_may_expire_flow`: whether the driver may remove its filter `id` of slot `flow_id`.
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

    /// The slot of `hash` in a device table, by which drivers identify the flow.
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
