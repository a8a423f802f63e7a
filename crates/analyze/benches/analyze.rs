//! Measures how fast the policies process a capture from a file in the page cache, on one core.
//!
//! Every round runs each case once, so that changes in the load of the machine affect all cases. The
//! medians over the rounds are printed, with the ratio of each case to the first one. The environment
//! variables `PACKETS`, `FLOWS` and `ROUNDS` change the size.

use std::io::Write;
use std::time::Instant;

use flowyard_adapter::Profile;
use flowyard_analyze::{Analyzer, Setup, Spec};
use flowyard_ports::pcap;
use flowyard_testkit::{Arrivals, Popularity, Profile as Mix, Sizes, Traffic};
use flowyard_wire::LinkType;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A capture of 60-byte frames; returns its path and number of packets.
fn capture(folder: &std::path::Path, flows: u64) -> (std::path::PathBuf, u64) {
    let packets = number("PACKETS", 2_000_000);
    let path = folder.join(format!("{flows}.pcap"));
    let mix = Mix {
        flows: flows as u32,
        popularity: Popularity::Uniform,
        sizes: Sizes::Fixed(60),
        arrivals: Arrivals::Constant,
        exchanges: 0,
        ..Mix::default()
    };
    let mut traffic = Traffic::new(mix, 1);
    let mut writer = pcap::Writer::create(&path, pcap::Format::PcapMicros, LinkType::Ethernet)
        .expect("the temporary folder is writable");
    let mut frame = Vec::new();
    for _ in 0..packets {
        let packet = traffic.next_into(&mut frame);
        writer.write(packet.time, frame.len() as u32, &frame).expect("the disk is not full");
    }
    writer.finish().expect("the disk is not full");
    (path, packets)
}

fn main() {
    let mut out = std::io::stdout().lock();
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let x520 = Profile::find("x520").expect("the adapter is modelled");
    for flows in [1_000, number("FLOWS", 100_000)] {
        let (path, packets) = capture(folder.path(), flows);
        let cases = [
            ("rss", vec![Spec::Rss]),
            ("rss, atr", vec![Spec::Rss, Spec::Atr]),
            ("yard", vec![Spec::Yard]),
            ("all policies", Spec::all_of(x520)),
        ];
        let mut seconds = [const { Vec::new() }; 4];
        for _ in 0..number("ROUNDS", 5) {
            for (case, seconds) in cases.iter().zip(&mut seconds) {
                let mut analyzer =
                    Analyzer::new(Setup::new(x520, case.1.clone())).expect("the setup is valid");
                #[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
                let start = Instant::now();
                let mut source = pcap::open(&path).expect("the file was just written");
                analyzer.read("bench", &mut source, |_| {}).expect("the file was just written");
                let analysis = std::hint::black_box(analyzer.finish());
                seconds.push(start.elapsed().as_secs_f64());
                assert_eq!(analysis.traffic.packets, packets);
            }
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let first = median(&mut seconds[0].clone());
        for ((name, _), times) in cases.iter().zip(&mut seconds) {
            let time = median(times);
            let rate = packets as f64 / time / 1e6;
            let ns = time * 1e9 / packets as f64;
            writeln!(
                out,
                "{flows:>7} flows  {name:<14} {rate:>6.2} Mpps  {ns:>6.1} ns per packet  {:.2} x rss",
                time / first
            )
            .expect("standard output is open");
        }
    }
}
