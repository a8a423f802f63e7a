//! Ports on real interfaces, between real network stacks, in namespaces that the tests make.
//!
//! Whatever is sent: content is whole, flows are in order, and every frame that the yard received
//! is transmitted or counted under a reason.

mod line;
mod net;
mod paths;
mod rate;
mod steer;
mod steering;
mod sys;
mod sys_bpf;
mod traffic;
mod trouble;
mod yard;

use std::io::Write;

/// Says why a test is skipped, if it is.
fn skipped() -> bool {
    let Err(needs) = net::can() else { return false };
    let _ = std::io::stderr().write_fmt(format_args!("skipped: needs {needs}\n"));
    true
}

/// Prints a line that the reader of `--nocapture` wants.
fn tell(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{what}");
}
