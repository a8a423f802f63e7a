//! What a live test needs, and says when it is not there; and what it tells.

use std::io::Write;
use std::process::Command;

/// Says that a test is skipped, and what it needs.
pub(crate) fn skip(needs: &str) {
    let _ = std::io::stderr().write_fmt(format_args!("skipped: needs {needs}\n"));
}

/// Whether there are no namespaces here, or `FLOWYARD_LIVE=0` leaves all of this out; if so, says so.
pub(crate) fn skipped() -> bool {
    let is_off = std::env::var_os("FLOWYARD_LIVE").is_some_and(|word| word == "0");
    let can = if is_off { Err("FLOWYARD_LIVE other than 0".into()) } else { crate::net::can() };
    can.map_err(|needs| skip(&needs)).is_err()
}

/// Whether a program is there; if not, says so.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        skip(&format!("the program {program}"));
    }
    there
}

/// Prints a line that the reader of `--nocapture` wants.
pub(crate) fn tell(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{what}");
}
