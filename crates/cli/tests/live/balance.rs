//! The load balancer between real clients and real servers: nginx, HAProxy and memcached behind `flowyard
//! run`, curl and our own clients in front of it.
//!
//! Every test needs nginx and curl.

mod announced;
mod balancer;
mod behind;
mod changes;
mod checks;
mod cluster;
mod document;
mod etcd;
mod examples;
mod fleet;
mod hard;
mod health;
mod load;
mod modes;
mod next_hops;
mod proxied;
mod routing;
mod servers;
mod site;
mod store;
mod synchronized;
mod tunnel;
mod upgraded;

use flowyard_testkit::harness::Need;

const BIRD: Need = Need::Program("bird");
const BIRDC: Need = Need::Program("birdc");
const ETCD: Need = Need::Program("etcd");
const ETCDCTL: Need = Need::Program("etcdctl");
const NFT: Need = Need::Program("nft");

flowyard_testkit::tests! {
    mod announced needs [BIRD, BIRDC],
    mod behind,
    mod changes,
    mod checks,
    mod cluster,
    mod document,
    mod etcd needs [ETCD, ETCDCTL],
    mod examples,
    mod fleet needs [BIRD, BIRDC, ETCD, ETCDCTL, NFT],
    mod hard,
    mod health,
    mod modes,
    mod next_hops,
    mod proxied,
    mod synchronized,
    mod upgraded,
}
