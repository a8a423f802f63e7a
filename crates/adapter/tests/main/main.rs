//! The models against published values: hashes, reordering, imbalance and the work of aRFS.

mod arfs_published;
mod common;
mod published;
mod vectors;

flowyard_testkit::tests! {
    mod arfs_published,
    mod published,
    mod vectors,
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
