//! The fuzz step: every target for some seconds, two at a time, starting from the capture's frames.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::{Ci, steps};
use crate::shell::{self, run, say};

/// Seconds for all targets together, if one thread ran them.
const TOTAL_SECONDS: u64 = 60;
/// Seconds for one target, unless FUZZ_SECONDS gives another limit.
const MOST_SECONDS: u64 = 30;
/// Lines of libFuzzer's output that a failure prints.
const TAIL: usize = 60;

/// How a pcap file's header and a record's header are laid out: lengths in bytes.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// Builds every target, then runs them two at a time: each uses one thread.
pub(super) fn fuzz(ci: &mut Ci) -> Result<()> {
    if !ci.has_nightly() {
        return ci.skip("no nightly toolchain (rustup toolchain install nightly)");
    }
    if !ci.has_tool("fuzz") {
        return ci.skip("cargo-fuzz cannot be installed here");
    }
    let list = shell::output(&mut ci.cargo("+nightly fuzz list"))?;
    let targets: Vec<&str> = list.split_whitespace().collect();
    if targets.is_empty() {
        bail!("cargo fuzz list names no target");
    }
    let most = std::env::var("FUZZ_SECONDS").ok().filter(|value| !value.is_empty());
    let most = most.map_or(Ok(MOST_SECONDS), |value| value.parse()).context("FUZZ_SECONDS")?;
    let seconds = most.min(TOTAL_SECONDS / targets.len() as u64);
    seeds(&ci.root.join(steps::CAPTURE), &ci.work.join("seeds"))?;
    if let Some(mut build) = ci.fuzz_build.take() {
        build.wait()?; // if it failed, the next command repeats it and prints the error
    }
    run(&mut ci.cargo("+nightly fuzz build"))?;
    let ci = &*ci;
    for pair in targets.chunks(2) {
        let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                pair.iter().map(|target| scope.spawn(move || one(ci, target, seconds))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|_| bail!("a thread of the fuzz step panicked"))
            };
            threads.into_iter().map(join).collect()
        });
        outcomes.into_iter().collect::<Result<()>>()?;
    }
    Ok(())
}

impl Ci {
    /// Starts the build of the fuzz targets beside the running step, if the fuzz step comes later.
    /// Its output is discarded: the fuzz step repeats what failed.
    pub(super) fn start_fuzz_build(&mut self) -> Result<()> {
        if !self.chosen.contains(&"fuzz") {
            return Ok(());
        }
        let script = "cargo fuzz --version || cargo install --quiet --locked cargo-fuzz; \
                      exec nice cargo +nightly fuzz build";
        let mut command = self.command("sh");
        command.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
        self.fuzz_build = Some(command.spawn()?);
        Ok(())
    }
}

/// Runs one target. It prints the statistics, or the end of the output if the target fails.
fn one(ci: &Ci, target: &str, seconds: u64) -> Result<()> {
    let corpus = format!("fuzz/corpus/{target}");
    fs::create_dir_all(ci.root.join(&corpus))?;
    let mut command = ci.cargo(&format!("+nightly fuzz run {target} {corpus}"));
    command.arg(ci.work.join("seeds"));
    let own = format!("fuzz/seeds/{target}");
    if ci.root.join(&own).is_dir() {
        command.arg(own);
    }
    command.args(["--", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]);
    command.arg(format!("-max_total_time={seconds}"));
    // libFuzzer prints a line for every new input: keep it in a file.
    let log = ci.work.join(format!("fuzz-{target}"));
    let file = File::create(&log)?;
    let status = command.stdout(file.try_clone()?).stderr(file).status()?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    if !status.success() {
        say(&lines[lines.len().saturating_sub(TAIL)..].join("\n"));
        bail!("fuzz target {target}: {status}");
    }
    say(&format!("fuzz {target}: {seconds} s"));
    let wanted = ["stat::number_of_executed_units", "stat::average_exec_per_sec"];
    let is_wanted =
        |line: &&&str| line.starts_with("Done") || wanted.iter().any(|name| line.contains(name));
    lines.iter().filter(is_wanted).for_each(|line| say(line));
    Ok(())
}

/// Writes the first 4096 bytes of a capture, and its first 200 frames one by one, into a folder.
fn seeds(capture: &Path, folder: &Path) -> Result<()> {
    let bytes = fs::read(capture).with_context(|| capture.display().to_string())?;
    fs::create_dir_all(folder)?;
    fs::write(folder.join("yard-head.pcap"), &bytes[..bytes.len().min(4096)])?;
    for (n, frame) in frames(&bytes).take(200).enumerate() {
        fs::write(folder.join(format!("frame-{n}")), frame)?;
    }
    Ok(())
}

/// The frames of a little-endian pcap file.
fn frames(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes.get(FILE_HEADER..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (header, data) = rest.split_at_checked(RECORD_HEADER)?;
        let captured = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let (frame, after) = data.split_at_checked(captured as usize)?;
        rest = after;
        Some(frame)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn frames_of_the_capture() {
        let capture = crate::shell::root().join(super::steps::CAPTURE);
        let bytes = std::fs::read(capture).unwrap();
        let sum: usize = super::frames(&bytes).map(|frame| frame.len() + 16).sum();
        assert_eq!(sum + 24, bytes.len());
        assert!(super::frames(&bytes).count() > 200);
        assert_eq!(super::frames(&bytes[..39]).count(), 0);
    }
}
