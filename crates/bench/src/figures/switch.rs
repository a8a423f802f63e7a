//! The experiments of the KTH slides on flowyard's OpenFlow switch: the whole engine, with ports in memory, frames of 64
//! bytes.
//!
//! ```text
//!  one core     rx ─> parse ─> queue ─> switch ─> tx         the processor time of the thread
//!  two cores    the same on each core, with a port of its own, one switch   frames a second by the clock
//! ```
//!
//! Variants that are compared take turns, so that other load disturbs all of them alike. Values are medians of the turns.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use flowyard_config::Config;
use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Change, Counts, Entry};
use flowyard_openflow::{Field, Match, Oxm};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Pace, Repeat, SourceRx};
use flowyard_report::exhibit::{Exhibit, Kind, Made, Spec, Spread};
use flowyard_report::{Axis, Plot, Unit};
use flowyard_switch::change_message;
use flowyard_testkit::Rng;
use flowyard_wire::{LinkType, checksum};
use flowyard_yard::{Clock, Parts, Tick, Yard};
use rustix::time::{ClockId, clock_gettime};

use crate::live::priority::urgent;
use crate::live::quiet::Rounds;
use crate::machine::Before;

pub(super) const NAME: &str = "kth-switch-here";

/// Frames of a batch.
const BATCH: usize = 32;
/// The sizes of the table.
const ENTRIES: [u32; 3] = [1, 1100, 8100];
/// Flows of the experiment on caching, each with an entry.
const FLOWS: u32 = 8192;
/// Turns of the experiments, and of the ones whose difference is small.
const TURNS: usize = 15;
const FINE_TURNS: usize = 200;
/// Frames of a turn; the linear table is slow.
const FRAMES: usize = 4096;
const LINEAR_FRAMES: usize = 256;
/// The time of a measurement by the clock.
const TIME: Duration = Duration::from_millis(60);
/// Rounds of such measurements.
const ROUNDS: usize = 9;

/// How the switch looks up a frame.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    /// The value of `lookup` in `[switch]`.
    lookup: &'static str,
    /// Entries of the port mapping in front of the tables.
    cache: usize,
    frames: usize,
}

const WAYS: [Way; 3] = [
    Way { name: "linear", lookup: "linear", cache: 0, frames: LINEAR_FRAMES },
    Way { name: "hash", lookup: "hash", cache: 0, frames: FRAMES },
    Way { name: "port-mapping", lookup: "hash", cache: 8192, frames: FRAMES },
];

/// A frame of 64 bytes on the wire, 60 without its FCS: UDP of flow `n`.
fn frame(n: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    let [_, b, c, d] = n.to_be_bytes();
    let mut ip = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, b, c, d, 192, 168, 0, 1];
    let sum = checksum::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame[14..34].copy_from_slice(&ip);
    frame[34..42].copy_from_slice(&[4, 0, 0, 53, 0, 26, 0, 0]);
    frame
}

/// The exact match of flow `n` that comes by `port`: the fields of a filter of the 82599.
fn exact(n: u32, port: u32) -> Match {
    let [_, b, c, d] = n.to_be_bytes();
    let ip = |bytes| u128::from(u32::from_be_bytes(bytes));
    Match(vec![
        Oxm::exact(Field::InPort, port.into()),
        Oxm::exact(Field::EthType, 0x800),
        Oxm::exact(Field::IpProto, 17),
        Oxm::exact(Field::Ipv4Src, ip([10, b, c, d])),
        Oxm::exact(Field::Ipv4Dst, ip([192, 168, 0, 1])),
        Oxm::exact(Field::UdpSrc, 0x400),
        Oxm::exact(Field::UdpDst, 53),
    ])
}

/// What is in front of the table with the entries of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Front {
    Nothing,
    /// A table that pops a VLAN tag, which the frames do not have: the port mapping cannot know such frames.
    Pop,
}

