//! Work that is not done is no success: outputs that cannot be written, and captures that can be read only in part.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use flowyard_testkit::harness::Need;
use serde_json::Value;

use crate::common::{flowyard, frames_in_whole_capture, root, run, text};
use crate::yard::{Yard, config};

flowyard_testkit::tests! {
    standard_output_that_cannot_be_written_is_a_failure,
    standard_output_that_is_not_open_for_writing_is_a_failure,
    a_closed_pipe_hides_no_failure,
    results_are_printed_if_a_file_cannot_be_written,
    a_full_disk_is_a_failure_and_leaves_no_part needs [
        Need::Root,
        Need::Namespaces,
        Need::Program("unshare"),
    ],
    a_damaged_capture_is_a_failure_of_every_command,
    a_capture_that_fails_while_it_is_read_is_a_failure,
}

const YARD: &str = "captures/yard.pcap";
const FLOW: &str = "tcp 10.0.0.1:40000 > 10.0.0.2:11211";

/// Status 1, with this in the only line of flowyard on standard error.
#[track_caller]
fn fails(output: &Output, said: &str) {
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let last = err.lines().last().unwrap_or_default();
    assert!(last.starts_with("flowyard: ") && last.contains(said), "'{said}' is not in: {err}");
}

fn to(args: &[&str], out: impl Into<Stdio>) -> Output {
    flowyard().args(args).stdout(out).stderr(Stdio::piped()).output().unwrap()
}

fn full() -> std::fs::File {
    std::fs::File::options().write(true).open("/dev/full").unwrap()
}

/// Commands that print something and need nothing.
const PRINT: [&[&str]; 16] = [
    &["analyze", YARD],
    &["analyze", YARD, "--json"],
    &["explain", FLOW],
    &["explain", FLOW, "--json"],
    &["adapters"],
    &["adapters", "--json"],
    &["schema", "analyze"],
    &["completions", "bash"],
    &["--help"],
    &["run", "--help"],
    &["--version"],
    &["figures", "--list"],
    &["nic", "keys"],
    &["run", "docs/examples/balance.toml", "--check"],
    &["run", "scenarios/forward.toml", "--simulate"],
    &["bench", "soak", "--duration", "1ms", "--json"],
];

fn standard_output_that_cannot_be_written_is_a_failure() {
    for args in PRINT {
        fails(&to(args, full()), "standard output cannot be written: No space left on device");
    }
    let mut yard = Yard::start(&config(), &[]);
    let socket = yard.socket();
    let control = ["--control", socket.to_str().unwrap()];
    for args in [
        &["show", "cores"][..],
        &["show", "queues", "--json"],
        &["top", "--once", "--interval", "0.05"],
        &["trace", crate::yard::OTHER, "--count", "1"],
    ] {
        fails(&to(&[args, &control].concat(), full()), "standard output cannot be written");
    }
    yard.stop();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("yard.toml");
    let once = config().replace("repeat = 1000000", "repeat = 1").replace("20000", "fast");
    std::fs::write(&file, once).unwrap();
    for more in [&[][..], &["--json"]] {
        let args = [&["run", file.to_str().unwrap(), "--control", "none"], more].concat();
        fails(&to(&args, full()), "standard output cannot be written");
    }
}

fn standard_output_that_is_not_open_for_writing_is_a_failure() {
    let reads = || std::fs::File::open("/dev/null").unwrap();
    for args in PRINT {
        fails(&to(args, reads()), "standard output cannot be written: Bad file descriptor");
    }
}

/// The first half of the repository's capture.
fn half(folder: &Path) -> String {
    let bytes = std::fs::read(root().join(YARD)).unwrap();
    let path = folder.join("half.pcap");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A reader that has gone is no failure, but a damaged capture is one.
fn a_closed_pipe_hides_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let half = half(folder.path());
    for args in [&["analyze", &half][..], &["analyze", &half, "--json"]] {
        let mut command = flowyard();
        let mut child =
            command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        fails(&child.wait_with_output().unwrap(), "the file ends inside");
    }
}

fn results_are_printed_if_a_file_cannot_be_written() {
    for args in [
        &["analyze", YARD, "--json", "--html", "/dev/full"][..],
        &["nic", "run", "--set", "run.measure_us=50", "--json", "--stats", "/dev/full"],
        &["nic", "figure", "8", "--measure-us", "1", "--json", "--html", "/dev/full"],
        &["figures", "kth-baseline", "--json", "--html", "/dev/full"],
        &["bench", "soak", "--duration", "1ms", "--json", "--html", "/dev/full"],
    ] {
        let ran = run(args);
        fails(&ran, "/dev/full: cannot write the ");
        let printed: Result<Value, _> = serde_json::from_slice(&ran.stdout);
        assert!(printed.is_ok(), "{args:?}: {}", text(&ran.stdout));
    }
    let trace = run(["nic", "trace", "--output", "/dev/full", "--set", "run.measure_us=1"]);
    fails(
        &trace,
        "/dev/full: cannot write the trace: No space left on device (os error 28); free space",
    );
}

