//! Budgets: a source file has at most 500 lines and a function at most 80, so that each can be read
//! in one sitting. The walk of a packet, `core.rs` of the crate `yard`, has at most 250.
//!
//! Files in Rust and the firmware in C have the budget of a file. The budget of a function is for Rust.

use super::{File, Finding, scan};

const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 80;
const CORE: (&str, usize) = ("crates/yard/src/core.rs", 250);

/// Where the budgets apply.
const FOLDERS: [&str; 3] = ["crates/", "xtask/", "fuzz/"];

/// A file, or a function of a file, that may be longer.
struct Exception {
    path: &'static str,
    /// Empty if the exception is for the file.
    function: &'static str,
    lines: usize,
    reason: &'static str,
}

/// At most [`MOST_EXCEPTIONS`]; each needs a reason that a reviewer accepts.
const EXCEPTIONS: &[Exception] = &[];
const MOST_EXCEPTIONS: usize = 10;

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    let mut used = vec![false; EXCEPTIONS.len()];
    // Whether a length is permitted by an exception.
    let mut is_exception = |path: &str, function: &str, lines: usize| {
        let found = EXCEPTIONS.iter().position(|e| e.path == path && e.function == function);
        found.inspect(|&at| used[at] = true).is_some_and(|at| lines <= EXCEPTIONS[at].lines)
    };
    for file in files.iter().filter(|file| is_source(&file.path)) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES && !is_exception(&file.path, "", lines) {
            let what = format!("{lines} lines, at most {FILE_LINES}: split it into modules");
            findings.push(Finding::new("file-length", &file.path, 0, what));
        }
        if file.path == CORE.0 && lines > CORE.1 {
            let what = format!("{lines} lines, at most {}: move parts out of the walk", CORE.1);
            findings.push(Finding::new("core-length", &file.path, 0, what));
        }
        if !file.is_rust() {
            continue;
        }
        for function in scan::functions(&scan::code(&file.text)) {
            let (name, lines) = (&function.name, function.lines());
            if lines > FUNCTION_LINES && !is_exception(&file.path, name, lines) {
                let what =
                    format!("fn {name} has {lines} lines, at most {FUNCTION_LINES}: split it");
                findings.push(Finding::new("function-length", &file.path, function.first, what));
            }
        }
    }
    exceptions(&used, findings);
}

/// The list of exceptions is short, gives reasons and is in use.
fn exceptions(used: &[bool], findings: &mut Vec<Finding>) {
    let mut wrong = |what: String| {
        findings.push(Finding::new("exceptions", "xtask/src/tidy/budgets.rs", 0, what));
    };
    if EXCEPTIONS.len() > MOST_EXCEPTIONS {
        wrong(format!("{} exceptions, at most {MOST_EXCEPTIONS}", EXCEPTIONS.len()));
    }
    for (exception, used) in EXCEPTIONS.iter().zip(used) {
        let name = format!("{} {}", exception.path, exception.function);
        if exception.reason.is_empty() {
            wrong(format!("{name}: the exception has no reason"));
        }
        if !used {
            wrong(format!("{name}: the exception is not used: remove it"));
        }
    }
}

fn is_source(path: &str) -> bool {
    let is_code = [".rs", ".c", ".h"].iter().any(|end| path.ends_with(end));
    is_code && FOLDERS.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn categories(path: &str, text: String) -> Vec<&'static str> {
        let mut findings = Vec::new();
        check(&[File { path: path.to_owned(), text }], &mut findings);
        findings.retain(|finding| finding.category != "exceptions");
        findings.iter().map(|finding| finding.category).collect()
    }

    #[test]
    fn lengths() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "a();\n".repeat(lines - 2));
        assert!(categories("crates/x/src/a.rs", function(80)).is_empty());
        assert_eq!(categories("crates/x/src/a.rs", function(81)), ["function-length"]);
        assert!(categories("docs/a.rs", function(81)).is_empty());
        assert!(categories("crates/x/src/a.rs", "a\n".repeat(500)).is_empty());
        assert_eq!(categories("crates/x/src/a.c", "a\n".repeat(501)), ["file-length"]);
        assert_eq!(categories(CORE.0, "a\n".repeat(251)), ["core-length"]);
    }
}
