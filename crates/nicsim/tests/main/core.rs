//! Small programs on a core: their results and their cycles, on both engines.

use flowyard_nicsim::config::{Branch, Config};
use flowyard_nicsim::counters::CoreCounters;
use flowyard_nicsim::elf::Image;
use flowyard_nicsim::{Engine, Fast, Parts, Reference};
use proptest::prelude::*;

const PAD: u32 = 0x1000_0000;

fn r(function: u32, rs: u32, rt: u32, rd: u32) -> u32 {
    rs << 21 | rt << 16 | rd << 11 | function
}
fn addu(rd: u32, rs: u32, rt: u32) -> u32 {
    r(0x21, rs, rt, rd)
}
fn addiu(rt: u32, rs: u32, imm: i32) -> u32 {
    9 << 26 | rs << 21 | rt << 16 | imm as u32 & 0xffff
}
fn lui(rt: u32, imm: u32) -> u32 {
    15 << 26 | rt << 16 | imm
}
fn lw(rt: u32, base: u32, at: u32) -> u32 {
    0x23 << 26 | base << 21 | rt << 16 | at
}
fn sw(rt: u32, base: u32, at: u32) -> u32 {
    0x2b << 26 | base << 21 | rt << 16 | at
}
fn bne(rs: u32, rt: u32, by: i32) -> u32 {
    5 << 26 | rs << 21 | rt << 16 | by as u32 & 0xffff
}
/// A branch to itself.
const HALT: u32 = 0x1000_ffff;
const NOP: u32 = 0;

/// Runs `words` on `cores` cores for `cycles` cycles; every counter of both engines must agree.
fn run(
    words: &[u32],
    cores: u32,
    cycles: u64,
    change: impl Fn(&mut Config),
) -> (Vec<CoreCounters>, Vec<u32>) {
    let mut config = Config::default();
    config.chip.cores = cores;
    (config.load.send, config.load.receive) = (false, false);
    change(&mut config);
    let image = Image { text: words.to_vec(), ..Image::default() };
    let parts = Parts { config, image, ..Parts::default() };
    let mut slow = Reference::build(parts.clone()).unwrap();
    let mut fast = Fast::build(parts).unwrap();
    for step in [1, 2, 3, 5, 7, 11, 13, 40, cycles] {
        if step <= cycles {
            slow.run_to(step).unwrap();
            fast.run_to(step).unwrap();
            assert_eq!(slow.snapshot(), fast.snapshot(), "at cycle {step}");
        }
    }
    let words = (0..64).map(|n| slow.peek(PAD + 0x400 + 4 * n)).collect();
    assert!((0..64).all(|n| slow.peek(PAD + 0x400 + 4 * n) == fast.peek(PAD + 0x400 + 4 * n)));
    (slow.snapshot().cores, words)
}

/// The cycles that `body` takes in addition to an empty body, without cache misses. Register 4 is set to
/// scratchpad + 0x400 and register 5 to 7 before.
fn cost(body: &[u32], change: impl Fn(&mut Config) + Copy) -> u64 {
    let head = [lui(4, 0x1000), addiu(4, 4, 0x400), addiu(5, 0, 7), NOP, NOP, NOP, NOP, NOP];
    let total = |body: &[u32]| {
        let words = [&head[..], body, &[HALT, NOP]].concat();
        run(&words, 1, 300, change);
        until_halt(&words, change)
    };
    total(body) - total(&[])
}

/// The cycle in which the final loop begins, without fetch stalls.
fn until_halt(words: &[u32], change: impl Fn(&mut Config)) -> u64 {
    let mut config = Config::default();
    config.chip.cores = 1;
    (config.load.send, config.load.receive) = (false, false);
    change(&mut config);
    let image = Image { text: words.to_vec(), ..Image::default() };
    let mut slow = Reference::build(Parts { config, image, ..Parts::default() }).unwrap();
    let halt = words.iter().position(|&word| word == HALT).unwrap();
    let mut cycle = 0;
    while slow.snapshot().heat[halt].count == 0 {
        cycle += 1;
        slow.run_to(cycle).unwrap();
    }
    cycle - slow.snapshot().cores[0].fetch
}

fn plain(_: &mut Config) {}

