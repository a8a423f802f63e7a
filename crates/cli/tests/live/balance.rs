//! The load balancer between real clients and real servers: nginx, HAProxy and memcached behind `flowyard
//! run`, curl and our own clients in front of it.
//!
//! Every test needs nginx and curl.

mod balancer;
mod behind;
mod changes;
mod checks;
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

flowyard_testkit::tests! {
    mod behind,
    mod changes,
    mod checks,
    mod cluster,
    mod hard,
    mod health,
    mod modes,
    mod next_hops,
    mod proxied,
}
