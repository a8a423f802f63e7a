//! One core of the fast engine: runs ahead to its next access, miss or fault.
//!
//! The rules are those at the head of `reference.rs`. Which register is late is known from the last
//! ALU result and the last load alone, because older ones have long arrived.

use super::heat::HeatMap;
use crate::config::{Branch, Chip};
use crate::counters::CoreCounters;
use crate::elf::Image;
use crate::engine::wrong_access;
use crate::icache::Icache;
use crate::isa::{self, Class, Insn, Op};
use crate::memory::{Request, SCRATCHPAD_BASE, SDRAM_BASE};
use crate::reference::coprocessor;

/// What a core waits for. The first four: for its cycle in the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// To go on: it had only come to the limit.
    Resume,
    /// To present its access.
    Access,
    /// To miss in the instruction cache.
    Miss,
    /// To fault.
    Fault,
    /// For the store buffer, since a cycle; its access is still to be presented.
    Buffer,
    /// For its bank; presented in a cycle.
    Bank,
    /// For the external memory port; presented in a cycle.
    Port,
    /// For the SDRAM; granted in a cycle.
    External,
    /// For the instruction memory; since a cycle.
    Fill,
}

/// The decoded instruction memory, and words behind it that fault.
///
/// Decoded for running: `rd` is [`ZERO_SINK`] where nothing is written; a branch has its flags there; a
/// jump by register has [`LATE_JUMP`] in `imm`; a branch that compares a register with itself is a jump.
#[derive(Debug)]
pub(super) struct Instructions {
    words: Vec<Insn>,
}

/// The immediate that marks a word outside the subset.
const RESERVED: u32 = u32::MAX;
const OUTSIDE: &str = "runs outside the firmware's code";

/// What is no register, so that flags in place of one are never taken for it.
const NO_REGISTER: u8 = 64;
/// Branch flags: writes register 31.
const LINK: u8 = 1;
/// The word before it computes a register that it tests.
const LATE: u8 = 2;
/// The same as [`LATE`], in `imm` of a jump by register.
const LATE_JUMP: u32 = 1;
/// Goes backward: predicted to be taken.
const BACK: u8 = 4;

impl Instructions {
    pub(super) fn new(image: &Image, chip: &Chip) -> Self {
        let reserved = Insn { op: Op::Break, rs: 0, rt: 0, rd: 0, imm: RESERVED };
        let decoded = image.text.iter().enumerate();
        let decoded: Vec<_> =
            decoded.map(|(n, &word)| isa::decode(word, 4 * n as u32).unwrap_or(reserved)).collect();
        let mut words = Vec::with_capacity(decoded.len() + 1);
        let mut before = reserved;
        for (n, &insn) in decoded.iter().enumerate() {
            words.push(Self::prepared(insn, before, 4 * n as u32));
            before = insn;
        }
        // At least one, and the last line whole: a piece may be taken without looking for the end.
        let line = chip.icache_line_bytes as usize / 4;
        let whole = (words.len() + 1).next_multiple_of(line.max(1));
        words.resize(whole, Insn { rd: ZERO_SINK, ..reserved });
        Self { words }
    }

    fn prepared(insn: Insn, before: Insn, pc: u32) -> Insn {
        let computes = !before.is_memory() && !before.has_delay_slot() && before.rd != 0;
        let late = computes && (before.rd == insn.rs || before.rd == insn.rt);
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        match insn.op {
            _ if insn.class() == Class::Branch => {
                let back = insn.imm <= pc;
                let flags = flag(insn.rd != 0, LINK) | flag(late, LATE) | flag(back, BACK);
                let rd = NO_REGISTER | flags;
                Insn { rd, ..insn }
            }
            Op::Beq => Insn { op: Op::J, rd: ZERO_SINK, ..insn },
            Op::Jr | Op::Jalr => {
                let imm = if late { LATE_JUMP } else { 0 };
                Insn { imm, rd: if insn.rd == 0 { ZERO_SINK } else { insn.rd }, ..insn }
            }
            _ if insn.rd == 0 => Insn { rd: ZERO_SINK, ..insn },
            _ => insn,
        }
    }
}

/// No address.
const NOTHING: u32 = u32::MAX;
/// Where results for register 0 go.
const ZERO_SINK: u8 = 32;

