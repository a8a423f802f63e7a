//! Ports on interfaces that live. The devices are those of real ports, on a simulated kernel.
//!
//! Order and conservation hold in each case, and each case ends with a claim of liveness: all
//! interfaces are up and no call fails, so each port must receive and transmit within two seconds.
//! Meanwhile each core answers questions within a bound of ticks.

use flowyard_ports::port::live::sim::World;
use flowyard_testkit::Rng;
use flowyard_yard::{Counters, DropReason, Tick};

use super::interfaces::{Case, KINDS, NAMES, Ran, Shape};
use super::number;

flowyard_testkit::tests! {
    every_life_keeps_order_loses_nothing_and_receives_again,
    a_tap_that_returns_to_its_place_keeps_order,
}

const REPLAY: &str = "cargo test -p flowyard-config --test main sim::lives -- --nocapture";

fn every_life_keeps_order_loses_nothing_and_receives_again() {
    let one = number("FLOWYARD_SEED");
    let first = number("FLOWYARD_FIRST_SEED").unwrap_or(0);
    let last = first + number("FLOWYARD_SEEDS").unwrap_or(500);
    let seeds = one.map_or(first..last, |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let mut all = Ran::default();
    for seed in seeds {
        let (ran, verdict) = Case::new(seed).drive();
        if let Err(error) = verdict {
            panic!("seed {seed}: {error}\nreplay: FLOWYARD_SEED={seed} {REPLAY}");
        }
        if seed % 16 == 0 || one.is_some() {
            let again = Case::new(seed).drive().0.trace;
            assert_eq!(ran.trace, again, "seed {seed} does not do the same again");
        }
        all.total = all.total.plus(&ran.total);
        all.events += ran.events;
        all.calls += ran.calls;
        all.failed += ran.failed;
        all.lost += ran.lost;
        all.long += ran.long;
        all.slowest = all.slowest.max(ran.slowest);
    }
    let Counters { tx_frames, port_reopens, port_stalls, drops, .. } = all.total;
    flowyard_testkit::note!(
        "{count} seeds: {} events, {} of {} calls failed; {tx_frames} frames sent, {} of them longer than a buffer; {} lost in the kernel; \
         {port_reopens} ports opened again, {port_stalls} of them stalled; received again after at most \
         {} ms; {drops:?}",
        all.events,
        all.failed,
        all.calls,
        all.long,
        all.lost,
        all.slowest / 1_000_000
    );
    if count >= 500 {
        // Without these events, the test would not show anything.
        assert!(port_reopens > 1000 && port_stalls > 10 && all.failed > 5000 && all.lost > 100);
        assert!(all.long > 100);
        assert!(drops.get(DropReason::PortDown) > 1000 && drops.get(DropReason::TooLong) > 100);
    }
}

/// A TAP is moved away, another one takes its name, and core 0 opens the port on that one. Then the other
/// one is deleted and the first one is back before core 1 has looked: core 1 still has a queue of it when
/// core 0 opens the port again.
fn a_tap_that_returns_to_its_place_keeps_order() {
    for seed in 0..20 {
        let shape = Shape {
            kinds: ["tap", KINDS[seed as usize % 3]],
            width: 2,
            exists: seed % 4 < 2,
            is_long: false,
        };
        let world = World::new(seed);
        let mut case = Case::open(seed, Rng::new(seed), shape, &world).unwrap();
        case.run(50, 0);
        world.move_away(NAMES[0]);
        case.create(0, None);
        world.set_up(NAMES[0], true);
        // Core 0 alone looks, three times: it finds the other one, receives what is left, and opens it.
        for _ in 0..3 {
            case.sim.now += 20_000_000;
            case.sim.yard.cores[0].tick(case.sim.now);
        }
        world.delete(NAMES[0]);
        assert!(world.move_back(NAMES[0], seed % 3 == 0));
        world.set_up(NAMES[0], true);
        (0..40).for_each(|_| case.offer(0));
        for _ in 0..3 {
            case.sim.now += 20_000_000;
            case.sim.yard.cores[0].tick(case.sim.now);
        }
        (0..40).for_each(|_| case.offer(0));
        case.run(40, 0);
        (0..40).for_each(|_| case.offer(0));
        case.run(40, 3);
        let returned =
            world.index(NAMES[0]).is_some().then_some(()).ok_or("the TAP ended".to_owned());
        let verdict = returned.and_then(|()| case.revive());
        let (ran, verdict) = case.end(verdict);
        assert_eq!(verdict, Ok(()), "seed {seed}");
        assert!(ran.total.port_reopens >= 3, "seed {seed}: {:?}", ran.total);
    }
}
