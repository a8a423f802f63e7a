//! Fuzz targets as plain functions over bytes; `fuzz_targets/` hands them to libFuzzer.
//!
//! `cargo +nightly fuzz run captures` (or `balance`, `channel`, `headers`, `lists`, `openflow`, `switch`, `text`); without a fuzzer, `cargo test
//! --manifest-path fuzz/Cargo.toml` runs targets over changed seeds and over what `corpus/` has.

mod balance;
mod captures;
mod channel;
mod headers;
mod lists;
mod openflow;
mod switch;
mod text;

pub use balance::balance;
pub use captures::captures;
pub use channel::channel;
pub use headers::headers;
pub use lists::lists;
pub use openflow::openflow;
pub use switch::switch;
pub use text::text;