/// What a rare instruction does.
enum Rare {
    /// Gives this.
    Result(u32),
    /// Must wait until a cycle.
    Wait(u64),
    /// Ends the run.
    Fault(String),
}

/// Stall cycles counted in one piece: from `start` to `end`, at `pc`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lump {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) pc: u32,
}

#[derive(Debug)]
pub(super) struct Core {
    /// By register; a byte always has a place, so none is checked.
    regs: [u32; 256],
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
    /// The first word of the run of instructions that is not in the heat map yet.
    run_from: usize,
    /// Words of code.
    end: usize,
    /// The branch whose wrong instruction is to be annulled, or [`NOTHING`].
    annul: u32,
    /// Of an address to its line's number.
    line_shift: u32,
    icache: Icache,
    pub(super) wait: Wait,
    /// Since when it waits, where that is not for the wheel.
    pub(super) since: u64,
    /// The access that it ran to.
    pub(super) access: Request,
    /// Its destination.
    access_rd: u8,
    /// Whether it goes through the store buffer.
    posted: bool,
    /// Whether it counts as a write.
    writes: bool,
    /// What the store buffer holds.
    pub(super) store: Request,
    /// The cycle in which that is presented, when it was issued ahead; else `u64::MAX`.
    pub(super) early_at: u64,
    pub(super) access_pc: u32,
    /// Since when the access has been waiting for the store buffer; `u64::MAX` for not at all.
    pub(super) waited_since: u64,
    pub(super) fault: Option<String>,
    scratchpad: u32,
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
    fn hazard(&mut self, t: u64, until: u64, pc: u32, heat: &mut HeatMap) -> u64 {
        self.counters.pipeline += until - t;
        heat.stalled(pc, until - t);
        until
    }

    /// Whether a register of `insn` was computed in the cycle before `t`, as far as `alu` knows.
    #[inline(always)]
    fn computed_late(&self, insn: &Insn, t: u64) -> bool {
        let (register, ready) = self.alu;
        ready == t && (register == insn.rs || register == insn.rt)
    }

    /// Whether a register of `insn` was loaded and ready only in cycle `t`.
    #[inline(always)]
    fn loaded_late(&self, insn: &Insn, t: u64) -> bool {
        let (register, ready) = self.load;
        ready == t && (register == insn.rs || register == insn.rt)
    }

    /// The word at `pc`, or the one behind all others.
    #[inline(always)]
    fn index(&self, pc: u32) -> usize {
        ((pc / 4) as usize).min(self.end)
    }

    /// The instruction at `index` is issued and the next is that at `next_pc`, which is elsewhere.
    #[inline(always)]
    fn leave(&mut self, index: usize, next_pc: u32, heat: &mut HeatMap) {
        self.counters.execute += (index + 1 - self.run_from) as u64;
        heat.issued(self.run_from, index + 1);
        self.run_from = self.index(next_pc);
    }

    /// Puts the instructions issued so far into the books: for a snapshot.
    pub(super) fn settle(&self, counters: &mut CoreCounters, heat: &mut HeatMap) {
        let index = self.index(self.pc);
        counters.execute += (index - self.run_from) as u64;
        heat.issued(self.run_from, index);
    }

