//! How fast: 64-byte frames through one core, beside the kernel's own forwarding. Not a test:
//! `cargo test --release -p flowyard-yard --test live rate -- --ignored --nocapture`

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

/// Million frames a second that arrive, and the share of its time that the yard is busy.
fn measure(line: &Line, gen_kind: &str, path: &str, live: Option<&Live>) -> (f64, f64) {
    let source = Live::start(&line.a, &generator(gen_kind, path, 0));
    std::thread::sleep(Duration::from_millis(500));
    let clock = crate::yard::clock();
    let busy = || live.map_or(0, |live| live.running.counters()[0].busy_ns);
    let (before, began, was) = (received(&line.b), clock(), busy());
    std::thread::sleep(Duration::from_millis(2000));
    let (frames, elapsed, busy) = (received(&line.b) - before, clock() - began, busy() - was);
    source.running.stop();
    drop(source.running.join());
    (frames as f64 * 1e3 / elapsed as f64, busy as f64 / elapsed as f64)
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
    let yard = "pin = [1]\nidle = \"busy\"";
    let mut all: Vec<(String, f64, f64)> = Vec::new();
    for _ in 0..3 {
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
            };
            if kind.is_none() {
                let far = mac(&line.b, "vd");
                line.yard().sh(&format!(
                    "echo 1 > /proc/sys/net/ipv4/ip_forward; ip addr add 10.7.0.1/24 dev vb; \
                     ip addr add 10.9.0.254/24 dev vc; ip neigh add 10.9.0.2 lladdr {far} dev vc"
                ));
            }
            line.b.sh("ip addr flush dev vd; echo 1 > /proc/sys/net/ipv6/conf/vd/disable_ipv6");
            let to: Vec<u8> = mac(line.yard(), "vb")
                .trim()
                .split(':')
                .map(|byte| u8::from_str_radix(byte, 16).unwrap())
                .collect();
            let mut writer = Writer::create(&path, Format::PcapNanos, LinkType::Ethernet).unwrap();
            for flow in 0..64 {
                let [a, b] = [[10, 7, 0, 2], [10, 9, 0, 2]].map(std::net::IpAddr::from);
                let key = FlowKey::five_tuple(proto::UDP, a, 1000 + flow, b, 53);
                let mut frame = Build::new(&key).payload(&[0; 18]).bytes(); // and the FCS: 64
                frame[..6].copy_from_slice(&to);
                writer.write(0, frame.len() as u32, &frame).unwrap();
            }
            writer.finish().unwrap();
            let live = kind.map(|_| line.start());
            let (rate, busy) = measure(&line, from, path.to_str().unwrap(), live.as_ref());
            if let Some(live) = live {
                let outcome = live.stop();
                crate::tell(format_args!(
                    "  {name}: {rate:.2}, busy {busy:.2}, {:?}",
                    outcome.total().drops
                ));
            }
            all.push((name.into(), rate, busy));
        }
    }
    for (name, ..) in &all[..6] {
        let mut rates: Vec<_> =
            all.iter().filter(|run| run.0 == *name).map(|r| (r.1, r.2)).collect();
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        crate::tell(format_args!(
            "{name}: {:.2} million frames a second, busy {:.2}",
            rates[1].0, rates[1].1
        ));
    }
}
