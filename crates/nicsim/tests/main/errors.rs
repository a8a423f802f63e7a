//! Damaged frames, refused buffers, latency histograms, timelines, and captures that run to their end.

use std::collections::BTreeSet;

use flowyard_nicsim::config::Config;
use flowyard_nicsim::engine::Parts;
use flowyard_nicsim::firmware::Builtin;
use flowyard_nicsim::run::{RunError, builtin, image, run};
use flowyard_nicsim::{Fast, Reference};

fn config(sets: &[&str]) -> Config {
    let mut config = Config::default();
    config.run.measure_us = 500;
    for set in sets {
        config.set(set).unwrap();
    }
    config
}

/// One frame in seven is damaged: the MAC sets RX_CRC, the firmware marks its return descriptor and counts it, and the
/// host's checker finds no other frame marked.
#[test]
fn damaged_frames_arrive_marked() {
    for firmware in [Builtin::SwOnly, Builtin::Rmw, Builtin::Task] {
        let outcome = builtin::<Fast>(&config(&["load.damage_every=7"]), firmware).unwrap();
        assert_eq!(outcome.errors(), 0, "{}", firmware.name());
        let received = outcome.window.devices.received;
        let share = received.damaged as f64 / received.delivered as f64;
        assert!((0.13..0.16).contains(&share), "{}: {share}", firmware.name());
        let whole = builtin::<Fast>(&config(&[]), firmware).unwrap();
        assert_eq!(whole.window.devices.received.damaged, 0);
    }
}

/// One buffer in sixteen is too short: its frame is dropped, and no byte of the buffer changes (the host checks).
#[test]
fn refused_buffers_are_not_written() {
    for firmware in [Builtin::SwOnly, Builtin::Rmw, Builtin::Task] {
        let config = config(&["host.short_buffer_every=16"]);
        let outcome = builtin::<Fast>(&config, firmware).unwrap();
        assert_eq!(outcome.errors(), 0, "{}", firmware.name());
        let received = outcome.window.devices.received;
        let share = received.dropped as f64 / received.entered as f64;
        assert!((0.045..0.08).contains(&share), "{}: {share}", firmware.name());
    }
    let several = config(&["host.short_buffer_every=16", "host.queues=2"]);
    let error = several.check().unwrap_err().to_string();
    assert!(error.contains("host.short_buffer_every = 16"), "{error}");
}

/// The histograms have as many values as frames arrived, and their mean is that of the sums.
#[test]
fn histograms_count_every_frame() {
    let outcome = builtin::<Fast>(&config(&[]), Builtin::Rmw).unwrap();
    let d = &outcome.window.devices;
    assert_eq!(d.received_latency.count(), d.received.delivered);
    assert_eq!(d.sent_latency.count(), d.sent.delivered);
    let mean = d.received.latency_sum / d.received.delivered;
    let (low, high) = (d.received_latency.quantile(0.01), d.received_latency.quantile(1.0));
    assert!(low <= mean && mean <= high && high <= d.received.latency_max, "{low} {mean} {high}");
}

/// The trace is JSON; slices of a thread do not overlap; every kind of event is in it.
#[test]
fn a_timeline_is_a_trace() {
    let mut config = config(&[]);
    config.run.measure_us = 40;
    let image = image(&config, Builtin::Rmw.elf()).unwrap();
    let parts = Parts { config: config.clone(), image, timeline: true, ..Parts::default() };
    let outcome = run::<Reference>(parts.clone()).unwrap();
    let json = outcome.timeline.as_ref().unwrap().json();
    let trace: serde_json::Value = serde_json::from_str(&json).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let mut slices: Vec<(u64, u64, f64, f64)> = Vec::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let number = |key: &str| event[key].as_f64().unwrap();
        assert!(number("dur") >= 0.0, "{event}");
        slices.push((number("pid") as u64, number("tid") as u64, number("ts"), number("dur")));
    }
    slices.sort_by(|a, b| a.partial_cmp(b).unwrap());
    for pair in slices.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        // Times are printed with four digits.
        assert!((a.0, a.1) != (b.0, b.1) || a.2 + a.3 <= b.2 + 0.0002, "{a:?} {b:?}");
    }
    for name in
        ["recv_frames", "burst", "frame", "DMA read", "DMA write", "frame to host", "core 3"]
    {
        assert!(events.iter().any(|event| event["name"] == name), "no {name}");
    }
    // A received frame has the same number on the link and on its way to the host.
    let numbers = |name: &str, pid: u64| -> BTreeSet<u64> {
        let these = events.iter().filter(|event| event["name"] == name && event["pid"] == pid);
        these
            .filter(|event| event["tid"] == 0 && event["ph"] != "e")
            .map(|event| event["args"]["number"].as_u64().unwrap())
            .collect()
    };
    let (link, host) = (numbers("frame", 3), numbers("frame to host", 4));
    assert!(host.intersection(&link).count() > 10, "{link:?} {host:?}");
    let locks = events.iter().filter(|event| event["pid"] == 2 && event["ph"] == "X").count();
    assert!(locks > 100, "{locks} held locks");
    // Recording changes nothing.
    let plain = run::<Reference>(Parts { timeline: false, ..parts }).unwrap();
    assert_eq!(plain.end, outcome.end);
}

