//! The XDP program against the adapter models: equal decisions for every frame; and the learner at
//! egress against the yard's.

mod atr;
mod equal;
mod generate;

flowyard_testkit::tests! {
    mod equal,
    mod atr,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