#[test]
fn a_pipeline_costs_what_the_paper_says() {
    assert_eq!(cost(&[addu(6, 5, 5)], plain), 1, "one instruction, one cycle");
    assert_eq!(cost(&[lw(6, 4, 0)], plain), 2, "a load stalls a cycle");
    assert_eq!(cost(&[lw(6, 4, 0), NOP], plain), 3);
    assert_eq!(cost(&[lw(6, 4, 0), addu(7, 6, 6)], plain), 4, "load-use adds one");
    assert_eq!(cost(&[sw(5, 4, 0)], plain), 1, "a store stalls nothing");
    assert_eq!(
        cost(&[sw(5, 4, 0), sw(5, 4, 0), sw(5, 4, 0)], plain),
        3,
        "three stores stall nothing"
    );
    assert_eq!(cost(&[sw(5, 4, 0), lw(6, 4, 0)], plain), 3, "a load after a store");
}

#[test]
fn late_branches_are_predicted_backward_taken() {
    // Not taken, forward, ready: no cost. Late but predicted correctly: no cost. Taken, late, forward: annuls.
    let ready = [addu(6, 5, 5), NOP, bne(5, 5, 1), NOP];
    assert_eq!(cost(&ready, plain), 4);
    let right = [NOP, addu(6, 0, 0), bne(6, 0, 1), NOP];
    assert_eq!(cost(&right, plain), 4);
    let wrong = [NOP, addu(6, 5, 5), bne(6, 0, 1), NOP];
    assert_eq!(cost(&wrong, plain), 5, "one instruction annulled");
    let stall = |config: &mut Config| config.chip.branch = Branch::Stall;
    assert_eq!(cost(&right, stall), 5, "the configuration `stall` always waits");
    assert_eq!(cost(&wrong, stall), 5);
    // After a load: load-use, and late in addition.
    assert_eq!(cost(&[lw(6, 4, 0), bne(6, 5, 1), NOP], plain), 3 + 1 + 1 + 1);
}

#[test]
fn the_delay_slot_runs_whether_or_not_the_branch_is_taken() {
    let words = [
        lui(4, 0x1000),
        addiu(4, 4, 0x400),
        addiu(5, 0, 7),
        bne(5, 0, 2),
        addiu(6, 0, 1), // taken: the slot runs, the next word does not
        addiu(6, 6, 100),
        bne(5, 5, 2),
        addiu(6, 6, 2), // not taken: both run
        addiu(6, 6, 4),
        sw(6, 4, 0),
        HALT,
        NOP,
    ];
    assert_eq!(run(&words, 1, 100, plain).1[0], 7);
}

#[test]
fn products_take_the_configured_cycles() {
    let body = [r(0x18, 5, 5, 0), r(0x12, 0, 0, 6)]; // mult; mflo
    assert_eq!(cost(&body, plain), 2);
    assert_eq!(cost(&body, |config| config.chip.mult_cycles = 10), 11);
}

#[test]
fn misses_cost_beats_and_overhead() {
    let words = [vec![NOP; 8], vec![HALT, NOP]].concat();
    let (cores, _) = run(&words, 1, 100, plain);
    assert_eq!((cores[0].fills, cores[0].fetch), (2, 6), "two lines, two beats and one cycle each");
    let (cores, _) = run(&words, 1, 100, |config| config.chip.imem_overhead_cycles = 4);
    assert_eq!(cores[0].fetch, 12);
}

#[test]
fn two_cores_on_one_bank_conflict_and_take_turns() {
    // Each core loads from the same word in an endless loop.
    let words = [lui(4, 0x1000), addiu(4, 4, 0x400), lw(6, 4, 0), 0x1000_fffe, NOP];
    let (cores, _) = run(&words, 4, 2000, plain);
    assert!(cores.iter().all(|core| core.conflict > 0 || core.loads > 0));
    let loads: Vec<u64> = cores.iter().map(|core| core.loads).collect();
    assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 2, "{loads:?}");
}

#[test]
fn ll_sc_makes_an_atomic_counter() {
    let (ll, sc) = (0x30 << 26 | 4 << 21 | 6 << 16, 0x38 << 26 | 4 << 21 | 6 << 16);
    let words = [
        lui(4, 0x1000),
        addiu(4, 4, 0x400),
        addiu(7, 0, 50),
        ll,
        addiu(6, 6, 1),
        sc,
        4 << 26 | 6 << 21 | 0xfffc,
        NOP, // beqz again
        addiu(7, 7, -1),
        bne(7, 0, -7),
        NOP,
        HALT,
        NOP,
    ];
    let (_, memory) = run(&words, 7, 40_000, plain);
    assert_eq!(memory[0], 7 * 50, "no increment is lost");
}

