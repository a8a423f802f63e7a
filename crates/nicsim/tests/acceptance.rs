//! The acceptance table of the paper's numbers, row by row, at its tolerances.
//!
//! A row that we do not meet is listed in `NOT_MET` with the reason (docs/nic.md has the measured
//! values); the test fails when such a row begins to hold, so the list cannot go stale.

use flowyard_nicsim::paper::tables::BUDGET;
use flowyard_nicsim::paper::{Exhibit, Study};
use flowyard_nicsim::{Config, Fast, firmware::Builtin, run::builtin};

const MEASURE_US: u64 = 2000;

fn study<T>(make: impl Fn(&Study<'_>) -> T) -> T {
    make(&Study { threads: 2, measure_us: MEASURE_US, progress: &|_, _| {} })
}

fn exhibit(number: u32, table: bool) -> Exhibit {
    study(|study| if table { study.table(number) } else { study.figure(number) }).unwrap().unwrap()
}

const FASTER: &str =
    "ours needs fewer cycles a frame than the paper's, so it reaches line rate earlier";
const LEAN: &str =
    "our compiler keeps in registers what the paper's reloads, and our frames have less state";
const CHECKS: &str = "each descriptor is checked once, and a batch is often less than sixteen";
const POLLS: &str = "one look more at each pointer in every pass of the loop";
const LOCKS: &str =
    "our claims take a lock per bundle and stage; the paper does not say what its locks cover";
const EFFECT: &str =
    "half a point short: claims, which RMW leaves alone, are part of ordering here";
const MIX: &str =
    "fewer loads and branches than the paper's firmware, and a renaming window without limit";
const WALKS: &str = "descriptors are walked in order, four words to a line";
const MESI: &str =
    "a descriptor that moves from writer to reader is invalidated when it is written again";

/// Rows that are not met, and why.
const NOT_MET: [(&str, &str); 28] = [
    ("A2 6 x 175", FASTER),
    ("F3 plateau", WALKS),
    ("F3 invalidating writes", MESI),
    ("T1 Fetch Send BD: accesses", LEAN),
    ("T1 Send Frame: accesses", LEAN),
    ("T1 Receive Frame: accesses", LEAN),
    ("T2 out of order, 4: perfect, PBP", MIX),
    ("T2 out of order, 4: perfect, no BP", MIX),
    ("T2 out of order, 4: stalls, PBP", MIX),
    ("T2 out of order, 4: stalls, PBP1", MIX),
    ("T2 out of order, 4: stalls, no BP", MIX),
    ("T5 effect on send ordering", EFFECT),
    ("T5 software-only: Fetch Send BD: accesses", LEAN),
    ("T5 RMW: Fetch Send BD: accesses", LEAN),
    ("T5 software-only: Fetch Receive BD: instructions", CHECKS),
    ("T5 RMW: Fetch Receive BD: instructions", CHECKS),
    ("T5 software-only: Fetch Receive BD: accesses", LEAN),
    ("T5 software-only: Receive Frame: accesses", LEAN),
    ("T5 RMW: Receive Frame: accesses", LEAN),
    ("T5 software-only: Send Dispatch and Ordering: accesses", LEAN),
    ("T5 RMW: Send Dispatch and Ordering: accesses", POLLS),
    ("T5 software-only: Send Locking: instructions", LOCKS),
    ("T5 software-only: Send Locking: accesses", LOCKS),
    ("T5 software-only: Receive Locking: instructions", LOCKS),
    ("T5 software-only: Receive Locking: accesses", LOCKS),
    ("T5 RMW: Send Locking: instructions", LOCKS),
    ("T5 RMW: Send Locking: accesses", LOCKS),
    ("T5 RMW: Receive Locking: instructions", LOCKS),
];

/// Checks that every row is in its range but those listed, and that these are not.
fn check(rows: &[(&str, f64, f64, f64)]) {
    let mut wrong = Vec::new();
    for &(name, ours, from, to) in rows {
        let met = (from..=to).contains(&ours);
        let listed = NOT_MET.iter().any(|(row, _)| *row == name);
        if met == listed {
            wrong.push(format!("{name}: {ours:.4}, wanted {from:.4} to {to:.4}, listed {listed}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn around(value: f64, share: f64) -> (f64, f64) {
    (value * (1.0 - share), value * (1.0 + share))
}

#[test]
fn a1_rmw_carries_line_rate() {
    let outcome = builtin::<Fast>(&Config::default(), Builtin::Rmw).unwrap();
    assert_eq!(outcome.errors(), 0);
    let share = outcome.udp_gbps() / outcome.udp_limit_gbps();
    check(&[("A1 share", share, 0.985, 1.005), ("A1 drops", outcome.drop_share(), 0.0, 1e-4)]);
}

#[test]
fn a2_a3_figure_7() {
    let figure = exhibit(7, false);
    let limit = 19.1417;
    let share = |name: &str| figure.find(name).unwrap().ours / limit;
    let first = ["650", "700", "750", "800", "850", "900"]
        .into_iter()
        .find(|mhz| share(&format!("1 core, {mhz} MHz")) >= 0.985)
        .map_or(f64::INFINITY, |mhz| mhz.parse().unwrap());
    check(&[
        ("A2 6 x 175", share("6 cores, 175 MHz"), 0.943, 0.983),
        ("A2 8 x 175", share("8 cores, 175 MHz"), 0.972, 1.002),
        ("A2 6 x 200", share("6 cores, 200 MHz"), 0.985, 1.005),
        ("A2 8 x 200", share("8 cores, 200 MHz"), 0.985, 1.005),
        ("A3 line rate of one core, MHz", first, 650.0, 900.0),
    ]);
    // Linear in cores times frequency, then clipped.
    assert!(share("1 cores, 200 MHz") > 1.9 * share("1 cores, 100 MHz"));
    assert!(share("2 cores, 150 MHz") > 1.85 * share("1 cores, 150 MHz"));
}

#[test]
fn t1_ideal_cost() {
    let table = exhibit(1, true);
    let mut rows = Vec::new();
    for row in &table.rows {
        let tolerance = match (row.name.starts_with("Fetch"), row.name.ends_with("instructions")) {
            (true, _) => 0.40,
            (false, true) => 0.15,
            (false, false) => 0.20,
        };
        let (from, to) = around(row.paper.unwrap(), tolerance);
        rows.push((format!("T1 {}", row.name), row.ours, from, to));
    }
    let rows: Vec<_> = rows.iter().map(|r| (r.0.as_str(), r.1, r.2, r.3)).collect();
    check(&rows);
}

#[test]
fn t2_limits_of_parallelism() {
    let table = exhibit(2, true);
    let cell = |row: &str, column: &str| table.find(&format!("{row}: {column}")).unwrap().ours;
    let columns =
        ["perfect, PBP", "perfect, no BP", "stalls, PBP", "stalls, PBP1", "stalls, no BP"];
    for order in ["in order", "out of order"] {
        for column in columns {
            let by_width = [1, 2, 4].map(|width| cell(&format!("{order}, {width}"), column));
            assert!(by_width.is_sorted(), "{order} {column}: wider is no slower");
        }
        for width in [1, 2, 4] {
            let row = format!("{order}, {width}");
            let [pbp, no, st, st1, st_no] = columns.map(|column| cell(&row, column));
            assert!(pbp >= no && st >= st1 && st1 >= st_no && pbp >= st && no >= st_no, "{row}");
        }
    }
    for width in [1, 2, 4] {
        for column in columns {
            let row = |order: &str| cell(&format!("{order}, {width}"), column);
            assert!(row("out of order") >= row("in order"), "{width} {column}");
        }
    }
    for row in ["in order, 1", "out of order, 1"] {
        assert!((cell(row, "perfect, PBP") - 1.0).abs() < 0.001);
        assert!((cell(row, "perfect, no BP") - 1.0).abs() < 0.001);
    }
    let printed = table.rows.iter().filter(|row| row.paper.is_some());
    let rows: Vec<_> = printed
        .map(|row| {
            let (from, to) = around(row.paper.unwrap(), 0.20);
            (format!("T2 {}", row.name), row.ours, from, to)
        })
        .collect();
    let rows: Vec<_> = rows.iter().map(|r| (r.0.as_str(), r.1, r.2, r.3)).collect();
    check(&rows);
}

#[test]
fn t3_t4_breakdown_and_bandwidth() {
    let (three, four) = (exhibit(3, true), exhibit(4, true));
    let get = |table: &Exhibit, name: &str| table.find(name).unwrap().ours;
    assert!((get(&three, "Total") - 1.0).abs() < 1e-12);
    let (from, to) = around(9.4, 0.20);
    check(&[
        ("T3 execution", get(&three, "Execution"), 0.67, 0.77),
        ("T3 misses", get(&three, "Instruction miss stalls"), 0.0, 0.03),
        ("T3 loads", get(&three, "Load stalls"), 0.09, 0.15),
        ("T3 conflicts", get(&three, "Scratchpad conflict stalls"), 0.02, 0.08),
        ("T3 pipeline", get(&three, "Pipeline stalls"), 0.07, 0.13),
        ("T4 instruction memory", get(&four, "instruction memory: consumed"), 0.0, 2.0),
        ("T4 scratchpads", get(&four, "scratchpads: consumed"), from, to),
        ("T4 frame memory", get(&four, "frame memory: consumed"), 39.4, 40.5),
        ("T4 peak instruction memory", get(&four, "instruction memory: peak"), 25.6, 25.6),
        ("T4 peak scratchpads", get(&four, "scratchpads: peak"), 25.6, 25.6),
        ("T4 peak frame memory", get(&four, "frame memory: peak"), 64.0, 64.0),
    ]);
}

#[test]
fn t5_t6_profiles() {
    let (five, six) = (exhibit(5, true), exhibit(6, true));
    let get = |table: &Exhibit, name: &str| table.find(name).unwrap().ours;
    let effect = |name: &str| -get(&five, &format!("effect of RMW on {name}, instructions, %"));
    let mut rows = vec![
        ("T5 effect on send ordering".to_owned(), effect("send ordering"), 35.0, 65.0),
        ("T5 effect on receive ordering".to_owned(), effect("receive ordering"), 15.0, 45.0),
    ];
    for row in &five.rows {
        if let Some(paper) = row.paper.filter(|_| !row.name.starts_with("effect")) {
            let (from, to) = around(paper * BUDGET, 0.25);
            rows.push((format!("T5 {}", row.name), row.ours, from, to));
        }
    }
    for row in &six.rows {
        if let Some(paper) = row.paper.filter(|_| row.name.ends_with("total")) {
            let (from, to) = around(paper * BUDGET, 0.15);
            rows.push((format!("T6 {}", row.name), row.ours, from, to));
        }
    }
    let rows: Vec<_> = rows.iter().map(|r| (r.0.as_str(), r.1, r.2, r.3)).collect();
    check(&rows);
}

#[test]
fn f8_sizes() {
    let figure = exhibit(8, false);
    let get = |name: &str| figure.find(name).unwrap();
    let below = get("RMW below software-only, saturated, %").ours;
    let mut rows = vec![("F8 RMW below software-only, %".to_owned(), below, 0.0, 8.0)];
    for name in ["software-only, 200 MHz", "RMW, 166.67 MHz"] {
        let (from, to) = around(2.2, 0.12);
        let peak = get(&format!("{name}: saturated, M frames/s")).ours;
        rows.push((format!("F8 {name}: saturated"), peak, from, to));
        for size in [1200, 1472] {
            let row = get(&format!("{name}: {size} B"));
            let share = row.ours / row.paper.unwrap();
            rows.push((format!("F8 {name}: {size} B"), share, 0.985, 1.005));
        }
    }
    let rows: Vec<_> = rows.iter().map(|r| (r.0.as_str(), r.1, r.2, r.3)).collect();
    check(&rows);
}

#[test]
fn f3_caches() {
    let figure = exhibit(3, false);
    let hits: Vec<f64> = (4..=15)
        .map(|n| figure.find(&format!("frame metadata: {} B: hits", 1 << n)).unwrap().ours)
        .collect();
    assert!(hits.is_sorted(), "monotone: {hits:?}");
    let taken = figure.find("frame metadata: 32768 B: writes that invalidate").unwrap().ours;
    check(&[("F3 plateau", hits[11], 50.0, 62.0), ("F3 invalidating writes", taken, 0.0, 1.0)]);
}
