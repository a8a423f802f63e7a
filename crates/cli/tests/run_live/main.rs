//! The command on real interfaces, with real programs on the far side, in namespaces that the tests
//! make. `FLOWYARD_BINARY` names another build of the command than the one beside the tests;
//! `FLOWYARD_LIVE=0` leaves all of this out.
//!
//! Nothing is decided by time: what is to come is waited for, with deadlines far beyond what any
//! machine takes.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "what is shared with the yard's live tests is used in part"
)]

mod far;
mod gigabyte;
mod killed;
#[path = "../../../yard/tests/live/line.rs"]
mod line;
#[path = "../../../yard/tests/live/net.rs"]
mod net;
mod openflow;
mod order;
mod programs;
#[path = "../../../yard/tests/live/sys.rs"]
mod sys;
#[path = "../../../yard/tests/live/traffic.rs"]
mod traffic;
mod uplink;
mod yard;

use std::io::Write;

/// Says why a test is skipped, if it is.
fn skipped() -> bool {
    let is_off = std::env::var_os("FLOWYARD_LIVE").is_some_and(|word| word == "0");
    let can = if is_off { Err("FLOWYARD_LIVE other than 0".into()) } else { net::can() };
    let Err(needs) = can else { return false };
    let _ = std::io::stderr().write_fmt(format_args!("skipped: needs {needs}\n"));
    true
}

/// Prints a line that the reader of `--nocapture` wants.
fn tell(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{what}");
}
