//! ATR of the 700 series (X710, XL710, X722; driver i40e), which learns flows from transmitted packets.
//!
//! ```text
//!  transmit on ring r --(TCP; SYN, FIN, RST or every 20th)--> program {reversed flow -> queue r}
//!                                    takes effect later, asynchronously: table, 8K per device
//!  receive: perfect match in the table -> queue;  else RSS
//! ```
//!
//! Filters are exact (unlike the signatures of the 82599), so flows never share a filter. But ATR
//! shares the table with sideband (ethtool) rules, and the adapter reports a full table only after
//! the driver has programmed the filter. The driver then turns ATR or sideband rules off, empties the
//! table and turns them on again ([`Health`], and the head of `guard.rs`).
//!
//! Sideband rules are matched by [`crate::rules::RuleTable`]; in this model they only occupy filters
//! and, if they are for TCP, turn ATR off.
//!
//! Invariants: ATR filters + sideband rules <= guaranteed + best effort.
//! Thread-safety: `&mut self`; one adapter with one table.

mod guard;

use std::collections::{HashMap, VecDeque};

use flowyard_frame::{FlowKey, Nanos, proto};

use crate::stats::FilterStats;
use guard::Guard;
pub use guard::Health;

/// A controller of the 700 series.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub enum Chip {
    /// X710 and XL710: the driver programs a removal for each FIN and RST it transmits.
    #[default]
    Xl710,
    /// X722: the hardware removes a filter when a FIN or RST of its flow passes; the driver does not
    /// sample these packets.
    X722,
}

/// The parameters of the adapter and its driver.
#[derive(Clone, Debug)]
pub struct I40eConfig {
    /// The controller.
    pub chip: Chip,
    /// Number of transmit rings. Each ring counts its own packets.
    pub rings: u16,
    /// Every `sample_rate`-th TCP packet of a ring is sampled; 0 turns ATR off. The driver uses 20.
    pub sample_rate: u32,
    /// Filters guaranteed to this function. A live adapter reports its number as a capability.
    pub guaranteed: u32,
    /// Filters shared by all functions, which this model gives to this function alone.
    pub best_effort: u32,
    /// Time from the transmission of the programming descriptor to the effect of the filter, in
    /// nanoseconds.
    pub programming_delay: Nanos,
}

impl Default for I40eConfig {
    /// The sizes in DPDK's guide: 512 guaranteed, 7168 best effort. The delay of 10 us is an
    /// assumption.
    fn default() -> Self {
        Self {
            chip: Chip::default(),
            rings: 64,
            sample_rate: 20,
            guaranteed: 512,
            best_effort: 7168,
            programming_delay: 10_000,
        }
    }
}

/// The reason for which a sideband rule is refused immediately.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SidebandError {
    /// The driver accepts no more rules because the table is nearly full.
    #[error(
        "no space (-ENOSPC): the driver accepts no sideband rules until more than 32 filters are \
         free; delete rules, or wait for the next flush"
    )]
    NoSpace,
    /// The location is beyond guaranteed + best effort.
    #[error("location {loc} is out of range; use one below {limit}")]
    Location {
        /// The location requested.
        loc: u32,
        /// The number of locations.
        limit: u32,
    },
}

#[derive(Clone, Copy, Debug)]
enum Program {
    Put(FlowKey, u16),
    Remove(FlowKey),
    Sideband(u32),
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    tcp: bool,
    installed: bool,
}

/// ATR of one 700-series function.
#[derive(Clone, Debug)]
pub struct AtrI40e {
    config: I40eConfig,
    counts: Vec<u32>,
    table: HashMap<FlowKey, u16>,
    rules: HashMap<u32, Rule>,
    rejected: Vec<u32>,
    programs: VecDeque<(Nanos, Program)>,
    guard: Guard,
    stats: FilterStats,
}

impl AtrI40e {
    /// An adapter with an empty table.
    #[must_use]
    pub fn new(config: I40eConfig) -> Self {
        let capacity = config.guaranteed.saturating_add(config.best_effort);
        Self {
            counts: vec![0; usize::from(config.rings)],
            table: HashMap::new(),
            rules: HashMap::new(),
            rejected: Vec::new(),
            programs: VecDeque::new(),
            guard: Guard::new(config.guaranteed),
            stats: FilterStats { capacity, ..FilterStats::default() },
            config,
        }
    }

    /// Reports a frame that the host transmits on `ring`, which ATR may sample.
    pub fn transmit(&mut self, ring: u16, key: &FlowKey, now: Nanos) {
        self.tick(now);
        if key.proto != proto::TCP || !key.is_ip() || key.frag != 0 {
            return;
        }
        let closing = key.tcp_flags & (FlowKey::FIN | FlowKey::RST) != 0;
        if closing && self.config.chip == Chip::X722 {
            self.evict(&key.reversed().flow());
            return;
        }
        let Some(count) = self.counts.get_mut(usize::from(ring)) else { return };
        if self.config.sample_rate == 0 || !self.guard.atr_on() {
            return;
        }
        *count += 1;
        if !closing && key.tcp_flags & FlowKey::SYN == 0 && *count < self.config.sample_rate {
            return;
        }
        *count = 0;
        let flow = key.reversed().flow();
        let program = if closing { Program::Remove(flow) } else { Program::Put(flow, ring) };
        self.programs.push_back((now.saturating_add(self.config.programming_delay), program));
    }

