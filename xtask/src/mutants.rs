//! `cargo xtask mutants`: changes the code in small ways, one change at a time, and reports the changes that
//! no test of the changed package notices.
//!
//! cargo-mutants makes the changes ("mutants") in a copy of the repository, and runs the tests of the package
//! there. The copy has no `../shared` beside it: the tests must be strong without it. A sample is chosen by a
//! seed, so that a run repeats. Mutants that survive fail the run, unless `.ci/mutants` has a judgement about
//! them (module `known`). `docs/mutants.md` has the last recorded run of each package (module `record`).

mod known;
mod record;
mod sample;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::shell::{self, complain, say};
use known::Known;
use record::Report;
use sample::Mutant;

/// The packages in which a mistake sends frames to the wrong place.
const PACKAGES: [&str; 8] =
    ["frame", "wire", "flow", "queue", "lb", "switch", "adapter", "openflow"];
/// Judgements about survivors.
const KNOWN: &str = ".ci/mutants";
/// The last run of each package that was made with `--record`.
const RECORD: &str = "docs/mutants.md";
/// The shortest time after which tests of a mutant are ended, in seconds. The user may set it, for a machine
/// on which others work.
const TIMEOUT: (&str, &str) = ("CARGO_MUTANTS_MINIMUM_TEST_TIMEOUT", "60");

/// Options of the command.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Options {
    /// How many mutants; all if it is not given.
    sample: Option<usize>,
    seed: u64,
    record: bool,
    packages: Vec<&'static str>,
}

impl Options {
    fn parse(args: &[&str]) -> Result<Self> {
        let mut options = Self { sample: None, seed: 1, record: false, packages: Vec::new() };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut number = || {
                let text = args.next().with_context(|| format!("{arg} needs a number"))?;
                text.parse::<u64>().with_context(|| format!("{arg} {text}: not a number"))
            };
            match arg {
                "--sample" => options.sample = Some(usize::try_from(number()?)?),
                "--seed" => options.seed = number()?,
                "--record" => options.record = true,
                name => {
                    let short = name.strip_prefix("flowyard-").unwrap_or(name);
                    let Some(package) = PACKAGES.iter().find(|package| **package == short) else {
                        bail!("no package '{name}'; the packages are: {}", PACKAGES.join(" "));
                    };
                    options.packages.push(package);
                }
            }
        }
        if options.packages.is_empty() {
            options.packages = PACKAGES.to_vec();
        }
        Ok(options)
    }
}

