//! The experiments of the KTH slides ("OpenFlow with Intel 82599") on the whole engine: one core,
//! ports in memory, frames of 64 bytes; rx, parse, RSS, a queue, the switch, tx. Each prints a
//! table.
//!
//! `cargo bench -p flowyard-config --bench switch` runs all; `-- kth`, `-- miss`, `-- pays`, `--
//! flows` run one of them. Time is the processor time of the thread, in pieces of some thousand
//! frames. Variants that are compared take turns, so that both meet the same disturbances. Figures
//! are medians.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(unsafe_code, reason = "the standard library does not know a thread's time")]

use std::sync::Arc;

use flowyard_config::Config;
use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Change, Counts, Entry};
use flowyard_openflow::{Field, Match, Oxm};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Repeat, SourceRx};
use flowyard_switch::Totals;
use flowyard_switch::{TotalsAsked, change_message};
use flowyard_testkit::Rng;
use flowyard_wire::LinkType;
use flowyard_yard::{Parts, Tick, Yard};

/// Frames of a batch.
const BATCH: usize = 32;

/// The processor time of this thread, in nanoseconds.
fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time, and nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A frame of 64 bytes on the wire (60 without its checksum): UDP of flow `n`, which is one of `n % 2^24` hosts.
fn frame(n: u32) -> [u8; 60] {
    frame_from(n, 0x400)
}

/// The same, from a port.
fn frame_from(n: u32, port: u16) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    let [a, b, c, d] = n.to_be_bytes();
    let mut ip = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, b, c, d, 192, 168, a, 1];
    let sum = flowyard_wire::checksum::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame[14..34].copy_from_slice(&ip);
    frame[34..42].copy_from_slice(&[0, 0, 0, 53, 0, 26, 0, 0]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame
}

/// The exact match of flow `n`: the fields of a filter of the 82599.
fn exact(n: u32) -> Vec<Oxm> {
    let [a, b, c, d] = n.to_be_bytes();
    let ip = |bytes| u128::from(u32::from_be_bytes(bytes));
    vec![
        Oxm::exact(Field::InPort, 1),
        Oxm::exact(Field::EthType, 0x800),
        Oxm::exact(Field::IpProto, 17),
        Oxm::exact(Field::Ipv4Src, ip([10, b, c, d])),
        Oxm::exact(Field::Ipv4Dst, ip([192, 168, a, 1])),
        Oxm::exact(Field::UdpSrc, 0x400),
        Oxm::exact(Field::UdpDst, 53),
    ]
}

/// Table, priority, fields, and actions.
type Flow = (u8, u16, Vec<Oxm>, Vec<Instruction>);

fn output() -> Instruction {
    Instruction::ApplyActions(vec![Action::Output { port: 2, max_len: 0 }])
}

/// One exact rule for each flow.
fn rules(entries: u32) -> Vec<Flow> {
    (0..entries).map(|n| (0, 1, exact(n), vec![output()])).collect()
}

/// One rule for all flows, and another that matches on all fields, so that each flow has a key of
/// its own.
fn one_rule() -> Vec<Flow> {
    vec![(0, 1, exact(u32::MAX), vec![output()]), (0, 0, Vec::new(), vec![output()])]
}

/// A rule for each of `entries` hosts, with any ports, and one that matches on all fields.
fn hosts(entries: u32) -> Vec<Flow> {
    let host = |n| {
        let fields = exact(n).into_iter().filter(|oxm| oxm.field != Field::UdpSrc);
        (0, 1, fields.collect(), vec![output()])
    };
    (0..entries).map(host).chain([(0, 0, exact(u32::MAX), vec![output()])]).collect()
}

/// An engine whose work is a switch, and frames of a fixed set of flows.
struct Bed {
    yard: Yard,
    now: u64,
}

impl Bed {
    fn new(lookup: &str, cache: usize, flows: Vec<Flow>, order: &[u32]) -> Self {
        let frames: Vec<_> = order.iter().map(|n| frame(*n)).collect();
        Self::with(lookup, cache, flows, &frames)
    }

