//! New connections, and those that no table has: which backend they get, and whether they get an entry.
//!
//! ```text
//!  service with persistence ──> backend of the client's network ──lasts, has room──> that one
//!                                      │ none                          │ full
//!  others ───> may have an entry? ──> choice of the service ──full──> another backend, if it can be remembered
//!                  │ under pressure                                    │ all full: dropped
//!                  └──> Maglev alone
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use crate::{Conn, ConnKey, Limit, Mode, Plan, Progress, State, Target};
use flowyard_frame::{FlowKey, Nanos, proto};
use flowyard_yard::DropReason;

use super::balance::Balance;
use super::keep::Admission;
use super::way::{Missed, Way};
use super::ways::count;

/// A connection that has no entry.
struct Newcomer<'a> {
    service: u16,
    conn: &'a ConnKey,
    hash: u64,
    /// Whether the packet begins the connection, as far as can be seen.
    is_fresh: bool,
    admission: Admission,
    now: Nanos,
}

impl Balance {
    /// The way of a packet of a connection that no table has.
    pub(super) fn new_connection(
        &mut self,
        plan: &Plan,
        service: u16,
        (key, conn, hash): (&FlowKey, &ConnKey, u64),
        now: Nanos,
    ) -> Missed {
        let state = State::first(key.proto, key.tcp_flags);
        let is_fresh = state != State::Open && state != State::Closing || key.proto != proto::TCP;
        if !(is_fresh && key.proto == proto::TCP)
            && let Some(target) = self.hub.by_report(plan, service, hash, now)
        {
            return Missed::Way(self.resumed(target, (conn, hash), state, now));
        }
        let admission = self.admit(service);
        let new = Newcomer { service, conn, hash, is_fresh, admission, now };
        let persists =
            plan.services().get(usize::from(service)).is_some_and(|t| t.persist.is_some());
        let placed = match persists {
            true => self.placed_by_network(plan, &new),
            false => self.placed(plan, &new),
        };
        let target = match placed {
            Ok(target) => target,
            Err(reason) => return self.no(service, reason),
        };
        let kept = match admission {
            Admission::No => Err(Limit::Unestablished),
            _ => {
                let began_elsewhere = !is_fresh && key.proto == proto::TCP;
                let seen = Progress { began_elsewhere, ..Progress::default() };
                self.keep(conn, hash, (target, true), (state, seen), now)
            }
        };
        match kept {
            Ok(way) => {
                self.connected(target.id);
                return Missed::Way(way);
            }
            Err(limit) => self.refused(service, limit),
        }
        let is_flood = admission == Admission::No;
        if target.mode == Mode::FullNat || self.settings.full_drops && !is_flood {
            return self.no(service, DropReason::NoConnection);
        }
        match plan.without_entry(service, conn, hash, now) {
            Some(target) => {
                let new = Newcomer { admission: Admission::No, ..new };
                if let Err(reason) = self.fitting(plan, target, &new) {
                    return self.no(service, reason);
                }
                if target.mode == Mode::Dnat {
                    self.strays.note(hash, now); // so that the replies are recognized
                }
                Missed::Way(Way::without_entry(target.id))
            }
            None => self.no(service, DropReason::NoBackend),
        }
    }

    /// The way of a packet of a connection that another machine has had.
    #[cold]
    fn resumed(
        &self,
        target: &Target,
        (conn, hash): (&ConnKey, u64),
        state: State,
        now: Nanos,
    ) -> Way {
        self.came_from_another(target.id);
        let seen =
            Progress { is_answered: true, is_established: true, end: None, began_elsewhere: true };
        self.keep(conn, hash, (target, true), (state, seen), now)
            .unwrap_or_else(|_| Way::without_entry(target.id))
    }

    /// The way of a datagram that is placed by itself.
    #[inline(never)]
    pub(super) fn one_packet(
        &mut self,
        plan: &Plan,
        service: u16,
        (conn, hash): (&ConnKey, u64),
        now: Nanos,
    ) -> Missed {
        let admission = Admission::Free;
        let new = Newcomer { service, conn, hash, is_fresh: true, admission, now };
        match self.placed_by_network(plan, &new) {
            Ok(target) => {
                if let Some(asked) = &target.asked {
                    asked.note(hash, now);
                }
                Missed::Way(Way::without_entry(target.id))
            }
            Err(reason) => self.no(service, reason),
        }
    }

    /// The backend by the choice of the service.
    #[inline]
    fn placed<'p>(&mut self, plan: &'p Plan, new: &Newcomer<'_>) -> Result<&'p Target, DropReason> {
        let Newcomer { service, conn, hash, .. } = *new;
        // An entry under pressure may be gone before the client's next packet. Without an entry, the choice must be
        // the same on every core and machine.
        let mode = plan.services().get(usize::from(service)).map(|table| table.service.mode);
        let is_safe = new.admission == Admission::Free || mode == Some(Mode::FullNat);
        let chosen = match new.is_fresh && is_safe {
            true => plan.choose(service, conn, hash, &mut self.turns),
            false => plan.fall_back(service, conn, hash),
        };
        let target = chosen.ok_or_else(|| plan.why_none(service))?;
        self.fitting(plan, target, new)
    }

