//! How a core of the fast engine runs ahead: it issues private instructions up to its next access, miss or
//! fault.
//!
//! A core executes in pieces: instructions in sequence within a cache line and before the limit. Within a piece
//! only branches, jumps and accesses need checks. Whether a register is late follows from the last ALU result
//! and the last load alone, because older results have long been available.
//!
//! The functions of this file are parts of one loop and are inlined into it: each instruction takes one
//! indirect jump, to the code of its operation ([`decide`]).

use std::slice::Iter;

use super::code::{BACK, Instructions, LATE, LATE_JUMP, LINK, RESERVED, ZERO_SINK, restored};
use super::core::{Core, Lump, NOTHING, Wait};
use super::heat::HeatMap;
use crate::config::{Branch, Chip};
use crate::engine::{OUTSIDE, gave_up, wrong_access};
use crate::isa::{self, Insn, Op};
use crate::memory::{Request, SCRATCHPAD_BASE};
use crate::reference::coprocessor;

/// Instructions in sequence that need no check of the limit and of the instruction cache.
struct Piece<'c> {
    words: &'c [Insn],
    /// The instructions that are not issued yet.
    rest: Iter<'c, Insn>,
    /// The index of the first instruction in the code.
    index: usize,
    /// The cycle in which the first instruction issues.
    t: u64,
}

impl Piece<'_> {
    /// The number in the piece of the instruction that was taken last.
    #[inline(always)]
    fn place(&self) -> usize {
        self.words.len() - self.rest.len() - 1
    }

    /// The cycle in which that instruction issues.
    #[inline(always)]
    fn now(&self) -> u64 {
        self.t + self.place() as u64
    }
}

/// How a piece begins.
enum Begin<'c> {
    Piece(Piece<'c>),
    /// Not before this cycle: an instruction was annulled.
    Later(u64),
    /// The core stops in this cycle.
    Stop(u64, Wait),
}

/// The effect of an instruction.
enum Effect {
    Result(u32),
    /// A branch, which is taken or not.
    Branch(bool),
    Jump,
    /// An access to this address, which goes through the store buffer or not.
    Access(u32, bool),
    Rare,
}

/// What follows a branch or jump.
enum Next {
    /// The next instruction of the piece.
    Straight,
    /// The same instruction again in the next cycle.
    Stall,
    /// The delay slot, and then the target, if there is one.
    Turn(Option<u32>),
}

/// The effect of a rare instruction.
enum Rare {
    Result(u32),
    /// It is issued again in this cycle; the stall is counted.
    Wait(u64),
    /// It ends the run, for the reason in `fault`.
    Fault,
}

/// The effect of `insn`, whose source registers have the values `a` and `b`.
#[inline(always)]
fn decide(insn: &Insn, a: u32, b: u32, chip: &Chip) -> Effect {
    let imm = insn.imm;
    Effect::Result(match insn.op {
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
        Op::Beq => return Effect::Branch(a == b),
        Op::Bne => return Effect::Branch(a != b),
        Op::Blez => return Effect::Branch(a as i32 <= 0),
        Op::Bgtz => return Effect::Branch(a as i32 > 0),
        Op::Bltz | Op::Bltzal => return Effect::Branch((a as i32) < 0),
        Op::Bgez | Op::Bgezal => return Effect::Branch(a as i32 >= 0),
        Op::Lw | Op::Lb | Op::Lbu | Op::Lh | Op::Lhu | Op::Ll | Op::Sc => {
            return Effect::Access(a.wrapping_add(imm), false);
        }
        Op::Sw | Op::Sb | Op::Sh => return Effect::Access(a.wrapping_add(imm), true),
        Op::Update => return Effect::Access(Request::effective(insn.op, a, b), false),
        Op::Set => return Effect::Access(Request::effective(insn.op, a, b), chip.set_posted),
        Op::J | Op::Jal | Op::Jr | Op::Jalr => return Effect::Jump,
        _ => return Effect::Rare,
    })
}

