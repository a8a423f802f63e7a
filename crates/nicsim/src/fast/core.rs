//! One core of the fast engine: runs ahead to its next access, miss or fault.
//!
//! The rules are those at the head of `reference.rs`. Which register is late is known from the last
//! ALU result and the last load alone, because older ones have long arrived.

use crate::config::{Branch, Chip};
use crate::counters::{CoreCounters, Heat};
use crate::elf::Image;
use crate::engine::wrong_access;
use crate::icache::Icache;
use crate::isa::{self, Class, Insn, Op};
use crate::memory::{IMEM_BYTES, Request, SDRAM_BASE};
use crate::reference::coprocessor;

/// What a core does in the cycle it runs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Goes on: it had only come to the limit.
    Resume,
    /// Presents its access.
    Access,
    /// Misses in the instruction cache.
    Miss,
    /// Faults.
    Fault,
}

/// How the loop treats an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Alu,
    HiLo,
    Cop,
    Branch,
    Jump,
    JumpRegister,
    Memory,
    Halt,
    Reserved,
}

/// A decoded word.
#[derive(Clone, Copy, Debug)]
struct Decoded {
    insn: Insn,
    kind: Kind,
    /// A conditional branch that can be late.
    can_be_late: bool,
}

/// The decoded instruction memory.
#[derive(Debug)]
pub(super) struct Instructions {
    words: Vec<Decoded>,
}

impl Instructions {
    pub(super) fn new(image: &Image) -> Self {
        let nothing = Insn { op: Op::Break, rs: 0, rt: 0, rd: 0, imm: 0 };
        let reserved = Decoded { insn: nothing, kind: Kind::Reserved, can_be_late: false };
        let words = image.text.iter().enumerate();
        let mut words: Vec<_> = words
            .map(|(n, &word)| isa::decode(word, 4 * n as u32).map_or(reserved, classify))
            .collect();
        words.push(reserved);
        Self { words }
    }
}

fn classify(mut insn: Insn) -> Decoded {
    let kind = match insn.op {
        Op::Mfhi | Op::Mflo | Op::Mthi | Op::Mtlo | Op::Mult | Op::Multu | Op::Div | Op::Divu => {
            Kind::HiLo
        }
        Op::Mfc0 => Kind::Cop,
        Op::Break | Op::Syscall => Kind::Halt,
        Op::J | Op::Jal => Kind::Jump,
        Op::Jr | Op::Jalr => Kind::JumpRegister,
        _ if insn.has_delay_slot() => Kind::Branch,
        _ if insn.is_memory() => Kind::Memory,
        _ => Kind::Alu,
    };
    let can_be_late = insn.class() == Class::Branch;
    if insn.rd == 0 {
        insn.rd = ZERO_SINK;
    }
    Decoded { insn, kind, can_be_late }
}

/// Where results for register 0 go.
const ZERO_SINK: u8 = 32;

/// Stall cycles counted in one piece: from `start` to `end`, at `pc`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lump {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) pc: u32,
}

#[derive(Debug)]
pub(super) struct Core {
    regs: [u32; 64],
    who: usize,
    pub(super) pc: u32,
    next_pc: u32,
    in_slot: bool,
    /// The cycle in which the next instruction issues at the earliest.
    t: u64,
    hi_lo: (u32, u32),
    hi_lo_ready: u64,
    /// The register of the last ALU result and the cycle in which it is ready.
    alu: (u8, u64),
    /// The same of the last load.
    load: (u8, u64),
    annul: Option<u32>,
    line: u32,
    line_shift: u32,
    icache: Icache,
    /// The access that it ran to: request, destination, address.
    access: (Request, u8),
    posted: bool,
    pub(super) access_pc: u32,
    /// Since when the access has been waiting for the store buffer; `u64::MAX` for not at all.
    pub(super) waited_since: u64,
    pub(super) fault: Option<String>,
    scratchpad: u32,
    pub(super) counters: CoreCounters,
    pub(super) load_lump: Lump,
    pub(super) pipeline_lump: Lump,
    pub(super) fetch_lump: Lump,
}

impl Core {
    pub(super) fn new(who: usize, entry: u32, chip: &Chip) -> Self {
        Self {
            regs: [0; 64],
            who,
            pc: entry,
            next_pc: entry.wrapping_add(4),
            in_slot: false,
            t: 0,
            hi_lo: (0, 0),
            hi_lo_ready: 0,
            alu: (0, 0),
            load: (0, 0),
            annul: None,
            line: u32::MAX,
            line_shift: chip.icache_line_bytes.trailing_zeros(),
            icache: Icache::new(chip),
            access: (Request::load(0), 0),
            posted: false,
            access_pc: 0,
            waited_since: u64::MAX,
            fault: None,
            scratchpad: chip.scratchpad_kb * 1024,
            counters: CoreCounters::default(),
            load_lump: Lump::default(),
            pipeline_lump: Lump::default(),
            fetch_lump: Lump::default(),
        }
    }

