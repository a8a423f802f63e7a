//! Captures through every mode of the balancer: a frame whose checksums were correct leaves with
//! correct checksums, by our own check and by that of Wireshark. Each frame leaves once or is
//! dropped for a reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use flowyard_config::Config;
use flowyard_flow::parse;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Collect, SourceRx};
use flowyard_ports::{Source, pcap};
use flowyard_testkit::harness::{self, Need};
use flowyard_wire::{Headers, LinkType, Verdict};
use flowyard_yard::Parts;
use flowyard_yard::sim::{Faults, Sim};

flowyard_testkit::tests! {
    correct_checksums_stay_correct needs [Need::Shared("captures")],
    wireshark_finds_that_correct_checksums_stay_correct needs [Need::Shared("captures"), Need::Program("tshark")],
}

/// Modes of a service, each without PROXY protocol, and with it where the mode supports it.
const MODES: [(&str, bool); 6] = [
    ("dsr", false),
    ("dnat", false),
    ("fullnat", false),
    ("fullnat", true),
    ("ipip", false),
    ("gue", false),
];

/// The number of frames that are read of each capture.
const FRAMES: usize = 500;
/// The same for the test in which tshark reads every file.
const FEW: usize = 150;
/// The first bytes of a header of PROXY protocol.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The first IP frames of every capture.
fn all_frames(most: usize) -> Vec<Vec<u8>> {
    let mut folders = vec![harness::shared("captures")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => files.push(path),
            }
        }
    }
    files.sort();
    let mut all: Vec<Vec<u8>> = files.iter().flat_map(|path| frames(path, most)).collect();
    all.retain(|data| data.len() <= 9000);
    all
}

/// The first complete IP frames of an Ethernet capture.
fn frames(path: &Path, most: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let Ok(mut reader) = pcap::open(path) else { return all };
    while let Ok(burst) = reader.read() {
        if burst.is_empty() || all.len() >= most {
            break;
        }
        for (record, data) in burst.iter() {
            let whole = record.link == LinkType::Ethernet && record.wire_len as usize == data.len();
            if whole && parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0).is_ip() {
                all.push(data.to_vec());
            }
        }
    }
    all.truncate(most);
    all
}

/// A classic capture file with these frames.
fn write(path: &Path, frames: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0x0004_0000, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (at, frame) in frames.iter().enumerate() {
        for word in [at as u32 / 1000, at as u32 % 1000, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).unwrap();
}

/// The numbers, from 1, of the frames in which Wireshark finds a wrong checksum at any level, and
/// the number of checksums that it found correct.
fn wrong(path: &Path) -> Option<(Vec<usize>, usize)> {
    let fields =
        ["ip", "tcp", "udp", "sctp", "icmp", "icmpv6"].map(|p| format!("{p}.checksum.status"));
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(path).args(["-T", "fields", "-e", "frame.number"]);
    for field in &fields {
        tshark.args(["-e", field]);
    }
    // tshark reads only headers, and all checksums; the port of GUE is decoded as IP here.
    for option in ["ip", "tcp", "udp"] {
        tshark.arg("-o").arg(format!("{option}.check_checksum:TRUE"));
    }
    tshark.args(["-d", "udp.port==6080,ip"]);
    tshark.args(["-o", "sctp.checksum:CRC32C", "-o", "tcp.desegment_tcp_streams:FALSE"]);
    tshark.args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"]);
    let output = tshark.output().ok().filter(|output| output.status.success())?;
    let (mut bad, mut right) = (Vec::new(), 0);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut columns = line.split('\t');
        let number = columns.next()?.parse().ok()?;
        // "0" is wrong and "1" is correct; other values were not checked. There are several values
        // for several levels.
        let all: Vec<&str> = columns.flat_map(|column| column.split(',')).collect();
        right += all.iter().filter(|status| **status == "1").count();
        if all.contains(&"0") {
            bad.push(number);
        }
    }
    Some((bad, right))
}

/// A configuration whose services are the most frequent destinations of `frames`.
fn config(frames: &[Vec<u8>], mode: &str, proxy: bool) -> Config {
    let mut fronts: BTreeMap<(IpAddr, u8), usize> = BTreeMap::new();
    for data in frames {
        let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0);
        if let Some(vip) = key.dst_ip().filter(|_| proto::has_ports(key.proto)) {
            *fronts.entry((vip, key.proto)).or_default() += 1;
        }
    }
    let mut most: Vec<_> = fronts.into_iter().collect();
    most.sort_by_key(|(_, frames)| std::cmp::Reverse(*frames));
    let mut text = String::from(
        r#"
        [yard]
        buffer_bytes = 16384
        [[port]]
        name = "west"
        kind = "mem"
        in = "given"
        [[port]]
        name = "east"
        kind = "mem"
        [[queue]]
        name = "q"
        order = "direct"
        consumers = [0]
        [work]
        kind = "balance"
        [balance]
        entries = 251
        local = ["10.9.0.1", "10.9.0.2", "2001:db8:9::1", "2001:db8:9::2"]
        clients = { port = "west", next_hop = "02:00:00:00:09:09" }
        pass = { west = "east" }
        "#,
    );
    for (n, ((vip, which), _)) in most.into_iter().take(250).enumerate() {
        let name = match which {
            proto::TCP => "tcp",
            proto::UDP => "udp",
            _ => "sctp",
        };
        let proxy = if proxy && which == proto::TCP { "proxy = \"v2\"\n" } else { "" };
        let addr = if vip.is_ipv4() { format!("10.99.{n}") } else { format!("fd00::{n:x}") };
        let dot = if vip.is_ipv4() { '.' } else { ':' };
        writeln!(text, "[[service]]\nname = \"s{n}\"\nvip = \"{vip}\"\nproto = \"{name}\"")
            .unwrap();
        writeln!(text, "port = \"1-65535\"\nmode = \"{mode}\"\nmss = 900\n{proxy}").unwrap();
        for b in 1..=3 {
            let exit = format!("{{ port = \"east\", next_hop = \"02:00:00:00:01:0{b}\" }}");
            writeln!(
                text,
                "[[service.backend]]\nname = \"b{b}\"\naddr = \"{addr}{dot}{b}\"\nexit = {exit}"
            )
            .unwrap();
        }
    }
    Config::parse("captures.toml", &text).unwrap()
}