impl Core {
    /// Issues private instructions up to the next access, miss, fault, or `limit`; returns the cycle and the
    /// reason.
    ///
    /// With `may_post` the store buffer is empty: the first store is left there, to be presented in its
    /// cycle, and the core continues.
    pub(super) fn run(
        &mut self,
        code: &Instructions,
        heat: &mut HeatMap,
        limit: u64,
        chip: &Chip,
        mut may_post: bool,
    ) -> (u64, Wait) {
        let words = code.words.as_slice();
        let (mut t, mut pc) = (self.t, self.pc);
        let wait = 'piece: loop {
            let mut piece = match self.begin(words, heat, limit, t, pc) {
                Begin::Piece(piece) => piece,
                Begin::Later(later) => {
                    t = later;
                    continue;
                }
                Begin::Stop(later, wait) => {
                    t = later;
                    break wait;
                }
            };
            loop {
                let Some(insn) = piece.rest.next() else {
                    (t, pc) = self.end(&piece, heat);
                    continue 'piece;
                };
                let a = self.regs[usize::from(insn.rs)];
                let b = self.regs[usize::from(insn.rt)];
                let next = match decide(insn, a, b, chip) {
                    Effect::Result(result) => {
                        self.regs[usize::from(insn.rd)] = result;
                        continue;
                    }
                    Effect::Branch(taken) => self.branch(insn, taken, &piece, chip),
                    Effect::Jump => self.jump(insn, a, &piece),
                    Effect::Access(addr, posted) => {
                        let Some(wait) = self.access(insn, addr, b, posted, may_post, &piece)
                        else {
                            may_post = false;
                            continue;
                        };
                        (t, pc) = (piece.now(), self.access_pc);
                        break 'piece wait;
                    }
                    Effect::Rare => {
                        let (index, now) = (piece.index + piece.place(), piece.now());
                        match self.rare(insn, index, chip, now, heat) {
                            Rare::Result(result) => {
                                self.regs[usize::from(insn.rd)] = result;
                                continue;
                            }
                            Rare::Wait(until) => (t, pc) = (until, 4 * index as u32),
                            Rare::Fault => {
                                (t, pc) = (now, 4 * index as u32);
                                break 'piece Wait::Fault;
                            }
                        }
                        continue 'piece;
                    }
                };
                match next {
                    Next::Straight => {}
                    Next::Stall => {
                        (t, pc) = self.stall(&piece, heat);
                        continue 'piece;
                    }
                    Next::Turn(target) => {
                        if let Some(at) = self.turn(target, &mut piece, words, limit, heat) {
                            (t, pc) = at;
                            continue 'piece;
                        }
                    }
                }
            }
        };
        (self.t, self.pc) = (t, pc);
        (t, wait)
    }

    /// Begins a piece with the instruction at `pc`, in cycle `t` at the earliest.
    #[inline(always)]
    fn begin<'c>(
        &mut self,
        code: &'c [Insn],
        heat: &mut HeatMap,
        limit: u64,
        mut t: u64,
        pc: u32,
    ) -> Begin<'c> {
        if t >= limit {
            return Begin::Stop(t, Wait::Resume);
        }
        if self.annul != NOTHING && !self.in_slot {
            t = self.hazard(t, t + 1, self.annul, heat);
            self.annul = NOTHING;
            return Begin::Later(t);
        }
        let index = self.index(pc);
        if pc & 3 != 0 || index == self.end {
            self.fault = Some(OUTSIDE.into());
            return Begin::Stop(t, Wait::Fault);
        }
        if !self.icache.hit(pc >> self.line_shift) {
            return Begin::Stop(t, Wait::Miss);
        }
        let ahead = usize::try_from(limit - t).unwrap_or(usize::MAX);
        let most = if self.in_slot { 1 } else { (!index & self.line_words) + 1 };
        let mut words = code.get(index..).unwrap_or(&[]);
        words = &words[..words.len().min(most).min(ahead)];
        // A load-use stall has one cycle or none; adding it without a branch avoids mispredictions.
        if self.load.1 > t
            && let Some(first) = words.first()
        {
            let uses = first.rs == self.load.0 || first.rt == self.load.0;
            t = self.hazard(t, t + u64::from(uses) * (self.load.1 - t), pc, heat);
            let left = usize::try_from(limit.saturating_sub(t)).unwrap_or(usize::MAX);
            words = &words[..words.len().min(left)];
            if words.is_empty() {
                return Begin::Stop(t, Wait::Resume);
            }
        }
        Begin::Piece(Piece { words, rest: words.iter(), index, t })
    }

    /// Ends a piece: the core continues with the next instruction, or from the delay slot with the target.
    /// Returns the cycle and the address.
    #[inline(always)]
    fn end(&mut self, piece: &Piece<'_>, heat: &mut HeatMap) -> (u64, u32) {
        let t = piece.t + piece.words.len() as u64;
        self.alu = (piece.words.last().map_or(ZERO_SINK, |insn| insn.rd), t);
        let mut pc = 4 * (piece.index + piece.words.len()) as u32;
        if self.in_slot {
            self.in_slot = false;
            pc = self.next_pc;
            self.leave(piece.index, pc, heat);
        }
        (t, pc)
    }

    /// Counts a stall of one cycle for the instruction that was taken last. Returns the cycle and the
    /// address with which the core continues.
    #[inline(always)]
    fn stall(&mut self, piece: &Piece<'_>, heat: &mut HeatMap) -> (u64, u32) {
        let (now, pc) = (piece.now(), 4 * (piece.index + piece.place()) as u32);
        (self.hazard(now, now + 1, pc, heat), pc)
    }

    /// Issues a branch.
    #[inline(always)]
    fn branch(&mut self, insn: &Insn, taken: bool, piece: &Piece<'_>, chip: &Chip) -> Next {
        let place = piece.place();
        let now = piece.t + place as u64;
        let here = 4 * (piece.index + place) as u32;
        let flags = insn.rd;
        let late = match place {
            0 => self.computed_late(insn, now),
            _ => flags & LATE != 0,
        };
        if late || self.loaded_late(insn, now) {
            if chip.branch == Branch::Stall {
                return Next::Stall;
            }
            if (flags & BACK != 0) != taken {
                self.annul = here;
            }
        }
        if flags & LINK != 0 {
            self.regs[31] = here + 8;
            self.alu = (31, now + 1);
        } else if !taken && !self.in_slot && self.annul == NOTHING {
            return Next::Straight;
        }
        Next::Turn(taken.then_some(insn.imm))
    }

    /// Issues a jump; `a` is the target of a jump by register.
    #[inline(always)]
    fn jump(&mut self, insn: &Insn, a: u32, piece: &Piece<'_>) -> Next {
        let place = piece.place();
        let now = piece.t + place as u64;
        let by_register = matches!(insn.op, Op::Jr | Op::Jalr);
        let late = match place {
            0 => self.computed_late(insn, now),
            _ => insn.imm & LATE_JUMP != 0,
        };
        if by_register && (late || self.loaded_late(insn, now)) {
            return Next::Stall;
        }
        if insn.rd != ZERO_SINK {
            let link = (4 * (piece.index + place) as u32).wrapping_add(8);
            self.regs[usize::from(insn.rd)] = link;
            self.alu = (insn.rd, now + 1);
        }
        Next::Turn(Some(if by_register { a } else { insn.imm }))
    }

    /// Continues after a jump or branch: with its delay slot, and then with `target`. If the delay slot is on
    /// the same line it becomes the piece; otherwise returns the cycle and the address of the next piece.
    #[inline(always)]
    fn turn<'c>(
        &mut self,
        target: Option<u32>,
        piece: &mut Piece<'c>,
        code: &'c [Insn],
        limit: u64,
        heat: &mut HeatMap,
    ) -> Option<(u64, u32)> {
        let place = piece.place();
        let (index, t) = (piece.index + place, piece.t + place as u64 + 1);
        let slot = index + 1;
        if self.in_slot {
            let pc = self.next_pc;
            self.leave(index, pc, heat);
            self.next_pc = target.unwrap_or(pc.wrapping_add(4));
            return Some((t, pc));
        }
        self.in_slot = true;
        self.next_pc = target.unwrap_or(4 * (slot as u32 + 1));
        if slot & self.line_words == 0 || t >= limit {
            return Some((t, 4 * slot as u32));
        }
        // A load before the branch has its value by now, so there is nothing to check.
        let words = code.get(slot..=slot).unwrap_or(&[]);
        *piece = Piece { words, rest: words.iter(), index: slot, t };
        None
    }

    /// Takes an access to `addr`. Returns `None` if it is a store that was left in the store buffer, so that the
    /// core continues; otherwise the reason why the core stops.
    #[inline(always)]
    fn access(
        &mut self,
        insn: &Insn,
        addr: u32,
        value: u32,
        posted: bool,
        may_post: bool,
        piece: &Piece<'_>,
    ) -> Option<Wait> {
        let plain = addr & 3 == 0 && addr.wrapping_sub(SCRATCHPAD_BASE) < self.scratchpad;
        if plain && posted && may_post {
            self.store = Request { op: insn.op, addr, value };
            self.early_at = piece.t + piece.place() as u64;
            self.counters.stores += 1;
            return None;
        }
        self.access_pc = 4 * (piece.index + piece.place()) as u32;
        // Nearly all accesses are to words of the scratchpad.
        if !plain && let Some(wrong) = wrong_access(insn.op, addr, self.scratchpad) {
            self.fault = Some(wrong);
            return Some(Wait::Fault);
        }
        self.access = Request { op: insn.op, addr, value };
        self.access_rd = insn.rd;
        self.posted = posted;
        self.writes = posted || matches!(insn.op, Op::Sc | Op::Set);
        Some(Wait::Access)
    }

    /// Performs a rare instruction: HI and LO, `mfc0`, `sync`, instructions that trap, reserved words.
    #[cold]
    fn rare(&mut self, insn: &Insn, index: usize, chip: &Chip, t: u64, heat: &mut HeatMap) -> Rare {
        let a = self.regs[usize::from(insn.rs)];
        let b = self.regs[usize::from(insn.rt)];
        let what = match insn.op {
            Op::Mfc0 => return Rare::Result(coprocessor(insn.imm, t, self.who)),
            Op::Mfhi | Op::Mflo if self.hi_lo_ready > t => {
                let (end, pc) = (self.hi_lo_ready, 4 * index as u32);
                self.pipeline_lump = Lump { start: t, end, pc };
                return Rare::Wait(self.hazard(t, end, pc, heat));
            }
            Op::Add | Op::Addi | Op::Sub => match isa::alu(insn, a, b) {
                Ok(result) => return Rare::Result(result),
                Err(isa::Overflow) => format!("{} overflows", restored(*insn)),
            },
            // A reserved word is decoded as `break` with a mark.
            Op::Break | Op::Syscall if index >= self.end => OUTSIDE.into(),
            Op::Break if insn.imm == RESERVED => String::new(), // the engine knows the word
            Op::Break | Op::Syscall => gave_up(&restored(*insn)),
            _ => return Rare::Result(self.hi_lo(insn, a, b, chip, t).unwrap_or(0)),
        };
        self.fault = Some(what);
        Rare::Fault
    }

    /// Performs a multiplication, division or move; returns the value of a move from HI or LO.
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
}
