//! The clocks that commands pass to the other crates.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use flowyard_frame::Nanos;
use flowyard_yard::Clock;

/// A clock that counts nanoseconds from now.
#[allow(clippy::disallowed_methods, reason = "the command line makes the clock")]
pub(crate) fn new() -> Clock {
    let start = Instant::now();
    Arc::new(move || Nanos::try_from(start.elapsed().as_nanos()).unwrap_or(Nanos::MAX))
}

/// The date and time now, for pages and profiles.
#[allow(clippy::disallowed_methods, reason = "pages and profiles have the date of their creation")]
pub(crate) fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Seconds since 1970-01-01, for statuses that other machines read.
#[allow(clippy::disallowed_methods, reason = "statuses have the date at which they were written")]
pub(crate) fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_secs())
}
