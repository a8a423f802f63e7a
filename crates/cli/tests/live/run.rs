//! `flowyard run` on real interfaces, with real programs on both sides.

mod far;
mod gigabyte;
mod killed;
mod openflow;
mod order;
mod programs;
mod uplink;

use flowyard_testkit::harness::Need;

/// What the tests with real programs on both sides need.
const PROGRAMS: [Need; 11] = crate::live_and([
    Need::Program("iperf3"),
    Need::Program("python3"),
    Need::Program("curl"),
    Need::Program("memcached"),
]);

flowyard_testkit::tests! {
    mod gigabyte,
    mod killed,
    mod openflow,
    mod order,
    mod programs,
    mod uplink,
}
