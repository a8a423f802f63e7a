//! The data plane against the cases of os-ken's switch tester, and together with an agent.

mod agent;
mod common;
mod os_ken;

flowyard_testkit::tests! {
    mod agent,
    mod os_ken,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
