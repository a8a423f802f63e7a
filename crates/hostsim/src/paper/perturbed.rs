//! Perturbs one assumption of each model and checks in which direction, and by how much, its figure moves. A figure
//! that no assumption moved would agree with its paper whatever the truth is.

use flowyard_report::exhibit::FACTORS;

use super::*;

/// The row of the figure with `input` times `factor`, divided by the row as published, minus one.
fn moves(name: &str, row: &str, input: &str, factor: f64) -> f64 {
    let value = |context: &Context| {
        let figure = make(name, context).unwrap().unwrap();
        figure.find(row).unwrap_or_else(|| panic!("{name}: no row {row}")).ours
    };
    let now = Context::default();
    value(&now.times(input, factor).unwrap()) / value(&now) - 1.0
}

#[track_caller]
fn about(share: f64, expected: f64) {
    assert!((share - expected).abs() < 0.01, "{share:.4} instead of {expected:.4}");
}

/// Model `forward`: a longer list costs a long table its rate, and a short one nothing.
#[test]
fn kth_entries_that_cost_twice_as_much_halve_the_rate_of_a_full_linear_table() {
    let row = "8100 entries, linear";
    // 1,903 ns and 8,100 entries of 9.357 ns.
    about(moves("kth-baseline", row, "kth.entry_ns", 2.0), 77_694.0 / 153_486.0 - 1.0);
    about(moves("kth-baseline", "1 entry, linear", "kth.entry_ns", 2.0), -0.005);
    about(moves("kth-baseline", "8100 entries, hash", "kth.entry_ns", 2.0), 0.0);
}

/// Model `forward`: a filter that costs twice as much pays after twice as many packets, in either case.
#[test]
fn kth_filters_that_cost_twice_as_much_pay_after_twice_as_many_packets() {
    let double = |row: &str, input: &str| moves("kth-caching", row, input, 2.0);
    let (random, worst) = ("random flows: break-even, packets", "worst case: break-even, packets");
    // 101 and 200 packets: the first one is not saved.
    about(double(random, "kth.filter_ns"), 200.0 / 101.0 - 1.0);
    assert!((double(worst, "kth.filter_worst_ns") - 1.0).abs() < 0.06);
    about(double(random, "kth.filter_worst_ns"), 0.0);
    // Twice the saving of a packet: half as many.
    assert!((double(random, "kth.hash_ns") + 0.5).abs() < 0.03);
}

/// Model `forward`: the sign of the effect of hyper-threading is that of `sibling_share` against 2.
#[test]
fn kth_hyper_threads_help_or_hurt_by_the_assumption_alone() {
    let with = "hash, 4 cores, with hyper-threading";
    about(moves("kth-multicore", with, "kth.sibling_share", 0.5), 1.0);
    about(moves("kth-multicore", with, "kth.sibling_share", 2.0), -0.5);
    let without = "hash, 4 cores, without hyper-threading";
    about(moves("kth-multicore", without, "kth.sibling_share", 2.0), 0.0);
}

/// Model `forward`: frames that cost twice as much halve what a core forwards, unless the link was the limit.
#[test]
fn lanner_costs_matter_where_the_cores_are_the_limit() {
    let row = |size: u32| format!("i5-660, 2 ports, {size} B: % of line rate");
    about(moves("lanner-gigabit", &row(64), "lanner.frame_cycles", 2.0), -0.5);
    about(moves("lanner-gigabit", &row(1518), "lanner.frame_cycles", 2.0), 0.0);
    // Half of the cost is more than line rate: the link becomes the limit.
    about(moves("lanner-gigabit", &row(64), "lanner.frame_cycles", 0.5), 1.0 / 0.8079 - 1.0);
}

/// Model `pipeline`: with 8 workers, a producer of 55 instead of 40 ns becomes the limit; with 1 worker it is not.
#[test]
fn dlb_a_dearer_device_caps_many_workers_and_not_one() {
    let row = |workers: u32| format!("64 B, hardware queue, {workers}+2");
    about(moves("dlb-workers", &row(8), "dlb.hw_end_ns", 2.0), 1e3 / 55.0 / 22.0 - 1.0);
    about(moves("dlb-workers", &row(1), "dlb.hw_end_ns", 2.0), 0.0);
    // A worker of 363.6 ns with half of the device's 90.4 ns.
    about(moves("dlb-workers", &row(1), "dlb.hw_worker_ns", 0.5), 363.6 / 318.4 - 1.0);
}

/// A constant that moves a row is among the inputs that the row names. The figures of model `server` name all
/// constants, so they are not run.
#[test]
fn what_moves_a_row_is_among_its_inputs() {
    let now = Context::default();
    let cheap = |name: &&str| !name.starts_with("fdir-");
    let mut moved = 0;
    for name in names().filter(cheap) {
        let base = make(name, &now).unwrap().unwrap();
        let profile = now.profile(name.split('-').next().unwrap()).unwrap();
        for input in profile.all_inputs() {
            for factor in FACTORS {
                let changed = make(name, &now.times(&input.name, factor).unwrap());
                for (old, new) in base.rows.iter().zip(&changed.unwrap().unwrap().rows) {
                    if (new.ours / old.ours - 1.0).abs() > 1e-3 {
                        moved += 1;
                        let at = format!("{name}: {}: {}", old.name, input.name);
                        assert!(old.inputs.contains(&input.name), "{at} moves it");
                    }
                }
            }
        }
    }
    assert!(moved > 100, "{moved}");
}