    fn with(lookup: &str, cache: usize, flows: Vec<Flow>, order: &[[u8; 60]]) -> Self {
        let text = format!(
            r#"
            [yard]
            cores = 1
            [[port]]
            name = "in"
            kind = "mem"
            in = "given"
            window_frames = 256
            [[port]]
            name = "out"
            kind = "mem"
            in = "none"
            window_frames = 256
            [[queue]]
            name = "q"
            order = "direct"
            consumers = [0]
            window_frames = 256
            [work]
            kind = "switch"
            [switch]
            tables = 4
            lookup = "{lookup}"
            cache_entries = {cache}
            "#
        );
        let mut frames = Frames::new();
        order.iter().for_each(|frame| frames.push(0, LinkType::Ethernet, frame));
        // Whole batches, so that each round has the same frames.
        let short = order.len().next_multiple_of(BATCH) - order.len();
        order.iter().cycle().take(short).for_each(|frame| {
            frames.push(0, LinkType::Ethernet, frame);
        });
        let mut parts = Parts::default();
        let source = Box::new(Repeat::new(frames, u32::MAX));
        parts.rx.insert(0, Box::new(SourceRx::new(0, source, Pace::Fast)));
        parts.rx.insert(1, Box::new(SourceRx::new(1, Box::new(Frames::new()), Pace::Fast)));
        let yard = Config::parse("bench", &text).unwrap().build(parts).unwrap();
        let change = |(id, (table, priority, fields, instructions)): (u64, Flow)| {
            let entry = Entry {
                id,
                table,
                priority,
                cookie: 0,
                flags: 0,
                matching: Match(fields).normal(),
                instructions,
                counts: [Counts::default()].into(),
            };
            (id, Change::Flow(Arc::new(entry)))
        };
        let changes: Vec<_> = (1..).zip(flows).map(change).collect();
        assert!(yard.mail.offer(0, change_message(changes.into())));
        Self { yard, now: 0 }
    }

    fn totals(&self) -> Totals {
        let answer = self.yard.cores[0].work().ask(&TotalsAsked);
        answer.and_then(|answer| answer.downcast_ref().copied()).unwrap_or_default()
    }

