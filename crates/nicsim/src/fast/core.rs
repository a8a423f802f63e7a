//! One core of the fast engine: its state, and the events that end its waits.
//!
//! The rules are those at the head of `reference.rs`. How a core runs ahead is in `issue.rs`.

use super::code::ZERO_SINK;
use super::heat::HeatMap;
use crate::config::Chip;
use crate::counters::CoreCounters;
use crate::icache::Icache;
use crate::isa::Insn;
use crate::memory::{Request, SDRAM_BASE};

/// The state of a core between its runs: the reason why it stopped. In the first four the core is in the wheel
/// until its cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// It reached the limit and continues.
    Resume,
    /// It presents its access.
    Access,
    /// It misses in the instruction cache.
    Miss,
    /// It faults.
    Fault,
    /// It waits for the store buffer since a cycle; its access is not presented yet.
    Buffer,
    /// It waits for its bank, to which the access was presented.
    Bank,
    /// It waits for the external memory port, to which the access was presented.
    Port,
    /// It waits for the SDRAM, which granted the access.
    External,
    /// It waits for the instruction memory since a cycle.
    Fill,
}

/// The address of no instruction.
pub(super) const NOTHING: u32 = u32::MAX;

/// Stall cycles from `start` to `end` of the instruction at `pc`, which were counted in advance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lump {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) pc: u32,
}

#[derive(Debug)]
pub(super) struct Core {
    /// The registers. Every byte is a valid index, so accesses need no check of bounds.
    pub(super) regs: [u32; 256],
    pub(super) who: usize,
    pub(super) pc: u32,
    pub(super) next_pc: u32,
    pub(super) in_slot: bool,
    /// The earliest cycle in which the next instruction issues.
    pub(super) t: u64,
    pub(super) hi_lo: (u32, u32),
    pub(super) hi_lo_ready: u64,
    /// The register of the last ALU result, and the cycle in which it is ready.
    pub(super) alu: (u8, u64),
    /// The register of the last load, and the cycle in which it is ready.
    pub(super) load: (u8, u64),
    /// The index of the first instruction that is not in the heat map yet.
    pub(super) run_from: usize,
    /// The number of words of code.
    pub(super) end: usize,
    /// The mispredicted branch whose next instruction must be annulled, or [`NOTHING`].
    pub(super) annul: u32,
    /// The shift from an address to the number of its line.
    pub(super) line_shift: u32,
    /// The number of instructions in a line, minus one.
    pub(super) line_words: usize,
    pub(super) icache: Icache,
    pub(super) wait: Wait,
    /// The cycle since which it waits, if it is not in the wheel.
    pub(super) since: u64,
    /// The access to which it ran.
    pub(super) access: Request,
    /// The destination register of the access.
    pub(super) access_rd: u8,
    /// Whether the access goes through the store buffer.
    pub(super) posted: bool,
    /// Whether the access counts as a write.
    pub(super) writes: bool,
    /// The content of the store buffer.
    pub(super) store: Request,
    /// The cycle in which the buffered store is presented, if it was issued in advance; otherwise `u64::MAX`.
    pub(super) early_at: u64,
    pub(super) access_pc: u32,
    /// The cycle since which the access has waited for the store buffer; `u64::MAX` if it has not.
    pub(super) waited_since: u64,
    pub(super) fault: Option<String>,
    pub(super) scratchpad: u32,
    pub(super) counters: CoreCounters,
    pub(super) pipeline_lump: Lump,
    pub(super) fetch_lump: Lump,
}

impl Core {
    pub(super) fn new(who: usize, entry: u32, end: usize, chip: &Chip) -> Self {
        Self {
            regs: [0; 256],
            who,
            pc: entry,
            next_pc: entry.wrapping_add(4),
            in_slot: false,
            t: 0,
            hi_lo: (0, 0),
            hi_lo_ready: 0,
            alu: (ZERO_SINK, 0),
            load: (ZERO_SINK, 0),
            run_from: ((entry / 4) as usize).min(end),
            end,
            annul: NOTHING,
            line_shift: chip.icache_line_bytes.trailing_zeros(),
            line_words: chip.icache_line_bytes as usize / 4 - 1,
            icache: Icache::new(chip),
            wait: Wait::Resume,
            since: 0,
            access: Request::load(0),
            access_rd: ZERO_SINK,
            posted: false,
            writes: false,
            store: Request::load(0),
            early_at: u64::MAX,
            access_pc: 0,
            waited_since: u64::MAX,
            fault: None,
            scratchpad: chip.scratchpad_kb * 1024,
            counters: CoreCounters::default(),
            pipeline_lump: Lump::default(),
            fetch_lump: Lump::default(),
        }
    }