    /// Counts pipeline stalls from now to `until`.
    #[inline(always)]
    fn hazard(&mut self, until: u64, pc: u32, heat: &mut [Heat]) {
        let cycles = until - self.t;
        self.counters.pipeline += cycles;
        heat[(pc / 4) as usize].stall += cycles;
        self.pipeline_lump = Lump { start: self.t, end: until, pc };
        self.t = until;
    }

    /// Whether a register became ready only in cycle `t`.
    #[inline(always)]
    fn late(&self, register: u8) -> bool {
        register != 0
            && ((register == self.alu.0 && self.alu.1 == self.t)
                || (register == self.load.0 && self.load.1 == self.t))
    }

    /// Issues private instructions up to the next access, miss, fault, or `limit`; returns when, what.
    pub(super) fn run(
        &mut self,
        code: &Instructions,
        heat: &mut [Heat],
        limit: u64,
        chip: &Chip,
    ) -> (u64, Action) {
        let last = code.words.len() - 1;
        loop {
            if self.t >= limit {
                return (self.t, Action::Resume);
            }
            let pc = self.pc;
            if let Some(branch) = self.annul
                && !self.in_slot
            {
                self.annul = None;
                self.hazard(self.t + 1, branch, heat);
                continue;
            }
            let line = pc >> self.line_shift;
            if line != self.line {
                if pc < IMEM_BYTES && !self.icache.hit(line) {
                    return (self.t, Action::Miss);
                }
                self.line = line;
            }
            let index = ((pc / 4) as usize).min(last);
            let Decoded { insn, kind, can_be_late } = code.words[index];
            if pc & 3 != 0 || kind == Kind::Reserved {
                return self.stop(code, index);
            }
            let (rs, rt) = (insn.rs, insn.rt);
            if self.load.1 > self.t && self.load.0 != 0 && (rs == self.load.0 || rt == self.load.0)
            {
                self.hazard(self.load.1, pc, heat);
                continue;
            }
            let (a, b) = (self.regs[usize::from(rs & 63)], self.regs[usize::from(rt & 63)]);
            let mut target = None;
            match kind {
                Kind::Alu => match isa::alu(&insn, a, b) {
                    Ok(result) => {
                        self.regs[usize::from(insn.rd & 63)] = result;
                        self.alu = (insn.rd & 31, self.t + 1);
                    }
                    Err(isa::Overflow) => {
                        return self.give_up(format!("{} overflows", restored(insn)));
                    }
                },
                Kind::Memory => {
                    let addr = Request::effective(insn.op, a.wrapping_add(insn.imm), b);
                    if let Some(wrong) = wrong_access(insn.op, addr, self.scratchpad) {
                        return self.give_up(wrong);
                    }
                    self.access = (Request { op: insn.op, addr, value: b }, insn.rd);
                    self.posted =
                        insn.op as u8 >= Op::Sb as u8 && (insn.op != Op::Set || chip.set_posted);
                    self.access_pc = pc;
                    return (self.t, Action::Access);
                }
                Kind::Branch => {
                    let taken = isa::taken(insn.op, a, b);
                    let late = can_be_late && (self.late(rs) || self.late(rt));
                    if late {
                        if chip.branch == Branch::Stall {
                            self.hazard(self.t + 1, pc, heat);
                            continue;
                        }
                        if (insn.imm <= pc) != taken {
                            self.annul = Some(pc);
                        }
                    }
                    if taken {
                        target = Some(insn.imm);
                    }
                    if insn.rd != ZERO_SINK {
                        self.link(insn.rd, pc);
                    }
                }
                Kind::Jump => {
                    target = Some(insn.imm);
                    if insn.rd != ZERO_SINK {
                        self.link(insn.rd, pc);
                    }
                }
                Kind::JumpRegister => {
                    if self.late(rs) {
                        self.hazard(self.t + 1, pc, heat);
                        continue;
                    }
                    target = Some(a);
                    if insn.op == Op::Jalr && insn.rd != ZERO_SINK {
                        self.link(insn.rd, pc);
                    }
                }
                Kind::HiLo => {
                    let moves = matches!(insn.op, Op::Mfhi | Op::Mflo);
                    if moves && self.hi_lo_ready > self.t {
                        self.hazard(self.hi_lo_ready, pc, heat);
                        continue;
                    }
                    self.hi_lo(&insn, a, b, chip);
                }
                Kind::Cop => {
                    let value = coprocessor(insn.imm, self.t, self.who);
                    self.regs[usize::from(insn.rd & 63)] = value;
                    self.alu = (insn.rd & 31, self.t + 1);
                }
                Kind::Halt => {
                    return self.give_up(format!("{}: the firmware gave up", restored(insn)));
                }
                Kind::Reserved => return self.stop(code, index),
            }
            self.counters.execute += 1;
            heat[index].count += 1;
            self.in_slot = !matches!(kind, Kind::Alu | Kind::HiLo | Kind::Cop);
            self.pc = self.next_pc;
            self.next_pc = target.unwrap_or(self.next_pc.wrapping_add(4));
            self.t += 1;
        }
    }

