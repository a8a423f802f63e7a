//! Fuzz targets as plain functions over bytes. `fuzz_targets/` calls them for libFuzzer.
//!
//! `cargo +nightly fuzz list` prints the names, `cargo +nightly fuzz run NAME` runs one. Without a fuzzer,
//! `cargo test --manifest-path fuzz/Cargo.toml` runs the targets over changed seeds.
//!
//! Every parser of the workspace is called by one of them: `xtask/src/tidy/parsers.rs` has the table.

mod balance;
mod captures;
mod channel;
mod config;
mod headers;
mod images;
mod lists;
mod openflow;
mod switch;
mod text;

pub use balance::balance;
pub use captures::captures;
pub use channel::channel;
pub use config::config;
pub use headers::headers;
pub use images::images;
pub use lists::lists;
pub use openflow::openflow;
pub use switch::switch;
pub use text::text;
