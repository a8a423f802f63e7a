//! One tunnel on one core and on two: million packets a second of 1,450 bytes, sealed by a whole yard with ports in memory.
//!
//! ```text
//! cargo bench -p flowyard-config --bench ipsec [-- SECONDS [BYTES]]
//! ```
//!
//! Core 0 receives. With two cores the frames pass through an ordered queue, and both cores seal. The two are measured in
//! turn, nine times each; the result is the median of the ratios of a round. Sequence numbers of what leaves are checked in
//! `tests/main/sim/ipsec.rs`, and against another implementation by the live tests of the crate.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowyard_config::Config;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Pace, Repeat, SourceRx};
use flowyard_testkit::Build;
use flowyard_wire::LinkType;
use flowyard_yard::{Clock, Parts};

const STATE: &str = "src 192.0.2.1 dst 192.0.2.2\n proto esp spi 0x1000 reqid 1 mode tunnel\n replay-window 64 flag esn\n \
    aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128\n";
const POLICY: &str = "src 10.0.0.0/8 dst 10.0.0.0/8\n dir out priority 1\n tmpl src 192.0.2.1 dst 192.0.2.2\n proto esp \
    reqid 1 mode tunnel\n";

fn text(folder: &Path, cores: usize) -> String {
    let (order, consumers) = if cores == 1 { ("direct", "[0]") } else { ("ordered", "[0, 1]") };
    format!(
        "[yard]\ncores = {cores}\nidle = \"busy\"\n[[port]]\nname = \"p\"\nkind = \"mem\"\nin = \"given\"\n[[queue]]\nname = \
         \"q\"\norder = \"{order}\"\nconsumers = {consumers}\nwindow_frames = 1024\n[work]\nkind = \
         \"ipsec\"\n[[work.route]]\nprefix = \"0.0.0.0/0\"\nport = \"p\"\nnext_hop = \"02:00:00:00:00:09\"\n[ipsec]\nstate = \
         {:?}\npolicy = {:?}\nmtu = 9000\n",
        folder.join("state"),
        folder.join("policy"),
    )
}

/// Packets a second.
fn rate(folder: &Path, cores: usize, bytes: usize, time: Duration) -> f64 {
    let mut frames = Frames::new();
    for flow in 0..256_u32 {
        let [a, b] = [[10, 0, 0, flow as u8], [10, 9, 1, 1]].map(std::net::IpAddr::from);
        let key = FlowKey::five_tuple(proto::UDP, a, 7, b, 53);
        frames.push(
            flow.into(),
            LinkType::Ethernet,
            &Build::new(&key).payload(&vec![0x5a; bytes - 28]).bytes(),
        );
    }
    let mut parts = Parts::default();
    let source = Repeat::new(frames, u32::MAX);
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(source), Pace::Fast)));
    let start = Instant::now();
    let clock: Clock = Arc::new(move || start.elapsed().as_nanos() as u64);
    let yard = Config::parse("y", &text(folder, cores)).unwrap().build(parts).unwrap();
    let running = yard.start(clock).unwrap();
    let sent = || running.handle().counters().iter().map(|core| core.tx_frames).sum::<u64>();
    std::thread::sleep(time / 4);
    let (before, from) = (sent(), Instant::now());
    std::thread::sleep(time);
    let (after, took) = (sent(), from.elapsed());
    running.stop();
    let outcome = running.join();
    assert_eq!((outcome.held, outcome.total().drops.total()), (0, 0), "nothing is lost");
    (after - before) as f64 / took.as_secs_f64()
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<f64>().ok());
    let time = Duration::from_secs_f64(numbers.next().unwrap_or(1.0));
    let bytes = numbers.next().unwrap_or(1450.0) as usize;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::write(&state, STATE).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(folder.path().join("policy"), POLICY).unwrap();
    let mut ratios = Vec::new();
    for round in 1..=9 {
        let mut cores = [1, 2];
        cores.rotate_left(round % 2);
        let mut rates = cores.map(|cores| (cores, rate(folder.path(), cores, bytes, time)));
        rates.sort_by_key(|(cores, _)| *cores);
        let [(_, one), (_, two)] = rates;
        println!(
            "round {round}: one core {:.3} million/s ({:.0} ns a packet), two cores {:.3} million/s, ratio {:.2}",
            one / 1e6,
            1e9 / one,
            two / 1e6,
            two / one
        );
        ratios.push(two / one);
    }
    ratios.sort_by(f64::total_cmp);
    println!("{bytes} bytes: median ratio {:.2}", ratios[ratios.len() / 2]);
}
