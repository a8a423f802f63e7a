//! When i40e turns ATR and sideband rules off because the filter table is full, and on again.
//!
//! ```text
//!  full status --count >= available - 10--> sideband off --another full status, for ATR--> ATR off,
//!        ^                                   | free > 32                            flush pending
//!        |                                   v                                             |
//!        +--- ATR on <--free > 128, no TCP rules--- sideband on <--flush, replay (10 s apart)
//! ```
//!
//! As in the driver, `available` is only the number of guaranteed filters, while `count` includes all
//! filters: with a large best-effort share the limits take effect long before the table is full.

use flowyard_frame::Nanos;

const SECOND: Nanos = 1_000_000_000;
/// Period of the service task.
const PERIOD: Nanos = SECOND;
/// Shortest time between two flushes.
const FLUSH_INTERVAL: Nanos = 10 * SECOND;
/// ATR stays off after a flush that follows the last one within this time, if the rules leave few
/// filters.
const UNSTABLE: Nanos = 30 * SECOND;
const FULL_MARGIN: u32 = 10;
const SIDEBAND_FREE: u32 = 32;
const ATR_FREE: u32 = 128;

/// Which parts of Flow Director are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Health {
    /// Whether ATR samples.
    pub atr: bool,
    /// Whether new sideband rules are accepted.
    pub sideband: bool,
    /// Whether a flush is pending.
    pub flush_pending: bool,
}

/// The state machine.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    available: u32,
    health: Health,
    last_flush: Option<Nanos>,
    next_service: Nanos,
    /// Reports of a full table since the last flush.
    add_errors: u32,
    /// Number of ATR filters at the last report of a full table.
    atr_at_error: u32,
}

impl Guard {
    pub(super) const fn new(available: u32) -> Self {
        Self {
            available,
            health: Health { atr: true, sideband: true, flush_pending: false },
            last_flush: None,
            next_service: PERIOD,
            add_errors: 0,
            atr_at_error: 0,
        }
    }

    pub(super) const fn health(&self) -> Health {
        self.health
    }

    pub(super) const fn atr_on(&self) -> bool {
        self.health.atr
    }

    pub(super) const fn sideband_on(&self) -> bool {
        self.health.sideband
    }

    pub(super) const fn tcp_rule_added(&mut self) {
        self.health.atr = false;
    }

    /// Whether the service task runs now.
    pub(super) const fn due(&mut self, now: Nanos) -> bool {
        let due = now >= self.next_service;
        if due {
            self.next_service = now.saturating_add(PERIOD);
        }
        due
    }

    /// The adapter reports that a filter did not fit; `atr` is true if ATR programmed it.
    pub(super) const fn table_full(&mut self, atr: bool, count: u32, atr_filters: u32) {
        if self.health.flush_pending {
            return;
        }
        self.add_errors += 1;
        self.atr_at_error = atr_filters;
        if atr && !self.health.sideband {
            self.health.atr = false;
            self.health.flush_pending = true;
        }
        if count >= self.available.saturating_sub(FULL_MARGIN) {
            self.health.sideband = false;
        }
    }

    /// Whether to empty the table now. If so, ATR is turned on again, unless the last flush was recent
    /// and the rules leave few filters, or there are TCP rules.
    pub(super) fn flush(&mut self, now: Nanos, rules: u32, tcp_rules: bool) -> bool {
        let since = self.last_flush.map_or(Nanos::MAX, |last| now.saturating_sub(last));
        if !self.health.flush_pending || since <= FLUSH_INTERVAL {
            return false;
        }
        let unstable = since <= UNSTABLE && self.available.saturating_sub(rules) < ATR_FREE;
        self.last_flush = Some(now);
        self.add_errors = 0;
        self.health.atr = !unstable && !tcp_rules;
        self.health.flush_pending = false;
        true
    }

    /// Turns the parts on again for which enough filters are free.
    pub(super) const fn reenable(&mut self, count: u32, atr_filters: u32, tcp_rules: bool) {
        if self.health.flush_pending {
            return;
        }
        if count < self.available.saturating_sub(SIDEBAND_FREE)
            || self.add_errors == 0
            || atr_filters < self.atr_at_error
        {
            self.health.sideband = true;
        }
        if count < self.available.saturating_sub(ATR_FREE) && !tcp_rules {
            self.health.atr = true;
        }
    }
}
