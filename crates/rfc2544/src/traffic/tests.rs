use std::collections::HashMap;

use flowyard_flow::toeplitz::{Fields, MICROSOFT_KEY, Toeplitz};
use flowyard_frame::FlowKey;
use proptest::prelude::*;

use flowyard_testkit::Rng as Dice;

use flowyard_frame::Nanos;

use super::*;
use crate::line::{Line, Load};
use crate::trial::{SECOND, Shape, Trial};

#[test]
fn genomes_are_read_and_written() {
    let sizes = |text: &str| text.parse::<Genome>().map(|genome| genome.sizes().to_vec());
    assert_eq!(sizes("aaafg").unwrap(), [64, 64, 64, 1280, 1518]); // RFC 6985 section 3
    assert_eq!(sizes("3afg"), sizes("aaafg"));
    assert_eq!(sizes("64x2,594,1518").unwrap(), [64, 64, 594, 1518]);
    assert_eq!(sizes("1518").unwrap(), [1518]);
    let imix: Genome = "imix".parse().unwrap();
    let mean = imix.sizes().iter().map(|&s| f64::from(s)).sum::<f64>() / 12.0;
    assert!((mean - 361.8).abs() < 0.1, "{mean}");
    for text in [
        "",
        "x",
        "63",
        "64x",
        "64x99999",
        "3",
        "aaz",
        "70000",
        "64,,64",
        "é",
        "9999999999999999999999a",
    ] {
        assert!(sizes(text).unwrap_err().to_string().contains("imix"), "{text}");
    }
    assert_eq!(imix.to_string(), "64x7+594x4+1518");
}

proptest! {
    #[test]
    fn what_a_genome_writes_it_reads(sizes in prop::collection::vec(64_u16..=16_000, 1..99)) {
        let genome = Genome::of(sizes).unwrap();
        prop_assert_eq!(genome.to_string().parse::<Genome>().unwrap(), genome);
    }

    #[test]
    fn no_text_panics(text in ".{0,40}") {
        let _ = text.parse::<Genome>();
    }
}

#[test]
fn frames_are_right_by_another_parser() {
    for addresses in
        [Addresses::Patterned, Addresses::Networks, Addresses::Random, Addresses::Colliding]
    {
        for size in ETHERNET_SIZES {
            let frame = addresses.of(Family::Ipv4).frame(1, 9, size.into());
            assert_eq!(frame.len() + 4, usize::from(size), "{addresses:?}");
            let parsed = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(etherparse::NetSlice::Ipv4(ip)) = parsed.net else { panic!("not IPv4") };
            let header = ip.header();
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            assert_eq!((usize::from(header.total_len()), header.ttl()), (frame.len() - 14, 10));
            for address in [header.source(), header.destination()] {
                assert!(address[0] == 198 && address[1] & 0xfe == 18, "{address:?}");
            }
            let Some(etherparse::TransportSlice::Udp(udp)) = parsed.transport else {
                panic!("not UDP")
            };
            assert_eq!(usize::from(udp.length()), frame.len() - 34);
        }
    }
}

#[test]
fn frames_of_ipv6_are_right_by_another_parser() {
    for addresses in
        [Addresses::Patterned, Addresses::Networks, Addresses::Random, Addresses::Colliding]
    {
        for size in [84, 128, 1518] {
            let frame = addresses.of(Family::Ipv6).frame(1, 9, size);
            assert_eq!(frame.len() + 4, size, "{addresses:?}");
            let parsed = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(etherparse::NetSlice::Ipv6(ip)) = parsed.net else { panic!("not IPv6") };
            let header = ip.header();
            assert_eq!(header.hop_limit(), 10);
            for address in [header.source(), header.destination()] {
                assert_eq!(address[..6], [0x20, 1, 0, 2, 0, 0], "{address:?}");
            }
            let Some(etherparse::TransportSlice::Udp(udp)) = parsed.transport else {
                panic!("not UDP")
            };
            let sum = udp.to_header().calc_checksum_ipv6(&header.to_header(), udp.payload());
            assert_eq!((usize::from(udp.length()), udp.checksum()), (size - 58, sum.unwrap()));
        }
    }
    let flows = |flow| Addresses::Random.of(Family::Ipv6).key(0, 1, flow).flow();
    assert_eq!((0..1000).map(flows).collect::<std::collections::HashSet<_>>().len(), 1000);
    let plan = Spec { family: Family::Ipv6, ..Spec::fixed(64) }.plan(0).unwrap();
    assert!(plan.steps().iter().all(|step| step.size == 84));
}

