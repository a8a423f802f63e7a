//! Captures: several at once, from a pipe, compressed, truncated; and output into a closed pipe.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::common::{flowyard, good, json, root, run, run_with, text};
use flate2::{Compression, write::GzEncoder};
use flowyard_ports::{Source, pcap};
use flowyard_wire::LinkType;
use serde_json::Value;

flowyard_testkit::tests! {
    every_input_format_gives_the_same_result,
    several_captures_are_one_analysis,
    the_complete_packets_of_a_truncated_capture_are_analysed,
    an_interrupted_pipe_is_reported_until_there,
    an_interrupt_before_the_first_packet_ends_at_once,
    an_interrupted_run_prints_its_counters,
    other_readers_of_captures_can_be_interrupted,
    refused_rules_are_named_on_standard_error,
    a_closed_pipe_is_no_failure,
    the_same_twice,
    help_names_every_command_and_option,
    shells_and_man_get_what_they_need,
    a_locale_without_unicode_gets_ascii,
    a_report_ends_with_what_it_means,
    the_page_is_self_contained,
}

const YARD: &str = "captures/yard.pcap";

fn yard() -> Vec<u8> {
    std::fs::read(root().join(YARD)).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// The repository's capture, converted to pcapng.
fn pcapng(path: &Path) -> Vec<u8> {
    let mut source = pcap::open(root().join(YARD)).unwrap();
    let mut writer = pcap::Writer::create(path, pcap::Format::Pcapng, LinkType::Ethernet).unwrap();
    loop {
        let burst = source.read().unwrap();
        if burst.is_empty() {
            break;
        }
        for (record, bytes) in burst.iter() {
            writer.write(record.time, record.wire_len, bytes).unwrap();
        }
    }
    writer.finish().unwrap();
    std::fs::read(path).unwrap()
}

/// The analysis as JSON, with the names of the captures removed.
fn nameless(output: &std::process::Output) -> Value {
    let mut value: Value = serde_json::from_str(&good(output)).unwrap();
    for capture in value["captures"].as_array_mut().unwrap() {
        capture["file"] = Value::Null;
    }
    value
}

fn every_input_format_gives_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("yard.pcapng");
    let (classic, ng) = (yard(), pcapng(&path));
    let expected = nameless(&run(["analyze", YARD, "--json"]));
    assert!(expected["traffic"]["packets"].as_u64().unwrap() > 10_000);
    // Not assert_eq!, which would print both documents.
    let same = |output: &std::process::Output, kind: &str| {
        assert!(nameless(output) == expected, "{kind} gives another result");
    };
    same(&run(["analyze", path.to_str().unwrap(), "--json"]), "pcapng in a file");
    for (kind, bytes) in [
        ("pcap", &classic),
        ("pcapng", &ng),
        ("gzip", &gzip(&classic)),
        ("gzip pcapng", &gzip(&ng)),
    ] {
        same(&run_with(&["analyze", "-", "--json"], bytes), kind);
        let path = folder.path().join("any name");
        std::fs::write(&path, bytes).unwrap();
        same(&run(["analyze", path.to_str().unwrap(), "--json"]), kind);
    }
    let said = good(&run_with(&["analyze", "-"], &classic));
    assert!(said.starts_with("standard input: "), "{said}");
}

fn several_captures_are_one_analysis() {
    let once = json(["analyze", YARD, "--json"]);
    let twice = json(["analyze", YARD, YARD, "--json"]);
    assert_eq!(twice["captures"].as_array().unwrap().len(), 2);
    let of = |value: &Value, field: &str| value["traffic"][field].as_u64().unwrap();
    for doubled in ["packets", "bytes", "received", "transmitted", "fragments", "vlan"] {
        assert_eq!(of(&twice, doubled), 2 * of(&once, doubled), "{doubled}");
    }
    assert_eq!(of(&twice, "connections"), of(&once, "connections"));
    let lines = good(&run(["analyze", YARD, YARD]));
    assert!(lines.contains("2 captures") || lines.matches(YARD).count() > 1, "{lines}");
}

