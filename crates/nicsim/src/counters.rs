//! The counters: by core, by instruction address, by device; and their differences between two points in
//! time.
//!
//! Every cycle of a core is in exactly one of five categories (HPCA 2005, Table 3), so their sum is the
//! number of cycles; [`Window::check`] verifies it. Thread-safety: values only.

use schemars::JsonSchema;
use serde::Serialize;

use crate::device::{DeviceCounters, FrameCounters};

/// Why a core did or did not issue an instruction in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cycle {
    /// It issued an instruction.
    Execute,
    /// It waited for an instruction cache fill.
    Fetch,
    /// It waited for the second cycle of a scratchpad load, or for the SDRAM.
    Load,
    /// It waited for a busy bank, or for its own buffered store.
    Conflict,
    /// A pipeline hazard: load-use, late branch or jump, annulled instruction, HI/LO.
    Pipeline,
}

/// The counters of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CoreCounters {
    /// Cycles that issued an instruction, which is also the number of instructions.
    pub execute: u64,
    /// Cycles of instruction cache misses.
    pub fetch: u64,
    /// Cycles of load latency.
    pub load: u64,
    /// Cycles of bank conflicts.
    pub conflict: u64,
    /// Cycles of pipeline hazards.
    pub pipeline: u64,
    /// Scratchpad reads, including `ll` and `update`.
    pub loads: u64,
    /// Scratchpad writes, including `sc` and `set`.
    pub stores: u64,
    /// Instruction cache lines filled.
    pub fills: u64,
    /// SDRAM accesses.
    pub external: u64,
}

impl CoreCounters {
    /// Counts one cycle.
    pub fn count(&mut self, cycle: Cycle) {
        match cycle {
            Cycle::Execute => self.execute += 1,
            Cycle::Fetch => self.fetch += 1,
            Cycle::Load => self.load += 1,
            Cycle::Conflict => self.conflict += 1,
            Cycle::Pipeline => self.pipeline += 1,
        }
    }

    /// The sum of the cycles of all categories.
    pub fn cycles(&self) -> u64 {
        self.execute + self.fetch + self.load + self.conflict + self.pipeline
    }

    fn since(&self, before: &Self) -> Self {
        self.zip(before, |after, before| after - before)
    }

    /// The sum of two cores' counters.
    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, |one, other| one + other)
    }

    fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            execute: f(self.execute, other.execute),
            fetch: f(self.fetch, other.fetch),
            load: f(self.load, other.load),
            conflict: f(self.conflict, other.conflict),
            pipeline: f(self.pipeline, other.pipeline),
            loads: f(self.loads, other.loads),
            stores: f(self.stores, other.stores),
            fills: f(self.fills, other.fills),
            external: f(self.external, other.external),
        }
    }
}

/// Executions and stall cycles of one instruction address, of all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Heat {
    /// Number of executions.
    pub count: u64,
    /// Stall cycles.
    pub stall: u64,
}

/// All counters from the start to the beginning of cycle `cycle`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Cycles of the cores' clock.
    pub cycle: u64,
    /// By core.
    pub cores: Vec<CoreCounters>,
    /// By instruction word.
    pub heat: Vec<Heat>,
    /// By device.
    pub devices: DeviceCounters,
    /// Frames held on their way to the link and to the host.
    pub held: (u64, u64),
    /// Whether the network sends frames and the firmware has started the receiver.
    pub receiving: bool,
}

/// The counters of a period of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Cycles of the cores' clock.
    pub cycles: u64,
    /// By core.
    pub cores: Vec<CoreCounters>,
    /// By instruction word.
    pub heat: Vec<Heat>,
    /// By device; maxima and error counters are those of the whole run.
    pub devices: DeviceCounters,
}

impl Window {
    /// The period from `before` to `after`.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let cores = after.cores.iter().zip(&before.cores);
        let heat = after.heat.iter().zip(&before.heat);
        Self {
            cycles: after.cycle - before.cycle,
            cores: cores.map(|(a, b)| a.since(b)).collect(),
            heat: heat
                .map(|(a, b)| Heat { count: a.count - b.count, stall: a.stall - b.stall })
                .collect(),
            devices: devices(&before.devices, &after.devices),
        }
    }

    /// The sum of all cores.
    pub fn total(&self) -> CoreCounters {
        self.cores.iter().fold(CoreCounters::default(), |sum, core| sum.plus(core))
    }

    /// Checks that the categories of every core sum to the number of cycles.
    ///
    /// # Errors
    /// The first core for which they do not, the sum of its categories, and the number of cycles.
    pub fn check(&self) -> Result<(), (usize, u64, u64)> {
        match self.cores.iter().position(|core| core.cycles() != self.cycles) {
            None => Ok(()),
            Some(core) => Err((core, self.cores[core].cycles(), self.cycles)),
        }
    }
}

fn devices(before: &DeviceCounters, after: &DeviceCounters) -> DeviceCounters {
    let mut all = after.clone();
    all.sent = frames(&before.sent, &after.sent);
    all.received = frames(&before.received, &after.received);
    for (now, then) in all.assist_accesses.iter_mut().zip(before.assist_accesses) {
        *now -= then;
    }
    for (now, then) in all.per_queue.iter_mut().zip(before.per_queue) {
        *now -= then;
    }
    let (s, b) = (&mut all.sdram, &before.sdram);
    s.bursts -= b.bursts;
    s.bytes -= b.bytes;
    s.bytes_moved -= b.bytes_moved;
    s.busy_cycles -= b.busy_cycles;
    s.row_misses -= b.row_misses;
    s.bank_conflicts -= b.bank_conflicts;
    all.sent_latency = after.sent_latency.since(&before.sent_latency);
    all.received_latency = after.received_latency.since(&before.received_latency);
    all.interrupts -= before.interrupts;
    all.overruns -= before.overruns;
    all
}

fn frames(before: &FrameCounters, after: &FrameCounters) -> FrameCounters {
    FrameCounters {
        entered: after.entered - before.entered,
        dropped: after.dropped - before.dropped,
        delivered: after.delivered - before.delivered,
        bytes: after.bytes - before.bytes,
        payload_bytes: after.payload_bytes - before.payload_bytes,
        damaged: after.damaged - before.damaged,
        latency_sum: after.latency_sum - before.latency_sum,
        ..*after
    }
}