#[test]
fn the_standards_frame() {
    // RFC 2544 appendix C.2.6.4, at 64 bytes: UDP echo, TTL 10, payload of ascending octets.
    let frame = Addresses::Patterned.of(Family::Ipv4).between(0, 1, 0, 64);
    assert_eq!(frame[34..38], [0xc0, 0x20, 0, 7]);
    assert_eq!(frame[42..60], std::array::from_fn::<u8, 18, _>(|at| at as u8));
}

#[test]
fn drawn_addresses_are_in_the_standards_ranges_and_differ() {
    let keys: Vec<_> =
        (0..1000).map(|flow| Addresses::Random.of(Family::Ipv4).key(0, 1, flow)).collect();
    assert!(keys.iter().all(|key| key.sport >= 1024 && (1..=49_151).contains(&key.dport)));
    assert!(keys.iter().all(|key| key.eth_src[0] & 3 == 0 && key.eth_src[1..3] == [1, 1]));
    let distinct: std::collections::HashSet<_> = keys.iter().map(FlowKey::flow).collect();
    assert_eq!(distinct.len(), 1000);
    let networks =
        (0..2000).map(|flow| Addresses::Networks.of(Family::Ipv4).key(0, 1, flow).dst[2]);
    assert!(networks.collect::<std::collections::HashSet<_>>().len() > 250);
}

