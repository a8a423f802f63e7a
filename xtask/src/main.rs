//! Commands for people who change this workspace: `cargo xtask COMMAND`.
//!
//! Each command is one module. The crate has few dependencies, so that it builds in seconds on a
//! fresh clone, before anything else is built.

mod bpf;
mod ci;
mod docs;
mod firmware;
mod mutants;
mod shell;
mod tidy;

use std::process::ExitCode;

use shell::complain;

const HELP: &str = "\
Commands of this workspace

usage: cargo xtask COMMAND

  ci [STEP...]          run the checks that a change must pass before it is merged;
                        without STEP all of them, in order, stopping at the first failure
  ci --list             list the steps
  tidy                  check the rules of this code base that the compiler does not check
  tidy --summary        only count the findings, by category and crate
  docs                  run the commands of README.md and docs/*.md in a fresh clone of HEAD
  docs --long           also those that are marked as long
  firmware              rebuild the adapter's firmware with clang and lld, and write its hashes
  firmware --check      rebuild it into a temporary folder and compare with the committed images
  firmware --handler FILE.h --output FILE.elf
                        build the firmware 'rmw' with your own frame handler (docs/nic.md)
  bpf                   recompile the programs for the kernel (crates/steer/bpf) with clang-14
  bpf --check           recompile them into a temporary folder and compare with the committed objects
  mutants [--sample N] [--seed S] [--record] [PACKAGE...]
                        test mutants of the packages (docs/mutants.md): N of them that the
                        seed chooses, or all; --record writes the numbers to docs/mutants.md
  help                  print this text

Environment of 'ci':
  FUZZ_SECONDS=N        run each fuzz target for N seconds, two targets at a time (default 6)
  FUZZ_TARGETS='A B'    run these fuzz targets only
  CHECK_ADVISORIES=1    also fetch the RustSec advisory database and check the dependencies
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["ci", "--list"] => {
            ci::list();
            Ok(())
        }
        ["ci", ref steps @ ..] => return ci::run(steps),
        ["mutants", ref rest @ ..] => return mutants::run(rest),
        ["tidy"] => tidy::run(false),
        ["tidy", "--summary"] => tidy::run(true),
        ["docs"] => docs::run_all(false),
        ["docs", "--long"] => docs::run_all(true),
        ["bpf"] => bpf::rebuild(),
        ["bpf", "--check"] => bpf::check(),
        ["firmware"] => firmware::rebuild(),
        ["firmware", "--check"] => firmware::check(),
        ["firmware", "--handler", handler, "--output", output] => {
            firmware::with_handler(handler, output)
        }
        ["help" | "--help" | "-h"] => {
            shell::say(HELP.trim_end());
            Ok(())
        }
        _ => {
            complain(HELP.trim_end());
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
