//! Classifiers beside each other: merged tuples and tuple space search, on rule sets after ClassBench's
//! distributions; what a lookup and an update cost. Prints a table.
//!
//! `cargo bench -p flowyard-switch`. Times are medians of pieces of a thousand lookups, which are shorter than a turn
//! of the scheduler: what else the machine does disturbs few of them. Frames a second, and the experiments of the KTH
//! slides, are in the yard's bench, on the whole walk: `cargo bench -p flowyard-yard --bench switch`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use flowyard_frame::Rng;
use flowyard_openflow::{Field, Match, Oxm};
use flowyard_switch::{Classifier, Key, Lookup, Pattern};

/// Lookups that are timed together.
const PIECE: usize = 1000;

fn say(text: std::fmt::Arguments<'_>) {
    let _closed = writeln!(std::io::stdout(), "{text}");
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
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
    let nets = rng.below(3) * 60 + 40;
    let net = rng.below(nets) as u32;
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
        key.set(field, value | u128::from(rng.bits()) & field.full() & !mask);
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
                    set.insert(pattern, (*priority).into(), number);
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
                        if let Some(number) = set.remove(pattern, (*priority).into()) {
                            set.insert(pattern, (*priority).into(), number);
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

fn main() {
    classifiers(&mut Rng::new(1));
}
