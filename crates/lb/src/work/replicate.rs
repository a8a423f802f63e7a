//! Connections that other machines must know, and those that other machines have reported.
//!
//! ```text
//!  tables of all cores ──Scan──> entries whose backend the Maglev table does not name ──> other machines
//!  other machines ──Hub::replicated──> Replica ──miss of an established connection──> backend
//! ```
//!
//! Machines with equal services and an equal seed have equal Maglev tables. A connection whose backend is that of the
//! table goes to the same backend on each machine without any message. The others began before a change of backends, or their
//! service has another choice than Maglev, or their backend was at its limit. Only they are reported: the hash of the
//! connection, and the identity of its backend.
//!
//! Invariants: a connection with a local port (`fullnat`) is not reported, because the port belongs to one machine; a packet
//! that begins a TCP connection never uses a report.
//! Thread-safety: one thread scans; it holds the lock of a core's table while it copies a page of its slots.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use flowyard_flow::table::Replica;
use flowyard_frame::{Nanos, proto};

use super::hub::Hub;
use crate::conns::Listed;
use crate::{Choice, Conn, Mode, Plan, Target};

/// The parts of the longest time-out in which ends of entries are reported. An entry in use is reported again once in each.
const PARTS: u64 = 8;
/// A connection is not reported any more if its client has ended its part, and was silent since then for one of these parts of
/// the time-out of closing connections. A report has no sequence number, by which packets of the client's next connection
/// from the same port would be recognized.
const ENDED_PARTS: u64 = 3;
/// A tick of the connection tables is 2^27 ns.
const TICK_BITS: u32 = 27;

/// What other machines must know of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncReport {
    /// Its backend.
    Has {
        /// The hash of the connection.
        hash: u64,
        /// The identity of its backend: see [`Target::identity`].
        backend: u64,
        /// How long the connection lasts without a packet, in seconds.
        lifetime: u32,
        /// Whether it was not reported before, or with another backend or an earlier end.
        is_new: bool,
    },
    /// It has ended, or the Maglev table names its backend now.
    Gone {
        /// The hash of the connection.
        hash: u64,
    },
}

/// What was reported of a connection.
#[derive(Clone, Copy, Debug)]
struct Reported {
    backend: u64,
    /// The end of the connection, in ticks.
    end: u32,
    /// The last pass that has found the connection.
    pass: u32,
}

/// Finds the connections that other machines must know.
#[derive(Debug, Default)]
pub struct Scan {
    /// By hash.
    reported: HashMap<u64, Reported>,
    page: Vec<Listed>,
    /// The number of passes.
    passes: u32,
}

impl Scan {
    /// Looks at the connections of all cores, and passes what other machines must know to `report`. `now` reads the clock of
    /// the engine. Returns the number of connections that it looked at.
    pub fn pass(
        &mut self,
        hub: &Hub,
        now: impl Fn() -> Nanos,
        mut report: impl FnMut(SyncReport),
    ) -> u64 {
        let (Some(tables), plan) = (hub.conns(), hub.plan()) else { return 0 };
        self.passes = self.passes.wrapping_add(1);
        let mut looked_at = 0;
        for table in tables.iter() {
            let mut from = Some(0);
            while let Some(slot) = from {
                let at = now();
                let conns = table.lock().unwrap_or_else(PoisonError::into_inner);
                from = conns.page(slot, at, &mut self.page);
                let timeouts = conns.timeouts();
                let step = part(timeouts.longest());
                drop(conns);
                looked_at += self.page.len() as u64;
                let mut page = std::mem::take(&mut self.page);
                for listed in page.drain(..) {
                    let may_be_over = listed.conn.end().is_some()
                        && listed.idle >= timeouts.closing / ENDED_PARTS;
                    if !may_be_over && let Some((hash, target)) = needs_report(&plan, &listed.conn)
                    {
                        let deadline = ((at + listed.left) >> TICK_BITS) as u32;
                        report(self.found(hash, target.identity, deadline, (step, at)));
                    }
                }
                self.page = page;
            }
        }
        // An entry that is copied from one core to another may be found on neither, so one pass is not enough.
        let passes = self.passes;
        self.reported.retain(|&hash, reported| {
            let stays = passes.wrapping_sub(reported.pass) < 2;
            if !stays {
                report(SyncReport::Gone { hash });
            }
            stays
        });
        looked_at
    }

    fn found(
        &mut self,
        hash: u64,
        backend: u64,
        deadline: u32,
        (step, at): (u32, Nanos),
    ) -> SyncReport {
        let new = Reported { backend, end: 0, pass: 0 };
        let last = self.reported.entry(hash).or_insert(new);
        let is_new = last.backend != backend || last.end < deadline;
        let end = if is_new { deadline.div_ceil(step).saturating_mul(step) } else { last.end };
        *last = Reported { backend, end, pass: self.passes };
        let ticks = u64::from(end).saturating_sub(at >> TICK_BITS);
        let lifetime = (ticks << TICK_BITS).div_ceil(1_000_000_000) as u32;
        SyncReport::Has { hash, backend, lifetime, is_new }
    }

    /// Another machine has reported that this connection is gone there. If this one has it, the next pass reports it anew.
    pub fn report_again(&mut self, hash: u64) {
        if let Some(reported) = self.reported.get_mut(&hash) {
            reported.end = 0;
        }
    }

    /// The number of connections that were reported and are not gone.
    #[must_use]
    pub fn len(&self) -> usize {
        self.reported.len()
    }

    /// Whether no connection was reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reported.is_empty()
    }
}

/// A part of the longest time-out, in ticks.
fn part(longest: Nanos) -> u32 {
    ((longest >> TICK_BITS) / PARTS).clamp(1, u32::MAX.into()) as u32
}

/// The hash and the backend of a connection, if another machine would send its packets to another backend. A connection with
/// entries on several cores is reported by the entry that is counted.
fn needs_report<'p>(plan: &'p Plan, conn: &Conn) -> Option<(u64, &'p Target)> {
    let target = plan.target(conn.backend).filter(|target| target.keeps)?;
    if target.mode == Mode::FullNat || !conn.is_established() || !conn.is_counted() {
        return None;
    }
    let key = conn.key();
    let hash = key.hash(plan.seed());
    let choice = plan.services().get(usize::from(target.service))?.service.choice;
    let is_by_table = matches!(choice, Choice::Maglev | Choice::SourceHash);
    if !is_by_table && key.flow().proto != proto::TCP {
        return Some((hash, target)); // another machine could not see that the connection is not new
    }
    let by_table = plan.fall_back(target.service, key, hash);
    by_table.is_none_or(|by_table| by_table.id != target.id).then_some((hash, target))
}

impl Hub {
    /// The connections that other machines have reported; `None` if that is not configured, or before the cores are created.
    #[must_use]
    pub fn replicated(&self) -> Option<&Arc<Replica>> {
        self.replica.get()
    }

    /// The backend of an established connection that another machine has reported.
    #[inline]
    pub(super) fn by_report<'p>(
        &self,
        plan: &'p Plan,
        service: u16,
        hash: u64,
        now: Nanos,
    ) -> Option<&'p Target> {
        let target = plan.identified(self.replica.get()?.get(hash, now)?)?;
        let may = target.service == service && target.keeps && target.mode != Mode::FullNat;
        may.then_some(target)
    }
}