/// The complete packets of a truncated capture are analysed, and the damage is reported: in the report, on
/// standard error, and by the exit status.
fn the_complete_packets_of_a_truncated_capture_are_analysed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    let name = path.to_str().unwrap();
    let whole = yard();
    let packed = gzip(&whole);
    let half = gzip(&whole[..whole.len() / 2]);
    for (kind, bytes) in [
        ("in a packet", &whole[..whole.len() / 2]),
        ("in the first header", &whole[..30]),
        ("in the packing", &packed[..packed.len() / 2]),
        ("before it was packed", &half[..]),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let ran = run(["analyze", name, "--json"]);
        assert_eq!(ran.status.code(), Some(1), "{kind}");
        let value: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let capture = &value["captures"][0];
        let damage = capture["damage"].as_str().unwrap_or_else(|| panic!("{kind}: {capture}"));
        assert!(damage.contains(name) && damage.contains("byte "), "{kind}: {damage}");
        assert_eq!(text(&ran.stderr), format!("flowyard: {damage}\n"), "{kind}");
        let packets = capture["packets"].as_u64().unwrap();
        assert!(damage.contains(&format!("{packets} complete packets")), "{kind}: {damage}");
        assert_eq!(value["traffic"]["packets"], packets, "{kind}");
        assert_eq!(packets > 1000, kind != "in the first header", "{kind}: {packets}");
        // The text output reports it too.
        let said = text(&run(["analyze", name]).stdout);
        assert!(said.contains(&format!("{packets} complete packets")), "{kind}: {said}");
        if packets > 0 {
            good(&run(["explain", &format!("{name}:{packets}")]));
        }
        let next = run(["explain", &format!("{name}:{}", packets + 1)]);
        assert_eq!(next.status.code(), Some(1), "{kind}");
        let said = text(&next.stderr);
        let told = format!("flowyard: there is no packet {} before the damage", packets + 1);
        assert!(said.starts_with(&told) && said.contains(damage), "{said}");
    }
}

/// A FIFO in which half of the repository's capture waits, its writer, and the complete packets in it.
pub(crate) fn half(folder: &Path) -> (String, std::fs::File) {
    let path = folder.join("live.pcap");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Read and write, so that the open does not wait for a reader.
    let fifo = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    (path.to_str().unwrap().to_owned(), fifo)
}

/// What a command prints that is interrupted after it has read this many bytes of the repository's capture from
/// `fifo`.
pub(crate) fn interrupted(
    args: &[&str],
    mut fifo: std::fs::File,
    bytes: usize,
) -> std::process::Output {
    let child =
        flowyard().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stat = format!("/proc/{}/status", child.id());
    crate::yard::wait("the handler of SIGINT", || {
        let status = std::fs::read_to_string(&stat).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        (u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0).then_some(())
    });
    fifo.write_all(&yard()[..bytes]).unwrap();
    crate::yard::wait("an empty FIFO", || {
        (rustix::io::ioctl_fionread(&fifo).unwrap() == 0).then_some(())
    });
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    drop(fifo);
    output
}

/// `explain` has no result before its packet, and `nic run` receives the frames that were read.
fn other_readers_of_captures_can_be_interrupted() {
    let fifo = || {
        let folder = tempfile::tempdir().unwrap();
        let (path, fifo) = half(folder.path());
        (folder, path, fifo)
    };
    let (_folder, path, file) = fifo();
    let output = interrupted(&["explain", &format!("{path}:10000000")], file, 1_000_001);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("interrupted before packet 10000000: ") && !err.contains(": 0 pack"),
        "{err}"
    );
    let (_folder, path, file) = fifo();
    let run = ["nic", "run", "--set", "run.measure_us=300", "--pcap-in", &path];
    let output = interrupted(&run, file, 100_001);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("interrupted; the adapter receives the "), "{err}");
    let (_folder, path, file) = fifo();
    let output = interrupted(&["nic", "run", "--pcap-in", &path], file, 0);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("interrupted before its first packet"));
}

fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

