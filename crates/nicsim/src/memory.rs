//! The scratchpad: its contents, and the effect of a request when a bank performs it.
//!
//! ```text
//!   0x0000_0000  instruction memory, 128 KB, only for fetches
//!   0x1000_0000  scratchpad, 256 KB, word-interleaved over S banks; its first 256 bytes are the
//!                hardware page (see `hw`): pointers that the assists write or watch
//!   0x2000_0000  SDRAM, reached through the crossbar's external memory port
//! ```
//!
//! A bank performs one request in a cycle, and a request is atomic; LL/SC, `set` and `update` need nothing
//! else. Invariants: a reservation ends at any write to its word; `update` never accesses more than one
//! aligned word. Thread-safety: values only.

use crate::isa::Op;

/// Bytes of instruction memory (HPCA 2005, section 4).
pub const IMEM_BYTES: u32 = 128 * 1024;
/// The address of the scratchpad.
pub const SCRATCHPAD_BASE: u32 = 0x1000_0000;
/// The address of the SDRAM.
pub const SDRAM_BASE: u32 = 0x2000_0000;
/// Bytes of SDRAM that are modelled, more than both frame buffers need.
pub const SDRAM_BYTES: u32 = 4 << 20;

/// Word indices of the hardware page. `W` names the writer of a word.
pub mod hw {
    /// Words in the page.
    pub const WORDS: u32 = 64;
    /// W host: send buffer descriptors posted.
    pub const SBD_PROD: u32 = 0;
    /// W host: receive buffer descriptors posted.
    pub const RBD_PROD: u32 = 1;
    /// W assist: DMA reads done, in order.
    pub const DRD_DONE: u32 = 4;
    /// W assist: DMA writes done, in order.
    pub const DWR_DONE: u32 = 5;
    /// W assist: frames transmitted.
    pub const MTX_DONE: u32 = 6;
    /// W assist: frames received.
    pub const MRX_PROD: u32 = 7;
    /// W firmware: DMA read descriptors ready.
    pub const DRD_PROD: u32 = 8;
    /// W firmware: DMA write descriptors ready.
    pub const DWR_PROD: u32 = 9;
    /// W firmware: transmit descriptors ready.
    pub const MTX_PROD: u32 = 10;
    /// W firmware: received frames freed.
    pub const MRX_CONS: u32 = 11;
    /// W firmware: base address and entries of the four descriptor rings (two words each, in the
    /// order DMA read, DMA write, MAC transmit, MAC receive).
    pub const RINGS: u32 = 12;
    /// W firmware: receive buffer base in SDRAM, bytes of a slot, number of slots. Writing the
    /// number starts the receiver.
    pub const RX_BASE: u32 = 20;
    /// See [`RX_BASE`].
    pub const RX_SLOT_BYTES: u32 = 21;
    /// See [`RX_BASE`].
    pub const RX_SLOTS: u32 = 22;
    /// W firmware: any write interrupts the host.
    pub const INTERRUPT: u32 = 23;
    /// W firmware: if not zero, every pointer write of the hardware also sets a bit of [`EVENTS`].
    pub const EVENT_ENABLE: u32 = 24;
    /// The event register (section 3.2): bit n for word n.
    pub const EVENTS: u32 = 25;
    /// W boot: the parameters of the firmware, from word 32 on (see `struct hw` in nic.h).
    pub const BOOT: u32 = 32;
    /// W host: return descriptors consumed, of return rings 0 to 7.
    pub const RET_CONS: u32 = 56;
}

/// A request to a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The operation; assists use `Lw`, `Sw` and `Set`.
    pub op: Op,
    /// Byte address.
    pub addr: u32,
    /// The value to store, or the index operand of `set` and `update`.
    pub value: u32,
}

impl Request {
    /// A request that reads a word.
    pub fn load(addr: u32) -> Self {
        Self { op: Op::Lw, addr, value: 0 }
    }

    /// A request that writes a word.
    pub fn store(addr: u32, value: u32) -> Self {
        Self { op: Op::Sw, addr, value }
    }

