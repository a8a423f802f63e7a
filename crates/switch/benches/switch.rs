//! The experiments of the KTH slides ("OpenFlow with Intel 82599"), classifiers beside each other, and
//! frames a second for cached flows. Each prints a table. One core, the data plane alone: from the
//! bytes of a frame to what becomes of it, without ports and queues.
//!
//! `cargo bench -p flowyard-switch` runs all; `-- kth`, `-- miss`, `-- rules`, `-- flows` one of them.
//! Times are medians of pieces of a thousand frames, which are shorter than a turn of the scheduler: what
//! else the machine does disturbs few of them.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Change, Counts, Entry};
use flowyard_openflow::port::Port;
use flowyard_openflow::{Field, Match, Oxm};
use flowyard_switch::{Arrival, Classifier, Datapath, Effects, Key, Lookup, Pattern, Settings};

/// Rounds over frames that one piece holds.
const ROUNDS: usize = 400;
/// Frames that are timed together.
const PIECE: usize = 1000;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

fn say(text: std::fmt::Arguments<'_>) {
    let _closed = writeln!(std::io::stdout(), "{text}");
}

/// A frame of 64 bytes on the wire (60 without its checksum): UDP of flow `n`.
fn frame(n: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    let [a, b, c, d] = n.to_be_bytes();
    let ip = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, b, c, d, 192, 168, a, 1];
    frame[14..34].copy_from_slice(&ip);
    frame[34..42].copy_from_slice(&[4, 0, 0, 53, 0, 26, 0, 0]);
    frame
}

/// The exact match of flow `n`: what an 82599's filter has.
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

fn output(port: u32) -> Instruction {
    Instruction::ApplyActions(vec![Action::Output { port, max_len: 0 }])
}

struct Bed {
    datapath: Datapath,
    out: Effects,
    changes: u64,
}

impl Bed {
    fn new(lookup: Lookup, cache_entries: usize) -> Self {
        let settings = Settings { tables: 2, lookup, cache_entries, ..Settings::default() };
        let datapath = Datapath::group(1, &settings).remove(0);
        let mut bed = Self { datapath, out: Effects::new(0), changes: 0 };
        for number in 1..=2 {
            bed.apply(&Change::Port(Arc::new(Port { number, ..Port::default() })));
        }
        bed
    }

    fn apply(&mut self, change: &Change) {
        self.changes += 1;
        self.datapath.apply(self.changes, change, 0, &mut self.out);
    }

    fn flow(&mut self, table: u8, priority: u16, fields: Vec<Oxm>, instructions: Vec<Instruction>) {
        let entry = Entry {
            id: self.changes,
            table,
            priority,
            cookie: 0,
            flags: 0,
            matching: Match(fields),
            instructions,
            counts: [Counts::default()].into(),
        };
        self.apply(&Change::Flow(Arc::new(entry)));
    }

