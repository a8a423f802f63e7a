//! The settings of a balancer that change while it runs: limits, timeouts, and what becomes of packets of no service.
//!
//! A connection gets the new timeout with its next packet; until then it has the deadline that it had.
//!
//! Thread-safety: as the balancer of a core.

use crate::Timeouts;

use super::balance::{Balance, BalanceSettings};
use super::leases::Leases;

/// New limits for the balancers of all cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BalanceLimits {
    full_drops: bool,
    opening_most: usize,
    timeouts: Timeouts,
    pass: Vec<Option<u16>>,
}

impl BalanceLimits {
    /// Those of `settings`.
    #[must_use]
    pub fn of(settings: &BalanceSettings) -> Self {
        let &BalanceSettings { full_drops, opening_most, timeouts, ref pass, .. } = settings;
        Self { full_drops, opening_most, timeouts, pass: pass.clone() }
    }
}

impl Balance {
    /// Replaces its limits.
    pub(super) fn limit(&mut self, limits: &BalanceLimits) {
        let BalanceLimits { full_drops, opening_most, timeouts, pass } = limits;
        (self.settings.full_drops, self.settings.opening_most) = (*full_drops, *opening_most);
        self.settings.pass.clone_from(pass);
        self.hub.set_pass(pass);
        if self.settings.timeouts != *timeouts {
            self.settings.timeouts = *timeouts;
            // A lease must end before the connection can.
            self.leases = Leases::new(timeouts);
            self.answer_leases = Leases::new(timeouts);
            if let Some(mut conns) = self.table(self.core) {
                conns.set_timeouts(*timeouts);
            }
        }
    }
}
