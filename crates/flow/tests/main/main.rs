//! Parsing, hashing and steering through the public interface.

use flowyard_testkit::alloc::Counting;
use flowyard_testkit::harness;

mod alloc;
mod parse;
mod vectors;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

flowyard_testkit::tests! {
    mod alloc,
    mod parse,
    mod vectors,
}

fn main() -> std::process::ExitCode {
    harness::run(tests())
}
