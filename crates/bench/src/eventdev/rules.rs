//! The rules, each a small play on a fresh setup of the scheduler.
//!
//! Sources: Intel's DLB programming guide (document 613545), and DPDK's "Event Device Library" and
//! `rte_eventdev.h`.

use super::{Done, Item, Kind, Plan, Row, Scheduler, Verdict};

/// The number of flows, where a rule has no number of its own.
pub(super) const FLOWS: u32 = 64;

/// A verdict, and what was seen.
type Found = (Verdict, String);
/// What a rule is, and how it is tried.
type Rule = (&'static str, &'static str, fn(&mut dyn Scheduler) -> Result<Found, String>);

const RULES: [Rule; 14] = [
    ("once-ordered", "Every event of an ordered stage arrives once.", |s| once(s, Kind::Ordered)),
    ("once-atomic", "Every event of an atomic stage arrives once.", |s| once(s, Kind::Atomic)),
    (
        "once-parallel",
        "Every event of a parallel stage arrives once; two workers share them.",
        parallel,
    ),
    (
        "ordered-late",
        "If a later worker finishes first, nothing overtakes, and all events leave in order.",
        late,
    ),
    (
        "ordered-release",
        "A worker that drops an event releases its place; the others leave in order.",
        release,
    ),
    (
        "ordered-release-last",
        "A worker may release its first event after it has forwarded its others; all leave in order.",
        release_last,
    ),
    ("ordered-reverse", "A worker may forward its events in reverse; all leave in order.", reverse),
    (
        "ordered-forgotten",
        "An event that a worker forgets does not stop the others for ever; these leave in order.",
        forgotten,
    ),
    (
        "ordered-head-of-line",
        "While one worker keeps the oldest event, the others do at most a window; then all leave in order.",
        head_of_line,
    ),
    ("atomic-exclusive", "A flow is with one worker at a time, and stays in order.", |s| {
        exclusive(s, 8)
    }),
    ("atomic-elephant", "One flow is with one worker at a time, and stays in order.", |s| {
        exclusive(s, 1)
    }),
    ("stages", "Ordered, atomic and ordered stages in a row keep the order of each flow.", stages),
    (
        "threshold",
        "NEW is refused at the producer's threshold; FORWARD is still accepted.",
        threshold,
    ),
    ("credits", "The limit of events in flight is exact, also after all have left.", credits),
];

/// Tries all rules.
pub(super) fn all(scheduler: &mut dyn Scheduler) -> Vec<Row> {
    let priority: Rule = (
        "priority",
        "Events of an urgent stage are served before those of another stage.",
        priority,
    );
    let row = |(rule, demands, play): Rule| {
        let (verdict, seen) = play(scheduler).unwrap_or_else(|why| (Verdict::Absent, why));
        Row { rule, demands, verdict, seen }
    };
    RULES.into_iter().chain([priority]).map(row).collect()
}

pub(super) fn plan(stages: &[Kind], workers: usize) -> Plan {
    let limit = 4096;
    Plan {
        stages: stages.into(),
        workers,
        limit,
        threshold: limit,
        window: 1024,
        urgent_last: false,
    }
}

fn verdict(is_kept: bool, seen: impl Into<String>) -> Result<Found, String> {
    Ok((if is_kept { Verdict::Kept } else { Verdict::Differs }, seen.into()))
}

fn settle(s: &mut dyn Scheduler) {
    (0..16).for_each(|_| s.run());
}

/// Enters events with these numbers; returns how many.
fn enter(s: &mut dyn Scheduler, numbers: std::ops::Range<u32>, flows: u32) -> u32 {
    let events: Vec<_> = numbers.map(|number| (number, number % flows)).collect();
    let (mut entered, mut tries) = (0, 0);
    while entered < events.len() && tries < 8 {
        let count = s.enter(&events[entered..]);
        entered += count;
        tries = if count == 0 { tries + 1 } else { 0 };
        if count == 0 {
            s.run();
        }
    }
    entered as u32
}

/// Finishes all events; returns whether the scheduler accepted them.
fn finish(s: &mut dyn Scheduler, worker: usize, events: &[(Item, Done)]) -> bool {
    let mut finished = 0;
    for _ in 0..1000 {
        finished += s.finish(worker, &events[finished..]);
        if finished == events.len() {
            return true;
        }
        s.run();
    }
    false
}

fn forward(s: &mut dyn Scheduler, worker: usize, items: &[Item]) -> bool {
    let events: Vec<_> = items.iter().map(|item| (*item, Done::Forward)).collect();
    finish(s, worker, &events)
}

