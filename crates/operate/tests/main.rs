//! Tests of this crate with running engines and over real sockets.

mod adapters;
mod handover;
mod lives;
mod openflow;

flowyard_testkit::tests! { mod adapters, mod handover, mod lives, mod openflow }

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
