//! Measurements with real sockets, which need root: two hosts in network namespaces, memcached, pinned
//! threads.
//!
//! ```text
//!  server's namespace   memcached, or our own sockets ── [vb] ════ [va] ── clients   clients' namespace
//! ```
//!
//! `sockets` and `threads` time single operations. `memcached` measures the request rate that the
//! host model predicts from these times. The namespaces have no names; each ends with the process that
//! holds it, which ends with this one. The machine's own interfaces are not used. One of its settings is
//! changed (`FlowTable`) and restored.

pub(crate) mod hosts;
pub(crate) mod memcached;
pub(crate) mod priority;
pub(crate) mod quiet;
pub(crate) mod sockets;
pub(crate) mod threads;

/// Why these measurements are not possible here; `None` if they are.
#[must_use]
pub fn obstacle() -> Option<&'static str> {
    let has = |program: &str| crate::in_path(program).is_some();
    if !rustix::process::geteuid().is_root() {
        return Some("root is needed, for network namespaces and real-time threads");
    }
    if crate::processors() < 2 {
        return Some("two CPUs are needed");
    }
    let programs = ["ip", "unshare", "nsenter", "mount"];
    if programs.into_iter().any(|program| !has(program)) {
        return Some(
            "the programs ip, unshare, nsenter and mount are needed (packages iproute2, util-linux)",
        );
    }
    (!has("memcached")).then_some("the program memcached is needed")
}
