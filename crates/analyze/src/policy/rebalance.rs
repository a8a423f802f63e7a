//! RSS with an indirection table that is rebalanced while the traffic runs, as `flowyard rebalance` does on an interface.
//!
//! ```text
//!  packet ─> hash ─> entry ─> table ─> queue ─> core ─> done at
//!                      │        ^
//!                      └ count ─┴── windows and moves, in the time of the capture
//! ```
//!
//! A move takes effect at once, and before the first packet that comes after the pause.

use std::collections::BTreeMap;

use flowyard_adapter::Rss;
use flowyard_flow::learn::rebalance::{Limits, Rebalance, Window};
use flowyard_frame::Nanos;

use crate::delay::Cores;
use crate::landing::{Landing, Stage};
use crate::packet::Packet;
use crate::summary::{BusyEntry, RebalanceSummary, RebalanceWindow};

/// Windows that are kept: when there are more, each two become one.
const MOST: usize = 512;
/// Entries that never paused, of which the busiest are named.
const NAMED: usize = 10;

/// The table, and what became of it.
pub(crate) struct Rebalancing {
    limits: Limits,
    mechanism: Rebalance,
    /// When the core is done with the packets of each entry so far.
    done: Vec<Nanos>,
    moved: Vec<bool>,
    moves: u64,
    forced: u64,
    /// Moves while the old core still had packets of the entry.
    early: u64,
    /// Moves in this window.
    recent: u64,
    windows: Vec<RebalanceWindow>,
    /// Windows that one element of `windows` consists of.
    merged: u32,
    /// Windows since the last element.
    open: Vec<RebalanceWindow>,
    /// Sums of the imbalance, and of that with the first table, and the number of windows.
    sums: (f64, f64, u64),
    /// By entry, the times that it did not pause, and its packets in those windows.
    busy: BTreeMap<usize, (u64, u64)>,
}

impl Rebalancing {
    pub(crate) fn new(limits: Limits, rss: &Rss) -> Self {
        let table: Vec<u32> = rss.reta().iter().map(|queue| u32::from(*queue)).collect();
        Self {
            limits,
            done: vec![0; table.len()],
            moved: vec![false; table.len()],
            mechanism: Rebalance::new(table, limits),
            moves: 0,
            forced: 0,
            early: 0,
            recent: 0,
            windows: Vec::new(),
            merged: 1,
            open: Vec::new(),
            sums: (0.0, 0.0, 0),
            busy: BTreeMap::new(),
        }
    }

    /// Where a received frame lands, and the time at which its core is done with it.
    #[inline]
    pub(crate) fn receive(&mut self, packet: &Packet, cores: &mut Cores) -> (Landing, Nanos) {
        let now = packet.now;
        if let Some(window) = self.mechanism.decide(now) {
            self.note(&window, now);
        }
        while let Some(one) = self.mechanism.next(now) {
            self.moves += 1;
            self.recent += 1;
            self.forced += u64::from(one.forced);
            self.early += u64::from(self.done[one.entry] > now);
            self.moved[one.entry] = true;
        }
        let (queue, stage) = self.peek(packet);
        let core = cores.of_queue(queue);
        let done = cores.take(core, now);
        match self.entry(packet) {
            Some(entry) => {
                self.mechanism.count(entry, 1, now);
                self.done[entry] = self.done[entry].max(done);
            }
            None => self.mechanism.count_fixed(queue.into(), 1, now),
        }
        (Landing { queue, core, stage }, done)
    }

    fn entry(&self, packet: &Packet) -> Option<usize> {
        // The length of a table is a power of two.
        packet.hash.map(|hash| hash as usize & (self.done.len() - 1))
    }

    /// The queue of a frame now.
    #[inline]
    pub(crate) fn peek(&self, packet: &Packet) -> (u16, Stage) {
        match self.entry(packet) {
            Some(entry) => (self.mechanism.table()[entry] as u16, Stage::Rss),
            None => (0, Stage::NoHash),
        }
    }

