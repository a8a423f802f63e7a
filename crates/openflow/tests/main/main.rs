//! The codec: every message comes back, no bytes make it panic, and os-ken agrees.

mod os_ken;
mod roundtrip;

flowyard_testkit::tests! {
    mod os_ken,
    mod roundtrip,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