fn an_interrupted_pipe_is_reported_until_there() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut fifo) = half(folder.path());
    let child = flowyard()
        .args(["analyze", &path, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More than the FIFO takes at once: the last write returns when nearly all was read.
    let (whole, half) = (yard(), 1_000_001);
    fifo.write_all(&whole[..half]).unwrap();
    crate::yard::wait("an empty FIFO", || {
        (rustix::io::ioctl_fionread(&fifo).unwrap() == 0).then_some(())
    });
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    drop(fifo);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("flowyard: interrupted; the report is about the packets"), "{err}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Exactly the packets that are complete in these bytes, and no damage.
    let path = folder.path().join("half.pcap");
    std::fs::write(&path, &whole[..half]).unwrap();
    let ran = run(["analyze", path.to_str().unwrap(), "--json"]);
    let expected: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(value["traffic"], expected["traffic"]);
    assert_eq!(value["captures"][0]["damage"], Value::Null);
}

fn an_interrupt_before_the_first_packet_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, fifo) = half(folder.path());
    let child = flowyard()
        .args(["analyze", &path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stat = format!("/proc/{}/status", child.id());
    crate::yard::wait("the handler of SIGINT", || {
        let status = std::fs::read_to_string(&stat).ok()?;
        let caught =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim().to_owned();
        (u64::from_str_radix(&caught, 16).unwrap() & 2 != 0).then_some(())
    });
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    drop(fifo);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        format!("flowyard: {path}: interrupted before its first packet\n")
    );
}

/// A port of a running engine that waits for a pipe.
fn an_interrupted_run_prints_its_counters() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut fifo) = half(folder.path());
    let config = folder.path().join("yard.toml");
    let port = format!("[[port]]\nname = \"west\"\nkind = \"pcap\"\nin = {path:?}\n");
    let rest = "[[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n[work]\nkind = \"forward\"\n";
    std::fs::write(&config, port + rest).unwrap();
    let child = flowyard()
        .args(["run", "--json", "--control", "none"])
        .arg(&config)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fifo.write_all(&yard()[..1_000_001]).unwrap();
    crate::yard::wait("an empty FIFO", || {
        (rustix::io::ioctl_fionread(&fifo).unwrap() == 0).then_some(())
    });
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    drop(fifo);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["total"]["rx_frames"].as_u64() > Some(1000), "{value}");
}

fn refused_rules_are_named_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.txt");
    // The 82599 has one set of masks for all rules.
    let text_of = "flow-type tcp4 dst-port 80 action 1\nflow-type tcp4 src-ip 10.0.0.1 action 2\n";
    std::fs::write(&rules, text_of).unwrap();
    let policy = format!("fdir={}", rules.display());
    let ran = run(["analyze", YARD, "--policy", &policy, "--json"]);
    let err = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{err}");
    let line = format!("flowyard: {}:2: the rule is refused by x520: ", rules.display());
    assert!(err.starts_with(&line), "{err}");
}

/// `flowyard ... | head`, with the reader gone before anything is written.
fn a_closed_pipe_is_no_failure() {
    let flow = "tcp 10.0.0.1:40000 > 10.0.0.2:11211";
    for args in [
        &["analyze", YARD][..],
        &["analyze", YARD, "--json"],
        &["explain", flow],
        &["explain", flow, "--json"],
        &["explain", "captures/yard.pcap:5"],
        &["adapters"],
        &["adapters", "--json"],
        &["schema", "analyze"],
        &["--help"],
        &["analyze", "--help"],
        &["--version"],
    ] {
        let mut child =
            flowyard().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(0), String::new()),
            "{args:?}"
        );
    }
}

/// The output does not depend on the time, the machine or the run.
fn the_same_twice() {
    for args in [
        &["analyze", YARD][..],
        &["analyze", YARD, "--json", "--adapter", "e810", "--migrate-every", "10ms"],
        &["explain", "captures/yard.pcap:2000", "--json"],
    ] {
        assert_eq!(good(&run(args)), good(&run(args)), "{args:?}");
    }
}

fn help_names_every_command_and_option() {
    let help = good(&run(["--help"]));
    for command in ["analyze", "explain", "adapters", "schema"] {
        assert!(help.contains(command), "{help}");
        assert!(good(&run([command, "--help"])).contains("Example"), "{command}");
    }
    // The version, and the commit if git knows it.
    let version = good(&run(["--version"]));
    let rest = version.trim().strip_prefix(&format!("flowyard {}", env!("CARGO_PKG_VERSION")));
    let commit = rest.unwrap_or_else(|| panic!("{version}"));
    let is_commit = |text: &str| text.len() == 12 && text.chars().all(|c| c.is_ascii_hexdigit());
    let named = commit.strip_prefix(" (").and_then(|commit| commit.strip_suffix(')'));
    let has_git = root().join(".git").exists();
    assert!(commit.is_empty() && !has_git || named.is_some_and(is_commit), "{version}");
    let analyze = good(&run(["analyze", "--help"]));
    for option in ["--adapter", "--queues", "--policy", "--json", "--html", "--consumer", "--local"]
    {
        assert!(analyze.contains(option), "{option}");
    }
}

