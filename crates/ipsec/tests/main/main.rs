//! Published vectors: ESP packets, and the Wycheproof vectors of the AEADs.

use flowyard_testkit::harness;

mod vectors;
mod wycheproof;

flowyard_testkit::tests! {
    mod vectors,
    mod wycheproof,
}

fn main() -> std::process::ExitCode {
    harness::run(tests())
}
