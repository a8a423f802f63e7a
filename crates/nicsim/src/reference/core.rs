//! A core of the reference engine, simulated one cycle at a time.

use super::{Reference, coprocessor};
use crate::config::Branch;
use crate::counters::{CoreCounters, Cycle};
use crate::engine::{Fault, OUTSIDE, gave_up, not_decoded, wrong_access};
use crate::icache::Icache;
use crate::isa::{self, Class, Insn, Op};
use crate::memory::{Request, SDRAM_BASE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// A load was presented and waits for its bank.
    Bank,
    /// A load waits for the SDRAM.
    External,
    /// A miss waits for the instruction memory's port.
    Port,
    Stall(u64, Cycle),
}

#[derive(Clone, Debug)]
pub(super) struct Core {
    pub(super) pc: u32,
    pub(super) next_pc: u32,
    pub(super) in_slot: bool,
    pub(super) regs: [u32; 32],
    pub(super) hi_lo: (u32, u32),
    /// For each register, the first cycle in which an instruction that uses it may issue.
    pub(super) ready: [u64; 32],
    pub(super) hi_lo_ready: u64,
    /// The address of a mispredicted branch, until the instruction after its delay slot is annulled.
    pub(super) annul: Option<u32>,
    pub(super) state: State,
    pub(super) stall_pc: u32,
    pub(super) load: Option<(Request, u8)>,
    pub(super) store: Option<Request>,
    pub(super) icache: Icache,
    pub(super) counters: CoreCounters,
}

impl Reference {
    /// Counts this cycle of `core` as `why`, for the instruction at `pc`.
    pub(super) fn stall(&mut self, core: usize, why: Cycle, pc: u32) {
        self.cores[core].counters.count(why);
        if let Some(heat) = self.heat.get_mut((pc / 4) as usize) {
            heat.stall += 1;
        }
    }

    pub(super) fn issue(&mut self, who: usize) -> Result<(), Fault> {
        let now = self.now;
        let stall_pc = self.cores[who].stall_pc;
        match self.cores[who].state {
            State::Stall(until, why) if now < until => {
                self.stall(who, why, stall_pc);
                return Ok(());
            }
            State::Bank => {
                self.stall(who, Cycle::Conflict, stall_pc);
                return Ok(());
            }
            State::External => {
                self.stall(who, Cycle::Load, stall_pc);
                return Ok(());
            }
            State::Port => {
                self.stall(who, Cycle::Fetch, stall_pc);
                return Ok(());
            }
            _ => self.cores[who].state = State::Ready,
        }
        let line_bytes = self.parts.config.chip.icache_line_bytes;
        let core = &mut self.cores[who];
        let pc = core.pc;
        if let Some(branch) = core.annul
            && !core.in_slot
        {
            core.annul = None;
            self.stall(who, Cycle::Pipeline, branch);
            return Ok(());
        }
        if pc & 3 != 0 || (pc / 4) as usize >= self.parts.image.text.len() {
            return self.fault(who, OUTSIDE.into());
        }
        if !core.icache.hit(pc / line_bytes) {
            core.state = State::Port;
            core.stall_pc = pc;
            self.stall(who, Cycle::Fetch, pc);
            return Ok(());
        }
        let word = self.image().text[(pc / 4) as usize];
        let Some(insn) = isa::decode(word, pc) else {
            return self.fault(who, not_decoded(word));
        };
        if self.must_wait(who, &insn) {
            self.stall(who, Cycle::Pipeline, pc);
            return Ok(());
        }
        if insn.is_memory() {
            return self.access(who, insn, pc);
        }
        self.execute(who, insn, pc)
    }

    /// Whether `insn` must wait in this cycle because an operand is not ready.
    fn must_wait(&self, who: usize, insn: &Insn) -> bool {
        let core = &self.cores[who];
        let ready = |register: u8| core.ready[usize::from(register)];
        let hi_lo = matches!(insn.op, Op::Mfhi | Op::Mflo) && core.hi_lo_ready > self.now;
        let late = ready(insn.rs).max(ready(insn.rt)) >= self.now && self.now > 0;
        let needs_early = matches!(insn.op, Op::Jr | Op::Jalr)
            || (insn.class() == Class::Branch && self.parts.config.chip.branch == Branch::Stall);
        ready(insn.rs) > self.now || ready(insn.rt) > self.now || hi_lo || (needs_early && late)
    }

