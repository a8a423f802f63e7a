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
#[path = "../common/needs.rs"]
mod needs;
#[path = "../../../config/tests/live/net.rs"]
mod net;
mod next_hops;
mod proxied;
mod servers;
mod site;
#[path = "../../../config/tests/live/sys.rs"]
mod sys;
mod tunnel;
#[path = "../run_live/yard.rs"]
mod yard;

use needs::{has, tell};

/// Says why a test is skipped, if it is.
fn skipped() -> bool {
    needs::skipped() || !has("nginx") || !has("curl")
}