/// In a mount namespace with a disk of 64 KiB: every command that writes a file.
const SMALL: &str = r#"
set -u
mkdir "$1/disk"; mount -t tmpfs -o size=64k none "$1/disk"
cd "$1/disk"; shift
"$@" >"$OLDPWD/out" 2>"$OLDPWD/err"
echo $? >"$OLDPWD/status"
ls -A >"$OLDPWD/left"
for file in *; do cp "$file" "$OLDPWD/kept" 2>/dev/null; done
exit 0
"#;

fn a_full_disk_is_a_failure_and_leaves_no_part() {
    let capture = root().join(YARD);
    let capture = capture.to_str().unwrap();
    let forward = tempfile::tempdir().unwrap();
    let forward = forward.path().join("yard.toml");
    let text_of = std::fs::read_to_string(root().join("docs/examples/forward.toml")).unwrap();
    let text_of = text_of.replace("captures/yard.pcap", capture);
    std::fs::write(&forward, text_of).unwrap();
    for (args, file, keeps) in [
        (&["analyze", capture, "--html", "report.html"][..], "report.html", false),
        (&["nic", "run", "--pcap-in", capture, "--pcap-out", "sent.pcap"], "sent.pcap", true),
        (&["nic", "trace", "--output", "trace", "--set", "run.measure_us=50"], "trace", false),
        (&["run", forward.to_str().unwrap(), "--control", "none"], "forwarded.pcap", true),
        (&["man", "."], "flowyard", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut small = Command::new("unshare");
        small.args(["-m", "sh", "-c", SMALL, "sh"]).arg(folder.path());
        small.arg(env!("CARGO_BIN_EXE_flowyard")).args(args).current_dir(folder.path());
        assert!(small.output().unwrap().status.success());
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("status").trim(), "1", "{args:?}: {}", read("err"));
        let said = read("err");
        let line = said.lines().last().unwrap();
        assert!(line.contains(file) && line.contains(" space"), "{said}");
        let left = read("left");
        let parts = left.lines().filter(|name| name.contains(".part")).count();
        assert_eq!((parts, left.lines().any(|name| name == file)), (0, keeps), "{args:?}: {left}");
        if keeps {
            let frames = frames_in_whole_capture(&folder.path().join("kept"));
            let told = format!("; the file has the {frames} frames before that");
            assert!(frames > 10 && line.ends_with(&told), "{frames}: {line}");
        }
    }
}

fn a_damaged_capture_is_a_failure_of_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let half = half(folder.path());
    let size = std::fs::metadata(&half).unwrap().len();
    let yard = |kind: &str| {
        let path = folder.path().join(format!("{kind}.toml"));
        let text = format!(
            "[[port]]\nname = \"p\"\nkind = {kind:?}\nin = {half:?}\n\
             [[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n[work]\nkind = \"forward\"\n"
        );
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (file, memory) = (yard("pcap"), yard("mem"));
    let packet = format!("{half}:99999");
    for args in [
        &["analyze", &half, "--json"][..],
        &["run", &file, "--json", "--control", "none"],
        &["run", &memory, "--json", "--control", "none"],
        &["nic", "run", "--pcap-in", &half, "--json"],
        &["bench", "soak", "--replay", &half, "--duration", "1ms", "--json"],
        &["explain", &packet],
    ] {
        let ran = run(args);
        let err = text(&ran.stderr);
        fails(&ran, "complete packets precede it, and ");
        assert!(err.contains(&format!("of the {size} bytes of the file are not read")), "{err}");
        if args[0] != "explain" {
            let printed: Value = serde_json::from_slice(&ran.stdout).unwrap();
            if args[0] == "run" {
                assert!(printed["total"]["rx_frames"].as_u64() > Some(1000), "{printed}");
                assert!(printed["failed"][0].as_str().unwrap().contains("port p: "), "{printed}");
            }
        }
    }
}

/// The first read of this file fails.
fn a_capture_that_fails_while_it_is_read_is_a_failure() {
    let file = "/proc/self/mem";
    fails(&run(["analyze", file]), "/proc/self/mem: cannot read (byte 0): Input/output error");
    let packet = format!("{file}:1");
    fails(&run(["explain", &packet]), "/proc/self/mem: cannot read (byte 0): Input/output error");
}