#[test]
fn update_stops_at_the_end_of_a_word_and_continues_at_the_next() {
    // Sets bits 30, 31, 32, 33; updates from 30, then from 32.
    let set = |index: u32| [addiu(8, 0, index as i32), 0x7000_003e | 4 << 21 | 8 << 16];
    let mut words = vec![lui(4, 0x1000), addiu(4, 4, 0x400)];
    words.extend([30, 31, 32, 33].map(set).concat());
    let update =
        |rd: u32, from: i32| [addiu(9, 0, from), 0x7000_003f | 4 << 21 | 9 << 16 | rd << 11];
    words.extend(update(10, 30));
    words.extend(update(11, 32));
    words.extend(update(12, 5));
    words.extend([sw(10, 4, 0x20), sw(11, 4, 0x24), sw(12, 4, 0x28), HALT, NOP]);
    let (_, memory) = run(&words, 1, 200, plain);
    assert_eq!((memory[8], memory[9], memory[10]), (31, 33, 4));
    assert_eq!((memory[0], memory[1]), (0, 0), "the bits are cleared");
}

#[test]
fn a_core_reads_and_writes_the_sdram_through_the_crossbar() {
    let words = [
        lui(4, 0x2000),
        lui(8, 0x1000),
        addiu(8, 8, 0x400),
        addiu(5, 0, 77),
        sw(5, 4, 0x40),
        lw(6, 4, 0x40),
        sw(6, 8, 0),
        HALT,
        NOP,
    ];
    for cores in [1, 3] {
        let (counters, memory) = run(&words, cores, 2000, plain);
        assert_eq!(memory[0], 77);
        assert!(counters[0].load >= 2, "a load from the SDRAM takes longer: {}", counters[0].load);
        assert_eq!(counters[0].external, 2);
    }
}

#[test]
fn faults_name_core_place_and_cause() {
    for (words, part) in [
        (vec![NOP, 0x0417_0001], "pc 0x4: word 0x04170001 is not an instruction of the subset"),
        (vec![NOP, NOP], "runs outside the firmware's code"),
        (vec![lw(6, 0, 0x40), HALT, NOP], "outside the scratchpad and the SDRAM"),
        (vec![lui(4, 0x1000), lw(6, 4, 0x402), HALT, NOP], "is not aligned to 4 bytes"),
        (vec![0x0000_000d], "the firmware stopped itself"),
        (
            vec![lui(4, 0x2000), 0x30 << 26 | 4 << 21, HALT, NOP],
            "atomic accesses are for the scratchpad",
        ),
        (vec![addiu(4, 0, 2), r(0x08, 4, 0, 0), NOP], "pc 0x2: runs outside"),
    ] {
        let mut config = Config::default();
        config.chip.cores = 1;
        let image = Image { text: words, ..Image::default() };
        let parts = Parts { config, image, ..Parts::default() };
        let slow = Reference::build(parts.clone()).unwrap().run_to(1000).unwrap_err();
        let fast = Fast::build(parts).unwrap().run_to(1000).unwrap_err();
        assert!(slow.to_string().contains(part), "{slow}");
        assert_eq!(slow, fast);
    }
}

/// Firmware that writes any value to any word of the hardware page causes an error or not, but never a panic,
/// and the same on both engines.
#[test]
fn no_register_write_panics() {
    let mut random = flowyard_frame::Rng::new(7);
    let mut next = move || (random.bits() >> 40) as u32;
    let (mut faults, mut fine) = (0, 0);
    for _ in 0..300 {
        let mut words = vec![lui(4, 0x1000)];
        for _ in 0..40 {
            // Mostly valid values: rings in the scratchpad, powers of two, slots in the SDRAM.
            let word = if next() % 4 == 0 { next() % 64 } else { 12 + next() % 12 };
            let value = match word {
                _ if next() % 150 == 0 => next() << 8 | next() & 0xff,
                12 | 14 | 16 | 18 => PAD + 0x400 + (next() & 0xfff0),
                13 | 15 | 17 | 19 | 22 => 1 << (next() % 9),
                20 => 0x2000_0000 + (next() & 0x1f_fff0),
                21 => 1536,
                8..=10 => next() / 300 % 2 * (next() % 3),
                _ => next() & 0xff,
            };
            words.extend([lui(5, value >> 16), 13 << 26 | 5 << 21 | 5 << 16 | value & 0xffff]);
            words.push(sw(5, 4, 4 * word));
        }
        words.extend([0x1000_0000 | (0xffff - words.len() as u32 + 1) & 0xffff, NOP]);
        let image = Image { text: words, ..Image::default() };
        let parts = Parts { image, ..Parts::default() };
        let mut slow = Reference::build(parts.clone()).unwrap();
        let mut fast = Fast::build(parts).unwrap();
        match (slow.run_to(3000), fast.run_to(3000)) {
            (Ok(()), Ok(())) => {
                fine += 1;
                assert_eq!(slow.snapshot(), fast.snapshot());
            }
            (slow, fast) => {
                faults += 1;
                assert_eq!(slow, fast);
            }
        }
    }
    assert!(faults > 20 && fine > 20, "{faults} faults, {fine} fine");
}

