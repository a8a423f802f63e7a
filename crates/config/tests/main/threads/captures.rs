//! Captures through configurations of every size.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flowyard_config::BuildError;
use flowyard_config::Config;
use flowyard_flow::parse;
use flowyard_frame::Nanos;
use flowyard_ports::{Source, pcap};
use flowyard_testkit::harness::{self, Need};
use flowyard_wire::Headers;
use flowyard_yard::Parts;
use flowyard_yard::run::Outcome;

use crate::threads::{clock, root};

flowyard_testkit::tests! {
    every_flow_leaves_unchanged_with_any_number_of_cores,
    every_capture_goes_through_every_kind_of_work needs [Need::Shared("captures")],
}

/// By flow: its frames in order, with their times and lengths on the wire.
type Flows = BTreeMap<String, Vec<(Nanos, u32, Vec<u8>)>>;

/// The flows of a capture. All fragments between two hosts are one flow.
fn flows(path: &Path) -> Flows {
    let mut flows = Flows::new();
    let mut reader = pcap::open(path).unwrap();
    loop {
        let burst = reader.read().unwrap();
        if burst.is_empty() {
            return flows;
        }
        for (record, data) in burst.iter() {
            let mut key = parse::key(&Headers::parse(record.link, data), data, 0).flow();
            if key.frag != 0 {
                (key.sport, key.dport) = (0, 0);
            }
            let frame = (record.time, record.wire_len, data.to_vec());
            flows.entry(key.to_string()).or_default().push(frame);
        }
    }
}

const FORWARD: &str = "kind = \"forward\"\nports = { west = \"east\" }";
const BURN: &str = "kind = \"burn\"\ncost_ns = 200\nports = { west = \"east\" }";
/// With a third port, so that flooding makes copies.
const BRIDGE: &str = r#"
    kind = "bridge"
    cost_ns = 100
    [[port]]
    name = "south"
    kind = "mem"
"#;
const ROUTE: &str = r#"
    kind = "route"
    [[work.route]]
    prefix = "0.0.0.0/0"
    port = "east"
    next_hop = "02:00:00:00:01:01"
    [[work.route]]
    prefix = "::/0"
    port = "east"
    next_hop = "02:00:00:00:01:01"
    [[work.route]]
    prefix = "10.0.0.0/8"
    port = "west"
    next_hop = "02:00:00:00:01:02"
"#;

/// Runs `input` through a configuration with `cores` cores with queues of `order`.
fn run(
    input: &Path,
    output: &Path,
    cores: u16,
    order: &str,
    work: &str,
) -> Result<Outcome, BuildError> {
    let all: Vec<u16> = (0..cores).collect();
    let some: Vec<u16> = (cores / 2..cores).collect();
    let text = format!(
        r#"
        [yard]
        cores = {cores}
        # A thousand runs would spend most of their time on the buffers that full queues can hold.
        frames = {frames}
        hold_frames = 256
        [[port]]
        name = "west"
        kind = "pcap"
        in = {input:?}
        [[port]]
        name = "east"
        kind = "pcap"
        core = {last}
        out = {output:?}
        [[queue]]
        name = "a"
        order = "{order}"
        consumers = {all:?}
        window_frames = 256
        [[queue]]
        name = "b"
        order = "{order}"
        consumers = {some:?}
        window_frames = 64
        [work]
        {work}
        "#,
        frames = 1152 + 128 * cores,
        last = cores - 1,
    );
    let config = Config::parse("test.toml", &crate::engine(&text))?;
    let parts = Parts { clock: Some(clock()), ..Parts::default() };
    let outcome = config.build(parts)?.start(clock()).unwrap().join();
    assert!(outcome.is_balanced() && outcome.held == 0, "{input:?}: {outcome:#?}");
    assert!(outcome.cores.iter().all(|core| core.died.is_none()), "{input:?}: {outcome:#?}");
    assert!(outcome.queues.iter().all(|queue| queue.enqueued == queue.completed), "{outcome:#?}");
    Ok(outcome)
}

pub(crate) fn every_flow_leaves_unchanged_with_any_number_of_cores() {
    let input = root().join("captures/yard.pcap");
    let came = flows(&input);
    let dir = tempfile::tempdir().unwrap();
    for order in ["atomic", "ordered"] {
        for cores in [1, 2, 4, 8] {
            let output = dir.path().join(format!("{order}-{cores}.pcap"));
            let outcome = run(&input, &output, cores, order, FORWARD).unwrap();
            let total = outcome.total();
            assert_eq!((total.rx_frames, total.tx_frames), (28_982, 28_982), "{outcome:#?}");
            let left = flows(&output);
            // Not by assert_eq!: on failure it would print megabytes.
            let wrong: Vec<_> =
                came.iter().filter(|(key, frames)| left.get(*key) != Some(frames)).collect();
            assert!(
                wrong.is_empty(),
                "{order}, {cores} cores: {} flows, as {}",
                wrong.len(),
                wrong[0].0
            );
            assert_eq!(left.len(), came.len());
        }
    }
}

/// The number of frames in a capture.
fn count(path: &Path) -> u64 {
    let mut reader = pcap::open(path).unwrap();
    std::iter::from_fn(|| reader.read().ok().map(|burst| burst.len() as u64).filter(|n| *n > 0))
        .sum()
}

/// Every capture in the folders of `../shared/captures`.
fn shared() -> Vec<PathBuf> {
    let mut all = Vec::new();
    let kinds = std::fs::read_dir(harness::shared("captures")).unwrap();
    for kind in kinds.map(|kind| kind.unwrap().path()).filter(|path| path.is_dir()) {
        all.extend(std::fs::read_dir(kind).unwrap().map(|file| file.unwrap().path()));
    }
    all.sort();
    all
}

fn every_capture_goes_through_every_kind_of_work() {
    let captures = shared();
    let dir = tempfile::tempdir().unwrap();
    let (mut frames, mut unread, mut dropped, mut routed, mut copies) = (0, 0, 0, 0, 0);
    for (at, input) in captures.iter().enumerate() {
        for work in [FORWARD, BURN, BRIDGE, ROUTE] {
            let order = ["atomic", "ordered"][at % 2];
            match run(input, &dir.path().join("out.pcap"), 2, order, work) {
                Ok(outcome) => {
                    assert_eq!(outcome.total().rx_frames, count(input), "{input:?}");
                    frames += outcome.total().rx_frames;
                    dropped += outcome.total().drops.total();
                    copies += outcome.total().copies;
                    routed += if work == ROUTE { outcome.total().tx_frames } else { 0 };
                }
                Err(BuildError::Config(_)) => unread += 1, // no capture, or of a foreign link type
                Err(error) => panic!("{input:?}: {error}"),
            }
        }
    }
    flowyard_testkit::note!(
        "{} captures: {frames} frames, {dropped} dropped, {unread} not read",
        captures.len()
    );
    flowyard_testkit::note!("{routed} routed, {copies} copies");
    assert!(routed > 20_000 && copies > 20_000);
    assert!(frames > 200_000 && unread < captures.len());
}
