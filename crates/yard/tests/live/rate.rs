//! How fast: 64-byte frames through one core, beside the kernel's own forwarding. Not a test:
//! `cargo test --release -p flowyard-yard --test live rate -- --ignored --nocapture`

use std::collections::BTreeSet;
use std::time::Duration;

use flowyard_frame::{FlowKey, proto};
use flowyard_ports::pcap::{Format, Writer};
use flowyard_testkit::Build;
use flowyard_wire::LinkType;

use crate::line::{Kind, Line, Plan};
use crate::net::{Net, alone};
use crate::skipped;
use crate::yard::Live;

/// A yard that sends the frames of `path` out of `va`, as fast as it can.
fn generator(kind: &str, path: &str, cpu: usize) -> String {
    let rules = if kind == "af_xdp" { "match = [\"all\"]" } else { "" };
    format!(
        "[yard]\npin = [{cpu}]\nidle = \"busy\"\nsettle = false
        [[port]]\nname = \"out\"\nkind = \"{kind}\"\ninterface = \"va\"\n{rules}
        [[port]]\nname = \"in\"\nkind = \"mem\"\nin = \"{path}\"\nrepeat = 4000000000
        [[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]
        [work]\nkind = \"forward\"\nports = {{ in = \"out\" }}\n"
    )
}

/// Packets that `vd` received.
fn received(net: &Net) -> u64 {
    net.sh("cat /proc/thread-self/net/dev | sed -n 's/^ *vd: *//p' | awk '{print $2}'")
        .trim()
        .parse()
        .unwrap()
}

/// This process's threads.
fn tasks() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/proc/self/task").unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The threads that `start` leaves behind, and what it made.
fn threads_of<T>(start: impl FnOnce() -> T) -> (BTreeSet<String>, T) {
    let before = tasks();
    let made = start();
    (tasks().difference(&before).cloned().collect(), made)
}

/// Time on a processor so far, in nanoseconds: other work of the machine does not count.
fn on_cpu(threads: &BTreeSet<String>) -> u64 {
    let one = |thread: &String| {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap();
        stat.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    threads.iter().map(one).sum()
}

/// What one run came to.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Million frames a second that arrived.
    rate: f64,
    /// Time on a processor for each that arrived, in nanoseconds: of the sender with all the kernel
    /// does in its name, and of the yard.
    sender_ns: f64,
    yard_ns: f64,
}

fn measure(line: &Line, gen_kind: &str, path: &str, yard: &BTreeSet<String>) -> Run {
    let (sender, source) = threads_of(|| Live::start(&line.a, &generator(gen_kind, path, 0)));
    std::thread::sleep(Duration::from_millis(300));
    let clock = crate::yard::clock();
    let look = || (received(&line.b), clock(), on_cpu(&sender), on_cpu(yard));
    let before = look();
    std::thread::sleep(Duration::from_millis(1500));
    let after = look();
    source.running.stop();
    drop(source.running.join());
    let frames = (after.0 - before.0) as f64;
    Run {
        rate: frames * 1e3 / (after.1 - before.1) as f64,
        sender_ns: (after.2 - before.2) as f64 / frames,
        yard_ns: (after.3 - before.3) as f64 / frames,
    }
}

#[test]
#[ignore = "a measurement"]
fn rate() {
    if skipped() {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("frames.pcap");
    let yard = "pin = [1]";
    let mut all: Vec<(&str, Run)> = Vec::new();
    for _ in 0..5 {
        for (name, kind, from) in [
            ("kernel forwarding, fed by af_packet", None, "af_packet"),
            ("kernel forwarding, fed by af_xdp", None, "af_xdp"),
            ("af_packet, fed by af_packet", Some(Kind::Packet), "af_packet"),
            ("af_packet, fed by af_xdp", Some(Kind::Packet), "af_xdp"),
            ("af_xdp, fed by af_packet", Some(Kind::Xdp), "af_packet"),
            ("af_xdp, fed by af_xdp", Some(Kind::Xdp), "af_xdp"),
        ] {
            let line = Line::new(Plan { yard, ..Plan::of(kind.unwrap_or(Kind::Packet)) });
            let mac = |net: &Net, name: &str| {
                net.sh(&format!("ip -o link show {name} | sed 's/.*ether \\([^ ]*\\).*/\\1/'"))
                    .trim()
                    .to_owned()
            };
            // Not the last host's: its stack drops it at once.
            let elsewhere = "02:00:00:00:00:0e".to_owned();
            if kind.is_none() {
                line.yard().sh(&format!(
                    "echo 1 > /proc/sys/net/ipv4/ip_forward; ip addr add 10.7.0.1/24 dev vb; \
                     ip addr add 10.9.0.254/24 dev vc; ip neigh add 10.9.0.2 lladdr {elsewhere} dev vc"
                ));
            }
            line.b.sh("ip addr flush dev vd; echo 1 > /proc/sys/net/ipv6/conf/vd/disable_ipv6");
            let to = if kind.is_none() { mac(line.yard(), "vb") } else { elsewhere };
            let to: Vec<u8> =
                to.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
            let mut writer = Writer::create(&path, Format::PcapNanos, LinkType::Ethernet).unwrap();
            for flow in 0..64 {
                let [a, b] = [[10, 7, 0, 2], [10, 9, 0, 2]].map(std::net::IpAddr::from);
                let key = FlowKey::five_tuple(proto::UDP, a, 1000 + flow, b, 53);
                let mut frame = Build::new(&key).payload(&[0; 18]).bytes(); // and the FCS: 64
                frame[..6].copy_from_slice(&to);
                writer.write(0, frame.len() as u32, &frame).unwrap();
            }
            writer.finish().unwrap();
            let (yard, live) = threads_of(|| kind.map(|_| line.start()));
            let run = measure(&line, from, path.to_str().unwrap(), &yard);
            let drops = live.map(|live| live.stop().total().drops);
            crate::tell(format_args!("  {name}: {run:.2?} {drops:?}"));
            all.push((name, run));
        }
    }
    for (name, _) in &all[..6] {
        let median = |of: fn(&Run) -> f64| {
            let runs = all.iter().filter(|run| run.0 == *name);
            let mut values: Vec<f64> = runs.map(|run| of(&run.1)).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        crate::tell(format_args!(
            "{name}: {:.2} million frames a second; a frame costs its sender {:.0} ns, the yard {:.0} ns",
            median(|run| run.rate),
            median(|run| run.sender_ns),
            median(|run| run.yard_ns)
        ));
    }
}