/// Both workers forward what they get until nothing comes any more; what the consumer got.
fn drain(s: &mut dyn Scheduler, workers: usize) -> Vec<Item> {
    let (mut got, mut idle) = (Vec::new(), 0);
    while idle < 64 && got.len() < 1 << 20 {
        s.run();
        let mut moved = 0;
        for worker in 0..workers {
            let items = s.take(worker, 32);
            moved += items.len();
            forward(s, worker, &items);
        }
        s.run();
        let more = s.consume();
        moved += more.len();
        got.extend(more);
        idle = if moved == 0 { idle + 1 } else { 0 };
    }
    got
}

/// Whether these are the events that were expected, once each, in the order of their numbers; if not, what is wrong.
fn in_order(got: &[Item], expected: impl Iterator<Item = u32>) -> Result<(), String> {
    let numbers: Vec<u32> = got.iter().map(|item| item.number).collect();
    if let Some(at) = (1..numbers.len()).find(|at| numbers[*at] <= numbers[at - 1]) {
        return Err(format!("event {} came behind {}", numbers[at], numbers[at - 1]));
    }
    same(got, expected)
}

/// Whether these are the events that were expected, once each.
fn same(got: &[Item], expected: impl Iterator<Item = u32>) -> Result<(), String> {
    let mut numbers: Vec<u32> = got.iter().map(|item| item.number).collect();
    numbers.sort_unstable();
    let mut wanted: Vec<u32> = expected.collect();
    wanted.sort_unstable();
    if numbers == wanted {
        return Ok(());
    }
    let missing = wanted.iter().filter(|one| numbers.binary_search(one).is_err()).count();
    let unknown = numbers.iter().filter(|one| wanted.binary_search(one).is_err()).count();
    numbers.dedup();
    let twice = got.len() - numbers.len();
    Err(format!(
        "of {} events {missing} did not arrive, {twice} arrived more than once, {unknown} were not expected",
        wanted.len()
    ))
}

/// The order within each flow.
fn by_flow(got: &[Item]) -> Result<(), String> {
    let mut last = std::collections::BTreeMap::new();
    for item in got {
        if let Some(before) = last.insert(item.flow, item.number)
            && before >= item.number
        {
            return Err(format!(
                "event {} of flow {} came behind {before}",
                item.number, item.flow
            ));
        }
    }
    Ok(())
}

fn told(result: Result<(), String>, kept: impl Into<String>) -> Result<Found, String> {
    match result {
        Ok(()) => verdict(true, kept),
        Err(what) => verdict(false, what),
    }
}

fn once(s: &mut dyn Scheduler, kind: Kind) -> Result<Found, String> {
    s.start(&plan(&[kind], 2))?;
    let (mut got, mut next) = (Vec::new(), 0);
    while next < 2000 {
        let entered = enter(s, next..(next + 100).min(2000), FLOWS);
        next += entered;
        got.extend(drain(s, 2));
        if entered == 0 {
            let seen =
                format!("{} of {next} events arrived, then no more were accepted", got.len());
            return verdict(false, seen);
        }
    }
    told(same(&got, 0..next), format!("{next} of {next} events arrived"))
}

fn parallel(s: &mut dyn Scheduler) -> Result<Found, String> {
    let (found, seen) = once(s, Kind::Parallel)?;
    if found != Verdict::Kept {
        return Ok((found, seen));
    }
    s.start(&plan(&[Kind::Parallel], 2))?;
    let entered = enter(s, 0..256, FLOWS);
    settle(s);
    let (a, b) = (s.take(0, 32), s.take(1, 32));
    let shares = (a.len(), b.len());
    forward(s, 0, &a);
    forward(s, 1, &b);
    let got = drain(s, 2);
    let seen =
        format!("{seen}; of 256 waiting events the workers took {} and {}", shares.0, shares.1);
    match same(&got, 0..entered) {
        Ok(()) => verdict(shares.0 > 0 && shares.1 > 0, seen),
        Err(what) => verdict(false, what),
    }
}

/// Two workers with events of an ordered stage.
fn pair(s: &mut dyn Scheduler) -> Result<(u32, Vec<Item>, Vec<Item>), String> {
    s.start(&plan(&[Kind::Ordered], 2))?;
    let entered = enter(s, 0..64, 1);
    settle(s);
    let (a, b) = (s.take(0, 32), s.take(1, 32));
    if a.len() < 2 || b.len() < 2 {
        return Err(format!(
            "the workers got {} and {} of 64 events, so nothing can be tried",
            a.len(),
            b.len()
        ));
    }
    let first_holds_oldest = a.iter().any(|item| item.number == 0);
    Ok(if first_holds_oldest {
        (entered, a, b)
    } else {
        return Err("worker 1 got the oldest event".into());
    })
}

