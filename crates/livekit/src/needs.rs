//! Programs that a live test can do without, and its report.

use std::fmt;
use std::io::Write;
use std::process::Command;

/// Whether a program is installed. What a test cannot do without is in its list of requirements.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// Prints a line for readers of `--nocapture`.
pub fn tell(what: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{what}");
}
