//! The instruction set: the integer part of MIPS II that an R4000 shares with its 32-bit predecessors,
//! and `set` and `update` (Willmann et al., HPCA 2005, section 4).
//!
//! Encodings follow the MIPS R4000 User's Manual, appendix A. `set` and `update` use SPECIAL2
//! (0x1c), which is reserved on an R4000:
//!
//! ```text
//!   set base, index          0x7000003e | base<<21 | index<<16
//!   update rd, base, from    0x7000003f | base<<21 | from<<16 | rd<<11
//! ```
//!
//! Not supported: branch-likely, unaligned loads and stores, traps, 64-bit, floating point, and coprocessor 0
//! except `mfc0`. [`decode`] accepts every word: a word outside the subset gives `None`. Thread-safety: values only.

use std::fmt;

/// The operation of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the manual's mnemonics")]
pub enum Op {
    Sll,
    Srl,
    Sra,
    Sllv,
    Srlv,
    Srav,
    Addu,
    Subu,
    And,
    Or,
    Xor,
    Nor,
    Slt,
    Sltu,
    Addiu,
    Slti,
    Sltiu,
    Andi,
    Ori,
    Xori,
    Lui,
    Add,
    Sub,
    Addi,
    Mfhi,
    Mflo,
    Mthi,
    Mtlo,
    Mult,
    Multu,
    Div,
    Divu,
    Mfc0,
    Sync,
    Beq,
    Bne,
    Blez,
    Bgtz,
    Bltz,
    Bgez,
    Bltzal,
    Bgezal,
    J,
    Jal,
    Jr,
    Jalr,
    Lb,
    Lbu,
    Lh,
    Lhu,
    Lw,
    Ll,
    Update,
    Sc,
    Sb,
    Sh,
    Sw,
    Set,
    Break,
    Syscall,
}

/// A decoded instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insn {
    /// The operation.
    pub op: Op,
    /// First source register (base register of a memory access).
    pub rs: u8,
    /// Second source register; the destination of immediate forms and loads.
    pub rt: u8,
    /// The register that is written; 0 for none.
    pub rd: u8,
    /// The immediate, extended as the operation requires; a shift amount; or an absolute target.
    pub imm: u32,
}

/// The instruction that `word` encodes at address `pc`; `None` outside the subset.
pub fn decode(word: u32, pc: u32) -> Option<Insn> {
    use Op::*;
    let (rs, rt, rd) = (field(word, 21), field(word, 16), field(word, 11));
    let signed = word as u16 as i16 as i32 as u32;
    let zero = u32::from(word as u16);
    let next = pc.wrapping_add(4);
    let branch = next.wrapping_add(signed << 2);
    let jump = (next & 0xf000_0000) | (word & 0x03ff_ffff) << 2;
    let insn = |op, rs, rt, rd, imm| Some(Insn { op, rs, rt, rd, imm });
    let imm = |op, imm| insn(op, rs, 0, rt, imm);
    match word >> 26 {
        0x00 => special(word),
        0x01 => match rt {
            0x00 => insn(Bltz, rs, 0, 0, branch),
            0x01 => insn(Bgez, rs, 0, 0, branch),
            0x10 => insn(Bltzal, rs, 0, 31, branch),
            0x11 => insn(Bgezal, rs, 0, 31, branch),
            _ => None,
        },
        0x02 => insn(J, 0, 0, 0, jump),
        0x03 => insn(Jal, 0, 0, 31, jump),
        0x04 => insn(Beq, rs, rt, 0, branch),
        0x05 => insn(Bne, rs, rt, 0, branch),
        0x06 if rt == 0 => insn(Blez, rs, 0, 0, branch),
        0x07 if rt == 0 => insn(Bgtz, rs, 0, 0, branch),
        0x08 => imm(Addi, signed),
        0x09 => imm(Addiu, signed),
        0x0a => imm(Slti, signed),
        0x0b => imm(Sltiu, signed),
        0x0c => imm(Andi, zero),
        0x0d => imm(Ori, zero),
        0x0e => imm(Xori, zero),
        0x0f if rs == 0 => imm(Lui, zero << 16),
        0x10 if rs == 0 && word & 0x7ff == 0 => insn(Mfc0, 0, 0, rt, rd.into()),
        0x1c => match word & 0x7ff {
            0x3e if rd == 0 => insn(Set, rs, rt, 0, 0),
            0x3f => insn(Update, rs, rt, rd, 0),
            _ => None,
        },
        0x20 => imm(Lb, signed),
        0x21 => imm(Lh, signed),
        0x23 => imm(Lw, signed),
        0x24 => imm(Lbu, signed),
        0x25 => imm(Lhu, signed),
        0x28 => insn(Sb, rs, rt, 0, signed),
        0x29 => insn(Sh, rs, rt, 0, signed),
        0x2b => insn(Sw, rs, rt, 0, signed),
        0x30 => imm(Ll, signed),
        0x38 => insn(Sc, rs, rt, rt, signed),
        _ => None,
    }
}