/// An entry with an exact match for each of `entries` flows that come by each of `cores` ports, which sends them out of the
/// port with the next number.
fn changes(entries: u32, cores: u32, front: Front) -> Vec<(u64, Change)> {
    let table = u8::from(front == Front::Pop);
    let flow = |(table, priority, matching, instructions)| Entry {
        id: 0,
        table,
        priority,
        cookie: 0,
        flags: 0,
        matching,
        instructions,
        counts: (0..cores).map(|_| Counts::default()).collect(),
    };
    let pop = Instruction::ApplyActions(vec![Action::PopVlan]);
    let first = (0, 0, Match(Vec::new()).normal(), vec![pop, Instruction::GotoTable(1)]);
    let ports = (0..cores).map(|core| 1 + 2 * core);
    let each = ports.flat_map(|port| {
        (0..entries).map(move |n| {
            let output = Action::Output { port: port + 1, max_len: 0 };
            let then = vec![Instruction::ApplyActions(vec![output])];
            (table, 1, exact(n, port).normal(), then)
        })
    });
    let all = (table == 1).then_some(first).into_iter().chain(each).map(flow);
    (1..).zip(all).map(|(id, entry)| (id, Change::Flow(Arc::new(Entry { id, ..entry })))).collect()
}

/// An engine on `cores` cores whose work is a switch. The frames of `order` come again and again by a port of each core.
fn engine(way: Way, cores: u32, order: &[u32], rules: Vec<(u64, Change)>) -> anyhow::Result<Yard> {
    let pin: Vec<u32> = if cores > 1 { (0..cores).collect() } else { Vec::new() };
    let Way { lookup, cache, .. } = way;
    let mut text = format!(
        "[yard]\ncores = {cores}\nidle = \"busy\"\npin = {pin:?}\n[work]\nkind = \"switch\"\n\
         [switch]\ntables = 4\nlookup = \"{lookup}\"\ncache_entries = {cache}\n\
         [steer]\nkeep_local = true\n"
    );
    for core in 0..cores {
        for name in ["in", "out"] {
            text += &format!(
                "[[port]]\nname = \"{name}{core}\"\nkind = \"mem\"\nin = \"memory\"\ncore = {core}\nwindow_frames = 256\n"
            );
        }
        text += &format!(
            "[[queue]]\nname = \"q{core}\"\norder = \"direct\"\nconsumers = [{core}]\nwindow_frames = 256\n"
        );
    }
    let mut parts = Parts::default();
    for core in 0..cores as u16 {
        let mut frames = Frames::new();
        // Whole batches, so that each turn has the same frames.
        let whole = order.len().next_multiple_of(BATCH);
        order
            .iter()
            .cycle()
            .take(whole)
            .for_each(|n| frames.push(0, LinkType::Ethernet, &frame(*n)));
        let sources = [Repeat::new(frames, u32::MAX), Repeat::new(Frames::new(), 1)];
        for (port, source) in (2 * core..).zip(sources) {
            parts.rx.insert(port, Box::new(SourceRx::new(port, Box::new(source), Pace::Fast)));
        }
    }
    let config = Config::parse("kth-switch-here", &text)?;
    let yard = config.build(parts).context("the engine of the figure")?;
    let rules: Arc<[_]> = rules.into();
    for core in 0..cores as u16 {
        anyhow::ensure!(yard.mail.offer(core, change_message(rules.clone())), "a full mailbox");
    }
    Ok(yard)
}

/// An engine on one core that this thread drives.
struct Bed {
    yard: Yard,
    now: u64,
}

impl Bed {
    fn new(way: Way, order: &[u32], rules: Vec<(u64, Change)>) -> anyhow::Result<Self> {
        Ok(Self { yard: engine(way, 1, order, rules)?, now: 0 })
    }

    /// Nanoseconds of this thread for a frame, over `frames` frames.
    fn run(&mut self, frames: usize) -> anyhow::Result<f64> {
        let core = &mut self.yard.cores[0];
        let (sent, began) = (core.counters().tx_frames, thread_ns());
        for _ in 0..frames.div_ceil(BATCH) {
            self.now += 1000;
            core.tick(self.now);
        }
        let took = thread_ns() - began;
        let counters = core.counters();
        anyhow::ensure!(counters.drops.total() == 0, "the switch dropped frames");
        anyhow::ensure!(counters.tx_frames > sent, "the switch transmitted no frame");
        Ok(took as f64 / (counters.tx_frames - sent) as f64)
    }
}

/// The processor time of this thread in nanoseconds.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The times of beds that take turns, with `frames` in each turn.
fn turns(beds: &mut [Bed], turns: usize, frames: usize) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::new(); beds.len()];
    for bed in beds.iter_mut() {
        let _warm = bed.run(2 * frames)?;
    }
    for _ in 0..turns {
        for (bed, times) in beds.iter_mut().zip(&mut times) {
            times.push(bed.run(frames)?);
        }
    }
    Ok(times)
}

fn median(values: &[f64]) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}