    fn access(&mut self, who: usize, insn: Insn, pc: u32) -> Result<(), Fault> {
        let core = &self.cores[who];
        let (a, b) = (core.regs[usize::from(insn.rs)], core.regs[usize::from(insn.rt)]);
        let addr = Request::effective(insn.op, a.wrapping_add(insn.imm), b);
        let scratchpad = self.parts.config.chip.scratchpad_kb * 1024;
        if let Some(wrong) = wrong_access(insn.op, addr, scratchpad) {
            return self.fault(who, wrong);
        }
        if core.store.is_some() {
            self.stall(who, Cycle::Conflict, pc);
            return Ok(());
        }
        let request = Request { op: insn.op, addr, value: b };
        let posted = insn.class() == Class::Store
            && (insn.op != Op::Set || self.parts.config.chip.set_posted);
        let core = &mut self.cores[who];
        core.stall_pc = pc;
        if posted {
            core.store = Some(request);
        } else {
            core.load = Some((request, insn.rd));
            core.state = State::Bank;
        }
        match (addr >= SDRAM_BASE, insn.class()) {
            (true, _) => core.counters.external += 1,
            (false, Class::Store) => core.counters.stores += 1,
            (false, _) if insn.op == Op::Sc => core.counters.stores += 1,
            (false, _) => core.counters.loads += 1,
        }
        self.retire(who, pc, None, false);
        Ok(())
    }

    /// Counts the instruction and advances: to `target` after the delay slot, if it is a taken jump.
    fn retire(&mut self, who: usize, pc: u32, target: Option<u32>, slot: bool) {
        let core = &mut self.cores[who];
        core.counters.count(Cycle::Execute);
        self.heat[(pc / 4) as usize].count += 1;
        core.pc = core.next_pc;
        core.next_pc = target.unwrap_or(core.next_pc.wrapping_add(4));
        core.in_slot = slot;
        if let Some(issued) = &mut self.issued {
            issued[who].push(pc);
        }
        self.note_function(who, pc);
    }

    fn execute(&mut self, who: usize, insn: Insn, pc: u32) -> Result<(), Fault> {
        let now = self.now;
        let chip = &self.parts.config.chip;
        let (mult, div) = (u64::from(chip.mult_cycles), u64::from(chip.div_cycles));
        let core = &mut self.cores[who];
        let (a, b) = (core.regs[usize::from(insn.rs)], core.regs[usize::from(insn.rt)]);
        let link = pc.wrapping_add(8);
        let mut target = None;
        let result = match insn.op {
            Op::Mfhi => core.hi_lo.0,
            Op::Mflo => core.hi_lo.1,
            Op::Mthi | Op::Mtlo => {
                let (hi, lo) = core.hi_lo;
                core.hi_lo = if insn.op == Op::Mthi { (a, lo) } else { (hi, a) };
                0
            }
            Op::Mult | Op::Multu | Op::Div | Op::Divu => {
                core.hi_lo = isa::muldiv(insn.op, a, b);
                let slow = matches!(insn.op, Op::Div | Op::Divu);
                core.hi_lo_ready = now + if slow { div } else { mult };
                0
            }
            Op::Mfc0 => coprocessor(insn.imm, now, who),
            Op::Sync => 0,
            Op::Break | Op::Syscall => {
                return self.fault(who, gave_up(&insn));
            }
            Op::J | Op::Jal => {
                target = Some(insn.imm);
                link
            }
            Op::Jr | Op::Jalr => {
                target = Some(a);
                link
            }
            _ if insn.has_delay_slot() => {
                let taken = isa::taken(insn.op, a, b);
                target = taken.then_some(insn.imm);
                let ready = |register: u8| core.ready[usize::from(register)];
                let late = ready(insn.rs).max(ready(insn.rt)) >= now && now > 0;
                let backward = insn.imm <= pc;
                if insn.class() == Class::Branch && late && backward != taken {
                    core.annul = Some(pc);
                }
                link
            }
            _ => match isa::alu(&insn, a, b) {
                Ok(result) => result,
                Err(isa::Overflow) => return self.fault(who, format!("{insn} overflows")),
            },
        };
        let core = &mut self.cores[who];
        if insn.rd != 0 {
            core.regs[usize::from(insn.rd)] = result;
            core.ready[usize::from(insn.rd)] = now + 1;
        }
        self.retire(who, pc, target, insn.has_delay_slot());
        Ok(())
    }
}
