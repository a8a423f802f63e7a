//! The fuzz step: every target for some seconds, two at a time, starting from the capture's frames and from
//! files of the repository. An input fails if it costs more work or memory than its size permits
//! (`fuzz/src/cost.rs`); libFuzzer's limits of time and memory stand behind that.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::{Ci, steps};
use crate::shell::{self, run, say};

/// Seconds for one target, unless FUZZ_SECONDS gives another number.
const SECONDS: u64 = 6;
/// Flags of the compiler with which the targets count the basic blocks that they execute.
#[cfg(target_arch = "x86_64")]
const RUSTFLAGS: &str = "-Cllvm-args=-sanitizer-coverage-trace-pc";
/// The targets count no blocks on this processor.
#[cfg(not(target_arch = "x86_64"))]
const RUSTFLAGS: &str = "";
/// Limits of libFuzzer for what the targets' own limits do not see: an input takes less than 5 seconds (it
/// knows only whole seconds), no allocation is larger than 256 MiB, and the process stays below 2 GiB, of
/// which the address sanitizer takes the most.
const LIMITS: [&str; 3] = ["-timeout=5", "-malloc_limit_mb=256", "-rss_limit_mb=2048"];
/// Folders with files that a target reads well, besides `fuzz/seeds/TARGET`.
const SEEDS: [(&str, &[&str]); 2] = [
    ("config", &["docs/examples", "scenarios", "figures", "crates/hostsim/profiles"]),
    ("images", &["crates/nicsim/firmware"]),
];
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
    let named = std::env::var("FUZZ_TARGETS").unwrap_or_default();
    let targets = chosen(&list, &named)?;
    let seconds = std::env::var("FUZZ_SECONDS").ok().filter(|value| !value.is_empty());
    let seconds = seconds.map(|value| value.parse()).transpose().context("FUZZ_SECONDS")?;
    seeds(&ci.root.join(steps::CAPTURE), &ci.work.join("seeds"))?;
    if let Some(mut build) = ci.fuzz_build.take() {
        build.wait()?; // if it failed, the next command repeats it and prints the error
    }
    run(ci.cargo("+nightly fuzz build").env("RUSTFLAGS", RUSTFLAGS))?;
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

/// The targets of `list` that `named` names, or all if it names none.
fn chosen<'a>(list: &'a str, named: &'a str) -> Result<Vec<&'a str>> {
    let all: Vec<&str> = list.split_whitespace().collect();
    if all.is_empty() {
        bail!("cargo fuzz list names no target");
    }
    let named: Vec<&str> = named.split_whitespace().collect();
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        bail!("FUZZ_TARGETS: no target '{unknown}'; the targets are {}", all.join(", "));
    }
    Ok(if named.is_empty() { all } else { named })
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
        command.args(["-c", script]).env("RUSTFLAGS", RUSTFLAGS);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.fuzz_build = Some(command.spawn()?);
        Ok(())
    }
}

/// Runs one target. Without `seconds`, the inputs are the same at each run, so that a check of a change fails for
/// what the change did; a longer run tries others. It prints the statistics, or the end of the output if the target fails.
fn one(ci: &Ci, target: &str, seconds: Option<u64>) -> Result<()> {
    let corpus = format!("fuzz/corpus/{target}");
    fs::create_dir_all(ci.root.join(&corpus))?;
    let mut command = ci.cargo(&format!("+nightly fuzz run {target} {corpus}"));
    command.arg(ci.work.join("seeds"));
    let own = format!("fuzz/seeds/{target}");
    if ci.root.join(&own).is_dir() {
        command.arg(own);
    }
    command.args(SEEDS.iter().filter(|row| row.0 == target).flat_map(|row| row.1));
    command.env("RUSTFLAGS", RUSTFLAGS).arg("--").args(LIMITS).arg("-print_final_stats=1");
    if seconds.is_none() {
        command.arg("-seed=1");
    }
    let seconds = seconds.unwrap_or(SECONDS);
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
    // The target prints a line for each input that costs more than all before.
    lines.iter().rfind(|line| line.starts_with("cost: ")).into_iter().for_each(|line| say(line));
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

    #[test]
    fn targets_are_chosen_by_name() {
        let list = "balance\nvhost\n";
        assert_eq!(super::chosen(list, "").unwrap(), ["balance", "vhost"]);
        assert_eq!(super::chosen(list, " vhost").unwrap(), ["vhost"]);
        let error = super::chosen(list, "vhosts").unwrap_err().to_string();
        assert_eq!(error, "FUZZ_TARGETS: no target 'vhosts'; the targets are balance, vhost");
        assert!(super::chosen("", "").is_err());
    }
}