/// Adds the rate of `times`, in thousand frames a second.
fn push_rate(made: &mut Made, row: String, times: &[f64]) -> f64 {
    let rates: Vec<f64> = times.iter().map(|ns| 1e6 / ns).collect();
    made.push_measured(row, median(&rates), Spread::of(&rates));
    median(&rates)
}

/// Three ways to look up one flow, whose entry is the last one of the table.
fn baseline(made: &mut Made) -> anyhow::Result<Plot> {
    let mut lines: [Vec<(f64, f64)>; WAYS.len()] = Default::default();
    let mut gains = Vec::new();
    for entries in ENTRIES {
        let bed = |way| Bed::new(way, &[entries - 1; BATCH], changes(entries, 1, Front::Nothing));
        let mut rates = Vec::new();
        let linear = turns(&mut [bed(WAYS[0])?], TURNS, WAYS[0].frames)?;
        let others = turns(&mut [bed(WAYS[1])?, bed(WAYS[2])?], TURNS, WAYS[1].frames)?;
        for (way, times) in WAYS.iter().zip(linear.iter().chain(&others)) {
            let plural = if entries == 1 { "entry" } else { "entries" };
            rates.push(push_rate(made, format!("{entries} {plural}, {}", way.name), times));
        }
        lines.iter_mut().zip(&rates).for_each(|(line, rate)| line.push((entries.into(), *rate)));
        // Turn by turn, so that a change of the processor's speed cancels.
        let [hash, mapping] = [&others[0], &others[1]];
        gains
            .extend(hash.iter().zip(mapping).map(|(hash, mapping)| (hash / mapping - 1.0) * 100.0));
    }
    made.push_measured("port-mapping above hash, %", median(&gains), Spread::of(&gains));
    let mut plot = Plot::new(
        "The switch on one core, one flow that matches the last entry",
        Axis::log("entries", Unit::Plain("")),
        Axis::log("thousand frames/s", Unit::Plain("")),
    );
    for (way, line) in WAYS.iter().zip(lines) {
        plot = plot.line(way.name, line);
    }
    Ok(plot)
}

/// What the port mapping costs a frame that it cannot know.
fn modification(made: &mut Made) -> anyhow::Result<()> {
    let bed = |way| Bed::new(way, &[1099; BATCH], changes(1100, 1, Front::Pop));
    let times = turns(&mut [bed(WAYS[1])?, bed(WAYS[2])?], FINE_TURNS, FRAMES / 2)?;
    let overheads: Vec<f64> = times[0]
        .iter()
        .zip(&times[1])
        .map(|(without, with)| (with / without - 1.0) * 100.0)
        .collect();
    let row = "a frame that port-mapping does not match: overhead, %";
    made.push_measured(row, median(&overheads), Spread::of(&overheads));
    Ok(())
}

/// The frames of a flow after which its entry in the port mapping has paid, with flows in random order.
fn caching(made: &mut Made) -> anyhow::Result<()> {
    let mut order: Vec<u32> = (0..FLOWS).collect();
    let mut rng = Rng::new(1);
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let (mut extra, mut saved) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let way = Way { cache: 4 * FLOWS as usize, ..WAYS[2] };
        let mut with = Bed::new(way, &order, changes(FLOWS, 1, Front::Nothing))?;
        let mut without = Bed::new(WAYS[1], &order, changes(FLOWS, 1, Front::Nothing))?;
        let _rules_come_into_force = (with.run(BATCH)?, without.run(BATCH)?);
        // Each pass has one frame of each flow. The first one fills the flow cache, the second one the port mapping in front.
        let all = order.len();
        let (first, plain) = (with.run(2 * all)?, without.run(2 * all)?);
        let (later, still) = (with.run(4 * all)?, without.run(4 * all)?);
        extra.push(2.0 * (first - plain));
        saved.push(still - later);
    }
    made.push_measured(
        "random flows: extra time of the first two packets, ns",
        median(&extra),
        Spread::of(&extra),
    );
    made.push_measured(
        "random flows: time saved by each later packet, ns",
        median(&saved),
        Spread::of(&saved),
    );
    if median(&saved) > 0.0 {
        let paid = (median(&extra) / median(&saved)).max(0.0) + 2.0;
        made.push_as(Kind::Arithmetic, "random flows: break-even, packets", paid);
    } else {
        made.note(
            "The later packets of random flows take no less time by the port mapping than by the hash table, so that there \
             is no break-even.",
        );
    }
    Ok(())
}