fn shells_and_man_get_what_they_need() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = good(&run(["completions", shell]));
        for word in ["analyze", "rss-from", "dump-flows"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(good(&run(["man", folder.path().to_str().unwrap()])), "");
    let page = std::fs::read_to_string(folder.path().join("flowyard-analyze.1")).unwrap();
    assert!(page.starts_with(".ie") && page.contains("rss\\-from"), "{page}");
    assert!(folder.path().join("flowyard.1").is_file());
    assert!(folder.path().join("flowyard-switch-dump-flows.1").is_file());
    let line = crate::common::refused(&run(["man", "/nowhere/man1"]));
    assert!(line.contains("create it first"), "{line}");
}

fn a_locale_without_unicode_gets_ascii() {
    let report = |locale: &str| {
        let output = flowyard().env("LC_ALL", locale).args(["analyze", YARD]).output().unwrap();
        good(&output)
    };
    assert!(report("C").is_ascii());
    // Also text outside of tables, such as a time in microseconds.
    assert!(report("C").contains("a core needs 1 us per frame"));
    assert!(report("C.UTF-8").contains('─'));
}

fn a_report_ends_with_what_it_means() {
    let text = good(&run(["analyze", YARD]));
    let end = text.split("\nWhat it means\n").nth(1).expect("a verdict at the end");
    let flow = "One flow is 46 % of the received bytes (22 % of the packets): tcp 192.0.2.101:52298 > 192.0.2.10:5201.";
    assert!(end.starts_with(&format!("\n1. {flow}")), "{end}");
    assert!(end.contains("no indirection table can change this"), "{end}");
    for command in [
        "ethtool -X IFACE equal 15\n",
        "ethtool -N IFACE flow-type tcp4 src-ip 192.0.2.101 dst-ip 192.0.2.10 src-port 52298 dst-port 5201 action 15\n",
        "for f in /sys/class/net/IFACE/queues/rx-*/rps_cpus; do echo ffff > $f; done\n",
    ] {
        assert!(end.contains(&format!("\n     {command}")), "{command}: {end}");
    }
    // The rule is one that the model of the adapter accepts, and it steers the flow there.
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.txt");
    let rule = end.lines().find(|line| line.contains("ethtool -N")).unwrap();
    std::fs::write(&rules, rule.trim().replace("IFACE", "eth0")).unwrap();
    let policy = format!("fdir={}", rules.display());
    let told = json(["analyze", YARD, "--policy", &policy, "--json"]);
    assert_eq!(told["policies"][0]["rules"][0]["verdict"], "accepted");
    assert_eq!(told["elephants"][0]["policies"]["fdir"]["final_core"], 15);
    // The load over time has every packet of every queue.
    let policy = &told["policies"][0];
    let queues = policy["queues"].as_array().unwrap();
    for (queue, load) in queues.iter().enumerate() {
        let slices = policy["queues_over_time"]["packets"][queue].as_array().unwrap();
        let sum: u64 = slices.iter().map(|packets| packets.as_u64().unwrap()).sum();
        assert_eq!(sum, load["packets"].as_u64().unwrap(), "queue {queue}");
    }
}

/// The page refers to no other file or server.
fn the_page_is_self_contained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let said = good(&run(["analyze", YARD, "--html", path.to_str().unwrap()]));
    assert!(said.contains("report.html"), "{said}");
    let page = std::fs::read_to_string(&path).unwrap();
    for needed in ["<svg", "prefers-color-scheme", "@media print", "rss", "atr", "yard"] {
        assert!(page.contains(needed), "{needed}");
    }
    for foreign in ["<script", "src=\"http", "href=\"http", "@import", "url(http", "<link"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    // With --json, only the document is on standard output.
    let value = json(["analyze", YARD, "--json", "--html", path.to_str().unwrap()]);
    assert_eq!(value["schema"], "flowyard.analyze/2");
}
