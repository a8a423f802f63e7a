//! Each system call of a port fails once, one after the other, with each error. Either the port is refused
//! at the start with an error, and nothing stays open; or order, conservation and liveness hold, as if the
//! call had not failed.
//!
//! By default one call in 13 fails, and each of the first ones, with one of the errors in turn.
//! `FLOWYARD_INJECT=all` runs all errors at all calls, which takes minutes.

use flowyard_ports::port::live::sim::{Offloads, World};
use flowyard_testkit::Rng;

use super::interfaces::{Case, KINDS, NAMES, Ran, Shape};

flowyard_testkit::tests! {
    each_system_call_that_fails_once_is_survived_or_refuses_the_start,
}

/// The errors, by their names in errno(3).
const ERRORS: [(&str, i32); 8] = [
    ("EIO", libc::EIO),
    ("ENOSPC", libc::ENOSPC),
    ("EMFILE", libc::EMFILE),
    ("EINTR", libc::EINTR),
    ("ENOBUFS", libc::ENOBUFS),
    ("ENOMEM", libc::ENOMEM),
    ("ENETDOWN", libc::ENETDOWN),
    ("EAGAIN", libc::EAGAIN),
];

fn is_all() -> bool {
    std::env::var("FLOWYARD_INJECT").is_ok_and(|which| which == "all")
}

/// The errors of call `number`.
fn errors(number: u64) -> Vec<(&'static str, i32)> {
    if is_all() { ERRORS.into() } else { vec![ERRORS[number as usize % ERRORS.len()]] }
}

/// The calls to fail: each that opens something at the start, and then each 13th, which gets each of the
/// eight errors in turn.
fn calls_to_fail(calls: u64) -> impl Iterator<Item = u64> {
    (1..=calls).filter(|call| is_all() || *call < 30 || call % 13 == 0)
}

/// The time between two looks at an interface.
const LOOK: u64 = 20_000_000;

/// Everything that happens to interfaces, once, with frames before and after each event.
fn live(mut case: Case) -> (Ran, Result<(), String>) {
    let pass = |case: &mut Case, steps| {
        (0..6).for_each(|frame| case.offer(frame % 2));
        case.sim.now += LOOK;
        case.run(steps, 0);
    };
    let world = case.world.clone();
    pass(&mut case, 12);
    for (at, name) in NAMES.into_iter().enumerate() {
        let index = world.index(name);
        world.delete(name);
        pass(&mut case, 12);
        case.create(at, index);
        world.set_up(name, true);
        pass(&mut case, 12);
        world.move_away(name);
        pass(&mut case, 12);
        let _was_away = world.move_back(name, at == 1);
        world.set_up(name, true);
        pass(&mut case, 12);
        // Another interface takes its name for a moment.
        let other = format!("{name}x");
        world.rename(name, &other);
        case.create(at, None);
        world.set_up(name, true);
        pass(&mut case, 12);
        world.delete(name);
        world.rename(&other, name);
        pass(&mut case, 12);
    }
    let offloads = Offloads { strips_tags: true, leaves_checksums: true, coalesces: true };
    world.set_offloads(NAMES[0], offloads);
    world.set_mtu(NAMES[1], 100);
    pass(&mut case, 12);
    world.set_up(NAMES[1], false);
    pass(&mut case, 6);
    let mut verdict = case.ask();
    world.stall(NAMES[0]);
    verdict = verdict.and_then(|()| case.revive_by(LOOK, 12));
    case.end(verdict)
}

/// The life of ports of which call `number` fails. Returns the number of calls; `None` if the start failed.
fn run(shape: Shape, fail: Option<(u64, i32)>) -> Result<Option<u64>, String> {
    let world = World::new(1);
    if let Some((number, error)) = fail {
        world.fail_at(number, error);
    }
    let case = match Case::open(1, Rng::new(1), shape, &world) {
        Ok(case) => case,
        Err(error) if world.open_objects() > 0 => {
            return Err(format!("{} descriptors leaked after: {error}", world.open_objects()));
        }
        Err(error) if error.contains("failed") || error.contains("no interface") => {
            return Ok(None);
        }
        Err(error) => return Err(format!("the error does not tell what failed: {error}")),
    };
    let (ran, verdict) = live(case);
    verdict?;
    if fail.is_some() && ran.failed != 1 {
        return Err("no call failed".into());
    }
    Ok(Some(ran.calls))
}

fn each_system_call_that_fails_once_is_survived_or_refuses_the_start() {
    for at in 0..2 * KINDS.len() {
        let kinds = [KINDS[at % 3], KINDS[(at + 1) % 3]];
        let shape =
            Shape { kinds, width: 1 + at / 3, exists: false, is_long: kinds == ["af_xdp"; 2] };
        let calls = run(shape, None).unwrap().expect("the ports are opened");
        let (mut refused, mut survived) = (0, 0);
        for number in calls_to_fail(calls) {
            for (name, error) in errors(number) {
                match run(shape, Some((number, error))) {
                    Ok(None) => refused += 1,
                    Ok(Some(_)) => survived += 1,
                    Err(what) => {
                        panic!("{:?}: call {number} fails with {name}: {what}", shape.kinds)
                    }
                }
            }
        }
        flowyard_testkit::note!(
            "{shape:?}: {calls} calls; {refused} failures refused the start, {survived} were survived"
        );
        assert!(refused >= 5 && survived > 40, "{refused} {survived}");
    }
}