/// The total rate of one switch on `cores` cores, in thousand frames a second.
fn rate(way: Way, cores: u32, clock: &Clock) -> anyhow::Result<f64> {
    let order: Vec<u32> = (0..1100).collect();
    let yard = engine(way, cores, &order, changes(1100, cores, Front::Nothing))?;
    let running = yard.start(Arc::clone(clock)).context("starting a thread for a core")?;
    let sent = || running.handle().counters().iter().map(|core| core.tx_frames).sum::<u64>();
    std::thread::sleep(TIME / 4);
    let (before, from) = (sent(), clock());
    std::thread::sleep(TIME);
    let (after, took) = (sent(), clock().saturating_sub(from));
    running.stop();
    let outcome = running.join();
    anyhow::ensure!(outcome.is_balanced(), "the frame counters of a run do not balance");
    Ok((after - before) as f64 * 1e6 / took as f64)
}

/// One and two cores of one switch, 1,100 flows with an entry each. Returns the state of the machine meanwhile.
fn multicore(made: &mut Made, clock: &Clock) -> anyhow::Result<Rounds> {
    let most = crate::processors().min(2) as u32;
    let mut rounds = Rounds::new(ROUNDS);
    let ways = [WAYS[1], WAYS[2]];
    let mut rates = vec![vec![Vec::new(); most as usize]; ways.len()];
    while rounds.go_on() {
        let mut others = 0.0_f64;
        for (way, rates) in ways.iter().zip(&mut rates) {
            for (cores, rates) in (1..).zip(rates) {
                let (one, share) = urgent(|| rate(*way, cores, clock))?;
                rates.push(one?);
                others = if cores > 1 { others.max(share) } else { others };
            }
        }
        rounds.add(others);
    }
    for (way, rates) in ways.iter().zip(&rates) {
        for (cores, rates) in (1..).zip(rates) {
            let plural = if cores == 1 { "" } else { "s" };
            let row = format!("{}, {cores} core{plural}", way.name);
            made.push_measured(row, median(rates), Spread::of(rates));
        }
    }
    if most < 2 {
        made.note("This machine has one CPU: two cores cannot be measured.");
    }
    Ok(rounds)
}

pub(super) fn make(clock: &Clock) -> anyhow::Result<Exhibit> {
    let spec = Spec::parse(NAME, include_str!("../../../../figures/kth-switch-here.toml"))?;
    let (mut made, before) = (Made::of(Kind::Measured), Before::read());
    let plot = baseline(&mut made)?;
    modification(&mut made)?;
    caching(&mut made)?;
    let rounds = multicore(&mut made, clock)?;
    made.plots = vec![plot];
    made.conditions = Some(rounds.conditions(&before));
    made.notes.extend(rounds.warning().map(str::to_owned));
    Ok(spec.with(made)?)
}

#[cfg(test)]
mod tests {
    use flowyard_switch::{Totals, TotalsAsked};

    use super::*;

    fn totals(bed: &Bed) -> Totals {
        let answer = bed.yard.cores[0].work().ask(&TotalsAsked).unwrap();
        *answer.downcast_ref().unwrap()
    }

    /// The frames are found by the way that the row names.
    #[test]
    fn each_way_forwards_by_its_own_lookup() {
        for way in WAYS {
            let mut bed = Bed::new(way, &[1, 0], changes(2, 1, Front::Nothing)).unwrap();
            bed.run(BATCH).unwrap();
            bed.run(1024).unwrap();
            let totals = totals(&bed);
            assert!(totals.frames > 1024, "{way:?}: {totals:?}");
            let is_mapped = totals.front > 900;
            assert_eq!(is_mapped, way.cache > 0, "{way:?}: {totals:?}");
        }
    }

    #[test]
    fn the_port_mapping_does_not_know_frames_behind_a_pop() {
        let mut bed = Bed::new(WAYS[2], &[0], changes(1, 1, Front::Pop)).unwrap();
        bed.run(1024).unwrap();
        assert_eq!((totals(&bed).front, totals(&bed).cached), (0, 0));
    }

    /// Each core transmits by its own port.
    #[test]
    fn both_cores_forward() {
        let rules = changes(4, 2, Front::Nothing);
        let mut yard = engine(WAYS[1], 2, &[0, 1, 2, 3], rules).unwrap();
        for now in 0..64 {
            for core in &mut yard.cores {
                let _done = core.tick(now * 1000);
            }
        }
        for core in &yard.cores {
            let counters = core.counters();
            assert!(counters.tx_frames >= 1024, "{counters:?}");
            assert_eq!(counters.drops.total(), 0);
        }
    }
}
