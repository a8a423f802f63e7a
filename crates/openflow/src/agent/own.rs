//! Flow entries of the switch itself: the table miss of 1.0, and the operation without a
//! controller.
//!
//! They are below or above all entries of controllers ([`Place`]), so no priority competes with
//! them. A request for entries with the reserved cookie, all ones, lists them; others do not.

use std::sync::Arc;

use super::peers::Peer;
use super::table::Installed;
use super::{Agent, counts, sum};
use crate::act::{Action, Instruction};
use crate::change::{Change, Entry, Place};
use crate::multipart::FlowFilter;
use crate::port::reserved;
use crate::{Match, Version};

/// The cookie of these entries, which no controller may use (1.3.5, section 7.3.4.1).
pub(super) const COOKIE: u64 = u64::MAX;

/// The frames that the switch handles as by the port `OFPP_NORMAL` (fail-standalone, 1.3.5, section
/// 6.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Standalone {
    /// None.
    #[default]
    Off,
    /// Those that match no flow entry: the switch has no controller, and an operator adds flow
    /// entries.
    Unmatched,
    /// All: the controller is lost. The flow entries stay, and answer again when this is over.
    All,
}

/// The entries, and the frames that former ones have matched.
#[derive(Debug, Default)]
pub(super) struct Own {
    below: Option<Installed>,
    above: Option<Installed>,
    matched_before: u64,
    standalone: Standalone,
}

impl Own {
    fn entries(&self) -> impl Iterator<Item = &Installed> {
        self.below.iter().chain(&self.above)
    }

    /// The frames that these entries have matched.
    pub(super) fn matched(&self) -> u64 {
        let now: u64 = self.entries().map(|flow| sum(&flow.entry.counts).0).sum();
        self.matched_before + now
    }

    /// The entries that a request selects.
    pub(super) fn chosen(&self, filter: &FlowFilter) -> impl Iterator<Item = &Installed> {
        let asked = (filter.cookie, filter.cookie_mask) == (COOKIE, COOKIE);
        self.entries().filter(move |flow| asked && flow.is_in(filter))
    }

    /// The port of the entry below all others.
    fn below_to(&self) -> Option<u32> {
        self.below.as_ref()?.actions().find_map(|action| match action {
            Action::Output { port, .. } => Some(*port),
            _ => None,
        })
    }
}

impl Agent {
    /// An entry that sends every frame to a port.
    fn own_flow(&mut self, place: Place, to: u32) -> Installed {
        self.next_entry += 1;
        let output = Action::Output { port: to, max_len: u16::MAX };
        let entry = Arc::new(Entry {
            id: self.next_entry,
            table: 0,
            priority: if place == Place::Below { 0 } else { u16::MAX },
            cookie: COOKIE,
            flags: 0,
            matching: Match::default(),
            instructions: vec![Instruction::ApplyActions(vec![output])],
            counts: counts(self.cores),
        });
        Installed {
            entry,
            asked: None,
            importance: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            since: self.now,
            used_before: 0,
        }
    }

    fn put_own(&mut self, place: Place, to: Option<u32>) {
        let new = to.map(|to| self.own_flow(place, to));
        self.emit(Change::Own(place, new.as_ref().map(|flow| Arc::clone(&flow.entry))));
        let slot = match place {
            Place::Below => &mut self.own.below,
            Place::Above => &mut self.own.above,
        };
        let old = std::mem::replace(slot, new);
        self.own.matched_before += old.map_or(0, |flow| sum(&flow.entry.counts).0);
    }

    /// Adds or removes the entry for frames without a match. A controller of 1.0 receives them.
    pub(super) fn refresh_miss(&mut self) {
        let old = |peer: &Peer| peer.version == Version::V10;
        let to = if self.peers.values().any(old) {
            Some(reserved::CONTROLLER)
        } else if self.own.standalone == Standalone::Unmatched {
            Some(reserved::NORMAL)
        } else {
            // After the last controller has disconnected, nothing changes.
            let alone = self.peers.is_empty();
            self.own.below_to().filter(|to| alone && *to == reserved::CONTROLLER)
        };
        if to != self.own.below_to() && !self.tables.is_empty() {
            self.put_own(Place::Below, to);
        }
    }

    /// Which frames are handled as by the port `OFPP_NORMAL` from now on.
    pub fn standalone(&mut self, frames: Standalone, now: u64) {
        self.now = now;
        self.own.standalone = frames;
        let all = frames == Standalone::All;
        if all != self.own.above.is_some() && !self.tables.is_empty() {
            self.put_own(Place::Above, all.then_some(reserved::NORMAL));
        }
        self.refresh_miss();
    }
}