fn late(s: &mut dyn Scheduler) -> Result<Found, String> {
    let (entered, a, b) = pair(s)?;
    forward(s, 1, &b);
    settle(s);
    let mut got = s.consume();
    let early = got.len();
    forward(s, 0, &a);
    got.extend(drain(s, 2));
    if early > 0 {
        return verdict(false, format!("{early} events overtook the oldest one"));
    }
    told(
        in_order(&got, 0..entered),
        format!("no event before the late worker, then {entered} in order"),
    )
}

fn release(s: &mut dyn Scheduler) -> Result<Found, String> {
    let (entered, a, b) = pair(s)?;
    let done = |at: usize| if at.is_multiple_of(2) { Done::Forward } else { Done::Release };
    let events: Vec<_> = a.iter().enumerate().map(|(at, item)| (*item, done(at))).collect();
    let released: Vec<u32> = a.iter().skip(1).step_by(2).map(|item| item.number).collect();
    let accepted = finish(s, 0, &events) && forward(s, 1, &b);
    let got = drain(s, 2);
    if !accepted {
        return verdict(false, "the device did not accept the releases");
    }
    let expected = (0..entered).filter(|number| !released.contains(number));
    told(
        in_order(&got, expected),
        format!("{} released, {} arrived in order", released.len(), got.len()),
    )
}

fn release_last(s: &mut dyn Scheduler) -> Result<Found, String> {
    let (entered, a, b) = pair(s)?;
    let accepted =
        forward(s, 0, &a[1..]) && finish(s, 0, &[(a[0], Done::Release)]) && forward(s, 1, &b);
    let got = drain(s, 2);
    if !accepted {
        return verdict(false, "the device did not accept the release");
    }
    let expected = (0..entered).filter(|number| *number != a[0].number);
    told(in_order(&got, expected), format!("{} arrived in order", got.len()))
}

fn reverse(s: &mut dyn Scheduler) -> Result<Found, String> {
    let (entered, a, b) = pair(s)?;
    let accepted = a.iter().rev().all(|item| forward(s, 0, &[*item])) && forward(s, 1, &b);
    let got = drain(s, 2);
    if !accepted {
        return verdict(false, "the device did not accept the events");
    }
    told(in_order(&got, 0..entered), format!("{entered} arrived in order"))
}

fn forgotten(s: &mut dyn Scheduler) -> Result<Found, String> {
    let (entered, a, b) = pair(s)?;
    forward(s, 0, &a[1..]);
    forward(s, 1, &b);
    settle(s);
    let mut got = s.consume();
    let before = got.len();
    if s.holder() == Some(0) {
        // The scheduler knows who forgot, and is asked to give up on that batch.
        let gave_up = s.give_up(0);
        got.extend(drain(s, 2));
        let lost: Vec<u32> = a.iter().map(|item| item.number).collect();
        let expected = (0..entered).filter(|number| !lost.contains(number));
        let seen = format!(
            "worker 0 is named as the one that all wait for; after its batch of {} was given up, {} arrived in order",
            a.len(),
            got.len()
        );
        return if gave_up {
            told(in_order(&got, expected), seen)
        } else {
            verdict(false, "it cannot be given up")
        };
    }
    // The next dequeue of the worker releases the event.
    got.extend(drain(s, 2));
    let expected = (0..entered).filter(|number| *number != a[0].number);
    let seen = format!(
        "{before} arrived before the worker's next dequeue; {} in all, in order",
        got.len()
    );
    told(in_order(&got, expected), seen)
}

fn head_of_line(s: &mut dyn Scheduler) -> Result<Found, String> {
    let window = 256;
    s.start(&Plan { window, ..plan(&[Kind::Ordered], 2) })?;
    let mut next = enter(s, 0..2048, 1);
    settle(s);
    let kept = s.take(0, 1);
    if kept.iter().all(|item| item.number != 0) {
        return Err("the worker did not get the oldest event".into());
    }
    let (mut others, mut idle) = (0, 0);
    while idle < 200 && others < 100_000 {
        let items = s.take(1, 32);
        others += items.len();
        idle = if items.is_empty() { idle + 1 } else { 0 };
        forward(s, 1, &items);
        s.run();
        next += enter(s, next..next + 32, 1);
    }
    let mut got = s.consume();
    let early = got.len();
    forward(s, 0, &kept);
    got.extend(drain(s, 2));
    if early > 0 {
        return verdict(false, format!("{early} events overtook the oldest one"));
    }
    let seen = format!(
        "with a window of {window}, the other worker did {others} events more, then all were in order"
    );
    match in_order(&got, 0..next) {
        Ok(()) => verdict(others <= window as usize, seen),
        Err(what) => verdict(false, what),
    }
}

