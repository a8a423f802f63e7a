//! Requirements of live tests. A test whose requirement is not met is skipped, and the requirement printed.

use std::fmt;
use std::io::Write;
use std::process::Command;

use crate::net;

/// Prints that a test is skipped, and what it needs.
pub fn skip(needs: &str) {
    // Not println!, whose output the test runner hides when a test passes.
    let _ = std::io::stderr().write_fmt(format_args!("skipped: needs {needs}\n"));
}

/// Whether live tests are skipped: network namespaces are not available, or `FLOWYARD_LIVE` is 0. Prints the
/// reason.
#[must_use]
pub fn skipped() -> bool {
    let is_off = std::env::var_os("FLOWYARD_LIVE").is_some_and(|word| word == "0");
    let can = if is_off { Err("FLOWYARD_LIVE other than 0".into()) } else { net::can() };
    can.map_err(|needs: String| skip(&needs)).is_err()
}

/// Whether a program is installed; prints that a test is skipped if not.
#[must_use]
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        skip(&format!("the program {program}"));
    }
    there
}

/// Prints a line for readers of `--nocapture`.
pub fn tell(what: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{what}");
}