    /// The backend of the client's network. If it has none, it gets one, unless unestablished connections are at their limit.
    fn placed_by_network<'p>(
        &mut self,
        plan: &'p Plan,
        new: &Newcomer<'_>,
    ) -> Result<&'p Target, DropReason> {
        let table = plan.services().get(usize::from(new.service)).ok_or(DropReason::NoBackend)?;
        let (Some(settings), Some(persist)) = (&table.service.persist, &table.persist) else {
            return self.placed(plan, new);
        };
        let network = settings.network(new.conn, plan.seed());
        let place = Arc::as_ref(persist).place(network, settings.timeout, new.now);
        let had = place.backend().and_then(|id| plan.target(id)).filter(|target| target.lasts);
        if let Some(target) = had {
            let other = self.fitting(plan, target, new)?;
            match other.id == target.id {
                true => place.keep(),
                false => place.give(other.id),
            }
            return Ok(other);
        }
        if new.admission == Admission::Free {
            let target = self.placed(plan, new)?;
            place.give(target.id);
            return Ok(target);
        }
        let target = plan.fall_back(new.service, new.conn, new.hash);
        self.fitting(plan, target.ok_or(DropReason::NoBackend)?, new)
    }

    /// `target`, or if that cannot have the connection, another backend.
    #[inline]
    fn fitting<'p>(
        &self,
        plan: &'p Plan,
        target: &'p Target,
        new: &Newcomer<'_>,
    ) -> Result<&'p Target, DropReason> {
        let Err(reason) = self.fits(plan, target, new) else { return Ok(target) };
        match reason {
            DropReason::BackendLimit => self.passed_over(target.id),
            _ => self.ambiguous(target.id),
        }
        // Without an entry, no other backend could be remembered, and an open connection has none.
        if new.admission == Admission::No || !new.is_fresh {
            return Err(reason);
        }
        let may = |other: &Target| self.fits(plan, other, new).is_ok();
        plan.instead(target, new.conn, new.hash, may).ok_or(reason)
    }

    /// Whether a backend can have the connection.
    #[inline]
    fn fits(&self, plan: &Plan, target: &Target, new: &Newcomer<'_>) -> Result<(), DropReason> {
        if new.is_fresh && !target.has_room() {
            Err(DropReason::BackendLimit)
        } else if target.shares && target.asked.is_none() && self.is_taken(plan, target, new) {
            Err(DropReason::Ambiguous)
        } else {
            Ok(())
        }
    }

    /// Whether the client has, from the same port, a connection to the same address and port of the backend through another
    /// service: the backend could not tell the two apart, and neither could the balancer their replies. If that connection is
    /// closing, its entry is removed.
    #[cold]
    fn is_taken(&self, plan: &Plan, target: &Target, new: &Newcomer<'_>) -> bool {
        plan.alike(target, &new.conn.flow()).any(|(other, flow)| {
            let conn = ConnKey::of(&flow);
            let key = (&conn, conn.hash(plan.seed()));
            let [mut open, mut closing, mut copies, mut stale] = [false; 4];
            // Entries of cores that do not get its packets any more may be older.
            for core in self.own_and_others(key.1) {
                match self.found_of(core, key, other, new.now) {
                    // Entries of cores that do not get its packets any more may be older.
                    Some(found) if found.state() == State::Closing => {
                        (stale, closing) = (true, closing | found.is_counted());
                    }
                    Some(found) if found.is_counted() => open = true,
                    Some(_) => (stale, copies) = (true, true),
                    None => {}
                }
            }
            let is_taken = open || copies && !closing;
            if !is_taken && stale {
                self.forget(plan, key, other, new.now);
            }
            is_taken
        })
    }

    /// The entry of a connection to a backend in the table of a core.
    fn found_of(
        &self,
        core: usize,
        (conn, hash): (&ConnKey, u64),
        target: &Target,
        now: Nanos,
    ) -> Option<Conn> {
        let conns = self.table(core)?;
        let found = conns.get(conns.find(conn, hash, now)?, now)?;
        (found.backend == target.id).then_some(*found)
    }

    /// Removes the entries of a closing connection.
    fn forget(&self, plan: &Plan, (conn, hash): (&ConnKey, u64), target: &Target, now: Nanos) {
        for core in self.own_and_others(hash) {
            let Some(mut conns) = self.table(core) else { continue };
            let Some(slot) = conns.find(conn, hash, now) else { continue };
            let is_its = conns.get(slot, now).is_some_and(|found| found.backend == target.id);
            let gone = if is_its { conns.remove(slot, plan.seed()) } else { None };
            if gone.is_some_and(|gone| gone.is_counted()) {
                count(target, false);
            }
        }
        self.moves.fetch_add(1, Release); // no core may use its leases
    }

    /// Counts a packet to `service` that gets no backend.
    fn no(&self, service: u16, reason: DropReason) -> Missed {
        self.unserved(service, reason);
        Missed::Drop(reason)
    }
}
