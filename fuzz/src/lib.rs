//! Fuzz targets as plain functions over bytes; `fuzz_targets/` hands them to libFuzzer.
//!
//! `cargo +nightly fuzz run captures`

mod captures;

pub use captures::captures;
