//! What the devices of all mechanisms share: the trait, and the monitor of the interface, which is
//! the supervisor of the port.
//!
//! ```text
//!  watch: is the port bound? ──no──┐
//!  stall: does it receive?   ──no──┴─> fresh ──(received frames are taken)──> opened again, counted
//! ```
//!
//! Invariant: a port whose interface is up is bound to it, or is opened again, or has reported why it
//! cannot be. The order to open it stands until that has succeeded.

use std::sync::{Arc, Mutex};

use flowyard_frame::{Batch, Lanes, Nanos};
use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::{Descriptors, Received, refuse};

use super::calls::{Link, System};
use super::plan::{LivePort, Log};
use super::stall::{Progress, StallDetector};
use super::watch::{Change, Watch};
use crate::live::{Counts, Interface, OpenError};
use crate::port::STUCK_LIMIT;

/// One core's part of a port.
pub(super) trait Device: Send {
    /// As `Rx::rx`.
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received;

    /// As `Tx::tx`.
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes;

    /// As `Tx::is_clear`.
    fn is_clear(&mut self) -> bool {
        true
    }

    /// Stops receiving.
    fn stop(&mut self) {}

    /// Stops transmitting; returns a final error, if any.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Messages for the summary at the end of the run.
    fn remarks(&self) -> Vec<String>;

    /// As `Rx::descriptors`.
    fn descriptors(&mut self) -> Option<Descriptors>;

    /// As `Rx::pause`.
    fn pause(&mut self, paused: bool);

    /// As `Rx::position`.
    fn position(&mut self) -> Option<Vec<u64>>;

    /// As `Rx::go_on`.
    fn go_on(&mut self, position: &[u64], pool: &mut Pool) -> bool;
}

pub(super) type Shared = Arc<Mutex<dyn Device>>;

/// Watches an interface, reports each change once, and says when the port must be opened again.
pub(super) struct Monitor<L> {
    port: String,
    log: Log,
    pub(super) watch: Watch<L>,
    /// The MTU that the port was opened for, or the largest that was reported since.
    mtu: u32,
    pub(super) stall_detector: StallDetector,
    /// Messages for the summary at the end of the run.
    pub(super) reported: Vec<String>,
    /// The time since which the interface has accepted no frames.
    pub(super) stuck: Option<Nanos>,
    /// The interface to open the port on.
    fresh: Option<Interface>,
    /// How often in succession the interface could not be opened. This is retried at each look, and
    /// reported once.
    failures: u32,
    /// How often the port was opened again, and was found stalled, and this was not counted yet.
    reopens: u32,
    stalls: u32,
}

/// What a device must know of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// The interface is up again, and the port is still bound to it.
    Up,
    /// The interface no longer exists under its name.
    Gone,
}

/// Maximum number of messages kept for the end of a run.
const REMARKS: usize = 16;

/// An interface that could not be opened this often in succession is reported. Some failures pass: the
/// interface was deleted meanwhile, or the kernel has not yet released the queue that was closed.
const FAILURES: u32 = 5;

impl<L: Link> Monitor<L> {
    fn new(
        port: &str,
        log: &Log,
        interface: &Interface,
        link: L,
        stall_detector: StallDetector,
    ) -> Self {
        Self {
            port: port.into(),
            log: Arc::clone(log),
            watch: Watch::new(interface, link),
            mtu: interface.mtu,
            stall_detector,
            reported: Vec::new(),
            stuck: None,
            fresh: None,
            failures: 0,
            reopens: 0,
            stalls: 0,
        }
    }

    pub(super) fn report(&mut self, what: String) {
        (self.log)(&self.port, &what);
        if self.reported.len() < REMARKS && !self.reported.contains(&what) {
            self.reported.push(what);
        }
    }

    /// Looks at the interface periodically. `is_bound` says whether the port is bound to the
    /// interface with an index.
    #[inline]
    pub(super) fn look(&mut self, now: Nanos, is_bound: impl FnOnce(u32) -> bool) -> Option<News> {
        if self.watch.is_due(now) { self.look_now(now, is_bound) } else { None }
    }

    #[cold]
    fn look_now(&mut self, now: Nanos, is_bound: impl FnOnce(u32) -> bool) -> Option<News> {
        let is_up = self.watch.is_up() && self.fresh.is_none() && self.failures == 0;
        if self.stall_detector.check(now, &mut self.watch.link, is_up) {
            self.stalls += 1;
            self.report(
                "the interface counts frames and the port received none of them; it is opened again"
                    .into(),
            );
        }
        let must_reopen = self.stall_detector.must_reopen();
        let mut found_bound = false;
        let change = self.watch.look(now, |index| {
            found_bound = !must_reopen && is_bound(index);
            found_bound
        });
        if found_bound {
            // Also if the port was refused on another interface, and this one is back.
            self.in_use();
            self.compare_mtu();
        }
        let change = change?;
        let news = match change {
            Change::Unbound(interface) => {
                self.unbound(interface, must_reopen);
                return None;
            }
            Change::Down => ("the interface went down", None),
            Change::Gone => ("the interface is gone", Some(News::Gone)),
            Change::Up => ("the interface is up again", Some(News::Up)),
        };
        (self.stuck, self.fresh, self.failures) = (None, None, 0);
        self.report(news.0.into());
        news.1
    }

