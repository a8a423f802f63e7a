//! The load balancer between real clients and real servers: nginx, HAProxy and memcached behind `flowyard
//! run`, curl and our own clients in front of it.
//!
//! A test whose programs are not installed is skipped.

mod balancer;
mod behind;
mod changes;
mod cluster;
mod hard;
mod health;
mod load;
mod modes;
mod next_hops;
mod proxied;
mod servers;
mod site;
mod tunnel;

use flowyard_livekit::needs::{self, has};

/// Whether these tests are skipped; prints the reason.
fn skipped() -> bool {
    needs::skipped() || !has("nginx") || !has("curl")
}