    /// The address that decides the bank: `set` and `update` access the word that contains the bit.
    #[inline(always)]
    pub fn effective(op: Op, base: u32, value: u32) -> u32 {
        match op {
            Op::Set | Op::Update => base.wrapping_add(value >> 5 << 2),
            _ => base,
        }
    }
}

/// The contents and reservations of the scratchpad.
#[derive(Clone, Debug)]
pub struct Scratchpad {
    words: Vec<u32>,
    mask: u32,
    reserved: [u32; 16],
    reservers: u32,
}

/// The result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The value that a load, `sc` or `update` returns.
    pub value: u32,
    /// If a word of the hardware page was written: its index and its new value.
    pub hw: Option<(u32, u32)>,
}

const NO_RESERVATION: u32 = u32::MAX;

impl Scratchpad {
    /// A zeroed scratchpad of `bytes`, a power of two.
    pub fn new(bytes: u32) -> Self {
        let words = vec![0; (bytes / 4).next_power_of_two() as usize];
        let mask = words.len() as u32 - 1;
        Self { words, mask, reserved: [NO_RESERVATION; 16], reservers: 0 }
    }

    /// Whether an access of `size` bytes at `addr` is inside the scratchpad and aligned.
    #[inline(always)]
    pub fn holds(&self, addr: u32, size: u32) -> bool {
        addr.wrapping_sub(SCRATCHPAD_BASE) >> 2 <= self.mask && addr & (size - 1) == 0
    }

    /// The word at word index `index`, outside the simulated time, for loaders and reports.
    pub fn peek(&self, index: u32) -> u32 {
        self.words[(index & self.mask) as usize]
    }

    /// Sets a word outside the simulated time, for loaders.
    pub fn poke(&mut self, index: u32, value: u32) {
        self.words[(index & self.mask) as usize] = value;
    }

    /// The word at byte address `addr`, as `lw` reads it.
    #[inline(always)]
    pub(crate) fn load(&self, addr: u32) -> u32 {
        self.words[(addr.wrapping_sub(SCRATCHPAD_BASE) >> 2 & self.mask) as usize]
    }

    /// Performs a request of core `who` (16 and above: an assist). The caller has checked the address.
    #[inline(always)]
    pub fn perform(&mut self, who: usize, request: Request) -> Done {
        let Request { op, addr, value } = request;
        let index = addr.wrapping_sub(SCRATCHPAD_BASE) >> 2 & self.mask;
        let word = self.words[index as usize];
        let read = |value| Done { value, hw: None };
        // Stores of words first, because they are the most frequent.
        if op == Op::Sw {
            return self.write(index, value);
        }
        match op {
            Op::Lw => read(word),
            Op::Lb => read((word >> (8 * (addr & 3))) as i8 as u32),
            Op::Lbu => read(word >> (8 * (addr & 3)) & 0xff),
            Op::Lh => read((word >> (8 * (addr & 2))) as i16 as u32),
            Op::Lhu => read(word >> (8 * (addr & 2)) & 0xffff),
            Op::Sb => self.write(index, merge(word, value, 0xff, 8 * (addr & 3))),
            Op::Sh => self.write(index, merge(word, value, 0xffff, 8 * (addr & 2))),
            Op::Ll => {
                self.reserved[who & 15] = index;
                self.reservers |= 1 << (who & 15);
                read(word)
            }
            Op::Sc => {
                if self.reserved[who & 15] == index && self.reservers >> (who & 15) & 1 == 1 {
                    Done { value: 1, ..self.write(index, value) }
                } else {
                    read(0)
                }
            }
            Op::Set => {
                let done = self.write(index, word | 1 << (value & 31));
                Done { value: 0, ..done }
            }
            Op::Update => {
                let from = value & 31;
                let run = (!(word >> from)).trailing_zeros().min(32 - from);
                let last = value.wrapping_add(run).wrapping_sub(1);
                if run == 0 {
                    return read(last);
                }
                let ones = ((1u64 << run) - 1) as u32;
                Done { value: last, ..self.write(index, word & !(ones << from)) }
            }
            _ => read(0),
        }
    }

