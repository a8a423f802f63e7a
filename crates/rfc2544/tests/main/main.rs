//! Tests of the test bench that need data from outside this repository.

mod published;

flowyard_testkit::tests! { mod published }

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