    /// Counts pipeline stalls from `t` to `until`; returns `until`.
    #[inline(always)]
    pub(super) fn hazard(&mut self, t: u64, until: u64, pc: u32, heat: &mut HeatMap) -> u64 {
        self.counters.pipeline += until - t;
        heat.stalled(pc, until - t);
        until
    }

    /// Whether a source register of `insn` is that of the last ALU result and became ready only in cycle `t`.
    #[inline(always)]
    pub(super) fn computed_late(&self, insn: &Insn, t: u64) -> bool {
        let (register, ready) = self.alu;
        ready == t && (register == insn.rs || register == insn.rt)
    }

    /// Whether a source register of `insn` is that of the last load and became ready only in cycle `t`.
    #[inline(always)]
    pub(super) fn loaded_late(&self, insn: &Insn, t: u64) -> bool {
        let (register, ready) = self.load;
        ready == t && (register == insn.rs || register == insn.rt)
    }

    /// The index of the word at `pc`, or the index after the last word.
    #[inline(always)]
    pub(super) fn index(&self, pc: u32) -> usize {
        ((pc / 4) as usize).min(self.end)
    }

    /// Counts the instructions up to `index`; the next one is at `next_pc`, which is not in sequence.
    #[inline(always)]
    pub(super) fn leave(&mut self, index: usize, next_pc: u32, heat: &mut HeatMap) {
        self.counters.execute += (index + 1 - self.run_from) as u64;
        heat.issued(self.run_from, index + 1);
        self.run_from = self.index(next_pc);
    }

    /// Adds the instructions issued so far to the counters of a snapshot.
    pub(super) fn settle(&self, counters: &mut CoreCounters, heat: &mut HeatMap) {
        let index = self.index(self.pc);
        counters.execute += (index - self.run_from) as u64;
        heat.issued(self.run_from, index);
    }

    /// Presents the access in cycle `now`, which issues its instruction. Returns whether it is a posted store,
    /// which is then in the store buffer.
    #[inline(always)]
    pub(super) fn present(&mut self, now: u64, heat: &mut HeatMap) -> bool {
        let pc = self.access_pc;
        if self.waited_since != u64::MAX {
            let cycles = now - self.waited_since;
            self.counters.conflict += cycles;
            heat.stalled(pc, cycles);
            self.waited_since = u64::MAX;
        }
        if self.access.addr >= SDRAM_BASE {
            self.counters.external += 1;
        } else {
            self.counters.stores += u64::from(self.writes);
            self.counters.loads += u64::from(!self.writes);
        }
        self.pc = pc.wrapping_add(4);
        if self.in_slot {
            self.in_slot = false;
            self.pc = self.next_pc;
            self.leave((pc / 4) as usize, self.pc, heat);
        }
        if self.posted {
            self.t = now + 1;
            self.store = self.access;
        }
        self.posted
    }

    /// Completes a load that was granted in cycle `now`.
    #[inline(always)]
    pub(super) fn loaded(&mut self, now: u64, value: u32, heat: &mut HeatMap) {
        let conflict = now - self.since;
        self.counters.conflict += conflict;
        self.counters.load += 1;
        heat.stalled(self.access_pc, conflict + 1);
        self.t = now + 2;
        self.regs[usize::from(self.access_rd)] = value;
        self.load = (self.access_rd, now + 3);
    }

    /// The cycle in which the core continues after its last load.
    pub(super) fn load_back(&self) -> u64 {
        self.load.1.saturating_sub(1)
    }

    /// Counts the wait of an access to the SDRAM that has passed the crossbar.
    pub(super) fn external_granted(&mut self, now: u64, heat: &mut HeatMap) {
        let conflict = now - self.since;
        self.counters.conflict += conflict;
        heat.stalled(self.access_pc, conflict);
    }

    /// Completes a load from the SDRAM in cycle `now`.
    pub(super) fn external_done(&mut self, now: u64, value: u32, heat: &mut HeatMap) {
        let cycles = now - self.since;
        self.counters.load += cycles;
        heat.stalled(self.access_pc, cycles);
        self.t = now + 1;
        self.regs[usize::from(self.access_rd)] = value;
        self.load = (self.access_rd, now + 2);
    }

    /// Ends a miss; the core continues in cycle `until`.
    pub(super) fn filled(&mut self, until: u64, heat: &mut HeatMap) {
        let cycles = until - self.since;
        self.icache.fill(self.pc >> self.line_shift);
        self.counters.fills += 1;
        self.counters.fetch += cycles;
        heat.stalled(self.pc, cycles);
        self.fetch_lump = Lump { start: self.since, end: until, pc: self.pc };
        self.t = until;
    }
}
