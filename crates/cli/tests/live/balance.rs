//! The load balancer between real clients and real servers: nginx, HAProxy and memcached behind `flowyard
//! run`, curl and our own clients in front of it.
//!
//! HAProxy and memcached are optional: without them these tests use nginx alone, or no memcached.

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

use flowyard_testkit::harness::Need;

/// What all these tests need.
const SERVERS: [Need; 9] = crate::live_and([Need::Program("nginx"), Need::Program("curl")]);

flowyard_testkit::tests! {
    mod behind,
    mod changes,
    mod cluster,
    mod hard,
    mod health,
    mod modes,
    mod next_hops,
    mod proxied,
}
