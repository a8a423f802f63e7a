//! Runs the built binary.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flowyard_ports::{Source, pcap};
use serde_json::Value;

/// The `flowyard` command, run from the root of the repository.
pub(crate) fn flowyard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowyard"));
    command.current_dir(root()).stdin(Stdio::null());
    command
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    flowyard().args(args).output().expect("the binary runs")
}

/// The number of frames in a capture, which must not be damaged.
pub(crate) fn frames_in_whole_capture(capture: &Path) -> usize {
    let (mut reader, mut frames) = (pcap::open(capture).unwrap(), 0);
    loop {
        match reader.read().unwrap().len() {
            0 => break,
            more => frames += more,
        }
    }
    assert_eq!(reader.damage(), None, "{} is damaged", capture.display());
    frames
}

/// Runs with `input` on standard input.
pub(crate) fn run_with(args: &[&str], input: &[u8]) -> Output {
    let mut child = flowyard()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    std::thread::scope(|scope| {
        // Fails if the command ends before it has read everything.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("it ends")
    })
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Standard output of a successful run that prints nothing on standard error.
#[track_caller]
pub(crate) fn good(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
    assert!(!out.contains('\x1b'), "an escape code in a pipe: {out}");
    out
}

#[track_caller]
pub(crate) fn json<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Value {
    serde_json::from_str(&good(&run(args))).expect("JSON")
}

/// The only line on standard error of a run that refuses its input.
#[track_caller]
pub(crate) fn refused(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), out.as_str()), (Some(2), ""), "{err}");
    let line = err.strip_suffix('\n').expect("a whole line");
    assert!(!line.contains(char::is_control), "one line: {line:?}");
    let said = line.strip_prefix("flowyard: ").expect("the line starts with the program's name");
    said.to_owned()
}

/// Rows of a table with columns by name.
pub(crate) fn csv(path: &Path) -> Vec<std::collections::HashMap<String, String>> {
    let text = std::fs::read_to_string(path).expect("it is there");
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let head: Vec<String> = lines.next().expect("a head").collect();
    lines.map(|row| head.iter().cloned().zip(row).collect()).collect()
}