    /// Why a frame goes to its queue, as text.
    pub(crate) fn why(&self, packet: &Packet) -> String {
        let (Some(entry), Some(hash)) = (self.entry(packet), packet.hash) else {
            return "no hash: queue 0".to_owned();
        };
        let (now, first) = (self.mechanism.table()[entry], packet.rss_queue);
        let moved = if now == u32::from(first) {
            "which has not moved".to_owned()
        } else {
            format!("which was moved from queue {first}")
        };
        format!("RSS: hash 0x{hash:08x} selects entry {entry}, {moved}: queue {now}")
    }

    /// Keeps a window.
    fn note(&mut self, window: &Window, now: Nanos) {
        for one in &window.busy {
            let (times, packets) = self.busy.entry(one.entry).or_default();
            (*times, *packets) = (*times + 1, *packets + one.packets);
        }
        let moves = std::mem::take(&mut self.recent);
        let (Some(rebalanced), Some(first)) = (window.imbalance, window.first) else { return };
        let (sum, sum_first, windows) = &mut self.sums;
        (*sum, *sum_first, *windows) = (*sum + rebalanced, *sum_first + first, *windows + 1);
        let end_s = now as f64 / 1e9;
        self.open.push(RebalanceWindow { end_s, rss: first, rebalanced, moves });
        if self.open.len() == self.merged as usize {
            self.windows.extend(RebalanceWindow::mean(&self.open));
            self.open.clear();
        }
        if self.windows.len() == MOST {
            self.windows = self.windows.chunks(2).filter_map(RebalanceWindow::mean).collect();
            self.merged *= 2;
        }
    }

    pub(crate) fn summary(&self, started: Nanos) -> RebalanceSummary {
        let (sum, sum_first, windows) = self.sums;
        let mean = |sum: f64| (windows > 0).then(|| sum / windows as f64);
        let mut all = self.windows.clone();
        all.extend(RebalanceWindow::mean(&self.open));
        let started = started as f64 / 1e9;
        all.iter_mut().for_each(|one| one.end_s -= started);
        let named = |(&entry, &(times, packets)): (&usize, &(u64, u64))| BusyEntry {
            entry: entry as u32,
            queue: self.mechanism.table()[entry],
            times,
            packets,
        };
        let mut busy: Vec<_> = self.busy.iter().map(named).collect();
        busy.sort_by_key(|one| (std::cmp::Reverse(one.packets), one.entry));
        let busy_entries = busy.len() as u64;
        busy.truncate(NAMED);
        RebalanceSummary {
            even: self.limits.even,
            window_ns: self.limits.window,
            pause_ns: self.limits.pause,
            moves_per_second: self.limits.moves,
            force_after_ns: self.limits.force_after,
            moves: self.moves,
            moved_entries: self.moved.iter().filter(|moved| **moved).count() as u64,
            forced: self.forced,
            early: self.early,
            mean_imbalance: mean(sum),
            mean_imbalance_of_rss: mean(sum_first),
            windows: all,
            busy_entries,
            busy,
        }
    }

    /// Remarks for the user.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let pause = self.limits.pause as f64 / 1e6;
        let busy = self.summary(0).busy;
        if let Some(first) = busy.first() {
            let names: Vec<_> = busy.iter().map(|one| one.entry.to_string()).collect();
            notes.push(format!(
                "rebalance: {} of the indirection table had no pause of {pause} ms when they were to move, and stayed: {}{}. The busiest is entry {} of queue {}. To move such entries also without a pause, give --rebalance-force-after.",
                if self.busy.len() == 1 { "1 entry".to_owned() } else { format!("{} entries", self.busy.len()) },
                names.join(", "),
                if self.busy.len() > names.len() { ", ..." } else { "" },
                first.entry,
                first.queue,
            ));
        }
        if self.early > self.forced {
            notes.push(format!(
                "rebalance: {} of {} moves were made while the old core still had packets of the entry, although it had paused for {pause} ms: that core is behind by more than this. A longer --rebalance-pause prevents it.",
                self.early, self.moves
            ));
        }
        notes
    }
}

impl RebalanceWindow {
    /// Some windows as one.
    fn mean(all: &[Self]) -> Option<Self> {
        let last = all.last()?;
        let mean = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        Some(Self {
            end_s: last.end_s,
            rss: mean(|one| one.rss),
            rebalanced: mean(|one| one.rebalanced),
            moves: all.iter().map(|one| one.moves).sum(),
        })
    }
}