/// A capture that is longer than the measured time is received to its end, if that is asked for.
#[test]
fn a_capture_runs_to_its_end() {
    let config = config(&["run.measure_us=100", "load.send=false"]);
    let image = image(&config, Builtin::Rmw.elf()).unwrap();
    let frame = |n: u64| {
        let mut bytes = vec![0x02; 200];
        bytes[50..58].copy_from_slice(&n.to_le_bytes());
        (n * 20_000, bytes) // 50 frames, one each 20 us: a millisecond
    };
    let arrivals = Some((0..50).map(frame).collect());
    let parts = Parts { config, image, arrivals, ..Parts::default() };
    let cut = run::<Fast>(parts.clone()).unwrap();
    assert!(cut.end.devices.received.delivered < 50);
    let whole = run::<Fast>(Parts { to_the_end: true, ..parts }).unwrap();
    assert_eq!((whole.end.devices.received.delivered, whole.errors()), (50, 0));
    assert_eq!(whole.end.held.1, 0);
}

/// Firmware that never starts the receiver: the run ends with an error instead of waiting for the frames.
#[test]
fn a_capture_that_cannot_arrive_ends_the_run() {
    let config = config(&["run.measure_us=100", "load.send=false"]);
    let mut image = image(&config, Builtin::Rmw.elf()).unwrap();
    image.text = vec![0x1000_ffff, 0]; // an endless loop: beq $0, $0, -1
    image.entry = 0;
    let arrivals = Some(vec![(0, vec![0x02; 200])]);
    let parts = Parts { config, image, arrivals, to_the_end: true, ..Parts::default() };
    assert_eq!(run::<Fast>(parts.clone()).unwrap_err(), RunError::ReceiverOff);
    assert_eq!(run::<Reference>(parts.clone()).unwrap_err(), RunError::ReceiverOff);
    let mut parts =
        Parts { image: self::image(&parts.config, Builtin::Rmw.elf()).unwrap(), ..parts };
    parts.config.load.receive = false;
    let error = run::<Fast>(parts).unwrap_err().to_string();
    assert!(error.contains("load.receive = false"), "{error}");
}

/// Firmware `ideal` has no locks.
#[test]
fn the_ideal_firmware_runs_on_one_core_only() {
    let error = builtin::<Fast>(&config(&[]), Builtin::Ideal).unwrap_err().to_string();
    assert!(error.contains("chip.cores=1"), "{error}");
    let outcome = builtin::<Fast>(&config(&["chip.cores=1"]), Builtin::Ideal).unwrap();
    assert!(outcome.errors() == 0 && outcome.verdict().is_ok());
    let mut wrong = outcome;
    wrong.end.devices.sent.errors = 2;
    assert_eq!(wrong.verdict(), Err(RunError::Frames(2)));
}

/// The rate of the payload and its limit do not count the tag as payload.
#[test]
fn a_vlan_tag_is_overhead() {
    let share = |vlan: &str| {
        let config = config(&[vlan, "chip.cores=8", "run.warmup_us=1000", "run.measure_us=5000"]);
        let outcome = builtin::<Fast>(&config, Builtin::Rmw).unwrap();
        (outcome.udp_gbps() / outcome.udp_limit_gbps(), outcome.udp_limit_gbps())
    };
    let (plain, tagged) = (share("load.vlan=0"), share("load.vlan=5"));
    assert!((tagged.0 - plain.0).abs() < 0.001, "{plain:?} {tagged:?}");
    assert!((tagged.1 / plain.1 - 1538.0 / 1542.0).abs() < 1e-9, "{plain:?} {tagged:?}");
}
