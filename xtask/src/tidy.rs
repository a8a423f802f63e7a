//! `cargo xtask tidy`: rules of this code base that the compiler and clippy do not check.
//!
//! | check      | rule |
//! |------------|------|
//! | `budgets`  | the length of files and functions, with a short list of exceptions |
//! | `arrows`   | a crate depends only on the crates that ARCHITECTURE.md permits |
//! | `circles`  | no circle of more than two files inside a crate |
//! | `modules`  | ARCHITECTURE.md lists the modules of each crate |
//! | `words`    | no words of a private dialect |
//! | `parsers`  | every parser has a fuzz target |
//! | `places`   | no `#[path]`, no path of one machine, no host of a registry |
//! | `harness`  | no test that passes without running |
//!
//! A check is a function from the files of the repository to its findings. A finding names the file,
//! the line, and what to do.

mod arrows;
mod budgets;
mod circles;
mod harness;
mod imports;
mod modules;
mod parsers;
mod places;
mod scan;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell::{self, say};

/// A text file of the repository.
struct File {
    /// From the root of the repository, with `/`.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The name of the crate's folder, if the file is in the source of one.
    fn crate_source(&self) -> Option<&str> {
        let (name, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        rest.starts_with("src/").then_some(name)
    }

    /// Whether it holds only tests: programs in `tests`, and modules named `tests`.
    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches"))
    }
}

/// Something to change.
struct Finding {
    category: &'static str,
    path: String,
    /// From 1; 0 if it is about the whole file.
    line: usize,
    /// What is wrong, and what to do.
    what: String,
}

impl Finding {
    fn new(category: &'static str, path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { category, path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { category, path, line, what } = self;
        match line {
            0 => write!(f, "{path}: {category}: {what}"),
            _ => write!(f, "{path}:{line}: {category}: {what}"),
        }
    }
}

/// Prints the findings, or only their number by category and area. An error if there are any.
pub(crate) fn run(only_summary: bool) -> Result<()> {
    let files = files(&shell::root())?;
    let mut findings = Vec::new();
    let checks = [
        budgets::check,
        arrows::check,
        circles::check,
        modules::check,
        words::check,
        parsers::check,
        places::check,
        harness::check,
    ];
    checks.iter().for_each(|check| check(&files, &mut findings));
    if findings.is_empty() {
        say(&format!("tidy: {} files, nothing to change", files.len()));
        return Ok(());
    }
    findings.sort_by(|a, b| (a.category, &a.path, a.line).cmp(&(b.category, &b.path, b.line)));
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for finding in &findings {
        if !only_summary {
            say(&finding.to_string());
        }
        let area = area(&finding.path);
        *counts.entry(finding.category).or_default().entry(area).or_default() += 1;
    }
    for (category, areas) in counts {
        let parts: Vec<String> = areas.iter().map(|(area, n)| format!("{area} {n}")).collect();
        say(&format!("tidy: {:5} {category}: {}", areas.values().sum::<usize>(), parts.join(", ")));
    }
    bail!("{} findings", findings.len())
}

/// The part of the repository that a file belongs to: a crate, or a folder.
fn area(path: &str) -> &str {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    path.split('/').next().unwrap_or(path)
}

/// Every text file that git knows or would add.
fn files(root: &Path) -> Result<Vec<File>> {
    let mut git = Command::new("git");
    git.current_dir(root).args("ls-files -z --cached --others --exclude-standard".split(' '));
    let list = shell::output(&mut git).context("tidy needs git and a clone of the repository")?;
    let mut files = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        // A file that was deleted but not committed is listed; a binary file is not UTF-8.
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}
