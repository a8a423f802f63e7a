//! The XDP program against the work in user space: equal frames.

mod equal;

flowyard_testkit::tests! {
    mod equal,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
