//! The command on real interfaces in network namespaces that the tests make: `flowyard run`, the load
//! balancer, `flowyard bench`.
//!
//! These tests run with `FLOWYARD_LIVE=1` only. `FLOWYARD_BINARY` names another build of the command than the
//! one beside the tests.
//!
//! Tests wait for events, not for times. Their deadlines are far longer than any machine takes.

mod balance;
mod bench;
mod bench_memcached;
mod bench_steer;
mod host;
mod run;
mod steer;
mod yard;

use flowyard_testkit::harness::Need;

const LIVE: Need = Need::Live;
const NAMESPACES: Need = Need::Namespaces;
const IP: Need = Need::Program("ip");
const ETHTOOL: Need = Need::Program("ethtool");
const PING: Need = Need::Program("ping");

flowyard_testkit::tests! {
    mod balance needs [LIVE, NAMESPACES, IP, ETHTOOL, PING, Need::Program("nginx"), Need::Program("curl")],
    mod bench needs [LIVE, NAMESPACES, IP],
    mod host needs [LIVE, NAMESPACES, IP, ETHTOOL],
    mod run needs [LIVE, NAMESPACES, IP, ETHTOOL, PING],
    mod bench_steer needs [
        LIVE, NAMESPACES, IP, ETHTOOL, Need::Program("memcached"), Need::Program("nginx"), Need::Program("iperf3"),
        Need::Program("setpriv"),
    ],
    mod bench_memcached needs [
        LIVE, NAMESPACES, IP, ETHTOOL, Need::Program("memcached"), Need::Program("setpriv"),
    ],
    mod steer needs [LIVE, NAMESPACES, IP, ETHTOOL, Need::Program("nsenter"), Need::Program("unshare")],
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
