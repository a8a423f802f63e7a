//! The load balancer between real clients and real servers, in namespaces that the tests make:
//! nginx, HAProxy and memcached behind `flowyard run`, curl and clients of our own in front.
//!
//! `FLOWYARD_BINARY` and `FLOWYARD_LIVE` are those of the other live tests (`tests/run_live`), whose
//! namespaces these are. What a machine lacks is skipped, and said.
//!
//! Nothing is decided by time: what is to come is waited for, with deadlines far beyond what any
//! machine takes.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "what is shared with the other live tests is used in part"
)]

mod balancer;
mod behind;
mod changes;
mod cluster;
mod hard;
mod health;
mod load;
mod modes;
#[path = "../../../yard/tests/live/net.rs"]
mod net;
mod next_hops;
mod proxied;
mod servers;
mod site;
#[path = "../../../yard/tests/live/sys.rs"]
mod sys;
mod tunnel;
#[path = "../run_live/yard.rs"]
mod yard;

use std::io::Write;
use std::process::Command;

/// Says why a test is skipped, if it is.
fn skipped() -> bool {
    let is_off = std::env::var_os("FLOWYARD_LIVE").is_some_and(|word| word == "0");
    let can = if is_off { Err("FLOWYARD_LIVE other than 0".into()) } else { net::can() };
    let Err(needs) = can else { return !has("nginx") || !has("curl") };
    skip(&needs);
    true
}

/// Whether a program is there; if not, says so.
fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        skip(&format!("the program {program}"));
    }
    there
}

fn skip(needs: &str) {
    let _ = std::io::stderr().write_fmt(format_args!("skipped: needs {needs}\n"));
}

/// Prints a line that the reader of `--nocapture` wants.
fn tell(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{what}");
}