    /// Issues private instructions up to the next access, miss, fault, or `limit`; returns when, what.
    ///
    /// Goes by pieces: instructions in sequence within a line and before `limit`, among which nothing has
    /// to be looked at but branches. With `may_post` the store buffer is empty: the first store is left
    /// there, to be presented in its cycle, and the core goes on.
    pub(super) fn run(
        &mut self,
        code: &Instructions,
        heat: &mut HeatMap,
        limit: u64,
        chip: &Chip,
        mut may_post: bool,
    ) -> (u64, Wait) {
        let words = code.words.as_slice();
        let line_words = (1usize << self.line_shift) / 4 - 1;
        let (mut t, mut pc) = (self.t, self.pc);
        let wait = 'piece: loop {
            if t >= limit {
                break Wait::Resume;
            }
            if self.annul != NOTHING && !self.in_slot {
                t = self.hazard(t, t + 1, self.annul, heat);
                self.annul = NOTHING;
                continue;
            }
            let mut index = self.index(pc);
            if pc & 3 != 0 || index == self.end {
                self.fault = Some(OUTSIDE.into());
                break Wait::Fault;
            }
            if !self.icache.hit(pc >> self.line_shift) {
                break Wait::Miss;
            }
            let ahead = usize::try_from(limit - t).unwrap_or(usize::MAX);
            let most = if self.in_slot { 1 } else { (!index & line_words) + 1 };
            let mut piece = words.get(index..).unwrap_or(&[]);
            piece = &piece[..piece.len().min(most).min(ahead)];
            // A load-use stall: one cycle or none, without a branch that nobody can predict.
            if self.load.1 > t
                && let Some(first) = piece.first()
            {
                let uses = first.rs == self.load.0 || first.rt == self.load.0;
                t = self.hazard(t, t + u64::from(uses) * (self.load.1 - t), pc, heat);
                let left = usize::try_from(limit.saturating_sub(t)).unwrap_or(usize::MAX);
                piece = &piece[..piece.len().min(left)];
                if piece.is_empty() {
                    break Wait::Resume;
                }
            }
            let mut rest = piece.iter();
            'straight: loop {
                // One jump for every kind of instruction; ALU results meet behind it, the others leave.
                let (insn, addr, posted) = 'access: {
                    let target = 'turn: {
                        let (insn, taken) = 'branch: {
                            while let Some(insn) = rest.next() {
                                let a = self.regs[usize::from(insn.rs)];
                                let b = self.regs[usize::from(insn.rt)];
                                let imm = insn.imm;
                                let result = match insn.op {
                                    Op::Sll => b << (imm & 31),
                                    Op::Srl => b >> (imm & 31),
                                    Op::Sra => (b as i32 >> (imm & 31)) as u32,
                                    Op::Sllv => b << (a & 31),
                                    Op::Srlv => b >> (a & 31),
                                    Op::Srav => (b as i32 >> (a & 31)) as u32,
                                    Op::Addu => a.wrapping_add(b),
                                    Op::Subu => a.wrapping_sub(b),
                                    Op::And => a & b,
                                    Op::Or => a | b,
                                    Op::Xor => a ^ b,
                                    Op::Nor => !(a | b),
                                    Op::Slt => ((a as i32) < b as i32).into(),
                                    Op::Sltu => (a < b).into(),
                                    Op::Addiu => a.wrapping_add(imm),
                                    Op::Slti => ((a as i32) < imm as i32).into(),
                                    Op::Sltiu => (a < imm).into(),
                                    Op::Andi => a & imm,
                                    Op::Ori => a | imm,
                                    Op::Xori => a ^ imm,
                                    Op::Lui => imm,
                                    Op::Beq => break 'branch (insn, a == b),
                                    Op::Bne => break 'branch (insn, a != b),
                                    Op::Blez => break 'branch (insn, a as i32 <= 0),
                                    Op::Bgtz => break 'branch (insn, a as i32 > 0),
                                    Op::Bltz | Op::Bltzal => {
                                        break 'branch (insn, (a as i32) < 0);
                                    }
                                    Op::Bgez | Op::Bgezal => break 'branch (insn, a as i32 >= 0),
                                    Op::Lw
                                    | Op::Lb
                                    | Op::Lbu
                                    | Op::Lh
                                    | Op::Lhu
                                    | Op::Ll
                                    | Op::Sc => {
                                        break 'access (insn, a.wrapping_add(imm), false);
                                    }
                                    Op::Sw | Op::Sb | Op::Sh => {
                                        break 'access (insn, a.wrapping_add(imm), true);
                                    }
                                    Op::Update => {
                                        let addr = Request::effective(insn.op, a, b);
                                        break 'access (insn, addr, false);
                                    }
                                    Op::Set => {
                                        let addr = Request::effective(insn.op, a, b);
                                        break 'access (insn, addr, chip.set_posted);
                                    }
                                    Op::J | Op::Jal | Op::Jr | Op::Jalr => {
                                        let place = piece.len() - rest.len() - 1;
                                        let now = t + place as u64;
                                        let here = 4 * (index + place) as u32;
                                        let by_register = matches!(insn.op, Op::Jr | Op::Jalr);
                                        let late = match place {
                                            0 => self.computed_late(insn, now),
                                            _ => imm & LATE_JUMP != 0,
                                        };
                                        if by_register && (late || self.loaded_late(insn, now)) {
                                            pc = here;
                                            t = self.hazard(now, now + 1, pc, heat);
                                            continue 'piece;
                                        }
                                        t = now + 1;
                                        index += place;
                                        if insn.rd != ZERO_SINK {
                                            self.regs[usize::from(insn.rd)] = here.wrapping_add(8);
                                            self.alu = (insn.rd, t);
                                        }
                                        break 'turn Some(if by_register { a } else { imm });
                                    }
                                    Op::Add
                                    | Op::Addi
                                    | Op::Sub
                                    | Op::Break
                                    | Op::Syscall
                                    | Op::Mfhi
                                    | Op::Mflo
                                    | Op::Mthi
                                    | Op::Mtlo
                                    | Op::Mult
                                    | Op::Multu
                                    | Op::Div
                                    | Op::Divu
                                    | Op::Mfc0
                                    | Op::Sync => {
                                        let place = piece.len() - rest.len() - 1;
                                        let now = t + place as u64;
                                        match self.rare(insn, index + place, chip, now) {
                                            Rare::Result(result) => result,
                                            Rare::Wait(until) => {
                                                pc = 4 * (index + place) as u32;
                                                self.pipeline_lump =
                                                    Lump { start: now, end: until, pc };
                                                t = self.hazard(now, until, pc, heat);
                                                continue 'piece;
                                            }
                                            Rare::Fault(what) => {
                                                t = now;
                                                pc = 4 * (index + place) as u32;
                                                self.fault = Some(what);
                                                break 'piece Wait::Fault;
                                            }
                                        }
                                    }
                                };
                                self.regs[usize::from(insn.rd)] = result;
                            }
                            // The piece is done: on to the next, or from the delay slot to the target.
                            t += piece.len() as u64;
                            self.alu = (piece.last().map_or(ZERO_SINK, |insn| insn.rd), t);
                            pc = 4 * (index + piece.len()) as u32;
                            if self.in_slot {
                                self.in_slot = false;
                                pc = self.next_pc;
                                self.leave(index, pc, heat);
                            }
                            continue 'piece;
                        };
                        // A branch.
                        let place = piece.len() - rest.len() - 1;
                        let now = t + place as u64;
                        let flags = insn.rd;
                        let late = match place {
                            0 => self.computed_late(insn, now),
                            _ => flags & LATE != 0,
                        };
                        if late || self.loaded_late(insn, now) {
                            let here = 4 * (index + place) as u32;
                            if chip.branch == Branch::Stall {
                                pc = here;
                                t = self.hazard(now, now + 1, pc, heat);
                                continue 'piece;
                            }
                            if (flags & BACK != 0) != taken {
                                self.annul = here;
                            }
                        }
                        if flags & LINK != 0 {
                            self.regs[31] = 4 * (index + place) as u32 + 8;
                            self.alu = (31, now + 1);
                        } else if !taken && !self.in_slot && self.annul == NOTHING {
                            continue 'straight;
                        }
                        t = now + 1;
                        index += place;
                        taken.then_some(insn.imm)
                    };
                    // A jump or a branch at `index` was issued: its delay slot comes next, then `target`.
                    let slot = index + 1;
                    if self.in_slot {
                        pc = self.next_pc;
                        self.leave(index, pc, heat);
                        self.next_pc = target.unwrap_or(pc.wrapping_add(4));
                        continue 'piece;
                    }
                    self.in_slot = true;
                    self.next_pc = target.unwrap_or(4 * (slot as u32 + 1));
                    if slot & line_words == 0 || t >= limit {
                        pc = 4 * slot as u32;
                        continue 'piece;
                    }
                    // On the same line, and a load of before the branch is there: nothing to check.
                    index = slot;
                    piece = words.get(slot..=slot).unwrap_or(&[]);
                    rest = piece.iter();
                    continue 'straight;
                };
                // An access. Nearly all are words in the scratchpad; the rest is looked at closely.
                let place = piece.len() - rest.len() - 1;
                let now = t + place as u64;
                let here = 4 * (index + place) as u32;
                let value = self.regs[usize::from(insn.rt)];
                let plain = addr & 3 == 0 && addr.wrapping_sub(SCRATCHPAD_BASE) < self.scratchpad;
                if plain && posted && may_post {
                    may_post = false;
                    self.store = Request { op: insn.op, addr, value };
                    self.early_at = now;
                    self.counters.stores += 1;
                    continue 'straight;
                }
                (t, pc) = (now, here);
                if !plain && let Some(wrong) = wrong_access(insn.op, addr, self.scratchpad) {
                    self.fault = Some(wrong);
                    break 'piece Wait::Fault;
                }
                self.access = Request { op: insn.op, addr, value };
                self.access_rd = insn.rd;
                self.posted = posted;
                self.writes = posted || matches!(insn.op, Op::Sc | Op::Set);
                self.access_pc = pc;
                break 'piece Wait::Access;
            }
        };
        (self.t, self.pc) = (t, pc);
        (t, wait)
    }

    /// What is seldom: HI and LO, `mfc0`, `sync`, what traps, what is no instruction.
    #[cold]
    fn rare(&mut self, insn: &Insn, index: usize, chip: &Chip, t: u64) -> Rare {
        let a = self.regs[usize::from(insn.rs)];
        let b = self.regs[usize::from(insn.rt)];
        match insn.op {
            Op::Mfc0 => Rare::Result(coprocessor(insn.imm, t, self.who)),
            Op::Mfhi | Op::Mflo if self.hi_lo_ready > t => Rare::Wait(self.hi_lo_ready),
            Op::Add | Op::Addi | Op::Sub => match isa::alu(insn, a, b) {
                Ok(result) => Rare::Result(result),
                Err(isa::Overflow) => Rare::Fault(format!("{} overflows", restored(*insn))),
            },
            // A reserved word is decoded as `break` with a mark.
            Op::Break | Op::Syscall if index >= self.end => Rare::Fault(OUTSIDE.into()),
            Op::Break if insn.imm == RESERVED => Rare::Fault(String::new()), // the engine knows
            Op::Break | Op::Syscall => {
                Rare::Fault(format!("{}: the firmware gave up", restored(*insn)))
            }
            _ => Rare::Result(self.hi_lo(insn, a, b, chip, t).unwrap_or(0)),
        }
    }

    /// Performs a multiplication, division or move; the value of a move from HI or LO.
    fn hi_lo(&mut self, insn: &Insn, a: u32, b: u32, chip: &Chip, t: u64) -> Option<u32> {
        let (hi, lo) = self.hi_lo;
        match insn.op {
            Op::Mfhi => return Some(hi),
            Op::Mflo => return Some(lo),
            Op::Mthi => self.hi_lo = (a, lo),
            Op::Mtlo => self.hi_lo = (hi, a),
            Op::Sync => {}
            _ => {
                self.hi_lo = isa::muldiv(insn.op, a, b);
                let slow = matches!(insn.op, Op::Div | Op::Divu);
                let cycles = if slow { chip.div_cycles } else { chip.mult_cycles };
                self.hi_lo_ready = t + u64::from(cycles);
            }
        }
        None
    }

    /// The access is presented in cycle `now`: the instruction is issued. Returns whether it is a posted
    /// store, which is then in the store buffer.
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

    /// The load that was presented is granted in cycle `now`.
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

    /// The cycle in which a core goes on behind its last load.
    pub(super) fn load_back(&self) -> u64 {
        self.load.1.saturating_sub(1)
    }

    /// An access to the SDRAM has passed the crossbar.
    pub(super) fn external_granted(&mut self, now: u64, heat: &mut HeatMap) {
        let conflict = now - self.since;
        self.counters.conflict += conflict;
        heat.stalled(self.access_pc, conflict);
    }

    /// A load from the SDRAM has its value in cycle `now`.
    pub(super) fn external_done(&mut self, now: u64, value: u32, heat: &mut HeatMap) {
        let cycles = now - self.since;
        self.counters.load += cycles;
        heat.stalled(self.access_pc, cycles);
        self.t = now + 1;
        self.regs[usize::from(self.access_rd)] = value;
        self.load = (self.access_rd, now + 2);
    }

    /// The miss is over; the core goes on in cycle `until`.
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

/// The instruction as it was decoded: for messages.
fn restored(mut insn: Insn) -> Insn {
    if insn.rd == ZERO_SINK {
        insn.rd = 0;
    }
    insn
}
