//! The isolation check before the tester opens a real interface (T10 in docs/bench.md).
//!
//! RFC 6815: benchmark traffic must not be sent on production networks. The tester refuses interfaces
//! that have a default route, and every interface in the machine's own network namespace, unless the user
//! declares them isolated (--isolated).

use std::fs;

use flowyard_ports::live::default_route;

use crate::Error;

/// Inode of the initial network namespace since Linux 6.18 (`linux/nsfs.h`).
const FIRST: &str = "net:[4026531833]";

/// Refuses interfaces that may be connected to a production network.
pub(super) fn check(names: &[String]) -> Result<(), Error> {
    let fix = "benchmark traffic must not be sent on production networks (RFC 6815): run the test in a \
               network namespace of its own, or give --isolated if the interface is isolated";
    for name in names {
        if let Some(to) = default_route(name)? {
            return Err(Error::input(format!("'{name}' has the default route to {to}; {fix}")));
        }
    }
    if is_initial_namespace()? {
        return Err(Error::input(format!("this is the machine's own network namespace; {fix}")));
    }
    Ok(())
}

/// Whether this may be the machine's own network namespace, that is the namespace of process 1. Reading
/// that needs CAP_SYS_PTRACE. Without the capability, it is the one with the inode of the initial
/// namespace, or one in which some interface has a default route.
fn is_initial_namespace() -> Result<bool, Error> {
    let namespace = |of: &str| {
        let link = fs::read_link(format!("/proc/{of}/ns/net")).ok()?;
        link.to_str().map(str::to_owned)
    };
    let Some(ours) = namespace("thread-self") else { return Ok(true) };
    if let Some(first) = namespace("1") {
        return Ok(ours == first);
    }
    if ours == FIRST {
        return Ok(true);
    }
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    for line in table.lines().skip(2) {
        let name = line.split(':').next().unwrap_or_default().trim();
        if default_route(name)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
