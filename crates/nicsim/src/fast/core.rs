//! One core of the fast engine: runs ahead to its next access, miss or fault.
//!
//! The rules are those at the head of `reference.rs`. Which register is late is known from the last
//! ALU result and the last load alone, because older ones have long arrived.

use crate::config::{Branch, Chip};
use crate::counters::{CoreCounters, Heat};
use crate::elf::Image;
use crate::engine::wrong_access;
use crate::icache::Icache;
use crate::isa::{self, Insn, Op};
use crate::memory::{Request, SCRATCHPAD_BASE, SDRAM_BASE};
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

/// The decoded instruction memory, and one word behind it that faults.
#[derive(Debug)]
pub(super) struct Instructions {
    words: Vec<Insn>,
}

/// The immediate that marks a word outside the subset.
const RESERVED: u32 = u32::MAX;
const OUTSIDE: &str = "runs outside the firmware's code";

impl Instructions {
    pub(super) fn new(image: &Image) -> Self {
        let reserved = Insn { op: Op::Break, rs: 0, rt: 0, rd: 0, imm: RESERVED };
        let words = image.text.iter().enumerate();
        let mut words: Vec<_> = words
            .map(|(n, &word)| isa::decode(word, 4 * n as u32).unwrap_or(reserved))
            .map(|insn| Insn { rd: if insn.rd == 0 { ZERO_SINK } else { insn.rd }, ..insn })
            .collect();
        words.push(reserved);
        Self { words }
    }
}

