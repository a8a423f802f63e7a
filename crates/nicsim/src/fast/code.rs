//! The decoded instruction memory of the fast engine.
//!
//! Instructions are prepared for running: `rd` is [`ZERO_SINK`] if nothing is written; a branch has flags in
//! `rd`; a jump by register has [`LATE_JUMP`] in `imm`; a branch that compares a register with itself is a
//! jump.

use crate::config::Chip;
use crate::elf::Image;
use crate::isa::{self, Class, Insn, Op};

/// The immediate that marks a word outside the subset.
pub(super) const RESERVED: u32 = u32::MAX;
/// The place of a register to which results for register 0 go.
pub(super) const ZERO_SINK: u8 = 32;

/// A number that no register has, so that the flags in its place are never taken for a register.
const NO_REGISTER: u8 = 64;
/// Branch flag: it writes register 31.
pub(super) const LINK: u8 = 1;
/// Branch flag: the word before it computes a register that the branch tests.
pub(super) const LATE: u8 = 2;
/// Branch flag: it goes backward, so it is predicted to be taken.
pub(super) const BACK: u8 = 4;
/// The same as [`LATE`], in `imm` of a jump by register.
pub(super) const LATE_JUMP: u32 = 1;

/// The instruction memory, followed by words that fault.
#[derive(Debug)]
pub(super) struct Instructions {
    pub(super) words: Vec<Insn>,
}

impl Instructions {
    pub(super) fn new(image: &Image, chip: &Chip) -> Self {
        let reserved = Insn { op: Op::Break, rs: 0, rt: 0, rd: 0, imm: RESERVED };
        let decoded = image.text.iter().enumerate();
        let decoded: Vec<_> =
            decoded.map(|(n, &word)| isa::decode(word, 4 * n as u32).unwrap_or(reserved)).collect();
        let mut words = Vec::with_capacity(decoded.len() + 1);
        let mut before = reserved;
        for (n, &insn) in decoded.iter().enumerate() {
            words.push(prepared(insn, before, 4 * n as u32));
            before = insn;
        }
        // At least one such word, and the last line complete, so that a piece of a line needs no check of the end.
        let line = chip.icache_line_bytes as usize / 4;
        let whole = (words.len() + 1).next_multiple_of(line.max(1));
        words.resize(whole, Insn { rd: ZERO_SINK, ..reserved });
        Self { words }
    }
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

/// The instruction as it was decoded, for messages.
pub(super) fn restored(mut insn: Insn) -> Insn {
    if insn.rd == ZERO_SINK {
        insn.rd = 0;
    }
    insn
}
