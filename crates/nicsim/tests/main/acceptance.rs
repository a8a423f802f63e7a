//! Every exhibit is as its file in `figures/` says: rows within their accepted range, except those that
//! have a reason why they are not met.
//!
//! The test also fails when a row with such a reason begins to be met, so the reasons cannot go stale.

use flowyard_nicsim::paper::{Study, make};
use flowyard_nicsim::{Config, Fast, firmware::Builtin, run::builtin};
use flowyard_report::exhibit::Exhibit;

/// Computes the exhibit `name` and checks its rows against its file.
fn exhibit(name: &str) -> Exhibit {
    let study = Study { threads: 2, measure_us: 2000, progress: &|_, _| {} };
    let exhibit = make(name, &study).unwrap().unwrap();
    let wrong: Vec<String> = exhibit
        .unexpected()
        .map(|row| {
            format!(
                "{name}: {}: {}, accepted {:?}, {:?}",
                row.name, row.ours, row.accepted, row.not_met
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    exhibit
}

fn ours(exhibit: &Exhibit, row: &str) -> f64 {
    exhibit.find(row).unwrap_or_else(|| panic!("{}: no row {row}", exhibit.name)).ours
}

#[test]
fn a1_rmw_carries_line_rate() {
    let outcome = builtin::<Fast>(&Config::default(), Builtin::Rmw).unwrap();
    assert_eq!(outcome.errors(), 0);
    let share = outcome.udp_gbps() / outcome.udp_limit_gbps();
    assert!((0.985..=1.005).contains(&share), "{share}");
    assert!(outcome.drop_share() <= 1e-4, "{}", outcome.drop_share());
}

#[test]
fn a2_a3_figure_7() {
    let figure = exhibit("nic-figure-7");
    let limit = 19.1417;
    let share = |name: &str| ours(&figure, name) / limit;
    let line_rate = [650, 700, 750, 800, 850, 900]
        .into_iter()
        .find(|mhz| share(&format!("1 core, {mhz} MHz")) >= 0.985);
    assert!(line_rate.is_some(), "one core reaches line rate between 650 and 900 MHz");
    // Linear in cores times frequency, then limited by the link.
    assert!(share("1 core, 200 MHz") > 1.9 * share("1 core, 100 MHz"));
    assert!(share("2 cores, 150 MHz") > 1.85 * share("1 core, 150 MHz"));
}

#[test]
fn t1_ideal_cost() {
    let table = exhibit("nic-table-1");
    assert!(table.rows.iter().all(|row| row.within.is_some()));
}

#[test]
fn t2_limits_of_parallelism() {
    let table = exhibit("nic-table-2");
    let cell = |row: &str, column: &str| ours(&table, &format!("{row}: {column}"));
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
}

#[test]
fn t3_t4_breakdown_and_bandwidth() {
    for name in ["nic-table-3", "nic-table-4"] {
        assert!(exhibit(name).rows.iter().all(|row| row.within.is_some()));
    }
}

#[test]
fn t5_t6_profiles() {
    for name in ["nic-table-5", "nic-table-6"] {
        assert!(exhibit(name).score.counted >= 20);
    }
}

#[test]
fn f8_sizes() {
    let figure = exhibit("nic-figure-8");
    assert!(figure.rows.iter().all(|row| row.within.is_some()));
}

#[test]
fn f3_caches() {
    let figure = exhibit("nic-figure-3");
    let hits: Vec<f64> =
        (4..=15).map(|n| ours(&figure, &format!("frame metadata: {} B: hits", 1 << n))).collect();
    assert!(hits.is_sorted(), "monotone: {hits:?}");
}