    fn link(&mut self, register: u8, pc: u32) {
        self.regs[usize::from(register & 63)] = pc.wrapping_add(8);
        self.alu = (register & 31, self.t + 1);
    }

    fn hi_lo(&mut self, insn: &Insn, a: u32, b: u32, chip: &Chip) {
        let (hi, lo) = self.hi_lo;
        match insn.op {
            Op::Mfhi | Op::Mflo => {
                let value = if insn.op == Op::Mfhi { hi } else { lo };
                self.regs[usize::from(insn.rd & 63)] = value;
                self.alu = (insn.rd & 31, self.t + 1);
            }
            Op::Mthi => self.hi_lo = (a, lo),
            Op::Mtlo => self.hi_lo = (hi, a),
            _ => {
                self.hi_lo = isa::muldiv(insn.op, a, b);
                let slow = matches!(insn.op, Op::Div | Op::Divu);
                let cycles = if slow { chip.div_cycles } else { chip.mult_cycles };
                self.hi_lo_ready = self.t + u64::from(cycles);
            }
        }
    }

    #[cold]
    fn stop(&mut self, code: &Instructions, index: usize) -> (u64, Action) {
        let outside = self.pc & 3 != 0 || index + 1 >= code.words.len();
        self.give_up(match outside {
            true => "runs outside the firmware's code".into(),
            false => String::new(), // the engine knows the word
        })
    }

    #[cold]
    fn give_up(&mut self, what: String) -> (u64, Action) {
        self.fault = Some(what);
        (self.t, Action::Fault)
    }

    /// The access is presented in cycle `now`: the instruction is issued. Returns the request and whether
    /// it is a posted store.
    #[inline(always)]
    pub(super) fn present(&mut self, now: u64, heat: &mut [Heat], _chip: &Chip) -> (Request, bool) {
        let (request, register) = self.access;
        let pc = self.access_pc;
        if self.waited_since != u64::MAX {
            let cycles = now - self.waited_since;
            self.counters.conflict += cycles;
            heat[(pc / 4) as usize].stall += cycles;
            self.waited_since = u64::MAX;
        }
        let op = request.op as u8;
        if request.addr >= SDRAM_BASE {
            self.counters.external += 1;
        } else if op >= Op::Sb as u8 || request.op == Op::Sc {
            self.counters.stores += 1;
        } else {
            self.counters.loads += 1;
        }
        self.counters.execute += 1;
        heat[(pc / 4) as usize].count += 1;
        self.in_slot = false;
        self.pc = self.next_pc;
        self.next_pc = self.next_pc.wrapping_add(4);
        self.t = now + 1;
        self.load.0 = register & 31;
        (request, self.posted)
    }

    /// The load that was presented in cycle `since` is granted in cycle `now`.
    #[inline(always)]
    pub(super) fn loaded(&mut self, since: u64, now: u64, value: u32, heat: &mut [Heat]) {
        let pc = self.access_pc;
        let conflict = now - since;
        self.counters.conflict += conflict;
        self.counters.load += 1;
        heat[(pc / 4) as usize].stall += conflict + 1;
        self.load_lump = Lump { start: now + 1, end: now + 2, pc };
        self.t = now + 2;
        self.regs[usize::from(self.access.1 & 63)] = value;
        self.load.1 = now + 3;
    }

    /// An access to the SDRAM has passed the crossbar.
    pub(super) fn external_granted(&mut self, since: u64, now: u64, heat: &mut [Heat]) {
        let conflict = now - since;
        self.counters.conflict += conflict;
        heat[(self.access_pc / 4) as usize].stall += conflict;
    }

    /// A load from the SDRAM, granted in cycle `since`, has its value in cycle `now`.
    pub(super) fn external_done(&mut self, since: u64, now: u64, value: u32, heat: &mut [Heat]) {
        let cycles = now - since;
        self.counters.load += cycles;
        heat[(self.access_pc / 4) as usize].stall += cycles;
        self.load_lump = Lump { start: since + 1, end: now + 1, pc: self.access_pc };
        self.t = now + 1;
        self.regs[usize::from(self.access.1 & 63)] = value;
        self.load.1 = now + 2;
    }

    /// The miss of cycle `since` is over; the core goes on in cycle `until`.
    pub(super) fn filled(&mut self, since: u64, until: u64, heat: &mut [Heat]) {
        let cycles = until - since;
        self.icache.fill(self.pc >> self.line_shift);
        self.line = self.pc >> self.line_shift;
        self.counters.fills += 1;
        self.counters.fetch += cycles;
        heat[(self.pc / 4) as usize].stall += cycles;
        self.fetch_lump = Lump { start: since, end: until, pc: self.pc };
        self.t = until;
    }
}

/// The instruction as it was decoded: for messages.
fn restored(mut insn: Insn) -> Insn {
    if insn.rd == ZERO_SINK {
        insn.rd = 0;
    }
    insn
}