    /// Nanoseconds a frame takes: the median of pieces, over so many rounds of these frames.
    fn time(&mut self, frames: &[[u8; 60]], rounds: usize) -> f64 {
        let turns = PIECE.div_ceil(frames.len());
        let mut pieces = Vec::new();
        for round in 0..=rounds {
            for piece in frames.chunks(PIECE) {
                let start = Instant::now();
                for _ in 0..turns {
                    for frame in piece {
                        self.datapath.process(black_box(frame), Arrival::by(1), 1, &mut self.out);
                        black_box(&self.out.sent);
                    }
                }
                let took = start.elapsed().as_nanos() as f64;
                // In the first round the cache learns.
                if round > 0 {
                    pieces.push(took / (turns * piece.len()) as f64);
                }
            }
        }
        assert_eq!(self.out.sent.len(), 1, "frames are forwarded");
        median(pieces)
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// Flows in random order, each once.
fn shuffled(flows: u32, rng: &mut Rng) -> Vec<[u8; 60]> {
    let mut order: Vec<u32> = (0..flows).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    order.into_iter().map(frame).collect()
}

fn table(lookup: Lookup, cache: usize, entries: u32) -> Bed {
    let mut bed = Bed::new(lookup, cache);
    (0..entries).for_each(|n| bed.flow(0, 1, exact(n), vec![output(2)]));
    bed
}

/// Entries; the paper's linear, hash and port mapping, in kpps.
const KTH: [(u32, u32, Option<u32>, u32); 10] = [
    (1, 523, None, 814),
    (100, 360, Some(581), 816),
    (1100, 82, Some(578), 817),
    (2100, 45, Some(577), 816),
    (3100, 31, Some(577), 816),
    (4100, 24, Some(576), 816),
    (5100, 20, Some(576), 817),
    (6100, 16, Some(576), 818),
    (7100, 14, Some(576), 816),
    (8100, 13, Some(575), 815),
];

fn kth(rng: &mut Rng) {
    say(format_args!(
        "\nThroughput against entries, in kpps. One flow, as with one pktgen; the list's last entry."
    ));
    say(format_args!("          paper, 2.26 GHz Xeon 5520          here, data plane alone"));
    say(format_args!(
        " entries   linear    hash  mapping     linear     hash   merged  mapping  mapping/hash  all flows"
    ));
    let (mut gains, mut mapped) = (Vec::new(), Vec::new());
    for (entries, linear, hash, mapping) in KTH {
        let one = [frame(entries - 1)];
        let all = shuffled(entries, rng);
        let kpps = |ns: f64| 1e6 / ns;
        let rounds = 1 + 40_000 / entries.max(100) as usize;
        let a = kpps(table(Lookup::Linear, 0, entries).time(&one, rounds));
        let (mut hash_bed, mut map_bed) =
            (table(Lookup::Hash, 0, entries), table(Lookup::Merged, 65_536, entries));
        // Turn by turn, so that both meet the same disturbances.
        let (mut hashes, mut maps) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            hashes.push(hash_bed.time(&one, ROUNDS / 20));
            maps.push(map_bed.time(&one, ROUNDS / 20));
        }
        let (b, d) = (kpps(median(hashes)), kpps(median(maps)));
        let c = kpps(table(Lookup::Merged, 0, entries).time(&one, ROUNDS));
        let e = kpps(map_bed.time(&all, 1 + 100_000 / entries.max(1000) as usize));
        gains.push(d / b);
        mapped.push(d);
        let hash = hash.map_or_else(|| "-".into(), |hash: u32| hash.to_string());
        say(format_args!(
            "{entries:8} {linear:8} {hash:>7} {mapping:8}   {a:8.0} {b:8.0} {c:8.0} {d:8.0} {:12.2} {e:10.0}",
            d / b
        ));
    }
    let mean = (gains.iter().sum::<f64>() / gains.len() as f64 - 1.0) * 100.0;
    let least = mapped.iter().copied().fold(f64::MAX, f64::min);
    let spread = (mapped.iter().copied().fold(0.0, f64::max) / least - 1.0) * 100.0;
    say(format_args!(
        "mapping above hash: {mean:.1} % on average (paper: 41.5 %); mapping's spread: {spread:.1} %"
    ));
}

/// What it costs to ask the cache in vain, and how long a flow must be to pay for its entry.
fn miss() {
    say(format_args!("\nA miss in the port mapping (paper: 0.40 %), and what an entry costs"));
    // Untagged frames: the pop does nothing, but no key proves it, so nothing is cached.
    let uncached = |cache, lookup| {
        let mut bed = Bed::new(lookup, cache);
        let pop = Instruction::ApplyActions(vec![Action::PopVlan]);
        bed.flow(0, 0, Vec::new(), vec![pop, Instruction::GotoTable(1)]);
        (0..1100).for_each(|n| bed.flow(1, 1, exact(n), vec![output(2)]));
        bed
    };
    let one = [frame(1099)];
    for (name, lookup, rounds) in
        [("merged, 1100 entries", Lookup::Merged, 20), ("linear, 1100 entries", Lookup::Linear, 2)]
    {
        let (mut without, mut with) = (uncached(0, lookup), uncached(8192, lookup));
        // Turn by turn, so that both meet the same disturbances.
        let (mut plain, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..25 {
            plain.push(without.time(&one, rounds));
            asked.push(with.time(&one, rounds));
        }
        let (a, b) = (median(plain), median(asked));
        say(format_args!(
            "{name:22} {a:8.1} ns without a cache, {b:8.1} ns with a miss: {:+.2} %",
            (b / a - 1.0) * 100.0
        ));
    }
    let flows = 8192_u32;
    let frames: Vec<[u8; 60]> = (0..flows).map(frame).collect();
    let mut pieces: [Vec<f64>; 3] = Default::default();
    for _ in 0..5 {
        let mut learns = table(Lookup::Hash, 32_768, flows);
        let mut plain = table(Lookup::Hash, 0, flows);
        // The same frames again and again: the cache learns them, it knows them, there is none.
        for at in [0, 1, 2, 2] {
            let bed = if at == 2 { &mut plain } else { &mut learns };
            for piece in frames.chunks(256) {
                let start = Instant::now();
                for frame in piece {
                    bed.datapath.process(black_box(frame), Arrival::by(1), 1, &mut bed.out);
                }
                pieces[at].push(start.elapsed().as_nanos() as f64 / piece.len() as f64);
            }
        }
    }
    let [first, hit, plain] = pieces.map(median);
    let pays = if hit < plain { (first - plain) / (plain - hit) } else { f64::INFINITY };
    say(format_args!(
        "first frame {first:.0} ns, later ones {hit:.0} ns, without a cache {plain:.0} ns: pays after {pays:.0} more frames (paper: 100)"
    ));
}

/// How rules look in a kind of rule set: prefix lengths of source and destination with their weights,
/// and how often ports are given. After the tables of Taylor and Turner, "ClassBench" (ToN 2007):
/// filters of providers (acl), firewalls (fw) and Linux (ipc).
struct Style {
    name: &'static str,
    src: &'static [(u32, u64)],
    dst: &'static [(u32, u64)],
    /// Of 100: destination port exact, in a range; source port exact.
    ports: [u64; 3],
}

const STYLES: [Style; 3] = [
    Style {
        name: "acl",
        src: &[(0, 10), (16, 5), (21, 10), (23, 15), (24, 25), (27, 5), (30, 5), (32, 25)],
        dst: &[(16, 2), (21, 8), (23, 10), (24, 25), (26, 5), (27, 10), (30, 10), (32, 30)],
        ports: [60, 15, 0],
    },
    Style {
        name: "fw",
        src: &[(0, 35), (8, 3), (16, 7), (22, 5), (24, 20), (27, 5), (30, 5), (32, 20)],
        dst: &[(0, 25), (8, 2), (16, 8), (21, 5), (24, 20), (28, 5), (32, 35)],
        ports: [45, 25, 12],
    },
    Style {
        name: "ipc",
        src: &[(0, 12), (8, 3), (13, 2), (16, 8), (20, 5), (24, 25), (28, 5), (31, 2), (32, 38)],
        dst: &[(0, 10), (8, 3), (16, 7), (19, 5), (24, 25), (27, 5), (29, 3), (32, 42)],
        ports: [40, 20, 15],
    },
];

fn draw(weights: &[(u32, u64)], rng: &mut Rng) -> u32 {
    let mut left = rng.below(weights.iter().map(|(_, weight)| weight).sum());
    for &(value, weight) in weights {
        if left < weight {
            return value;
        }
        left -= weight;
    }
    0
}

/// Addresses of few networks, as in a real set: some hundreds of /16, and hosts in them.
fn address(rng: &mut Rng) -> u32 {
    let net = rng.below(rng.0 % 3 * 60 + 40) as u32;
    (10 + net / 256) << 24 | (net * 37 % 256) << 16 | rng.below(65_536) as u32
}

fn rules(style: &Style, count: usize, rng: &mut Rng) -> Vec<(Pattern, u16)> {
    let rule = |at: usize, rng: &mut Rng| {
        let mut fields = vec![Oxm::exact(Field::EthType, 0x800)];
        for (field, lengths) in [(Field::Ipv4Src, style.src), (Field::Ipv4Dst, style.dst)] {
            let len = draw(lengths, rng);
            let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
            if mask != 0 {
                fields.push(Oxm::masked(field, address(rng).into(), mask.into()));
            }
        }
        let [exact, range, src] = style.ports;
        let tcp = rng.below(100) < 75;
        let proto = rng.below(100) < 90;
        if proto {
            fields.push(Oxm::exact(Field::IpProto, if tcp { 6 } else { 17 }));
            // A range of ports becomes prefixes: this is one of them.
            let (s, d) =
                if tcp { (Field::TcpSrc, Field::TcpDst) } else { (Field::UdpSrc, Field::UdpDst) };
            let which = rng.below(100);
            let well = [22, 25, 53, 80, 123, 443, 1433, 1521, 8080][rng.below(9) as usize];
            if which < exact {
                let value = if rng.below(3) == 0 { rng.below(65_536).into() } else { well };
                fields.push(Oxm::exact(d, value));
            } else if which < exact + range {
                let bits = 1 + rng.below(10) as u32;
                let mask = (0xffff_u128 >> bits << bits) & 0xffff;
                fields.push(Oxm { field: d, value: u128::from(rng.below(65_536)) & mask, mask });
            }
            if rng.below(100) < src {
                fields.push(Oxm::exact(s, u128::from(rng.below(1024))));
            }
        }
        // Earlier rules outrank later ones; there are fewer priorities than rules.
        let priority = 65_000 - (at * 60_000 / count) as u16;
        (Pattern::from(&Match(fields)), priority)
    };
    (0..count).map(|at| rule(at, rng)).collect()
}

/// A frame's key that matches a rule, its open bits drawn.
fn key(pattern: &Pattern, rng: &mut Rng) -> Key {
    let mut key = Key::ZERO;
    key.set(Field::InPort, 1);
    let had =
        |field| pattern.mask.get(field).map(|mask| (pattern.value.get(field).unwrap_or(0), mask));
    let tcp = had(Field::IpProto).is_none_or(|(value, _)| value == 6);
    let (s, d) = if tcp { (Field::TcpSrc, Field::TcpDst) } else { (Field::UdpSrc, Field::UdpDst) };
    key.set(Field::EthType, 0x800);
    key.set(Field::IpProto, if tcp { 6 } else { 17 });
    for field in [Field::Ipv4Src, Field::Ipv4Dst, s, d] {
        let (value, mask) = had(field).unwrap_or((0, 0));
        key.set(field, value | u128::from(rng.next()) & field.full() & !mask);
    }
    key
}

fn classifiers(rng: &mut Rng) {
    say(format_args!("\nRule sets after ClassBench's distributions: ns a lookup and an update"));
    say(format_args!("(update: one removal and one insert)"));
    say(format_args!(
        "   rules   tuple space: tuples  lookup  update     merged: tuples  lookup  update    gain"
    ));
    for style in &STYLES {
        for count in [1000, 10_000, 100_000] {
            let rules = rules(style, count, rng);
            let keys: Vec<Key> = (0..20_000)
                .map(|_| key(&rules[rng.below(rules.len() as u64) as usize].0, rng))
                .collect();
            let mut told = Vec::new();
            let mut answers: Vec<Vec<Option<u32>>> = Vec::new();
            for lookup in [Lookup::Space, Lookup::Merged] {
                let mut set = Classifier::new(lookup, 1);
                for (number, (pattern, priority)) in (0..).zip(&rules) {
                    set.insert(pattern, *priority, number);
                }
                let piece = |keys: &[Key]| {
                    let start = Instant::now();
                    for key in keys {
                        black_box(set.lookup(black_box(key)));
                    }
                    start.elapsed().as_nanos() as f64 / keys.len() as f64
                };
                let look = median((0..3).flat_map(|_| keys.chunks(PIECE).map(piece)).collect());
                answers.push(
                    keys.iter()
                        .map(|key| set.lookup(key).map(|n| u32::from(rules[n as usize].1)))
                        .collect(),
                );
                let tuples = set.tuples();
                let some: Vec<usize> =
                    (0..5000).map(|_| rng.below(rules.len() as u64) as usize).collect();
                let mut update = |some: &[usize]| {
                    let start = Instant::now();
                    for &at in some {
                        let (pattern, priority) = &rules[at];
                        if let Some(number) = set.remove(pattern, *priority) {
                            set.insert(pattern, *priority, number);
                        }
                    }
                    start.elapsed().as_nanos() as f64 / some.len() as f64
                };
                let update = median(some.chunks(50).map(&mut update).collect());
                told.push((tuples, look, update));
            }
            assert_eq!(answers[0], answers[1], "both answer with the same priority");
            let [(t, l, u), (mt, ml, mu)] = told[..] else { return };
            say(format_args!(
                "{:>4}{count:7} {t:20} {l:7.0} {u:7.0} {mt:18} {ml:7.0} {mu:7.0} {:6.1}x",
                style.name,
                l / ml
            ));
        }
    }
}

fn flows(rng: &mut Rng) {
    say(format_args!("\nFrames of 64 bytes, a second on one core: flows that the cache knows"));
    say(format_args!("   flows  entries of the table     kpps   ns a frame"));
    for (flows, entries) in [
        (1, 1),
        (1, 100_000),
        (10_000, 1),
        (10_000, 10_000),
        (1_000_000, 1),
        (1_000_000, 1_000_000),
    ] {
        let mut bed = Bed::new(Lookup::Merged, 2 * flows as usize);
        if entries == 1 {
            // One rule; a second looks at all fields, so that every flow has a key of its own.
            bed.flow(0, 1, exact(u32::MAX), vec![output(2)]);
            bed.flow(0, 0, Vec::new(), vec![output(2)]);
        } else {
            (0..entries).for_each(|n| bed.flow(0, 1, exact(n), vec![output(2)]));
        }
        let frames = shuffled(flows, rng);
        let ns = bed.time(&frames, 1 + 400_000 / flows.max(1000) as usize);
        let (cached, all) = (bed.datapath.totals.cached, bed.datapath.totals.frames);
        let share = cached as f64 / all as f64 * 100.0;
        say(format_args!(
            "{flows:8} {entries:21} {:8.0} {ns:12.1}   {share:.0} % of all frames cached",
            1e6 / ns
        ));
    }
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let mut rng = Rng(1);
    if runs("kth") {
        kth(&mut rng);
    }
    if runs("miss") {
        miss();
    }
    if runs("rules") {
        classifiers(&mut rng);
    }
    if runs("flows") {
        flows(&mut rng);
    }
}
