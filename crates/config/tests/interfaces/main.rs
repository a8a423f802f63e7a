//! Ports on real interfaces, between real network stacks, in namespaces that the tests create.
//!
//! Every test checks the contents and the order of each flow, and that every frame that the engine
//! received is transmitted or counted as a drop with a reason. These tests run with `FLOWYARD_LIVE=1` only.

mod fronted;
mod ipsec;
mod lives;
mod offload;
mod paths;
mod rate;
mod steer;
mod steering;
mod sys_bpf;
mod trouble;
mod yard;

use flowyard_testkit::harness::Need;

/// Network namespaces: root, and a kernel that permits them.
const NAMESPACES: Need = Need::Namespaces;

/// Permission, and the programs that the tests run.
const TOOLS: [Need; 4] =
    [Need::Live, Need::Program("ip"), Need::Program("ethtool"), Need::Program("ping")];

flowyard_testkit::tests! {
    mod fronted needs TOOLS,
    mod ipsec needs TOOLS,
    mod lives needs TOOLS,
    mod offload needs TOOLS,
    mod paths needs TOOLS,
    mod rate needs TOOLS,
    mod steer needs TOOLS,
    mod steering needs TOOLS,
    mod trouble needs TOOLS,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
