//! The integration tests of the capture readers and writers, in one program.

mod alloc;
mod common;
mod corpus;
mod damage;
mod formats;
mod independent;
mod traffic;

flowyard_testkit::tests! {
    mod alloc,
    mod corpus,
    mod damage,
    mod formats,
    mod independent,
    mod traffic,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