/// The instruction with opcode SPECIAL, whose function code is in the lowest bits.
fn special(word: u32) -> Option<Insn> {
    use Op::*;
    let (rs, rt, rd, sa) = (field(word, 21), field(word, 16), field(word, 11), field(word, 6));
    let insn = |op, rs, rt, rd, imm| Some(Insn { op, rs, rt, rd, imm });
    let three = |op| if sa == 0 { insn(op, rs, rt, rd, 0) } else { None };
    match word & 0x3f {
        0x00 if rs == 0 => insn(Sll, 0, rt, rd, sa.into()),
        0x02 if rs == 0 => insn(Srl, 0, rt, rd, sa.into()),
        0x03 if rs == 0 => insn(Sra, 0, rt, rd, sa.into()),
        0x04 => three(Sllv),
        0x06 => three(Srlv),
        0x07 => three(Srav),
        0x08 if rt == 0 && rd == 0 => insn(Jr, rs, 0, 0, 0),
        0x09 if rt == 0 => insn(Jalr, rs, 0, rd, 0),
        0x0c => insn(Syscall, 0, 0, 0, 0),
        0x0d => insn(Break, 0, 0, 0, 0),
        0x0f if rs == 0 && rt == 0 && rd == 0 => insn(Sync, 0, 0, 0, 0),
        0x10 if rs == 0 && rt == 0 => insn(Mfhi, 0, 0, rd, 0),
        0x11 if rt == 0 && rd == 0 => insn(Mthi, rs, 0, 0, 0),
        0x12 if rs == 0 && rt == 0 => insn(Mflo, 0, 0, rd, 0),
        0x13 if rt == 0 && rd == 0 => insn(Mtlo, rs, 0, 0, 0),
        0x18 if rd == 0 && sa == 0 => insn(Mult, rs, rt, 0, 0),
        0x19 if rd == 0 && sa == 0 => insn(Multu, rs, rt, 0, 0),
        0x1a if rd == 0 && sa == 0 => insn(Div, rs, rt, 0, 0),
        0x1b if rd == 0 && sa == 0 => insn(Divu, rs, rt, 0, 0),
        0x20 => three(Add),
        0x21 => three(Addu),
        0x22 => three(Sub),
        0x23 => three(Subu),
        0x24 => three(And),
        0x25 => three(Or),
        0x26 => three(Xor),
        0x27 => three(Nor),
        0x2a => three(Slt),
        0x2b => three(Sltu),
        _ => None,
    }
}

fn field(word: u32, at: u32) -> u8 {
    (word >> at & 31) as u8
}

/// The classes of instructions that the ILP study and the profiles distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Arithmetic, logic, shifts, moves.
    Alu,
    /// Reads memory into a register; includes `sc` and `update`, which return a value.
    Load,
    /// Only writes memory.
    Store,
    /// Conditional branch.
    Branch,
    /// Unconditional jump or call.
    Jump,
}

impl Insn {
    /// The class of its operation.
    pub fn class(&self) -> Class {
        match self.op as u8 {
            op if op >= Op::Break as u8 => Class::Alu,
            op if op >= Op::Sb as u8 => Class::Store,
            op if op >= Op::Lb as u8 => Class::Load,
            op if op >= Op::J as u8 => Class::Jump,
            // `b` is `beq $0, $0`, which depends on nothing.
            op if op >= Op::Beq as u8 && self.op == Op::Beq && self.rs == self.rt => Class::Jump,
            op if op >= Op::Beq as u8 => Class::Branch,
            _ => Class::Alu,
        }
    }

    /// Whether it accesses memory.
    pub fn is_memory(&self) -> bool {
        matches!(self.class(), Class::Load | Class::Store)
    }

    /// Whether it has a delay slot: the next instruction is executed before the jump takes effect.
    pub fn has_delay_slot(&self) -> bool {
        (Op::Beq as u8..=Op::Jalr as u8).contains(&(self.op as u8))
    }
}

/// A signed overflow, which traps on an R4000.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow;

