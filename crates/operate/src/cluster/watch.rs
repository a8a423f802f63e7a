//! The thread that talks to the provider: it offers new services, saves those in use, and writes the status of the node.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_lb::Hub;
use flowyard_yard::{Clock, Handle};

use super::found::{Found, Polled};
use super::status::Status;
use super::{Cluster, Provider, Snapshot, StateFile, View};

/// The time between two statuses if nothing changes.
const HEARTBEAT: Nanos = 5_000_000_000;

/// The time for which a status of another instance of the same name is remembered.
const NAMESAKE: Nanos = 3 * HEARTBEAT;

/// Seconds since 1970-01-01.
pub type UnixClock = Box<dyn Fn() -> u64 + Send>;

/// What the thread needs.
pub struct WatcherSettings {
    /// The name of this node.
    pub node: String,
    /// A number that no other instance has drawn.
    pub instance: String,
    /// Where new services come from.
    pub provider: Provider,
    /// The time between two polls.
    pub every: Duration,
    /// Where the services in use are saved.
    pub state: StateFile,
    /// What was saved last.
    pub saved: Option<Snapshot>,
    /// The date and time.
    pub unix: UnixClock,
}

/// The time between two attempts at the start.
const PAUSE: Duration = Duration::from_millis(200);

/// Asks for the services at the start of an instance, and returns the provider that has them. No attempt begins after
/// `patience`. One that has begun is waited for, for as long again: if its thread did not end, the instance could not
/// give up its privileges.
///
/// # Errors
/// Why there are none.
pub fn first_poll(
    provider: &Provider,
    clock: &Clock,
    patience: Duration,
) -> Result<(Provider, Found), String> {
    let (send, receive) = mpsc::channel();
    let (mut provider, is_over) = (provider.clone(), Arc::<AtomicBool>::default());
    let over = Arc::clone(&is_over);
    let ask = move || {
        while !over.load(Ordering::Relaxed) {
            // What was found is complete, with parts of an earlier run in place of those that failed.
            let Polled { found, failed } = provider.poll();
            let is_last = found.is_some();
            let found = found.map(|found| (provider.clone(), found));
            if send.send((found, failed)).is_err() || is_last {
                return;
            }
            thread::sleep(PAUSE);
        }
    };
    // It waits for names and for the server, which is bounded by giving up on it.
    let thread = thread::Builder::new().name("cluster".into()).spawn(ask);
    let thread = thread.map_err(|error| error.to_string())?;
    let mut until = clock().saturating_add(patience.as_nanos() as Nanos);
    let mut why = format!("no answer within {} ms", patience.as_millis());
    let found = loop {
        let left = until.saturating_sub(clock());
        match receive.recv_timeout(Duration::from_nanos(left)) {
            Ok((Some(found), _)) => break Ok(found),
            Ok((None, failed)) => why = failed.unwrap_or(why),
            Err(RecvTimeoutError::Disconnected) => break Err(why),
            // It waits for a server of names, for which no limit can be set.
            Err(RecvTimeoutError::Timeout) if is_over.swap(true, Ordering::Relaxed) => {
                return Err(why);
            }
            Err(RecvTimeoutError::Timeout) => {
                until = until.saturating_add(patience.as_nanos() as Nanos);
            }
        }
    };
    let _ended = thread.join();
    found
}

/// The running thread. Dropping it ends the thread after the request in progress, without waiting for it.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Cluster>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts to watch.
    ///
    /// # Errors
    /// The thread cannot be started, or the engine does not run a balancer.
    pub fn start(
        yard: &Handle,
        shared: Arc<Cluster>,
        watched: WatcherSettings,
    ) -> io::Result<Self> {
        let hub = yard.control_plane::<Hub>();
        let hub = hub.ok_or_else(|| io::Error::other("the engine does not run a balancer"))?;
        let (yard, seen) = (yard.clone(), Arc::clone(&shared));
        let watch = move || {
            let every = watched.every;
            let mut thread = Watch::new(watched, hub, seen);
            loop {
                let view = thread.step(yard.now());
                if thread.shared.wait(&view, every) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("cluster".into()).spawn(watch)?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.end();
        // A thread that waits for the server ends with the process.
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            let _ended = thread.join();
        }
    }
}

/// The state of the thread.
pub(super) struct Watch {
    watched: WatcherSettings,
    hub: Arc<Hub>,
    shared: Arc<Cluster>,
    polled: Option<Nanos>,
    /// The status, and the generation of the plan and the view of which it is.
    status: Option<(u64, View, Status)>,
    /// The last status that was written, and when.
    written: Option<(Status, Nanos)>,
    /// When a status of another instance was seen under the name of this node.
    met: Option<Nanos>,
    /// Whether an error of polls, of the disk, or of statuses was logged and is not over.
    poll_fails: bool,
    save_fails: bool,
    report_fails: bool,
}

