//! The load balancer between real clients and real servers in network namespaces: nginx, HAProxy and
//! memcached behind `flowyard run`, curl and our own clients in front of it.
//!
//! A test whose programs are not installed is skipped.
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

/// Whether these tests are skipped; prints the reason.
fn skipped() -> bool {
    needs::skipped() || !has("nginx") || !has("curl")
}
