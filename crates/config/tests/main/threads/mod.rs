//! The engine on threads: order, conservation and clean ends, over captures and generated flows.

pub(crate) mod captures;
mod copies;
pub(crate) mod ends;

use std::path::PathBuf;
use std::sync::Arc;

use flowyard_yard::Clock;

flowyard_testkit::tests! {
    mod captures,
    mod copies,
    mod ends,
}

/// Nanoseconds since the test began.
#[expect(clippy::disallowed_methods, reason = "threads run by a real clock")]
pub(crate) fn clock() -> Clock {
    let start = std::time::Instant::now();
    Arc::new(move || start.elapsed().as_nanos() as u64)
}

/// The workspace's root.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