/// The result of an ALU instruction on the values of its sources.
///
/// # Errors
/// [`Overflow`] for `add`, `addi` and `sub` whose signed result does not fit.
#[inline(always)]
pub fn alu(insn: &Insn, a: u32, b: u32) -> Result<u32, Overflow> {
    use Op::*;
    let imm = insn.imm;
    Ok(match insn.op {
        Sll => b << imm,
        Srl => b >> imm,
        Sra => (b as i32 >> imm) as u32,
        Sllv => b << (a & 31),
        Srlv => b >> (a & 31),
        Srav => (b as i32 >> (a & 31)) as u32,
        Addu => a.wrapping_add(b),
        Subu => a.wrapping_sub(b),
        And => a & b,
        Or => a | b,
        Xor => a ^ b,
        Nor => !(a | b),
        Slt => ((a as i32) < b as i32).into(),
        Sltu => (a < b).into(),
        Addiu => a.wrapping_add(imm),
        Slti => ((a as i32) < imm as i32).into(),
        Sltiu => (a < imm).into(),
        Andi => a & imm,
        Ori => a | imm,
        Xori => a ^ imm,
        Lui => imm,
        Add => (a as i32).checked_add(b as i32).ok_or(Overflow)? as u32,
        Sub => (a as i32).checked_sub(b as i32).ok_or(Overflow)? as u32,
        Addi => (a as i32).checked_add(imm as i32).ok_or(Overflow)? as u32,
        _ => 0,
    })
}

/// HI and LO after a multiplication or division. The result of a division by zero is zero; the manual leaves
/// it undefined.
pub fn muldiv(op: Op, a: u32, b: u32) -> (u32, u32) {
    let wide = |product: u64| ((product >> 32) as u32, product as u32);
    match op {
        Op::Mult => wide((i64::from(a as i32) * i64::from(b as i32)) as u64),
        Op::Multu => wide(u64::from(a) * u64::from(b)),
        Op::Div => (
            (a as i32).checked_rem(b as i32).unwrap_or(0) as u32,
            (a as i32).checked_div(b as i32).unwrap_or(0) as u32,
        ),
        _ => (a.checked_rem(b).unwrap_or(0), a.checked_div(b).unwrap_or(0)),
    }
}

/// Whether a conditional branch on these values is taken.
#[inline(always)]
pub fn taken(op: Op, a: u32, b: u32) -> bool {
    match op {
        Op::Beq => a == b,
        Op::Bne => a != b,
        Op::Blez => a as i32 <= 0,
        Op::Bgtz => a as i32 > 0,
        Op::Bltz | Op::Bltzal => (a as i32) < 0,
        _ => a as i32 >= 0,
    }
}

const NAMES: [&str; 32] = [
    "zero", "at", "v0", "v1", "a0", "a1", "a2", "a3", "t0", "t1", "t2", "t3", "t4", "t5", "t6",
    "t7", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "t8", "t9", "k0", "k1", "gp", "sp", "fp",
    "ra",
];

impl fmt::Display for Insn {
    /// The instruction in assembly language; targets and immediates are hexadecimal or signed decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Op::*;
        let name = format!("{:?}", self.op).to_lowercase();
        let r = |n: u8| NAMES[usize::from(n & 31)];
        let (rs, rt, rd, imm) = (r(self.rs), r(self.rt), r(self.rd), self.imm as i32);
        match self.op {
            Sll if self.rd == 0 && self.rt == 0 => write!(f, "nop"),
            Sll | Srl | Sra => write!(f, "{name} {rd}, {rt}, {imm}"),
            Sllv | Srlv | Srav => write!(f, "{name} {rd}, {rt}, {rs}"),
            Addu | Subu | And | Or | Xor | Nor | Slt | Sltu | Add | Sub => {
                write!(f, "{name} {rd}, {rs}, {rt}")
            }
            Addiu | Slti | Sltiu | Addi => write!(f, "{name} {rd}, {rs}, {imm}"),
            Andi | Ori | Xori => write!(f, "{name} {rd}, {rs}, {imm:#x}"),
            Lui => write!(f, "{name} {rd}, {:#x}", self.imm >> 16),
            Mfhi | Mflo => write!(f, "{name} {rd}"),
            Mthi | Mtlo | Jr => write!(f, "{name} {rs}"),
            Mult | Multu | Div | Divu => write!(f, "{name} {rs}, {rt}"),
            Mfc0 => write!(f, "{name} {rd}, ${imm}"),
            Sync | Break | Syscall => write!(f, "{name}"),
            Beq | Bne => write!(f, "{name} {rs}, {rt}, {imm:#x}"),
            Blez | Bgtz | Bltz | Bgez | Bltzal | Bgezal => write!(f, "{name} {rs}, {imm:#x}"),
            J | Jal => write!(f, "{name} {imm:#x}"),
            Jalr => write!(f, "{name} {rd}, {rs}"),
            Update => write!(f, "{name} {rd}, {rs}, {rt}"),
            Set => write!(f, "{name} {rs}, {rt}"),
            Lb | Lbu | Lh | Lhu | Lw | Ll | Sc => write!(f, "{name} {rd}, {imm}({rs})"),
            Sb | Sh | Sw => write!(f, "{name} {rt}, {imm}({rs})"),
        }
    }
}

#[cfg(test)]
mod tests;