    /// Thread nanoseconds a frame, over `frames` frames.
    fn run(&mut self, frames: usize) -> f64 {
        let sent = self.yard.cores[0].counters().tx_frames;
        let began = thread_ns();
        for _ in 0..frames.div_ceil(BATCH) {
            self.now += 1000;
            self.yard.cores[0].tick(self.now);
        }
        let took = thread_ns() - began;
        let counters = self.yard.cores[0].counters();
        assert_eq!(counters.drops.total(), 0, "frames are forwarded");
        took as f64 / (counters.tx_frames - sent) as f64
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// Medians of beds that take turns, with `frames` in each turn.
fn turns(beds: &mut [Bed], rounds: usize, frames: usize) -> Vec<f64> {
    let mut times = vec![Vec::new(); beds.len()];
    beds.iter_mut().for_each(|bed| _ = bed.run(2 * frames));
    for _ in 0..rounds {
        for (bed, times) in beds.iter_mut().zip(&mut times) {
            times.push(bed.run(frames));
        }
    }
    times.into_iter().map(median).collect()
}

fn shuffled(flows: u32, from: u32) -> Vec<u32> {
    let (mut order, mut rng): (Vec<u32>, _) = ((from..from + flows).collect(), Rng::new(1));
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    order
}

/// Entries; the paper's linear, hash and port mapping, in kpps.
const KTH: [(u32, u32, u32, u32); 10] = [
    (1, 523, 0, 814),
    (100, 360, 581, 816),
    (1100, 82, 578, 817),
    (2100, 45, 577, 816),
    (3100, 31, 577, 816),
    (4100, 24, 576, 816),
    (5100, 20, 576, 817),
    (6100, 16, 576, 818),
    (7100, 14, 576, 816),
    (8100, 13, 575, 815),
];

fn kth() {
    println!(
        "\nThroughput against entries, in kpps. One flow, as with one pktgen: the last entry."
    );
    println!("         paper, 2.26 GHz Xeon 5520         here, whole yard");
    println!(" entries  linear    hash mapping     linear     hash   merged  mapping mapping/hash");
    let bed = |lookup, cache, entries: u32| {
        Bed::new(lookup, cache, rules(entries), &[entries - 1; BATCH])
    };
    let all =
        |lookup, cache| -> Vec<Bed> { KTH.iter().map(|row| bed(lookup, cache, row.0)).collect() };
    let linear = turns(&mut all("linear", 0), 5, 256);
    let mut beds = all("hash", 0);
    beds.extend(all("merged", 0));
    beds.extend(all("hash", 8192));
    let times = turns(&mut beds, 400, 2048);
    let kpps = |ns: f64| 1e6 / ns;
    let (mut gains, mut mapped) = (Vec::new(), Vec::new());
    for (at, (entries, paper_linear, paper_hash, paper_mapping)) in KTH.into_iter().enumerate() {
        let [hash, merged, mapping] = [0, 10, 20].map(|from| kpps(times[from + at]));
        let linear = kpps(linear[at]);
        gains.push(mapping / hash);
        mapped.push(mapping);
        println!(
            "{entries:8} {paper_linear:7} {paper_hash:7} {paper_mapping:7}   {linear:8.0} {hash:8.0} {merged:8.0} {mapping:8.0} {:12.2}",
            mapping / hash
        );
    }
    let mean = (gains.iter().sum::<f64>() / gains.len() as f64 - 1.0) * 100.0;
    let least = mapped.iter().copied().fold(f64::MAX, f64::min);
    let spread = (mapped.iter().copied().fold(0.0, f64::max) / least - 1.0) * 100.0;
    println!(
        "mapping above hash: {mean:.1} % on average (paper: 41.5); spread {spread:.1} % (paper: 0.5)"
    );
}

/// The cost of a lookup that misses the cache.
fn miss() {
    println!("\nFrames that the cache cannot know (paper: a miss costs 0.40 %)");
    // Untagged frames: the pop does nothing, but the key does not prove this, so nothing is cached.
    let pop = || {
        let pop = Instruction::ApplyActions(vec![Action::PopVlan]);
        let mut flows = vec![(0, 0, Vec::new(), vec![pop, Instruction::GotoTable(1)])];
        flows.extend(rules(1100).into_iter().map(|(_, p, fields, then)| (1, p, fields, then)));
        flows
    };
    for lookup in ["hash", "merged"] {
        let bed = |cache| Bed::new(lookup, cache, pop(), &[1099; BATCH]);
        let times = turns(&mut [bed(0), bed(8192)], 1000, 2048);
        println!(
            "{lookup:8} {:6.1} ns without a cache, {:6.1} ns with one: {:+.2} %",
            times[0],
            times[1],
            (times[1] / times[0] - 1.0) * 100.0
        );
    }
}

/// The number of frames after which the cache entry of a flow has paid for itself.
fn pays() {
    const FLOWS: u32 = 8192;
    const MOST: usize = 300;
    println!("\nFrames of a flow until caching it has paid, {FLOWS} flows in random order");
    println!("(paper: 100 for random flows, 10,000 in the worst case)");
    let two = || {
        let goto = (0, 1, vec![Oxm::exact(Field::InPort, 1)], vec![Instruction::GotoTable(1)]);
        let mut flows = vec![goto];
        flows.extend(rules(2 * FLOWS).into_iter().map(|(_, p, fields, then)| (1, p, fields, then)));
        flows
    };
    // Prefixes of 9 to 24 bits, which all match: 16 masks, and the shortest prefix answers.
    let masks = || {
        let mut flows: Vec<Flow> = (9..25_u32)
            .map(|len| {
                let mask = u128::from(u32::MAX << (32 - len));
                let value = u128::from(0x0a00_0000_u32 | len << 8) & mask;
                let fields =
                    [Oxm::exact(Field::EthType, 0x800), Oxm::masked(Field::Ipv4Src, value, mask)];
                (0, len as u16, fields.to_vec(), vec![output()])
            })
            .collect();
        flows.extend(one_rule());
        flows
    };
    let sets: [(&str, &dyn Fn() -> Vec<Flow>); 3] = [
        ("one table, a rule each", &|| rules(2 * FLOWS)),
        ("two tables, a rule each", &two),
        ("18 wildcard rules", &masks),
    ];
    println!("{:26} {:>9} {:>9} {:>9} {:>9}", "", "first ns", "later ns", "no cache", "paid after");
    for (name, flows) in sets {
        for (cache, what) in [(32_768, ""), (8192, ", cache full of others")] {
            let mut first = Vec::new();
            let (mut later, mut plain, mut paid) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..3 {
                // If the cache is to be full of other flows, these come first.
                let before = if what.is_empty() { Vec::new() } else { shuffled(FLOWS, FLOWS) };
                let mut order = before.repeat(2);
                let own = shuffled(FLOWS, 0);
                order.extend(own.repeat(MOST / 4));
                let mut beds = [cache, 0].map(|cache| Bed::new("merged", cache, flows(), &order));
                for bed in &mut beds {
                    bed.run(BATCH); // the rules come into force
                    bed.run(before.len() * 2);
                }
                let (mut sums, mut pays) = ([0.0; 2], f64::INFINITY);
                for round in 0..MOST / 4 - 1 {
                    let times = [0, 1].map(|at| beds[at].run(own.len()));
                    sums = [sums[0] + times[0], sums[1] + times[1]];
                    if round == 0 {
                        first.push(times[0]);
                    } else {
                        later.push(times[0]);
                    }
                    plain.push(times[1]);
                    if sums[0] <= sums[1] && pays.is_infinite() {
                        pays = round as f64 + 1.0;
                    }
                }
                paid.push(pays);
            }
            println!(
                "{:48} {:9.0} {:9.0} {:9.0} {:9.0}",
                format!("{name}{what}"),
                median(first),
                median(later),
                median(plain),
                median(paid)
            );
        }
    }
}

/// Flows, rules, and Open vSwitch 3.1 with DPDK on one core, in million packets per second: its
/// cache of exact flows, of signatures, and its classifier. Measured on a machine of this kind, one
/// PMD, 64-byte frames from a loop.
const FLOWS: [(u32, u32, &str); 9] = [
    (1, 1, "24 / 15.7 / 13.7"),
    (1, 8100, "-"),
    (8192, 1, "10.4 / 13.7 / 12.7"),
    (8192, 1000, "8.2 / 12.0 / 9.0"),
    (8192, 8100, "5.6 / 4.8 / 6.8"),
    (10_000, 10_000, "-"),
    (32_768, 8100, "6.1 / - / 7.7"),
    (1_000_000, 1, "-"),
    (1_000_000, 100_000, "-"),
];

fn flows() {
    println!("\nMillion frames of 64 bytes a second, one core; each flow has a key of its own");
    println!(
        "   flows    rules   cached   mapped   no cache   Open vSwitch with DPDK, EMC / SMC / dpcls"
    );
    for (flows, entries, peer) in FLOWS {
        let set = || match entries {
            1 => one_rule(),
            _ if flows <= entries => rules(entries),
            _ => hosts(entries),
        };
        let own: Vec<u32> = if flows == 1 { vec![0; BATCH] } else { shuffled(flows, 0) };
        let frames: Vec<_> = own
            .into_iter()
            .map(|n| match entries {
                1 => frame(n),
                _ => frame_from(n % entries, 0x400 + (n / entries) as u16),
            })
            .collect();
        let most = frames.len();
        let bed = |cache| Bed::with("merged", cache, set(), &frames);
        let mut beds = [bed(2 * flows as usize), bed(0)];
        // The cache is filled.
        beds[0].run(2 * most);
        let before = beds[0].totals();
        let times = turns(&mut beds, 40, most.clamp(8192, 65_536));
        let now = beds[0].totals();
        let part = (now.front - before.front) as f64 / (now.frames - before.frames) as f64;
        let [with, without] = [0, 1].map(|at| 1e3 / times[at]);
        let part = part * 100.0;
        println!("{flows:8} {entries:8} {with:8.1} {part:6.1} % {without:10.1}   {peer}");
    }
}

/// Frames of 256 flows that are sent as they came, or changed: for counts of instructions.
fn tables(what: &str, cache: usize, actions: &[Action]) {
    let then = |n| (0, 1, exact(n), vec![Instruction::ApplyActions(actions.to_vec())]);
    let set = (0..256).map(then).collect();
    let mut bed = Bed::new("merged", cache, set, &shuffled(256, 0));
    bed.run(4096);
    println!("{what}: {:.1} ns a frame", bed.run(65_536));
}

fn sent() {
    tables("sent by the tables", 0, &[Action::Output { port: 2, max_len: 0 }]);
}

fn mapped() {
    tables("sent by the port mapping", 1024, &[Action::Output { port: 2, max_len: 0 }]);
}

fn changed() {
    let set = |field, value| Action::SetField(Oxm::exact(field, value));
    tables(
        "translated and tagged by the tables",
        0,
        &[
            set(Field::Ipv4Dst, 0x0a00_0001),
            set(Field::UdpDst, 5353),
            Action::DecNwTtl,
            Action::PushVlan(0x8100),
            Action::Output { port: 2, max_len: 0 },
        ],
    );
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let all: [(&str, fn()); 7] = [
        ("kth", kth),
        ("miss", miss),
        ("pays", pays),
        ("flows", flows),
        ("sent", sent),
        ("mapped", mapped),
        ("changed", changed),
    ];
    for (name, run) in all {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            run();
        }
    }
}
