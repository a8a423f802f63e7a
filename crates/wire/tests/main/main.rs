//! The parser: against another parser and tshark, on frames built by hand, and on arbitrary bytes.

use flowyard_testkit::harness;

mod edges;
mod etherparse;
mod fc;
mod headers;
mod oracle;
mod robust;
mod vectors;

flowyard_testkit::tests! {
    mod edges,
    mod etherparse,
    mod fc,
    mod headers,
    mod oracle,
    mod robust,
    mod vectors,
}

fn main() -> std::process::ExitCode {
    harness::run(tests())
}
