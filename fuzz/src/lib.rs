//! Fuzz targets as plain functions over bytes. `fuzz_targets/` calls them for libFuzzer.
//!
//! `cargo +nightly fuzz list` prints the names, `cargo +nightly fuzz run NAME` runs one. Without a fuzzer,
//! `cargo test --manifest-path fuzz/Cargo.toml` runs the targets over changed seeds.
//!
//! A target fails if it panics, and if an input costs more than the `LIMITS` of the target ([`bounded`]). To
//! count the work of an input, set `RUSTFLAGS=-Cllvm-args=-sanitizer-coverage-trace-pc`, as `cargo xtask ci fuzz`
//! does; otherwise only the allocated bytes are limited.
//!
//! Every parser of the workspace is called by one of them: `xtask/src/tidy/parsers.rs` has the table.

mod balance;
mod captures;
mod channel;
mod config;
mod cost;
mod headers;
mod images;
mod ipsec;
mod lists;
mod memif;
mod offload;
mod openflow;
mod plans;
mod provider;
mod switch;
mod sync;
mod text;
mod vhost;

pub use balance::{LIMITS as BALANCE, balance};
pub use captures::{captures, limits as captures_limits};
pub use channel::{LIMITS as CHANNEL, channel};
pub use config::{LIMITS as CONFIG, config};
pub use cost::{Limits, Line, bounded};
pub use headers::{LIMITS as HEADERS, headers};
pub use images::{LIMITS as IMAGES, images};
pub use ipsec::{LIMITS as IPSEC, ipsec};
pub use lists::{LIMITS as LISTS, lists};
pub use memif::{LIMITS as MEMIF, memif};
pub use offload::{LIMITS as OFFLOAD, offload};
pub use openflow::{LIMITS as OPENFLOW, openflow};
pub use plans::{LIMITS as PLANS, plans};
pub use provider::{LIMITS as PROVIDER, provider};
pub use switch::{LIMITS as SWITCH, switch};
pub use sync::{LIMITS as SYNC, sync};
pub use text::{LIMITS as TEXT, text};
pub use vhost::{LIMITS as VHOST, vhost};