/// Random programs on several cores that share memory, on random machines: both engines have equal counters.
#[test]
fn random_programs_run_the_same() {
    let mut random = flowyard_frame::Rng::new(99);
    let mut next = move |below: u32| random.below(u64::from(below)) as u32;
    for round in 0..250 {
        let mut words = vec![lui(4, 0x1000), addiu(4, 4, 0x400)];
        let length = 20 + next(200);
        for at in 0..length {
            let (a, b, d) = (5 + next(8), 5 + next(8), 5 + next(8));
            let place = 4 * next(24);
            let memory = |op: u32| op << 26 | 4 << 21 | d << 16 | place;
            words.push(match next(24) {
                0..=4 => addu(d, a, b),
                5 => addiu(d, a, next(100) as i32 - 50),
                6 => r(0x2a, a, b, d),
                7 => 12 << 26 | a << 21 | d << 16 | next(128), // andi: small indices for set, update
                8..=10 => memory(0x23),
                11 | 12 => memory(0x2b),
                13 => memory(0x30),
                14 => memory(0x38),
                15 => 12 << 26 | a << 21 | 13 << 16 | 127,
                16 => 0x7000_003e | 4 << 21 | 13 << 16,
                17 => 0x7000_003f | 4 << 21 | 13 << 16 | d << 11,
                18 => r(0x18 + next(4), a, b, 0),
                19 => r(0x12, 0, 0, d),
                20 => 0x20 << 26 | 4 << 21 | d << 16 | (place + 1), // lb
                // Branches by a few words forward or back; never from a delay slot, never out of the program.
                _ if at > 8 && at + 8 < length && words.last().is_none_or(|&w| w >> 26 != 5) => {
                    bne(a, b, next(12) as i32 - 6)
                }
                _ => NOP,
            });
        }
        // The last words have no branch and jump back to the start.
        words.extend([NOP, NOP, 2 << 26, NOP]);
        let mut config = Config::default();
        config.chip.cores = 1 + next(8);
        config.chip.banks = 1 << next(4);
        config.chip.icache_bytes = 1024;
        config.chip.icache_ways = 1 + next(2);
        config.chip.set_posted = next(2) == 0;
        config.chip.branch = if next(2) == 0 { Branch::Predict } else { Branch::Stall };
        (config.chip.mult_cycles, config.chip.div_cycles) = (1 + next(12), 1 + next(70));
        let image = Image { text: words, ..Image::default() };
        let parts = Parts { config, image, ..Parts::default() };
        let mut slow = Reference::build(parts.clone()).unwrap();
        let mut fast = Fast::build(parts).unwrap();
        let mut cycle = 0;
        for _ in 0..12 {
            cycle += 1 + u64::from(next(400));
            assert_eq!(slow.run_to(cycle), fast.run_to(cycle), "round {round}");
            assert_eq!(slow.snapshot(), fast.snapshot(), "round {round}, cycle {cycle}");
        }
    }
}

/// One instruction of a random program: sums, loads, stores, near branches, even in delay slots.
fn random_word() -> impl Strategy<Value = u32> {
    let register = || 8u32..13;
    prop_oneof![
        4 => (register(), register(), register()).prop_map(|(d, s, t)| addu(d, s, t)),
        3 => (register(), register(), -3..4).prop_map(|(d, s, imm)| addiu(d, s, imm)),
        3 => (register(), 0u32..16).prop_map(|(t, at)| lw(t, 4, 4 * at)),
        3 => (register(), 0u32..16).prop_map(|(t, at)| sw(t, 4, 4 * at)),
        3 => (register(), register(), -6..7).prop_map(|(s, t, by)| bne(s, t, by)),
        1 => Just(NOP),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_cost_the_same(
        body in prop::collection::vec(random_word(), 1..60),
        cores in 1u32..7,
        stalls in any::<bool>(),
    ) {
        let head = [lui(4, 0x1000), addiu(4, 4, 0x400), addiu(8, 0, 7), NOP, NOP, NOP, NOP, NOP];
        // A branch in the delay slot of a branch may go to either side of the body, so both sides have code.
        let words = [&head[..], &body, &[NOP; 16], &[HALT, NOP], &[NOP; 64], &[HALT, NOP]].concat();
        run(&words, cores, 700, |config| {
            config.chip.branch = if stalls { Branch::Stall } else { Branch::Predict };
        });
    }
}