    /// Reports an MTU that is larger than the one the port was opened for.
    fn compare_mtu(&mut self) {
        let (before, now) = (self.mtu, self.watch.mtu);
        if now > before {
            self.mtu = now;
            let name = self.watch.name();
            self.report(format!(
                "the MTU of '{name}' grew from {before} to {now}: restart flowyard, because this port was opened for shorter \
                 frames and can drop longer ones"
            ));
        }
    }

    /// The port must be opened again on `interface`.
    fn unbound(&mut self, interface: Interface, must_reopen: bool) {
        if self.fresh.is_none() && self.failures == 0 && !must_reopen {
            self.stuck = None;
            self.report(if interface.index == self.watch.index {
                "the interface is back with the same index; the port is opened again".into()
            } else {
                "the interface was recreated".into()
            });
        }
        self.fresh = Some(interface);
    }

    /// The interface to open the port on, if it must be opened again.
    #[inline]
    pub(super) const fn fresh(&self) -> Option<&Interface> {
        self.fresh.as_ref()
    }

    /// Whether the interface is up and the port is bound to it, as far as is known.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.watch.is_up() && self.fresh.is_none()
    }

    /// Records the result of opening the port on [`Monitor::fresh`].
    pub(super) fn opened(&mut self, result: Result<(), OpenError>) {
        let Some(interface) = self.fresh.take() else { return };
        match result {
            Ok(()) => {
                self.watch.index = interface.index;
                self.mtu = interface.mtu;
                self.stall_detector.reopened();
                self.reopens += 1;
                self.in_use();
            }
            // The next look finds again that the port is not bound.
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == FAILURES {
                    self.report(error.to_string());
                }
            }
        }
    }

    /// The port is bound to its interface.
    fn in_use(&mut self) {
        if std::mem::take(&mut self.failures) >= FAILURES {
            self.report("the interface is in use again".into());
        }
    }

    /// Notes what a call received, and counts what was not counted yet. `is_idle`: nothing waits.
    #[inline]
    pub(super) fn note(&mut self, got: &mut Received, frames: usize, is_idle: bool, now: Nanos) {
        let lost = got.overrun + got.too_long + got.empty;
        self.stall_detector.note(frames as u32 + lost, is_idle, now);
        if self.reopens | self.stalls != 0 {
            got.reopens = std::mem::take(&mut self.reopens);
            got.stalls = std::mem::take(&mut self.stalls);
        }
    }

    /// The kernel did not accept the frames of `left`. They are retried, or dropped if the
    /// interface has accepted nothing for too long.
    pub(super) fn later(&mut self, from: &mut Batch, left: Lanes, now: Nanos) -> Lanes {
        let since = *self.stuck.get_or_insert(now);
        if now.saturating_sub(since) < STUCK_LIMIT {
            return left;
        }
        if now.saturating_sub(since) < 2 * STUCK_LIMIT {
            self.report("the interface accepts no frames; frames for it are dropped".into());
        }
        refuse_all(from, left, DropReason::PortFailed)
    }

    /// Drops the frames of `left`, because the interface is down or gone.
    pub(super) fn down(&mut self, from: &mut Batch, left: Lanes) -> Lanes {
        self.watch.hurry();
        refuse_all(from, left, DropReason::PortDown)
    }
}

pub(super) fn refuse_all(from: &mut Batch, lanes: Lanes, reason: DropReason) -> Lanes {
    lanes.for_each(|lane| refuse(from, lane, reason));
    Lanes::NONE
}

/// The arguments for opening a port.
pub(super) struct Place<'a, S> {
    pub(super) system: &'a S,
    pub(super) port: &'a LivePort,
    pub(super) pool: &'a Pool,
    pub(super) log: &'a Log,
    pub(super) progress: Arc<Progress>,
}

impl<S: System> Place<'_, S> {
    /// The monitor of the core at position `at`. `counter` is the counter of the interface that
    /// counts the frames that the port receives, if one counts these and no others.
    pub(super) fn monitor(
        &self,
        at: usize,
        interface: &Interface,
        counter: Option<fn(&Counts) -> u64>,
    ) -> Result<Monitor<S::Link>, OpenError> {
        let link = self.system.link(&interface.name).map_err(|error| OpenError {
            what: format!("watching '{}' failed: {error}", interface.name),
            fix: "raise the limit of open files (ulimit -n)".into(),
        })?;
        let stall_detector = StallDetector::new(&self.progress, at, counter);
        let mut monitor = Monitor::new(&self.port.name, self.log, interface, link, stall_detector);
        let longest = self.pool.longest();
        if interface.mtu as usize + HEADER > longest {
            monitor.report(format!(
                "the interface has an MTU of {}, but frames of more than {longest} bytes are dropped: raise \
                 'buffer_bytes' in [yard]",
                interface.mtu
            ));
        }
        if !interface.is_up {
            monitor.report("the interface is down".into());
        }
        Ok(monitor)
    }
}

/// Length of an Ethernet header with a VLAN tag.
pub(super) const HEADER: usize = 18;