#[test]
fn hash_steering_sees_what_was_made_for_it() {
    let hash = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    for (family, fields) in [(Family::Ipv4, Fields::Ipv4Ports), (Family::Ipv6, Fields::Ipv6Ports)] {
        let queues = |addresses: Addresses| {
            let mut load = [0_u32; 8];
            for flow in 0..800 {
                let key = addresses.of(family).key(0, 1, flow);
                load[(hash.hash_key(&key, fields) & 0x7f) as usize % 8] += 1;
            }
            load
        };
        let random = queues(Addresses::Random);
        let chi: f64 = random.iter().map(|&n| (f64::from(n) - 100.0).powi(2) / 100.0).sum();
        assert!(chi < 24.3, "chi-square with 7 degrees, 0.1 %: {random:?}");
        assert_eq!(queues(Addresses::Colliding), [800, 0, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn models_have_the_published_statistics() {
    // Mean and median in bytes, as published.
    let table = [
        ("web-search", 1.71e6, 73e3),
        ("data-mining", 12.7e6, 1.1e3),
        ("fb-key-value", 342.0, 75.0),
        ("fb-hadoop", 120e3, 700.0),
        ("ali-storage", 41e3, 6.3e3),
        ("agh-2015", 68_411.0, f64::NAN),
        ("google-rpc", 2928.0, 268.0),
        ("homa-w1", 189.0, 27.0),
        ("homa-w2", 442.0, 269.0),
        ("homa-w3", 2928.0, 268.0),
        ("homa-w4", 127.8e3, 662.0),
        ("homa-w5", 2.56e6, 72e3),
    ];
    assert_eq!(table.len(), MODELS.len());
    for (name, mean, median) in table {
        let model = Model::find(name).unwrap();
        let off = (model.mean() / mean - 1.0).abs();
        // The mixture is fitted to the tail and does not match the mean exactly.
        assert!(off < if name == "agh-2015" { 0.15 } else { 0.01 }, "{name}: {}", model.mean());
        let mut rng = Dice::new(7);
        let mut sizes: Vec<u64> = (0..20_001).map(|_| model.draw(&mut rng)).collect();
        sizes.sort_unstable();
        if !median.is_nan() {
            let got = sizes[10_000] as f64;
            assert!((got / median - 1.0).abs() < 0.1, "{name}: median {got}");
        }
    }
    assert!(Model::find("nothing").is_none());
}

#[test]
fn etc_has_the_published_means() {
    let n = 200_000;
    let requests: Vec<_> = Etc::new(1).take(n).collect();
    let mean = |of: fn(&etc::Request) -> f64| requests.iter().map(of).sum::<f64>() / n as f64;
    let (key, value) = (mean(|r| r.key.into()), mean(|r| f64::from(r.value)));
    let (gap, sets) = (mean(|r| r.after_ns as f64), mean(|r| f64::from(u8::from(r.is_set))));
    assert!((key - 36.2).abs() < 0.5, "{key}");
    assert!((value - 194.0).abs() < 8.0, "{value}");
    assert!((gap - 18_970.0).abs() < 250.0, "{gap}");
    assert!((sets - 1.0 / 31.0).abs() < 0.002, "{sets}");
}

/// Requests have the paper's intervals, scaled to the load: as many as the trial specifies, and
/// none after its end.
#[test]
fn etc_keeps_its_distances_at_any_load() {
    let plan = Spec { mix: Mix::Etc, ..Spec::fixed(64) }.plan(0).unwrap();
    for (pps, duration) in
        [(52_700.0, SECOND), (1e6, 3 * SECOND), (10.0, 1), (3e5, 16_384 * 10_000)]
    {
        let trial = Trial::new(Load::from_pps(pps), duration);
        let rows = plan.rows(&trial);
        assert!(rows == 0 || plan.due_ns(&trial, rows - 1) < duration, "{pps}");
        assert!(plan.due_ns(&trial, rows) >= duration, "{pps}");
        assert!(rows.abs_diff(trial.frames()) < 1000, "{rows} of {}", trial.frames());
    }
    let trial = Trial::new(Load::from_pps(52_700.0), SECOND);
    let round = |n: u64| plan.due_ns(&trial, n * plan.period());
    assert_eq!(round(3), trial.start_ns(3 * plan.period()));
    let gaps: Vec<f64> = (0..plan.period())
        .map(|row| (plan.due_ns(&trial, row + 1) - plan.due_ns(&trial, row)) as f64)
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    // Generalised Pareto distribution with k = 0.154971: 1 / (1 - 2 k) = 1.449.
    assert!((square / mean / mean - 1.449).abs() < 0.1, "{}", square / mean / mean);
    // Bursts have their own intervals, which do not change.
    let bursts = trial.shape(Shape::Bursts { frames: 16, line: Line::GBIT_10.max_load(64) });
    assert_eq!(plan.due_ns(&bursts, 17), bursts.start_ns(17));
    assert_eq!(plan.rows(&bursts), bursts.frames());
}

#[test]
fn zipf_has_its_shares() {
    let (zipf, mut rng) = (Zipf::new(100, 1.0), Dice::new(3));
    let mut seen: HashMap<u16, f64> = HashMap::new();
    (0..100_000).for_each(|_| *seen.entry(zipf.draw(&mut rng)).or_default() += 1.0);
    let harmonic: f64 = (1..=100).map(|i| 1.0 / f64::from(i)).sum();
    for rank in [0_u16, 1, 9] {
        let want = 100_000.0 / harmonic / f64::from(rank + 1);
        assert!((seen[&rank] / want - 1.0).abs() < 0.08, "{rank}");
    }
}

#[test]
fn plans_repeat_and_count() {
    let spec =
        Spec { sizes: "imix".parse().unwrap(), flows: 5, broadcast_every: 7, ..Spec::fixed(64) };
    let plan = spec.plan(0).unwrap();
    assert_eq!(plan.period(), 12 * 5 * 7);
    assert_eq!(plan.step(3), plan.step(3 + plan.period()));
    let mut tags = 0;
    for row in 0..2 * plan.period() {
        assert_eq!(plan.tags_before(row), tags);
        if !plan.step(row).broadcast {
            assert_eq!(plan.row_of(tags), row);
            tags += 1;
        }
    }
    assert_eq!(spec.plan(0), spec.plan(0));
    let model = Spec { mix: Mix::Model("web-search".into()), flows: 64, ..Spec::fixed(1518) };
    assert_ne!(model.plan(0), Spec { seed: 2, ..model.clone() }.plan(0));
    let unknown = Spec { mix: Mix::Model("x".into()), ..model };
    assert!(unknown.plan(0).unwrap_err().to_string().contains("agh-2015"));
}

fn captured(time: Nanos, bytes: &[u8]) -> Captured<'_> {
    Captured { time, wire_len: bytes.len(), bytes }
}

#[test]
fn a_replay_keeps_times_sizes_and_flows() {
    let hosts = Addresses::Patterned.of(Family::Ipv4);
    let frames: Vec<_> = [0_u16, 1, 0].iter().map(|&flow| hosts.frame(0, flow, 100)).collect();
    let times = [1000, 1500, 5000];
    let plan = rewrite(times.iter().zip(&frames).map(|(&time, frame)| captured(time, frame)));
    let steps: Vec<_> = plan.steps().iter().map(|step| (step.flow, step.size)).collect();
    assert_eq!(steps, [(0, 100), (1, 100), (0, 100)]);
    let at: Vec<_> = (0..4).map(|row| plan.replay_ns(row, 100).unwrap()).collect();
    assert_eq!(at, [0, 500, 4000, 6000]);
    assert_eq!(plan.replay_ns(2, 200), Some(2000), "twice as fast");
}

#[test]
fn requests_of_memcached_are_short_and_sometimes_long() {
    let spec = Spec { mix: Mix::Etc, flows: 50, ..Spec::fixed(64) };
    let plan = spec.plan(0).unwrap();
    let sizes = plan.steps().iter().map(|step| f64::from(step.size));
    let mean = sizes.clone().sum::<f64>() / plan.period() as f64;
    // 60 bytes plus a key of 36.2 bytes on average; one request in 31 adds a value of 194 bytes.
    assert!((100.0..110.0).contains(&mean), "{mean}");
    assert!(sizes.clone().any(|size| size > 1000.0) && sizes.clone().all(|size| size >= 64.0));
    let first = plan.steps().iter().filter(|step| step.flow == 0).count() as f64;
    let share = first / plan.period() as f64;
    assert!((0.18..0.27).contains(&share), "the most popular client sends {share}");
    assert_eq!(spec.plan(0), spec.plan(0));
}

#[test]
fn a_capture_is_its_numbers_in_a_document_and_its_frames_in_a_plan() {
    let frame = Addresses::Patterned.of(Family::Ipv4).frame(0, 0, 100);
    let plan = rewrite([captured(10, &frame), captured(1010, &frame)]);
    let capture = Capture::new("a.pcap", plan.clone());
    assert_eq!((capture.frames, capture.flows(), capture.length_ns), (2, 1, 2000));
    let spec = Spec { mix: Mix::Replay(capture.clone()), ..Spec::fixed(64) };
    assert_eq!(spec.plan(0).unwrap(), plan);
    // A replay has the mean rate of the capture, times its speed.
    assert_eq!([100, 200].map(|speed| capture.mean_load(speed).pps()), [1e6, 2e6]);
    let text = serde_json::to_string(&capture).unwrap();
    assert_eq!(text, r#"{"name":"a.pcap","frames":2,"length_ns":2000}"#);
}
