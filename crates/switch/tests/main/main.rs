//! The data plane against the cases of os-ken's switch tester.

mod common;
mod os_ken;

flowyard_testkit::tests! {
    mod os_ken,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
