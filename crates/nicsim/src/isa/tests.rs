use super::*;
use Op::*;

/// An R-type word.
fn r(function: u32, rs: u32, rt: u32, rd: u32, sa: u32) -> u32 {
    rs << 21 | rt << 16 | rd << 11 | sa << 6 | function
}

/// An I-type word.
fn i(opcode: u32, rs: u32, rt: u32, imm: u32) -> u32 {
    opcode << 26 | rs << 21 | rt << 16 | imm & 0xffff
}

#[test]
fn words_are_decoded_as_the_manual_says() {
    for (word, text) in [
        (0, "nop"),
        (r(0x21, 4, 5, 2, 0), "addu v0, a0, a1"),
        (r(0x00, 0, 5, 2, 7), "sll v0, a1, 7"),
        (r(0x07, 4, 5, 2, 0), "srav v0, a1, a0"),
        (r(0x08, 31, 0, 0, 0), "jr ra"),
        (r(0x19, 4, 5, 0, 0), "multu a0, a1"),
        (i(0x09, 29, 29, 0xfff8), "addiu sp, sp, -8"),
        (i(0x0d, 1, 1, 0x8c), "ori at, at, 0x8c"),
        (i(0x0f, 0, 1, 0x1000), "lui at, 0x1000"),
        (i(0x23, 29, 8, 0xfffc), "lw t0, -4(sp)"),
        (i(0x2b, 29, 8, 4), "sw t0, 4(sp)"),
        (i(0x30, 4, 2, 0), "ll v0, 0(a0)"),
        (i(0x38, 4, 2, 0), "sc v0, 0(a0)"),
        (i(0x04, 0, 0, 3), "beq zero, zero, 0x110"),
        (i(0x05, 4, 5, 0xffff), "bne a0, a1, 0x100"),
        (i(0x01, 4, 0x11, 1), "bgezal a0, 0x108"),
        (3 << 26 | 0x40, "jal 0x100"),
        (0x4004_7800, "mfc0 a0, $15"),
        (0x7085_003e, "set a0, a1"),
        (0x7085_103f, "update v0, a0, a1"),
    ] {
        assert_eq!(decode(word, 0x100).expect(text).to_string(), text);
    }
}

#[test]
fn words_outside_the_subset_are_not_decoded() {
    for (word, what) in [
        (0x0417_0001, "sigrie, the linker's filler"),
        (i(0x14, 4, 5, 1), "beql"),
        (i(0x22, 4, 5, 0), "lwl"),
        (i(0x31, 4, 5, 0), "lwc1"),
        (i(0x37, 4, 5, 0), "ld"),
        (r(0x0a, 4, 5, 2, 0), "movz"),
        (r(0x34, 4, 5, 0, 0), "teq"),
        (0x7085_1002, "mul of MIPS32"),
        (0x7c85_0000, "ext"),
        (0x4600_0000, "add.s"),
        (r(0x21, 4, 5, 2, 1), "addu with a shift amount"),
        (u32::MAX, "all ones"),
    ] {
        assert_eq!(decode(word, 0), None, "{what}");
    }
}

/// Words with every major and function code, and many others: the decoder never panics, registers are in
/// range, and the classes are consistent.
#[test]
fn decode_is_total() {
    let mut seen = std::collections::BTreeSet::new();
    let mut rng = flowyard_frame::Rng::new(12345);
    for round in 0..400_000u32 {
        let random = rng.bits() as u32;
        let word = match round % 3 {
            0 => (round / 3 % 64) << 26 | random & 0x03ff_ffff,
            1 => random & 0x03ff_ffc0 | (round / 3 % 64),
            _ => random,
        };
        let word = if round % 2 == 0 { word & !0x7c0 } else { word };
        if let Some(insn) = decode(word, 4 * round) {
            seen.insert(insn.op as u8);
            assert!(insn.rs < 32 && insn.rt < 32 && insn.rd < 32);
            assert!(!(insn.is_memory() && insn.has_delay_slot()));
            assert!(!insn.to_string().is_empty());
        }
    }
    assert!(seen.len() >= 50, "only {} operations seen", seen.len());
}

fn compute(word: u32, a: u32, b: u32) -> Result<u32, Overflow> {
    alu(&decode(word, 0).unwrap(), a, b)
}

#[test]
fn arithmetic_is_that_of_the_manual() {
    let minus = |n: i32| (-n) as u32;
    assert_eq!(compute(r(0x21, 1, 2, 3, 0), u32::MAX, 2), Ok(1));
    assert_eq!(compute(r(0x23, 1, 2, 3, 0), 1, 2), Ok(minus(1)));
    assert_eq!(compute(r(0x20, 1, 2, 3, 0), 0x7fff_ffff, 1), Err(Overflow));
    assert_eq!(compute(r(0x22, 1, 2, 3, 0), 0x8000_0000, 1), Err(Overflow));
    assert_eq!(compute(i(0x08, 1, 2, 0xffff), 0x8000_0000, 0), Err(Overflow));
    assert_eq!(compute(i(0x09, 1, 2, 0xffff), 0x8000_0000, 0), Ok(0x7fff_ffff));
    assert_eq!(compute(r(0x27, 1, 2, 3, 0), 0x0f, 0xf0), Ok(!0xff));
    assert_eq!(compute(r(0x2a, 1, 2, 3, 0), minus(1), 0), Ok(1));
    assert_eq!(compute(r(0x2b, 1, 2, 3, 0), minus(1), 0), Ok(0));
    assert_eq!(compute(i(0x0a, 1, 2, 0xffff), minus(2), 0), Ok(1));
    assert_eq!(
        compute(i(0x0b, 1, 2, 0xffff), minus(2), 0),
        Ok(1),
        "sign-extended, then compared unsigned"
    );
    assert_eq!(compute(i(0x0c, 1, 2, 0xffff), u32::MAX, 0), Ok(0xffff));
    assert_eq!(compute(r(0x03, 0, 2, 3, 4), 0, 0x8000_0000), Ok(0xf800_0000));
    assert_eq!(compute(r(0x02, 0, 2, 3, 4), 0, 0x8000_0000), Ok(0x0800_0000));
    assert_eq!(
        compute(r(0x04, 1, 2, 3, 0), 33, 1),
        Ok(2),
        "only five bits of the shift amount count"
    );
}

#[test]
fn products_and_quotients() {
    let minus = |n: i32| (-n) as u32;
    assert_eq!(muldiv(Mult, minus(2), 3), (u32::MAX, minus(6)));
    assert_eq!(muldiv(Multu, u32::MAX, u32::MAX), (u32::MAX - 1, 1));
    assert_eq!(muldiv(Div, minus(7), 2), (minus(1), minus(3)));
    assert_eq!(muldiv(Divu, 7, 2), (1, 3));
    assert_eq!(muldiv(Div, 7, 0), (0, 0));
    assert_eq!(
        muldiv(Div, 0x8000_0000, u32::MAX),
        (0, 0),
        "no panic where the manual gives no result"
    );
}

#[test]
fn branches() {
    let minus = |n: i32| (-n) as u32;
    for (op, a, b, want) in [
        (Beq, 1, 1, true),
        (Bne, 1, 1, false),
        (Blez, 0, 0, true),
        (Blez, 1, 0, false),
        (Bgtz, minus(1), 0, false),
        (Bltz, minus(1), 0, true),
        (Bgez, 0, 0, true),
        (Bgez, minus(1), 0, false),
    ] {
        assert_eq!(taken(op, a, b), want, "{op:?} {a} {b}");
    }
}
