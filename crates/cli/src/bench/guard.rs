//! The guard before the bench's real ports (T10). RFC 6815: benchmark traffic must not be on networks
//! that others use. So the bench refuses interfaces with a default route, and everything outside a
//! network namespace of its own, unless the user says that it is isolated.

use std::fs;

use flowyard_ports::live::default_route;

use crate::stop::{Stop, bad_input};

/// The number that Linux has given the first network namespace since 6.18 (`linux/nsfs.h`).
const FIRST: &str = "net:[4026531833]";

/// Refuses interfaces that others may use.
pub(super) fn check(names: &[String]) -> Result<(), Stop> {
    let mend = "benchmark traffic must not be on networks that others use (RFC 6815): test in a \
                namespace of its own, or say --isolated";
    for name in names {
        if let Some(to) = default_route(name)? {
            return Err(bad_input(format!("'{name}' has the default route to {to}; {mend}")));
        }
    }
    if is_the_machines()? {
        return Err(bad_input(format!("this is the machine's own network namespace; {mend}")));
    }
    Ok(())
}

/// Whether this may be the network namespace that the machine itself is in. That of the first process
/// says so; who may not ask for it (CAP_SYS_PTRACE) goes by the number of the first namespace, and by
/// whether anything here leads out: a namespace with a default route is nobody's own.
fn is_the_machines() -> Result<bool, Stop> {
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
