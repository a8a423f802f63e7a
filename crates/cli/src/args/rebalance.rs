//! The arguments that say when entries of an indirection table move.

use std::time::Duration;

use flowyard_flow::learn::rebalance::Limits;

use super::nanos;
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
pub(super) struct RebalanceArgs {
    /// Policy rebalance: time over which the load of queues is measured
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = humantime::parse_duration, help_heading = "Rebalance")]
    rebalance_every: Duration,

    /// Policy rebalance: a queue with more than this many times the mean load is overloaded
    #[arg(long, value_name = "RATIO", default_value_t = 1.25, help_heading = "Rebalance")]
    rebalance_even: f64,

    /// Policy rebalance: an entry of the indirection table moves if no packet has come for it in this time
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = humantime::parse_duration, help_heading = "Rebalance")]
    rebalance_pause: Duration,

    /// Policy rebalance: the most entries that move in a second
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Rebalance")]
    rebalance_moves: u32,

    /// Policy rebalance: an entry that has waited for a pause for this long moves without one, which can reorder
    /// [default: it stays]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Rebalance")]
    rebalance_force_after: Option<Duration>,
}

impl RebalanceArgs {
    pub(super) fn limits(&self) -> Result<Limits, Stop> {
        let limits = Limits {
            even: self.rebalance_even,
            window: nanos(self.rebalance_every),
            pause: nanos(self.rebalance_pause),
            moves: self.rebalance_moves,
            force_after: self.rebalance_force_after.map(nanos),
        };
        limits_of("--rebalance-", limits)
    }
}

/// The limits, if they are possible. The names of the options begin with `--`.
pub(crate) fn limits(limits: Limits) -> Result<Limits, Stop> {
    limits_of("--", limits)
}

fn limits_of(front: &str, limits: Limits) -> Result<Limits, Stop> {
    let is_more = limits.even > 1.0 && limits.even.is_finite();
    let wrong = if limits.window < 1_000_000 {
        "every: must be at least 1ms"
    } else if !is_more {
        "even: must be a number above 1, such as 1.25"
    } else if limits.moves == 0 {
        "moves: must be at least 1"
    } else {
        return Ok(limits);
    };
    Err(bad_input(format!("{front}{wrong}")))
}
