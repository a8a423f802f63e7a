//! Changing one key changes the result in the expected direction, on machines that the paper does not list;
//! and every firmware keeps all frames in order on any machine.

use flowyard_nicsim::Fast;
use flowyard_nicsim::config::Config;
use flowyard_nicsim::firmware::Builtin;
use flowyard_nicsim::isa;
use flowyard_nicsim::profile::Profile;
use flowyard_nicsim::run::{Outcome, builtin, image};

fn run(firmware: Builtin, sets: &[&str]) -> Outcome {
    let mut config = Config::default();
    config.run.measure_us = 1000;
    for set in sets {
        config.set(set).unwrap();
    }
    let outcome = builtin::<Fast>(&config, firmware).unwrap();
    assert_eq!(outcome.errors(), 0, "{sets:?}");
    outcome
}

fn conflict(outcome: &Outcome) -> f64 {
    let total = outcome.window.total();
    total.conflict as f64 / total.cycles() as f64
}

#[test]
fn every_word_of_the_firmware_is_in_the_subset() {
    for builtin in Builtin::ALL {
        let image = image(&Config::default(), builtin.elf()).unwrap();
        for (n, &word) in image.text.iter().enumerate() {
            let pc = 4 * n as u32;
            assert!(isa::decode(word, pc).is_some(), "{}: {word:#010x} at {pc:#x}", builtin.name());
        }
    }
}

#[test]
fn more_banks_fewer_conflicts() {
    let shares = [1, 2, 4, 8].map(|banks| {
        conflict(&run(Builtin::Rmw, &[&format!("chip.banks={banks}"), "chip.cores=5"]))
    });
    assert!(shares.is_sorted_by(|a, b| a > b), "{shares:?}");
}

#[test]
fn slower_sdram_lower_ceiling() {
    let rates = [120, 200, 260, 400]
        .map(|mhz| run(Builtin::Rmw, &[&format!("sdram.mhz={mhz}"), "chip.cores=8"]).udp_gbps());
    assert!(rates.is_sorted() && rates[0] < 0.5 * rates[3], "{rates:?}");
}

#[test]
fn larger_bundles_fewer_instructions_a_frame() {
    // More traffic than five cores of 150 MHz can carry, so that there is no idle polling.
    let costs = [1, 2, 4, 8].map(|bundle| {
        let outcome = run(
            Builtin::Rmw,
            &[
                &format!("firmware.bundle={bundle}"),
                "chip.cores=5",
                "chip.mhz=150",
                "load.udp_bytes=[200]",
            ],
        );
        let profile = Profile::of(&outcome.image, &outcome.window);
        let d = &outcome.window.devices;
        profile.total().instructions as f64 / (d.sent.delivered + d.received.delivered) as f64
    });
    assert!(costs.is_sorted_by(|a, b| a > b), "{costs:?}");
}

#[test]
fn more_cores_and_faster_cores_carry_more() {
    let cores = [1, 2, 3, 5].map(|cores| {
        run(Builtin::Rmw, &[&format!("chip.cores={cores}"), "load.udp_bytes=[300]"])
            .frames_per_second()
    });
    assert!(cores.is_sorted_by(|a, b| a * 1.1 < *b), "{cores:?}");
    let clocks = [90, 130, 190].map(|mhz| {
        run(Builtin::SwOnly, &[&format!("chip.mhz={mhz}"), "load.udp_bytes=[300]"])
            .frames_per_second()
    });
    assert!(clocks.is_sorted_by(|a, b| a * 1.1 < *b), "{clocks:?}");
}

#[test]
fn longer_dma_latency_adds_latency_and_does_not_reduce_throughput() {
    let [near, far] =
        [0, 5000].map(|ns| run(Builtin::Rmw, &[&format!("assist.dma_latency_ns={ns}")]));
    assert!(far.udp_gbps() > 0.98 * near.udp_gbps());
    let mean = |o: &Outcome| {
        o.window.devices.received.latency_sum as f64 / o.window.devices.received.delivered as f64
    };
    assert!(mean(&far) > mean(&near));
}

#[test]
fn a_smaller_cache_misses_more() {
    let fetch = [1024, 2048, 4096, 8192].map(|bytes| {
        run(Builtin::Rmw, &[&format!("chip.icache_bytes={bytes}")]).window.total().fetch
    });
    assert!(fetch.is_sorted_by(|a, b| a >= b) && fetch[0] > 10 * fetch[3].max(1), "{fetch:?}");
}

#[test]
fn frame_level_parallelism_scales_where_task_level_does_not() {
    let gain = |firmware| {
        let [few, many] = [2, 8].map(|cores| {
            run(firmware, &[&format!("chip.cores={cores}"), "load.udp_bytes=[100]"])
                .frames_per_second()
        });
        many / few
    };
    let (frame, task) = (gain(Builtin::Rmw), gain(Builtin::Task));
    assert!(frame > 1.25 * task, "frame-level {frame:.2}, task-level {task:.2}");
}

#[test]
fn every_frame_is_in_order_and_accounted_for_under_any_load() {
    // `run` asserts order; the run itself fails if the counters do not balance.
    for firmware in [Builtin::SwOnly, Builtin::Rmw, Builtin::Task] {
        for sets in [
            &["load.udp_bytes=[18, 1472, 548, 18, 90]", "chip.cores=7"][..],
            &["load.udp_bytes=[18]", "chip.cores=16", "chip.mhz=300"],
            &["load.send=false", "load.receive_share=0.3"],
            &["load.receive=false", "chip.banks=1"],
            &["load.vlan=291", "load.udp_bytes=[700]"],
            &["host.send_ring=64", "host.recv_ring=64", "host.return_ring=512"],
            &["mac.link_gbps=25", "mac.mhz=390.625"],
        ] {
            let outcome = run(firmware, sets);
            assert!(outcome.frames_per_second() > 100_000.0, "{} {sets:?}", firmware.name());
        }
    }
}

#[test]
fn a_run_is_the_same_to_the_bit() {
    let [one, two] = [(); 2].map(|()| run(Builtin::Rmw, &["chip.cores=3"]));
    assert_eq!(one.end, two.end);
}