    #[inline(always)]
    fn write(&mut self, index: u32, value: u32) -> Done {
        self.words[index as usize] = value;
        if self.reservers != 0 {
            self.break_reservations(index);
        }
        Done { value: 0, hw: (index < hw::WORDS).then_some((index, value)) }
    }

    fn break_reservations(&mut self, index: u32) {
        for who in 0..16 {
            if self.reserved[who] == index {
                self.reserved[who] = NO_RESERVATION;
                self.reservers &= !(1 << who);
            }
        }
    }
}

fn merge(word: u32, value: u32, mask: u32, shift: u32) -> u32 {
    word & !(mask << shift) | (value & mask) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u32 = SCRATCHPAD_BASE + 0x400;

    fn ask(pad: &mut Scratchpad, who: usize, op: Op, base: u32, value: u32) -> u32 {
        pad.perform(who, Request { op, addr: Request::effective(op, base, value), value }).value
    }

    #[test]
    fn bytes_and_halves_are_little_endian() {
        let mut pad = Scratchpad::new(256 * 1024);
        ask(&mut pad, 0, Op::Sw, A, 0x8182_8384);
        assert_eq!(ask(&mut pad, 0, Op::Lb, A, 0), 0xffff_ff84);
        assert_eq!(ask(&mut pad, 0, Op::Lbu, A + 3, 0), 0x81);
        assert_eq!(ask(&mut pad, 0, Op::Lh, A + 2, 0), 0xffff_8182);
        ask(&mut pad, 0, Op::Sb, A + 1, 0xaa);
        ask(&mut pad, 0, Op::Sh, A + 2, 0x1234);
        assert_eq!(ask(&mut pad, 0, Op::Lw, A, 0), 0x1234_aa84);
    }

    #[test]
    fn a_store_of_any_requester_ends_a_reservation() {
        let mut pad = Scratchpad::new(256 * 1024);
        ask(&mut pad, 0, Op::Ll, A, 0);
        assert_eq!(ask(&mut pad, 0, Op::Sc, A, 7), 1);
        assert_eq!(ask(&mut pad, 0, Op::Sc, A, 8), 0, "a reservation is used once");
        ask(&mut pad, 0, Op::Ll, A, 0);
        ask(&mut pad, 17, Op::Sw, A, 9);
        assert_eq!(ask(&mut pad, 0, Op::Sc, A, 10), 0);
        ask(&mut pad, 0, Op::Ll, A, 0);
        ask(&mut pad, 1, Op::Sw, A + 4, 1);
        assert_eq!(ask(&mut pad, 0, Op::Sc, A, 11), 1, "a store to another word has no effect");
        assert_eq!(ask(&mut pad, 0, Op::Lw, A, 0), 11);
    }

    /// `update` bit by bit, as the paper describes it.
    fn slow_update(bits: &mut [bool], from: u32) -> u32 {
        let mut at = from;
        while at / 32 == from / 32 && bits[at as usize] {
            bits[at as usize] = false;
            at += 1;
        }
        at.wrapping_sub(1)
    }

    #[test]
    fn update_equals_the_bitwise_update() {
        let mut pad = Scratchpad::new(256 * 1024);
        let mut bits = [false; 128];
        let mut rng = flowyard_frame::Rng::new(1);
        for _ in 0..20_000 {
            let random = rng.bits() as u32;
            let index = random >> 16 & 127;
            if random >> 30 != 0 {
                ask(&mut pad, 0, Op::Set, A, index);
                bits[index as usize] = true;
            } else {
                let want = slow_update(&mut bits, index);
                assert_eq!(ask(&mut pad, 1, Op::Update, A, index), want);
            }
        }
        for (index, bit) in bits.iter().enumerate() {
            let word = pad.peek((A - SCRATCHPAD_BASE) / 4 + index as u32 / 32);
            assert_eq!(word >> (index % 32) & 1 == 1, *bit);
        }
    }
}
