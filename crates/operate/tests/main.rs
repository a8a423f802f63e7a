//! Tests of this crate over real sockets.

mod openflow;

flowyard_testkit::tests! { mod openflow }

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