/// The frames that leave, by port.
fn through(config: &Config, frames: &[Vec<u8>]) -> [Vec<Vec<u8>>; 2] {
    let mut source = Frames::new();
    for (at, data) in frames.iter().enumerate() {
        source.push(at as u64, LinkType::Ethernet, data);
    }
    let ports = [Collect::default(), Collect::default()];
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(source), Pace::Fast)));
    for (number, port) in (0..).zip(&ports) {
        parts.tx.insert(number, Box::new(port.clone()));
    }
    let mut sim = Sim::new(config.build(parts).unwrap(), 1, Faults::default());
    let total = sim.run().unwrap();
    let pool = sim.yard.pool.share();
    drop(sim);
    let sent =
        ports.map(|port| port.take().iter().map(|(_, data)| data.to_vec()).collect::<Vec<_>>());
    let out = sent.iter().map(Vec::len).sum::<usize>() as u64;
    assert_eq!((total.rx_frames, pool.held()), (frames.len() as u64, 0));
    assert_eq!(total.rx_frames + total.copies, out + total.drops.total(), "{:?}", total.drops);
    sent
}

/// Checks that no header of any level has a wrong checksum.
fn is_right(data: &[u8]) -> bool {
    let mut level = Some(Headers::parse(LinkType::Ethernet, data));
    let mut is_right = true;
    while let Some(headers) = level {
        is_right &= headers.ipv4_checksum(data) != Verdict::Bad;
        is_right &= headers.transport_checksum(data) != Verdict::Bad;
        level = headers.inner(data);
    }
    is_right
}

/// The number of frames that went to backends.
fn to_backends(sent: &[Vec<u8>]) -> usize {
    sent.iter().filter(|data| key(data).eth_dst[..5] == [2, 0, 0, 0, 1]).count()
}

fn key(data: &[u8]) -> FlowKey {
    parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0)
}

fn correct_checksums_stay_correct() {
    let mut given = all_frames(FRAMES);
    given.retain(|data| is_right(data));
    assert!(given.len() > 5_000, "{}", given.len());
    for (mode, proxy) in MODES {
        let sent = through(&config(&given, mode, proxy), &given);
        let to_backends = to_backends(&sent[1]);
        assert!(to_backends > given.len() / 3, "{mode}: {to_backends} of {}", given.len());
        for data in sent.iter().flatten() {
            assert!(is_right(data), "{mode}: {}", show(data));
        }
    }
}

fn wireshark_finds_that_correct_checksums_stay_correct() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("given.pcap");
    let mut given = all_frames(FEW);
    write(&file, &given);
    let (bad, _) = wrong(&file).expect("tshark reads the file");
    let bad: std::collections::BTreeSet<usize> = bad.into_iter().collect();
    let all = given.len();
    let mut number = 0;
    given.retain(|_| {
        number += 1;
        !bad.contains(&number)
    });
    assert!(given.len() > 5_000 && given.len() > all / 2, "{} of {all}", given.len());
    for (mode, proxy) in MODES {
        let sent = through(&config(&given, mode, proxy), &given);
        let to_backends = to_backends(&sent[1]);
        let both = sent.concat();
        write(&file, &both);
        let (bad, right) = wrong(&file).unwrap();
        let looks: Vec<String> = bad.iter().take(5).map(|at| show(&both[at - 1])).collect();
        assert!(bad.is_empty(), "{mode}: {} of {}: {looks:#?}", bad.len(), both.len());
        assert!(to_backends > given.len() / 3, "{mode}: {to_backends} of {}", given.len());
        assert!(right > both.len(), "{mode}: {right} checksums of {} frames", both.len());
        let headers =
            both.iter().filter(|data| data.windows(12).any(|bytes| bytes == SIGNATURE)).count();
        assert_eq!(headers > 100, proxy, "{mode}: {headers} headers of PROXY protocol");
        let sent = both.len();
        flowyard_testkit::note!(
            "{mode} {proxy}: {} given, {sent} sent, {to_backends} to backends, {right} checksums right",
            given.len()
        );
    }
}

fn show(data: &[u8]) -> String {
    let hex: String = data.iter().take(120).map(|byte| format!("{byte:02x}")).collect();
    format!("{}: {hex}", key(data))
}
