//! ATR of the 700 series (X710, XL710, X722; driver i40e): the adapter learns from what it transmits.
//!
//! ```text
//!  transmit on ring r --(TCP; SYN, FIN, RST or every 20th)--> program {reversed flow -> queue r}
//!                                            ... later, asynchronously ...  table, 8K per device
//!  receive: perfect match in the table -> queue;  else RSS
//! ```
//!
//! Filters are exact (unlike 82599's signatures), so flows never alias; but the table is shared with
//! sideband (ethtool) rules, a full table is only noticed afterwards, and then the driver turns parts
//! of itself off, empties the table and starts again
//! ([`Health`], and the essay in `guard.rs`).
//!
//! Sideband rules themselves are matched by [`crate::rules::RuleTable`]; here they take room and,
//! when they are for TCP, silence ATR.
//!
//! Invariants: ATR filters + sideband rules <= guaranteed + best effort.
//! Thread-safety: `&mut self`; one adapter, one table.

mod guard;

use std::collections::{HashMap, VecDeque};

use flowyard_frame::{FlowKey, Nanos, proto};

use crate::stats::FilterStats;
use guard::Guard;
pub use guard::Health;

/// Which 700-series controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub enum Chip {
    /// X710 and XL710: the driver programs a removal for each FIN and RST it transmits.
    #[default]
    Xl710,
    /// X722: the hardware evicts a filter when a FIN or RST of its flow passes; the driver does not
    /// sample those packets.
    X722,
}

/// What the model needs to know of adapter and driver.
#[derive(Clone, Debug)]
pub struct I40eConfig {
    /// The controller.
    pub chip: Chip,
    /// Transmit rings, each with a counter of its own.
    pub rings: u16,
    /// Sample every n-th TCP packet of a ring; 0 turns ATR off. The driver's constant is 20.
    pub sample_rate: u32,
    /// Filters guaranteed to this function. Read the capability of a live adapter.
    pub guaranteed: u32,
    /// Filters shared by all functions, all of them free for this one.
    pub best_effort: u32,
    /// From the programming descriptor's transmission to the filter's effect.
    pub programming_delay: Nanos,
}

impl Default for I40eConfig {
    /// The sizes of DPDK's guide: 512 guaranteed, 7168 best effort. Delay 10 us, a guess.
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

/// Why a sideband rule was refused at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SidebandError {
    /// The driver stopped taking rules because the table is nearly full.
    #[error(
        "no space (-ENOSPC): the driver takes no sideband rules until more than 32 filters are \
         free; delete rules, or wait for the flush that follows"
    )]
    NoSpace,
    /// The location is beyond guaranteed + best effort.
    #[error("location {loc} is out of range; use one below {limit}")]
    Location {
        /// The location asked for.
        loc: u32,
        /// The first location that does not exist.
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

    /// The host transmits a frame on `ring`: perhaps ATR samples it.
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

    /// A frame arrives: the queue of its filter, if any; else RSS decides.
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
            self.evict(&flow); // which direction triggers it is not documented: we take both
        }
        queue
    }

    /// A sideband rule goes in at `loc`, overwriting the one there; `tcp` for flow types tcp4 and
    /// tcp6. Success means "sent": a full table shows up later, in [`AtrI40e::take_rejected`].
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

    /// The rule at `loc` goes; whether there was one. ATR comes back with the next service task
    /// after the last TCP rule has gone.
    pub fn delete_rule(&mut self, loc: u32, now: Nanos) -> bool {
        self.tick(now);
        self.rules.remove(&loc).is_some()
    }

    /// Sideband rules that were accepted and then failed for want of room: the driver has logged
    /// "could not be added" and dropped them.
    pub fn take_rejected(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.rejected)
    }

    /// The adapter's and the driver's own time: programming completes, the service task runs once a
    /// second. Every other call does this first.
    pub fn tick(&mut self, now: Nanos) {
        while let Some(&(_, program)) = self.programs.front().filter(|(due, _)| *due <= now) {
            self.programs.pop_front();
            self.complete(program);
        }
        if self.guard.due(now) {
            self.service(now);
        }
    }

    /// What is on and off.
    #[must_use]
    pub fn health(&self) -> Health {
        self.guard.health()
    }

    /// The counters; occupancy counts ATR filters and sideband rules.
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
                let Some(rule) = self.rules.get_mut(&loc) else { return }; // deleted meanwhile
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

    /// The service task: a flush if one is asked for and allowed, then the re-enabling checks.
    fn service(&mut self, now: Nanos) {
        let tcp_rules = self.rules.values().filter(|rule| rule.tcp).count();
        if self.guard.flush(now, self.rules.len() as u32, tcp_rules > 0) {
            self.stats.flushes += 1;
            self.table.clear(); // and every sideband rule is replayed, so none of them is lost
        }
        self.guard.reenable(self.occupancy(), self.table.len() as u32, tcp_rules > 0);
    }

    fn evict(&mut self, flow: &FlowKey) {
        self.stats.evictions += u64::from(self.table.remove(flow).is_some());
    }
}

#[cfg(test)]
mod tests;
