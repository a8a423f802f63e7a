//! The XDP program against the adapter models: equal decisions for every frame.

mod equal;
mod generate;

flowyard_testkit::tests! {
    mod equal,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