/// `flows` is small, so that the events that two workers take would share flows if nothing kept them apart.
fn exclusive(s: &mut dyn Scheduler, flows: u32) -> Result<Found, String> {
    s.start(&plan(&[Kind::Atomic], 2))?;
    let (mut got, mut next, mut both, mut shares) = (Vec::new(), 0, 0, [0; 2]);
    for _ in 0..64 {
        next += enter(s, next..next + 64, flows);
        settle(s);
        let (a, b) = (s.take(0, 32), s.take(1, 32));
        both += a.iter().filter(|one| b.iter().any(|other| other.flow == one.flow)).count();
        shares = [shares[0] + a.len(), shares[1] + b.len()];
        forward(s, 1, &b);
        settle(s);
        got.extend(s.consume());
        forward(s, 0, &a);
        settle(s);
        got.extend(s.consume());
    }
    got.extend(drain(s, 2));
    if both > 0 {
        return verdict(
            false,
            format!("{both} events were with a worker while their flow was with the other, too"),
        );
    }
    let [a, b] = shares;
    let seen = format!("{next} events of {flows} flows: the workers took {a} and {b} in turn");
    told(same(&got, 0..next).and_then(|()| by_flow(&got)), seen)
}

fn stages(s: &mut dyn Scheduler) -> Result<Found, String> {
    s.start(&plan(&[Kind::Ordered, Kind::Atomic, Kind::Ordered], 2))?;
    let (mut got, mut next) = (Vec::new(), 0);
    for _ in 0..32 {
        next += enter(s, next..next + 64, FLOWS);
        settle(s);
        let (a, b) = (s.take(0, 32), s.take(1, 32));
        forward(s, 1, &b);
        settle(s);
        forward(s, 0, &a);
        settle(s);
        got.extend(s.consume());
    }
    got.extend(drain(s, 2));
    told(
        same(&got, 0..next).and_then(|()| by_flow(&got)),
        format!("{next} events, each flow in order"),
    )
}

fn threshold(s: &mut dyn Scheduler) -> Result<Found, String> {
    let threshold = 512;
    s.start(&Plan { threshold, ..plan(&[Kind::Ordered], 1) })?;
    let entered = enter(s, 0..4096, 1);
    settle(s);
    let items = s.take(0, 32);
    let accepted = forward(s, 0, &items);
    let got = drain(s, 1);
    let seen =
        format!("{entered} accepted at a threshold of {threshold}; then {} forwarded", got.len());
    match in_order(&got, 0..entered) {
        Ok(()) => verdict(entered <= threshold && entered > 0 && accepted, seen),
        Err(what) => verdict(false, format!("{seen}: {what}")),
    }
}

fn credits(s: &mut dyn Scheduler) -> Result<Found, String> {
    let limit = 1024;
    s.start(&Plan { limit, threshold: limit, ..plan(&[Kind::Ordered], 2) })?;
    let entered = enter(s, 0..4096, 1);
    let got = drain(s, 2);
    if let Err(what) = in_order(&got, 0..entered) {
        return verdict(false, what);
    }
    let again = enter(s, 0..4096, 1);
    let seen =
        format!("of a limit of {limit}, {entered} were accepted, and {again} after all had left");
    verdict(entered == limit && again == limit, seen)
}

fn priority(s: &mut dyn Scheduler) -> Result<Found, String> {
    s.start(&Plan { urgent_last: true, ..plan(&[Kind::Parallel, Kind::Parallel], 1) })?;
    enter(s, 0..16, 1);
    settle(s);
    let items = s.take(0, 32);
    if items.is_empty() {
        return verdict(false, "the worker got nothing");
    }
    // Both stages have events when the scheduler runs next.
    let first = items.len() as u32;
    forward(s, 0, &items);
    let entered = enter(s, 16..80, 1);
    settle(s);
    let mut order = Vec::new();
    for _ in 0..64 {
        let items = s.take(0, 32);
        order.extend(items.iter().map(|item| item.stage));
        forward(s, 0, &items);
        s.run();
    }
    let urgent = order.iter().take_while(|stage| **stage == 1).count();
    let seen = format!(
        "{first} urgent and {entered} other events waited; the first {urgent} that were served were urgent"
    );
    verdict(urgent as u32 >= first, seen)
}