impl Watch {
    pub(super) fn new(mut watched: WatcherSettings, hub: Arc<Hub>, shared: Arc<Cluster>) -> Self {
        watched.provider.run();
        let (polled, status, written, met) = (None, None, None, None);
        let (poll_fails, save_fails, report_fails) = (false, false, false);
        Self {
            watched,
            hub,
            shared,
            polled,
            status,
            written,
            met,
            poll_fails,
            save_fails,
            report_fails,
        }
    }

    /// Does what is due, and returns the view on which this was based.
    pub(super) fn step(&mut self, now: Nanos) -> View {
        let every = Nanos::try_from(self.watched.every.as_nanos()).unwrap_or(Nanos::MAX);
        if self.polled.is_none_or(|at| now.saturating_sub(at) >= every) {
            self.polled = Some(now);
            self.poll(now);
        }
        // What is reported was saved, although other services may come into use meanwhile.
        let view = self.shared.view();
        self.save();
        if view.unreachable.is_none() && self.watched.provider.keeps_statuses() {
            self.report(&view, now);
        }
        view
    }

    fn poll(&mut self, now: Nanos) {
        self.watched.provider.look_up(&self.shared.lookups());
        let Polled { found, failed } = self.watched.provider.poll();
        self.contact(now, failed);
        match found {
            Some(Found::New(snapshot)) => self.shared.offer(snapshot),
            Some(Found::Unusable(generation, why)) => self.shared.refuse_for_good(generation, why),
            None => {}
        }
    }

    /// Records whether all services can be read. The beginning and the end of an outage are logged, also of one in which
    /// some services can still be read.
    fn contact(&mut self, now: Nanos, failed: Option<String>) {
        let name = self.watched.provider.name();
        let has_failed = std::mem::replace(&mut self.poll_fails, failed.is_some());
        match &failed {
            Some(why) if !has_failed => {
                tracing::warn!("{name} cannot be read, the services in use stay: {why}");
            }
            None if has_failed => tracing::info!("{name} can be read again"),
            _ => {}
        }
        self.shared.contact(now, failed);
    }

    /// Saves the services in use if they have not been saved.
    fn save(&mut self) {
        let used = self.shared.in_use();
        if self.watched.saved.as_ref() == Some(&used) || self.shared.view().is_from_file {
            return;
        }
        match self.watched.state.save(&used) {
            Ok(()) => {
                self.watched.saved = Some(used);
                self.save_fails = false;
            }
            Err(error) => {
                if !std::mem::replace(&mut self.save_fails, true) {
                    let name = self.watched.provider.name();
                    tracing::error!(
                        "a restart without {name} would begin with older services: {error}"
                    );
                }
            }
        }
    }

    /// The status without a date. It is made anew only if the plan or the view has changed, because its checksum can
    /// take a Maglev table for each service.
    fn status(&mut self, view: &View) -> Status {
        let plan = self.hub.generation();
        match &self.status {
            Some((of, seen, status)) if *of == plan && seen == view => return status.clone(),
            _ => {}
        }
        let status = Status::of(&self.watched.node, &self.watched.instance, view, &self.hub);
        self.status = Some((plan, view.clone(), status.clone()));
        status
    }

    /// Writes the status if it has changed or is old.
    fn report(&mut self, view: &View, now: Nanos) {
        let mut status = self.status(view);
        let is_fresh =
            |(old, at): &(Status, Nanos)| *old == status && now.saturating_sub(*at) < HEARTBEAT;
        if self.written.as_ref().is_some_and(is_fresh) {
            return;
        }
        let plain = status.clone();
        status.at = (self.watched.unix)();
        let text = serde_json::to_string(&status).unwrap_or_default();
        let done = self.watched.provider.report(&self.watched.node, &text);
        let is_first = self.written.is_none();
        // After an error, too: the next attempt is with the next heartbeat.
        self.written = Some((plain, now));
        match done {
            Ok(old) => {
                self.report_fails = false;
                // The first status replaces that of an earlier run.
                let old = old.as_deref().filter(|_| !is_first);
                self.compare(old, now);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.report_fails, true) {
                    tracing::warn!("the status of this node could not be written: {error}");
                }
            }
        }
    }

    /// Finds out whether another instance has written the status of this node a short time ago.
    fn compare(&mut self, old: Option<&[u8]>, now: Nanos) {
        let old = old.and_then(|old| serde_json::from_slice::<Status>(old).ok());
        let WatcherSettings { node, instance, .. } = &self.watched;
        if old.is_some_and(|old| old.instance != *instance) {
            self.met = Some(now);
        }
        let has_namesake = self.met.is_some_and(|at| now.saturating_sub(at) < NAMESAKE);
        if has_namesake && !self.shared.view().has_namesake {
            tracing::error!(
                "another instance writes its status under the name '{node}': give each machine a 'node' of its own in [cluster]"
            );
        }
        self.shared.namesake(has_namesake);
    }
}
