//! Tests of the codec: every message is the same after encoding and decoding, no input causes a
//! panic, and os-ken agrees.

mod layout;
mod os_ken;
mod roundtrip;

flowyard_testkit::tests! {
    mod layout,
    mod os_ken,
    mod roundtrip,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
