//! An assembler for the eBPF instructions used here (RFC 9669).
//!
//! Jumps refer to labels, which may be placed before or after the jump; `finish` fills in
//! distances.

use super::sys::Insn;

/// A register.
pub(crate) type Reg = u8;
pub(crate) const R0: Reg = 0;
pub(crate) const R1: Reg = 1;
pub(crate) const R2: Reg = 2;
pub(crate) const R3: Reg = 3;
pub(crate) const R4: Reg = 4;
pub(crate) const R5: Reg = 5;
pub(crate) const R6: Reg = 6;
pub(crate) const R7: Reg = 7;
pub(crate) const R8: Reg = 8;
/// The frame pointer: the end of the stack.
/// The end of the stack.
pub(crate) const R10: Reg = 10;

/// The width of a load or store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

/// A position in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    insns: Vec<Insn>,
    places: Vec<Option<usize>>,
    /// Positions of jumps, and their targets.
    jumps: Vec<(usize, Label)>,
}

// Instruction classes and codes: RFC 9669 sections 4.1 to 5.2.
const LD: u8 = 0x00;
const LD_ABS: u8 = 0x20;
const LD_IND: u8 = 0x40;
/// Packet offsets that are relative to the link header (SKF_LL_OFF of linux/filter.h).
const LINK_HEADER: i32 = -0x20_0000;
const LDX_MEM: u8 = 0x61;
const ST_MEM: u8 = 0x62;
const STX_MEM: u8 = 0x63;
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const BY_REG: u8 = 0x08;
/// Source register value of LD_IMM64 for the file descriptor of a map.
const MAP_FD: u8 = 1;
/// BPF_STX and BPF_ATOMIC.
const STX_ATOMIC: u8 = 0xc3;

impl Assembler {
    fn push(&mut self, code: u8, dst: Reg, src: Reg, off: i16, imm: i32) {
        self.insns.push(Insn { code, regs: src << 4 | dst, off, imm });
    }

    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Places `label` at the current position.
    pub(crate) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.insns.len());
    }

    pub(crate) fn move_reg(&mut self, dst: Reg, src: Reg) {
        self.push(ALU64 | 0xb0 | BY_REG, dst, src, 0, 0);
    }

    pub(crate) fn move_imm(&mut self, dst: Reg, imm: i32) {
        self.push(ALU64 | 0xb0, dst, 0, 0, imm);
    }

    pub(crate) fn add(&mut self, dst: Reg, imm: i32) {
        self.push(ALU64, dst, 0, 0, imm);
    }

    pub(crate) fn add_reg(&mut self, dst: Reg, src: Reg) {
        self.push(ALU64 | BY_REG, dst, src, 0, 0);
    }

    /// 32-bit AND; clears the upper 32 bits.
    pub(crate) fn and(&mut self, dst: Reg, imm: i32) {
        self.push(ALU32 | 0x50, dst, 0, 0, imm);
    }

    pub(crate) fn shift_left(&mut self, dst: Reg, bits: i32) {
        self.push(ALU64 | 0x60, dst, 0, 0, bits);
    }

    /// Multiplies the low 32 bits; clears the upper 32 bits.
    pub(crate) fn multiply(&mut self, dst: Reg, imm: i32) {
        self.push(ALU32 | 0x20, dst, 0, 0, imm);
    }

    pub(crate) fn xor_reg(&mut self, dst: Reg, src: Reg) {
        self.push(ALU64 | 0xa0 | BY_REG, dst, src, 0, 0);
    }

    /// Shifts the low 32 bits right; clears the upper 32 bits.
    pub(crate) fn shift_right(&mut self, dst: Reg, bits: i32) {
        self.push(ALU32 | 0x70, dst, 0, 0, bits);
    }

    /// Loads from the frame into R0, in host byte order, `off` bytes after the start of the link
    /// header. The program ends with 0 if the frame is shorter. For socket filters; R6 has the context,
    /// and R1 to R5 are lost (RFC 9669 section 5.5, legacy BPF packet access).
    pub(crate) fn load_packet(&mut self, off: i32, size: Size) {
        self.push(LD | LD_ABS | size as u8, 0, 0, 0, LINK_HEADER + off);
    }

    /// As [`Assembler::load_packet`], and `index` bytes further.
    pub(crate) fn load_packet_at(&mut self, index: Reg, off: i32, size: Size) {
        self.push(LD | LD_IND | size as u8, 0, index, 0, LINK_HEADER + off);
    }

    pub(crate) fn load(&mut self, dst: Reg, base: Reg, off: i16, size: Size) {
        self.push(LDX_MEM | size as u8, dst, base, off, 0);
    }

    pub(crate) fn load_stack(&mut self, dst: Reg, off: i16, size: Size) {
        self.load(dst, R10, off, size);
    }

    pub(crate) fn store(&mut self, off: i16, src: Reg, size: Size) {
        self.push(STX_MEM | size as u8, R10, src, off, 0);
    }

    pub(crate) fn store_imm(&mut self, off: i16, imm: i32, size: Size) {
        self.push(ST_MEM | size as u8, R10, 0, off, imm);
    }

    /// Adds `src` to the 64 bits at `base` + `off`, atomically.
    pub(crate) fn add_at(&mut self, base: Reg, off: i16, src: Reg) {
        self.push(STX_ATOMIC | Size::Double as u8, base, src, off, 0);
    }

    /// Loads the map with this file descriptor; takes two instructions.
    pub(crate) fn load_map(&mut self, dst: Reg, map: i32) {
        self.push(LD | Size::Double as u8, dst, MAP_FD, 0, map);
        self.push(0, 0, 0, 0, 0);
    }

    pub(crate) fn call(&mut self, helper: i32) {
        self.push(JMP | 0x80, 0, 0, 0, helper);
    }

    pub(crate) fn exit(&mut self) {
        self.push(JMP | 0x90, 0, 0, 0, 0);
    }

    fn jump(&mut self, code: u8, dst: Reg, src: Reg, imm: i32, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(code, dst, src, 0, imm);
    }

    pub(crate) fn goto(&mut self, to: Label) {
        self.jump(JMP, 0, 0, 0, to);
    }

    /// Compares the low 32 bits.
    pub(crate) fn if_equal(&mut self, dst: Reg, imm: i32, to: Label) {
        self.jump(JMP32 | 0x10, dst, 0, imm, to);
    }

    /// Compares all 64 bits, as is necessary for pointers.
    pub(crate) fn if_null(&mut self, dst: Reg, to: Label) {
        self.jump(JMP | 0x10, dst, 0, 0, to);
    }

    /// Compares the low 32 bits.
    pub(crate) fn if_not_equal(&mut self, dst: Reg, imm: i32, to: Label) {
        self.jump(JMP32 | 0x50, dst, 0, imm, to);
    }

    pub(crate) fn if_greater(&mut self, dst: Reg, src: Reg, to: Label) {
        self.jump(JMP | 0x20 | BY_REG, dst, src, 0, to);
    }

    pub(crate) fn if_less(&mut self, dst: Reg, imm: i32, to: Label) {
        self.jump(JMP | 0xa0, dst, 0, imm, to);
    }

    /// Resolves all jumps and returns the program.
    pub(crate) fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let to = self.places[label.0].unwrap_or(at + 1);
            self.insns[at].off = i16::try_from(to as isize - at as isize - 1).unwrap_or(i16::MAX);
        }
        self.insns
    }
}
