//! What the devices of all mechanisms share: the trait, and the watch on the interface.

use std::sync::{Arc, Mutex};

use flowyard_frame::{Batch, Lanes, Nanos};
use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::{Received, refuse};

use super::plan::{LivePort, Log};
use crate::live::{Change, Interface, OpenError, Watch};

/// One core's part of a port.
pub(super) trait Device: Send {
    /// As `Rx::rx`.
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received;

    /// As `Tx::tx`.
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes;

    /// Stops receiving.
    fn stop(&mut self) {}

    /// Stops transmitting; returns a final error, if any.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn monitor(&self) -> &Monitor;
}

pub(super) type Shared = Arc<Mutex<dyn Device>>;

/// Watches an interface and reports each change once.
pub(super) struct Monitor {
    port: String,
    log: Log,
    pub(super) watch: Watch,
    /// Messages for the summary at the end of the run.
    pub(super) reported: Vec<String>,
    /// The time since which the interface has accepted no frames.
    pub(super) stuck: Option<Nanos>,
    /// The interface is back but cannot be opened; this is retried, and reported once.
    is_refused: bool,
}

/// Maximum number of messages kept for the end of a run.
const REMARKS: usize = 16;

/// If an interface accepts no frames for longer than this, frames for it are dropped.
const STUCK_LIMIT: Nanos = 100_000_000;

impl Monitor {
    fn new(port: &str, log: &Log, interface: &Interface) -> Result<Self, OpenError> {
        let watch = Watch::new(interface).map_err(|error| OpenError {
            what: format!("watching '{}' failed: {error}", interface.name),
            fix: "raise the limit of open files (ulimit -n)".into(),
        })?;
        Ok(Self {
            port: port.into(),
            log: Arc::clone(log),
            watch,
            reported: Vec::new(),
            stuck: None,
            is_refused: false,
        })
    }

    pub(super) fn report(&mut self, what: String) {
        (self.log)(&self.port, &what);
        if self.reported.len() < REMARKS && !self.reported.contains(&what) {
            self.reported.push(what);
        }
    }

    /// Checks the interface periodically, and reports a change.
    #[inline]
    pub(super) fn look(&mut self, now: Nanos) -> Option<Change> {
        let change = self.watch.look(now)?;
        self.stuck = None;
        self.report(match &change {
            Change::Down => "the interface went down".into(),
            Change::Gone => "the interface is gone".into(),
            Change::Up => "the interface is up again".into(),
            Change::New(_) if self.is_refused => return Some(change),
            Change::New(_) => "the interface was recreated".into(),
        });
        Some(change)
    }

    /// Reports the result of opening a recreated interface.
    pub(super) fn opened(&mut self, result: Result<(), OpenError>) {
        match result {
            Ok(()) if self.is_refused => self.report("the interface is in use again".into()),
            Ok(()) => {}
            Err(error) => {
                if !self.is_refused {
                    self.report(error.to_string());
                }
                self.is_refused = true;
                self.watch.forget();
                return;
            }
        }
        self.is_refused = false;
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
pub(super) struct Place<'a> {
    pub(super) port: &'a LivePort,
    pub(super) pool: &'a Pool,
    pub(super) log: &'a Log,
}

impl Place<'_> {
    pub(super) fn monitor(&self, interface: &Interface) -> Result<Monitor, OpenError> {
        let mut monitor = Monitor::new(&self.port.name, self.log, interface)?;
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