    /// The queue of the filter that a received frame matches; `None` if RSS decides.
    pub fn receive(&mut self, key: &FlowKey, now: Nanos) -> Option<u16> {
        self.tick(now);
        let flow = key.flow();
        let queue = self.table.get(&flow).copied().filter(|_| key.frag == 0);
        match queue {
            Some(_) => self.stats.hits += 1,
            None => self.stats.misses += 1,
        }
        let closing = key.tcp_flags & (FlowKey::FIN | FlowKey::RST) != 0;
        if closing && queue.is_some() && self.config.chip == Chip::X722 {
            self.evict(&flow); // the direction is not documented: both evict in this model
        }
        queue
    }

    /// Adds a sideband rule at `loc` and overwrites the rule there; `tcp` is true for the flow types
    /// tcp4 and tcp6. Success means that the rule was sent to the adapter: a rule that finds the
    /// table full is reported later, by [`AtrI40e::take_rejected`].
    pub fn add_rule(&mut self, loc: u32, tcp: bool, now: Nanos) -> Result<(), SidebandError> {
        self.tick(now);
        if loc >= self.stats.capacity {
            return Err(SidebandError::Location { loc, limit: self.stats.capacity });
        }
        if !self.guard.sideband_on() {
            return Err(SidebandError::NoSpace);
        }
        let installed = self.rules.get(&loc).is_some_and(|rule| rule.installed);
        self.rules.insert(loc, Rule { tcp, installed });
        if tcp {
            self.guard.tcp_rule_added();
        }
        self.programs
            .push_back((now.saturating_add(self.config.programming_delay), Program::Sideband(loc)));
        Ok(())
    }

    /// Deletes the rule at `loc` and returns whether there was one. After the last TCP rule is
    /// deleted, the next service task turns ATR on again.
    pub fn delete_rule(&mut self, loc: u32, now: Nanos) -> bool {
        self.tick(now);
        self.rules.remove(&loc).is_some()
    }

    /// The locations of sideband rules that were accepted and then failed because the table was
    /// full: the driver has logged "could not be added" and dropped them. The list is cleared.
    pub fn take_rejected(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.rejected)
    }

    /// Advances the adapter and the driver to `now`: filters take effect, and the service task runs
    /// once per second. Every other method calls this first.
    pub fn tick(&mut self, now: Nanos) {
        while let Some(&(_, program)) = self.programs.front().filter(|(due, _)| *due <= now) {
            self.programs.pop_front();
            self.complete(program);
        }
        if self.guard.due(now) {
            self.service(now);
        }
    }

    /// Which parts of Flow Director are on.
    #[must_use]
    pub fn health(&self) -> Health {
        self.guard.health()
    }

    /// The counters; `occupancy` includes ATR filters and sideband rules.
    #[must_use]
    pub fn stats(&self) -> FilterStats {
        FilterStats { occupancy: self.occupancy(), ..self.stats }
    }

    fn occupancy(&self) -> u32 {
        (self.table.len() + self.rules.values().filter(|rule| rule.installed).count()) as u32
    }

    fn complete(&mut self, program: Program) {
        let full = self.occupancy() >= self.stats.capacity;
        match program {
            Program::Put(flow, queue) => match self.table.get_mut(&flow) {
                Some(old) => {
                    *old = queue;
                    self.stats.updates += 1;
                }
                None if full => {
                    self.stats.failed_adds += 1;
                    self.guard.table_full(true, self.occupancy(), self.table.len() as u32);
                }
                None => {
                    self.table.insert(flow, queue);
                    self.stats.adds += 1;
                }
            },
            Program::Remove(flow) => {
                self.stats.removes += u64::from(self.table.remove(&flow).is_some());
            }
            Program::Sideband(loc) => {
                let Some(rule) = self.rules.get_mut(&loc) else { return }; // deleted in the meantime
                if rule.installed || !full {
                    rule.installed = true;
                    return;
                }
                self.rules.remove(&loc);
                self.rejected.push(loc);
                self.stats.failed_adds += 1;
                self.guard.table_full(false, self.occupancy(), self.table.len() as u32);
            }
        }
    }

    /// The service task: a flush if one is pending and allowed, then the checks that turn parts on
    /// again.
    fn service(&mut self, now: Nanos) {
        let tcp_rules = self.rules.values().filter(|rule| rule.tcp).count();
        if self.guard.flush(now, self.rules.len() as u32, tcp_rules > 0) {
            self.stats.flushes += 1;
            self.table.clear(); // the driver programs all sideband rules again, so none is lost
        }
        self.guard.reenable(self.occupancy(), self.table.len() as u32, tcp_rules > 0);
    }

    fn evict(&mut self, flow: &FlowKey) {
        self.stats.evictions += u64::from(self.table.remove(flow).is_some());
    }
}

#[cfg(test)]
mod tests;
