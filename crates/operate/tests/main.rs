//! Tests of this crate over real sockets.

mod lives;
mod openflow;

flowyard_testkit::tests! { mod lives, mod openflow }

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