/// No address.
const NOTHING: u32 = u32::MAX;
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
    /// Instructions issued by `run`.
    issued: u64,
    /// The branch whose wrong instruction is to be annulled, or [`NOTHING`].
    annul: u32,
    line: u32,
    /// Of a word's number to its line's.
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
            issued: 0,
            annul: NOTHING,
            line: u32::MAX,
            line_shift: chip.icache_line_bytes.trailing_zeros() - 2,
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

    /// Counts pipeline stalls from `t` to `until`; returns `until`.
    #[inline(always)]
    fn hazard(&mut self, t: u64, until: u64, pc: u32, heat: &mut [Heat]) -> u64 {
        self.counters.pipeline += until - t;
        heat[(pc / 4) as usize].stall += until - t;
        self.pipeline_lump = Lump { start: t, end: until, pc };
        until
    }

    /// Whether a register became ready only in cycle `t`.
    #[inline(always)]
    fn late(register: u8, alu: (u8, u64), load: (u8, u64), t: u64) -> bool {
        register != 0 && ((register == alu.0 && alu.1 == t) || (register == load.0 && load.1 == t))
    }

    /// Issues private instructions up to the next access, miss, fault, or `limit`; returns when, what.
    ///
    /// State that changes with every instruction is kept in locals and written back at the end.
    pub(super) fn run(
        &mut self,
        code: &Instructions,
        heat: &mut [Heat],
        limit: u64,
        chip: &Chip,
    ) -> (u64, Action) {
        let words = code.words.as_slice();
        let last = words.len() - 1;
        let heat = &mut heat[..words.len()];
        let (mut t, mut pc, mut next_pc) = (self.t, self.pc, self.next_pc);
        let (mut in_slot, mut line, mut alu) = (self.in_slot, self.line, self.alu);
        let began = self.issued;
        let mut issued = began;
        let (load, line_shift) = (self.load, self.line_shift);
        let mut annul = self.annul;
        // Until the first load-use and branch checks are done, and after a misprediction, every
        // instruction takes the careful way.
        let mut bound = 0;
        let action = loop {
            let index = ((pc / 4) as usize).min(last);
            // Rotated, a pc that is no multiple of 4 is on no line.
            let wanted = pc.rotate_right(2) >> line_shift;
            if t >= bound {
                if t >= limit {
                    break Action::Resume;
                }
                if annul != NOTHING && !in_slot {
                    t = self.hazard(t, t + 1, annul, heat);
                    annul = NOTHING;
                    continue;
                }
            }
            if wanted != line {
                if pc & 3 != 0 || index == last {
                    self.fault = Some(OUTSIDE.into());
                    break Action::Fault;
                }
                if !self.icache.hit(wanted) {
                    break Action::Miss;
                }
                line = wanted;
            }
            let insn = words[index];
            let (rs, rt) = (insn.rs, insn.rt);
            if t >= bound {
                if load.1 > t && (rs == load.0 || rt == load.0) && load.0 != 0 {
                    t = self.hazard(t, load.1, pc, heat);
                    continue;
                }
                bound = if annul == NOTHING { limit } else { 0 };
            }
            let (a, b) = (self.regs[usize::from(rs & 63)], self.regs[usize::from(rt & 63)]);
            let imm = insn.imm;
            // One jump for every kind of instruction; ALU results meet behind it.
            let result = match insn.op {
                Op::Sll => b << (imm & 31),
                Op::Srl => b >> (imm & 31),
                Op::Addu => a.wrapping_add(b),
                Op::Subu => a.wrapping_sub(b),
                Op::And => a & b,
                Op::Or => a | b,
                Op::Sltu => (a < b).into(),
                Op::Addiu => a.wrapping_add(imm),
                Op::Sltiu => (a < imm).into(),
                Op::Andi => a & imm,
                Op::Ori => a | imm,
                Op::Lui => imm,
                Op::Beq
                | Op::Bne
                | Op::Blez
                | Op::Bgtz
                | Op::Bltz
                | Op::Bgez
                | Op::Bltzal
                | Op::Bgezal => {
                    let taken = isa::taken(insn.op, a, b);
                    // `b` is `beq $0, $0` or of one register: never late.
                    let one = insn.op == Op::Beq && rs == rt;
                    if (Self::late(rs, alu, load, t) || Self::late(rt, alu, load, t)) && !one {
                        if chip.branch == Branch::Stall {
                            t = self.hazard(t, t + 1, pc, heat);
                            continue;
                        }
                        if (imm <= pc) != taken {
                            annul = pc;
                            bound = 0;
                        }
                    }
                    if insn.rd != ZERO_SINK {
                        self.regs[usize::from(insn.rd & 63)] = pc.wrapping_add(8);
                        alu = (insn.rd, t + 1);
                    }
                    let target = if taken { imm } else { next_pc.wrapping_add(4) };
                    issued += 1;
                    heat[index].count += 1;
                    in_slot = true;
                    (pc, next_pc) = (next_pc, target);
                    t += 1;
                    continue;
                }
                Op::J | Op::Jal | Op::Jr | Op::Jalr => {
                    let by_register = matches!(insn.op, Op::Jr | Op::Jalr);
                    if by_register && Self::late(rs, alu, load, t) {
                        t = self.hazard(t, t + 1, pc, heat);
                        continue;
                    }
                    if insn.rd != ZERO_SINK {
                        self.regs[usize::from(insn.rd & 63)] = pc.wrapping_add(8);
                        alu = (insn.rd, t + 1);
                    }
                    let target = if by_register { a } else { imm };
                    issued += 1;
                    heat[index].count += 1;
                    in_slot = true;
                    (pc, next_pc) = (next_pc, target);
                    t += 1;
                    continue;
                }
                Op::Lb
                | Op::Lbu
                | Op::Lh
                | Op::Lhu
                | Op::Lw
                | Op::Ll
                | Op::Update
                | Op::Sc
                | Op::Sb
                | Op::Sh
                | Op::Sw
                | Op::Set => {
                    let addr = Request::effective(insn.op, a.wrapping_add(imm), b);
                    // Nearly all are words in the scratchpad; the rest is looked at closely.
                    let plain =
                        addr & 3 == 0 && addr.wrapping_sub(SCRATCHPAD_BASE) < self.scratchpad;
                    if !plain && let Some(wrong) = wrong_access(insn.op, addr, self.scratchpad) {
                        self.fault = Some(wrong);
                        break Action::Fault;
                    }
                    self.access = (Request { op: insn.op, addr, value: b }, insn.rd);
                    self.posted =
                        insn.op as u8 >= Op::Sb as u8 && (insn.op != Op::Set || chip.set_posted);
                    self.access_pc = pc;
                    break Action::Access;
                }
                Op::Mfhi
                | Op::Mflo
                | Op::Mthi
                | Op::Mtlo
                | Op::Mult
                | Op::Multu
                | Op::Div
                | Op::Divu => {
                    let moves = matches!(insn.op, Op::Mfhi | Op::Mflo);
                    if moves && self.hi_lo_ready > t {
                        t = self.hazard(t, self.hi_lo_ready, pc, heat);
                        continue;
                    }
                    let Some(result) = self.hi_lo(&insn, a, b, chip, t) else {
                        issued += 1;
                        heat[index].count += 1;
                        in_slot = false;
                        (pc, next_pc) = (next_pc, next_pc.wrapping_add(4));
                        t += 1;
                        continue;
                    };
                    result
                }
                Op::Mfc0 => coprocessor(imm, t, self.who),
                Op::Break | Op::Syscall => {
                    // A reserved word is decoded as `break` with a mark.
                    self.fault = Some(match (index == last, insn.imm) {
                        (true, _) => OUTSIDE.into(),
                        (false, RESERVED) => String::new(), // the engine knows the word
                        _ => format!("{}: the firmware gave up", restored(insn)),
                    });
                    break Action::Fault;
                }
                _ => match isa::alu(&insn, a, b) {
                    Ok(result) => result,
                    Err(isa::Overflow) => {
                        self.fault = Some(format!("{} overflows", restored(insn)));
                        break Action::Fault;
                    }
                },
            };
            self.regs[usize::from(insn.rd & 63)] = result;
            alu = (insn.rd, t + 1);
            issued += 1;
            heat[index].count += 1;
            in_slot = false;
            (pc, next_pc) = (next_pc, next_pc.wrapping_add(4));
            t += 1;
        };
        self.counters.execute += issued - began;
        (self.issued, self.annul) = (issued, annul);
        (self.t, self.pc, self.next_pc) = (t, pc, next_pc);
        (self.in_slot, self.line, self.alu) = (in_slot, line, alu);
        (t, action)
    }

    /// Performs a multiplication, division or move; the value of a move from HI or LO.
    fn hi_lo(&mut self, insn: &Insn, a: u32, b: u32, chip: &Chip, t: u64) -> Option<u32> {
        let (hi, lo) = self.hi_lo;
        match insn.op {
            Op::Mfhi => return Some(hi),
            Op::Mflo => return Some(lo),
            Op::Mthi => self.hi_lo = (a, lo),
            Op::Mtlo => self.hi_lo = (hi, a),
            _ => {
                self.hi_lo = isa::muldiv(insn.op, a, b);
                let slow = matches!(insn.op, Op::Div | Op::Divu);
                let cycles = if slow { chip.div_cycles } else { chip.mult_cycles };
                self.hi_lo_ready = t + u64::from(cycles);
            }
        }
        None
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
        // A store leaves the last load what it is: a branch behind it may still be late.
        if !self.posted {
            self.load.0 = if register == ZERO_SINK { 0 } else { register };
        }
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
        self.line = self.pc.rotate_right(2) >> self.line_shift;
        self.icache.fill(self.line);
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
