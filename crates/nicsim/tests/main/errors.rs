//! Damaged frames, refused buffers, latency histograms, timelines, and captures that run to their end.

use flowyard_nicsim::config::Config;
use flowyard_nicsim::engine::Parts;
use flowyard_nicsim::firmware::Builtin;
use flowyard_nicsim::run::{builtin, image, run};
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
