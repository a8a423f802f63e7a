//! Ports of DPDK, in a yard on threads: numbered frames pass through virtual devices, and each test checks their
//! contents, the order of each flow, that no frame is lost or comes twice, and that all buffers are back at the end.
//!
//! DPDK is started once in this process, without huge pages. Where it cannot start, the tests are ignored.
//! `FLOWYARD_DPDK_FRAMES` is the number of frames of each test, 100000000 for the long mode: by default they are few.

mod eventdev;
mod kernel;
mod memory;
mod peers;
mod refusals;
mod scenarios;
mod traffic;

use flowyard_testkit::harness::Need;

/// DPDK starts here.
const DPDK: Need = Need::Check(traffic::dpdk_starts);

flowyard_testkit::tests! {
    mod eventdev needs [DPDK],
    mod kernel,
    mod memory needs [DPDK],
    mod peers needs [DPDK],
    mod refusals needs [DPDK],
    mod scenarios needs [DPDK],
}

fn main() -> std::process::ExitCode {
    scenarios::asked().unwrap_or_else(|| flowyard_testkit::harness::run(tests()))
}