/// Runs the command with these arguments: exit status 2 if they are wrong.
pub(crate) fn run(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(error) => {
            complain(&format!("xtask mutants: {error:#}"));
            return ExitCode::from(2);
        }
    };
    match test(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("xtask mutants: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn test(options: &Options) -> Result<()> {
    let root = shell::root();
    if !shell::succeeds(Command::new("cargo-mutants").args(["mutants", "--version"])) {
        bail!("cargo-mutants is not installed: cargo install --locked cargo-mutants");
    }
    let known = Known::read(&root.join(KNOWN))?;
    let list = shell::output(mutants(&root, options).arg("--list"))?;
    let all = sample::read(&list, |path| fs::read_to_string(root.join(path)))?;
    let stale = known.stale(&all, &options.packages);
    if !stale.is_empty() {
        bail!("{KNOWN} has mutants that do not exist any more; remove them:\n{}", stale.join("\n"));
    }
    let chosen = sample::choose(&all, options.sample.unwrap_or(all.len()), options.seed);
    say(&format!("{} of {} mutants, seed {}", chosen.len(), all.len(), options.seed));
    let folder = root.join("target/mutants");
    fs::create_dir_all(&folder)?;
    let results = examine(&root, &folder, options, &chosen)?;
    let report = Report::new(options.seed, &all, &chosen, &results, &known);
    say(&report.text());
    if !report.untested.is_empty() {
        let names: Vec<_> = report.untested.iter().map(|mutant| mutant.name.as_str()).collect();
        bail!("cargo-mutants has no result for these mutants:\n{}", names.join("\n"));
    }
    if options.record {
        let path = root.join(RECORD);
        let before = fs::read_to_string(&path).with_context(|| RECORD)?;
        fs::write(&path, record::with_run(&before, &report.rows).context(RECORD)?)?;
    }
    if report.unknown.is_empty() {
        return Ok(());
    }
    let survivors: Vec<_> = report.unknown.iter().map(|mutant| known::entry(mutant)).collect();
    bail!(
        "{} survivors without a judgement. Write a test that fails with the change, or add to {KNOWN}:\n\n{}",
        survivors.len(),
        survivors.join("\n\n")
    )
}

/// cargo-mutants for these packages, in which no test finds `../shared`.
fn mutants(root: &Path, options: &Options) -> Command {
    let mut command = Command::new("cargo-mutants");
    command.current_dir(root).args(["mutants", "--colors", "never"]);
    for package in &options.packages {
        command.args(["--package", &format!("flowyard-{package}")]);
    }
    command.env("FLOWYARD_SHARED", root.join("target/mutants/no-shared-data"));
    // Small changes are built again and again; the crates that they depend on are built once.
    command.env("CARGO_TARGET_DIR", root.join("target/mutants/build"));
    command.env("FLOWYARD_LIVE", "0").env("CARGO_INCREMENTAL", "1");
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_TEST_DEBUG", "0");
    // A build without optimisation and the quick tests together take half the time of an optimised build.
    command.env("CARGO_PROFILE_TEST_OPT_LEVEL", "0");
    command
}

/// Parts of the names of tests that take seconds without optimisation. They run only for mutants that all
/// other tests of the package let pass.
const SLOW: [&str; 15] = [
    "published::",
    "sampler::",
    "flood::",
    "crafted",
    "who_knows_the_key",
    "the_directory_equals",
    "the_table_behaves_as_the_list",
    "every_lookup_finds",
    "a_hundred_thousand",
    "small_tables_reach_their_capacity",
    "the_backend_gets_the_header",
    "a_packet_costs_at_most",
    "a_local_port_serves_one",
    "leases_do_not_change",
    "every_port_of_an_address",
];

/// The outcomes of a run: full names of mutants.
#[derive(Default)]
struct Results {
    caught: BTreeSet<String>,
    missed: BTreeSet<String>,
    timed_out: BTreeSet<String>,
    unviable: BTreeSet<String>,
}

/// Tests the chosen mutants: first without the slow tests, and those that survive with all tests.
fn examine(root: &Path, folder: &Path, options: &Options, chosen: &[Mutant]) -> Result<Results> {
    let mut results = pass(root, folder, options, chosen, &SLOW)?;
    let left: Vec<_> =
        chosen.iter().filter(|mutant| results.missed.contains(&mutant.name)).cloned().collect();
    if !left.is_empty() {
        say(&format!("{} mutants survive the quick tests; all tests run for them", left.len()));
        let last = pass(root, folder, options, &left, &[])?;
        results.missed = last.missed;
        results.caught.extend(last.caught);
        results.timed_out.extend(last.timed_out);
    }
    Ok(results)
}

/// Tests mutants with all tests except those whose names contain one of `skipped`.
fn pass(
    root: &Path,
    folder: &Path,
    options: &Options,
    chosen: &[Mutant],
    skipped: &[&str],
) -> Result<Results> {
    let config = folder.join("chosen.toml");
    fs::write(&config, sample::config(chosen))?;
    let mut command = mutants(root, options);
    command.arg("--config").arg(&config).arg("--output").arg(folder);
    // Fields of structs are left out whatever the configuration says, but only in these lines.
    let diff = folder.join("chosen.diff");
    fs::write(&diff, sample::diff(chosen, |path| fs::read_to_string(root.join(path)))?)?;
    command.arg("--in-diff").arg(&diff);
    if std::env::var_os(TIMEOUT.0).is_none() {
        command.env(TIMEOUT.0, TIMEOUT.1);
    }
    command.args(["--jobs", "1", "--", "--tests", "--"]);
    command.args(skipped.iter().flat_map(|name| ["--skip", name]));
    let status = command.status()?;
    // 0: all are caught. 2 and 3: some are missed, some take too long.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo-mutants: {status}; see {}", folder.join("mutants.out").display());
    }
    let read = |name: &str| -> Result<BTreeSet<String>> {
        let path: PathBuf = folder.join("mutants.out").join(name);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    Ok(Results {
        caught: read("caught.txt")?,
        missed: read("missed.txt")?,
        timed_out: read("timeout.txt")?,
        unviable: read("unviable.txt")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_command() {
        let all = Options::parse(&[]).unwrap();
        assert_eq!((all.sample, all.seed, all.packages.len()), (None, 1, 8));
        let some =
            Options::parse(&["--sample", "30", "lb", "--seed", "7", "flowyard-wire"]).unwrap();
        assert_eq!((some.sample, some.seed), (Some(30), 7));
        assert_eq!((some.packages, some.record), (vec!["lb", "wire"], false));
        for (wrong, message) in [
            (&["--sample"][..], "--sample needs a number"),
            (&["--seed", "x"], "--seed x: not a number"),
            (&["cli"], "no package 'cli'; the packages are: frame wire"),
        ] {
            let error = Options::parse(wrong).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
