//! `cargo xtask docs`: runs the commands of README.md and docs/*.md, word for word, in a fresh clone.
//!
//! ```text
//! blocks of language `sh` ──> a clone of HEAD in target/docs ──> bash, one script per block, in order
//! ```
//!
//! Of a transcript (language `console`), the lines that begin with "$ " are run; what they print is not compared.
//! A block that cannot run everywhere has the reason in its first line: "sh skip: REASON" is never run, and
//! "sh long: REASON" only with `--long`. Both are listed. A transcript in a block of another language is an error. The commands of one page see the files that earlier
//! blocks of the page wrote. What a block started in the background ends with the block.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell::{self, run, say};

/// The limit for a block, in seconds.
const LIMIT: &str = "300";

/// The first lines of each script. `flowyard` is the release build.
const PRELUDE: &str = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n";

/// A block of commands in a page.
#[derive(PartialEq, Eq, Debug)]
struct Block<'a> {
    /// The line of the fence, from 1.
    line: usize,
    when: When<'a>,
    script: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When<'a> {
    Always,
    Long(&'a str),
    Never(&'a str),
}

/// Runs the blocks of all pages. Returns the blocks that were left out, as "PLACE: REASON".
pub(crate) fn check(with_long: bool) -> Result<Vec<String>> {
    let root = shell::root();
    let target = target(&root)?;
    let clone = clone(&root, &target.join("docs"))?;
    let mut build = Command::new("cargo");
    build.current_dir(&root).args(["build", "--release", "-p", "flowyard-cli"]);
    run(build.env("CARGO_TARGET_DIR", &target))?;
    let (mut left_out, mut failed, mut passed) = (Vec::new(), Vec::new(), 0);
    for page in pages(&clone)? {
        let text = std::fs::read_to_string(clone.join(&page))?;
        for block in blocks(&text).with_context(|| page.clone())? {
            let place = format!("{page}:{}", block.line);
            match block.when {
                When::Never(why) => left_out.push(format!("{place}: {why}")),
                When::Long(why) if !with_long => left_out.push(format!("{place}: {why}")),
                When::Always | When::Long(_) => match execute(&block.script, &clone, &target) {
                    Ok(()) => {
                        passed += 1;
                        say(&format!("docs: {place} passed"));
                    }
                    Err(error) => {
                        say(&format!("docs: {place} FAILED: {error:#}"));
                        failed.push(place);
                    }
                },
            }
        }
    }
    say(&format!(
        "docs: {passed} blocks passed, {} failed, {} left out",
        failed.len(),
        left_out.len()
    ));
    if passed == 0 {
        bail!("no block was run");
    }
    if !failed.is_empty() {
        bail!("these blocks failed: {}", failed.join(", "));
    }
    Ok(left_out)
}

/// Runs [`check`] and prints what was left out.
pub(crate) fn run_all(with_long: bool) -> Result<()> {
    let left_out = check(with_long)?;
    left_out.iter().for_each(|block| say(&format!("left out: {block}")));
    Ok(())
}

/// Cargo's target folder.
fn target(root: &Path) -> Result<PathBuf> {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => Ok(std::path::absolute(root.join(folder))?),
        None => Ok(root.join("target")),
    }
}

/// A new clone of the repository's HEAD.
fn clone(root: &Path, folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--local"]).arg(root).arg(folder);
    run(&mut git)?;
    Ok(folder.to_owned())
}

/// README.md and the pages in docs.
fn pages(clone: &Path) -> Result<Vec<String>> {
    let mut pages = vec!["README.md".to_owned()];
    for entry in std::fs::read_dir(clone.join("docs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages.sort();
    Ok(pages)
}

/// Runs a script in the clone. Its output is printed only if it fails.
fn execute(script: &str, clone: &Path, target: &Path) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let release = std::iter::once(target.join("release"));
    let path = std::env::join_paths(release.chain(std::env::split_paths(&path)))?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT, "bash", "-c"]).arg(format!("{PRELUDE}{script}"));
    command.current_dir(clone).env("PATH", path).env("CARGO_TARGET_DIR", target);
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    };
    match output.status.code() {
        Some(124) => bail!("not finished after {LIMIT} s\n{}\n{}", last(&out), last(&err)),
        _ => bail!("{}\n{}\n{}", output.status, last(&out), last(&err)),
    }
}

/// The blocks of commands in a page.
fn blocks(text: &str) -> Result<Vec<Block<'_>>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> =
            lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```").collect();
        let (language, rest) = info.split_once(' ').unwrap_or((info, ""));
        let typed: Vec<&str> = body.iter().filter_map(|line| line.strip_prefix("$ ")).collect();
        let script = match language {
            "sh" => body.join("\n"),
            "console" => typed.join("\n"),
            _ if !typed.is_empty() => {
                bail!("line {number}: a block with commands behind '$ ' begins with ```console")
            }
            _ => continue,
        };
        let when = match rest.split_once(": ") {
            Some(("skip", why)) => When::Never(why),
            Some(("long", why)) => When::Long(why),
            _ if rest.is_empty() => When::Always,
            _ => bail!(
                "line {number}: write ```{language}, ```{language} skip: REASON or ```{language} long: REASON"
            ),
        };
        blocks.push(Block { line: number, when, script });
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_commands_are_found_with_their_condition() {
        let page = "text\n```sh\na \\\n  b\n```\n```text\nc\n```\n```sh skip: needs x\nd\n```\n```sh long: an hour\ne\n```\n";
        let found = blocks(page).unwrap();
        let block = |line, when, script: &str| Block { line, when, script: script.into() };
        let wanted = [
            block(2, When::Always, "a \\\n  b"),
            block(9, When::Never("needs x"), "d"),
            block(12, When::Long("an hour"), "e"),
        ];
        assert_eq!(found, wanted);
        assert!(blocks("```sh maybe\n```\n").is_err());
        // Of a transcript, only what was typed.
        let page = "```console\n$ a b\nits output\n$ c\n```\n```console skip: x\n$ d\n```\n";
        let wanted = [block(1, When::Always, "a b\nc"), block(6, When::Never("x"), "d")];
        assert_eq!(blocks(page).unwrap(), wanted);
        assert!(blocks("```\n$ a\n```\n").is_err());
        assert!(blocks("```text\n$ a\n```\n").is_err());
    }

    #[test]
    fn a_command_that_fails_in_a_block_fails_the_block() {
        let here = std::env::temp_dir();
        assert!(execute("true\nfalse\ntrue", &here, &here).is_err());
        assert!(execute("sleep 100 &\ntrue", &here, &here).is_ok(), "it ends what it started");
    }
}
