//! Setups, sources and test data that the tests of this crate share.
#![allow(unreachable_pub, reason = "shared by the test modules")]

use std::path::{Path, PathBuf};

use flowyard_adapter::{Profile, rules};
use flowyard_analyze::{Analysis, Analyzer, PolicySummary, RuleFile, Setup, Spec};
use flowyard_ports::mem::Frames;
use flowyard_ports::pcap;
use flowyard_testkit::{Profile as Mix, Traffic};
use flowyard_wire::LinkType;

/// The capture of the repository.
pub fn yard_pcap() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/yard.pcap")
}

/// The default setup of `flowyard analyze`, but with small tables for RFS.
pub fn setup(adapter: &str, policies: Vec<Spec>) -> Setup {
    let adapter = Profile::find(adapter).expect("it is in the list");
    // The tables of RFS are small so that flows share slots.
    Setup { sock_flow_entries: 4096, flow_cnt: 256, ..Setup::new(adapter, policies) }
}

/// Rules that every adapter with Flow Director accepts; one of them drops.
pub const RULES: &str = "\
flow-type tcp4 dst-port 80 action 3
flow-type tcp4 dst-port 5201 action -1
flow-type tcp4 dst-port 11211 action 5
";

pub fn fdir(text: &str) -> Spec {
    Spec::Fdir(RuleFile {
        name: "rules.txt".into(),
        rules: rules::parse("rules.txt", text).expect("good rules"),
    })
}

/// Every policy that the adapter supports, including [`RULES`].
pub fn all_policies(adapter: &Profile) -> Vec<Spec> {
    let mut all = Spec::all_of(adapter);
    if adapter.fdir.is_modelled() {
        all.push(fdir(RULES));
    }
    all
}

/// Reads a whole capture file.
pub fn load(path: &Path) -> Result<Frames, flowyard_ports::Error> {
    Frames::read_all(&mut pcap::open(path)?)
}

pub fn analyze(setup: Setup, frames: &mut Frames) -> Analysis {
    frames.rewind();
    let mut analyzer = Analyzer::new(setup).expect("a good setup");
    analyzer.read("test", frames, |_| {}).expect("memory can be read");
    analyzer.finish()
}

/// The first `packets` packets of a mix.
pub fn traffic(mix: Mix, seed: u64, packets: usize) -> Frames {
    let mut frames = Frames::new();
    for (packet, bytes) in Traffic::new(mix, seed).take(packets) {
        frames.push(packet.time, LinkType::Ethernet, &bytes);
    }
    frames
}

pub fn policy<'a>(analysis: &'a Analysis, name: &str) -> &'a PolicySummary {
    let found = analysis.policies.iter().find(|policy| policy.name == name);
    found.unwrap_or_else(|| panic!("no policy {name}"))
}

/// Checks that all frames are counted: by queue, by core, by stage and by direction; and that every
/// ratio is in its range.
pub fn assert_conserved(analysis: &Analysis, what: &str) {
    let traffic = &analysis.traffic;
    assert_eq!(traffic.received + traffic.transmitted, traffic.packets, "{what}");
    let read: u64 = analysis.captures.iter().map(|capture| capture.packets).sum();
    assert_eq!(read, traffic.packets, "{what}");
    for policy in &analysis.policies {
        let what = format!("{what}, {}", policy.name);
        let stages = &policy.stages;
        let dropped = stages.get("dropped").copied().unwrap_or(0);
        let sum = |loads: &[flowyard_analyze::LoadSummary]| {
            loads.iter().fold((0, 0), |(p, b), load| (p + load.packets, b + load.bytes))
        };
        let (queues, cores) = (sum(&policy.queues), sum(&policy.cores));
        assert_eq!(queues.0 + dropped, traffic.received, "{what}: queues");
        assert_eq!(queues, cores, "{what}: cores");
        assert_eq!(stages.values().sum::<u64>(), traffic.received, "{what}: stages");
        assert!(policy.reorder.packets <= traffic.received, "{what}: overtakes");
        assert!(policy.locality.is_none_or(|share| (0.0..=1.0).contains(&share)), "{what}");
        for (ratio, most) in [
            (policy.imbalance.queues, policy.queues.len()),
            (policy.imbalance.cores, policy.cores.len()),
            (policy.imbalance.window_p99, policy.cores.len()),
        ] {
            // The histogram of the windows has three digits.
            let most = most as f64 * 1.002;
            assert!(ratio.is_none_or(|ratio| (1.0..=most).contains(&ratio)), "{what}: {ratio:?}");
        }
        if let Some(filters) = &policy.filters {
            let stats = &filters.stats;
            assert!(stats.occupancy <= stats.capacity, "{what}: {filters:?}");
            let times: Vec<f64> = filters.occupancy_over_time.iter().map(|at| at.0).collect();
            assert!(times.is_sorted() && times.iter().all(|at| *at >= 0.0), "{what}: {times:?}");
            for (_, filled) in &filters.occupancy_over_time {
                assert!(*filled <= stats.capacity, "{what}");
            }
            assert!(stats.hits + stats.misses <= traffic.received, "{what}: {filters:?}");
        }
        if !policy.rules.is_empty() {
            let hits: u64 = policy.rules.iter().map(|rule| rule.packets).sum();
            let by_rule = stages.get("rule").copied().unwrap_or(0);
            assert_eq!(hits, by_rule + dropped, "{what}: rules");
        }
    }
}
