//! Fuzz targets as plain functions over bytes; `fuzz_targets/` hands them to libFuzzer.
//!

//! `cargo +nightly fuzz run captures`
//! `cargo +nightly fuzz run headers`; without a fuzzer, `cargo test --manifest-path
//! fuzz/Cargo.toml` runs each target over changed seeds and over what `corpus/` has.
mod captures;
mod headers;
pub use captures::captures;
pub use headers::headers;
