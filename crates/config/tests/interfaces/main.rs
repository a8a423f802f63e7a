//! Ports on real interfaces, between real network stacks, in namespaces that the tests make.
//!
//! In every test the content is checked, flows are in order, and every frame that the engine received is
//! transmitted or counted under a reason.

mod paths;
mod rate;
mod steer;
mod steering;
mod sys_bpf;
mod trouble;
mod yard;

use flowyard_livekit::needs::tell;
use flowyard_testkit::harness::Need;

/// Network namespaces: root, and a kernel that permits them.
const NAMESPACES: Need = Need::Check(flowyard_livekit::net::can);

flowyard_testkit::tests! {
    mod paths,
    mod rate,
    mod steer,
    mod steering,
    mod trouble,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
