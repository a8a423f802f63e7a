//! Health: asks the backends of a balancer how they are, and has the answers change its tables.
//!
//! ```text
//!  plan ──(services with a check)──> Health: who is due? ──job──> probers, at most 64 threads
//!  hub <──one plan for all news──── rise, fall <──────────answer──┘
//! ```
//!
//! No core of the yard takes part: questions go out by the machine's own network stack, with the
//! rights and the user that are left after the start.
//!
//! Invariants: a backend is asked once at a time; no question is begun before a prober is free for it,
//! so that none waits while its time runs.
//! Thread-safety: a thread decides, others ask and wait. Dropping the checker ends the first at once,
//! the others with what they wait for.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_lb::check::Check;
use flowyard_lb::health::Health;
use flowyard_lb::{AllDown, ServiceState};
use flowyard_yard::Handle;
use flowyard_yard::work::Hub;

mod http;
pub mod probe;
mod tls;

use probe::{Asked, Deadline, Fault, Probe};

/// The most questions at a time.
const MOST: usize = 64;
/// From one look at what is due to the next.
const NAP: Duration = Duration::from_millis(10);
/// A prober that has not answered by so much more than its timeout is not believed in any more.
const GRACE: Nanos = 1_000_000_000;
/// Between two words about checks that are late.
const QUIET: Nanos = 60_000_000_000;

/// Checks at work.
#[derive(Debug)]
pub struct Checker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A question on its way to a prober.
struct Job {
    backend: u32,
    asked: Asked,
    probe: Arc<Probe>,
    timeout: Nanos,
}

/// What came of it.
struct Done {
    backend: u32,
    took: Nanos,
    fault: Option<Fault>,
}

impl Checker {
    /// Has the backends of a balancer asked from now on; `None` if the yard is no balancer. At most
    /// `per_second` checks begin in a second; 0 is no limit.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(yard: &Handle, per_second: u32) -> io::Result<Option<Self>> {
        let Some(hub) = yard.hub().cloned() else { return Ok(None) };
        let stop = Arc::<AtomicBool>::default();
        let (stopped, yard) = (Arc::clone(&stop), yard.clone());
        let decide = move || {
            let mut checks = Checks::new(yard, hub, per_second);
            while !stopped.load(Ordering::Acquire) {
                checks.step();
            }
        };
        let thread = thread::Builder::new().name("health".into()).spawn(decide)?;
        Ok(Some(Self { stop, thread: Some(thread) }))
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// A backend that is asked.
#[derive(Clone)]
struct Known {
    asked: Asked,
    check: Check,
    probe: Arc<Probe>,
    /// Its check cannot run, and the log says so.
    cannot: bool,
}

/// What the thread that decides knows.
struct Checks {
    yard: Handle,
    hub: Arc<Hub>,
    health: Health,
    /// The generation that `known` is of.
    generation: u64,
    /// By the number of the backend.
    known: BTreeMap<u32, Known>,
    /// Services none of whose backends is up.
    down: HashSet<String>,
    jobs: (Sender<Job>, Arc<Mutex<Receiver<Job>>>),
    done: (Sender<Done>, Receiver<Done>),
    probers: usize,
    busy: usize,
    /// When it was said that checks are late.
    said: Option<Nanos>,
}

impl Checks {
    fn new(yard: Handle, hub: Arc<Hub>, per_second: u32) -> Self {
        let (jobs, take) = channel();
        // Two machines of a cluster shall not ask in step.
        let seed = hub.plan().seed() ^ u64::from(std::process::id()) << 32;
        Self {
            yard,
            hub,
            health: Health::new(per_second, seed),
            generation: 0,
            known: BTreeMap::new(),
            down: HashSet::new(),
            jobs: (jobs, Arc::new(Mutex::new(take))),
            done: channel(),
            probers: 0,
            busy: 0,
            said: None,
        }
    }

    /// Waits a little for answers, and does what is due.
    fn step(&mut self) {
        if self.hub.generation() != self.generation {
            self.look();
        }
        let mut news = Vec::new();
        let first = self.done.1.recv_timeout(NAP);
        let rest: Vec<_> = std::iter::from_fn(|| self.done.1.try_recv().ok()).collect();
        for done in first.into_iter().chain(rest) {
            self.busy = self.busy.saturating_sub(1);
            news.extend(self.take(&done));
        }
        let now = self.yard.now();
        while let Some((backend, change)) = self.health.late(GRACE, now) {
            self.hub.report(backend, now, GRACE, Some("the prober does not come back".into()));
            news.extend(change.map(|change| (change.backend, change.is_up)));
        }
        if !news.is_empty() {
            self.hub.set_health(&news, now);
            self.look();
        }
        self.ask(now);
    }

    /// Looks at the newest plan: who is to be asked, and which services are down.
    fn look(&mut self) {
        self.generation = self.hub.generation();
        let mut known = BTreeMap::new();
        let mut probes: Vec<Arc<Probe>> = Vec::new();
        let states = self.hub.states();
        let now = self.yard.now();
        for state in &states {
            let service = &state.service;
            let Some(check) = &service.check else { continue };
            for (backend, is) in service.backends.iter().zip(&state.backends) {
                let port = check.port.or(backend.port).unwrap_or(*service.ports.start());
                let asked = Asked {
                    service: service.name.clone(),
                    backend: backend.name.clone(),
                    addr: SocketAddr::new(backend.addr, port),
                };
                let old = self.known.get(&is.id).filter(|old| old.check == *check);
                let made = probes.iter().find(|probe| *probe.asks() == check.asks);
                let probe = old.map(|old| &old.probe).or(made).cloned();
                let probe = probe.unwrap_or_else(|| Arc::new(Probe::new(&check.asks)));
                probes.push(Arc::clone(&probe));
                let cannot = old.is_some_and(|old| old.cannot);
                known.insert(is.id, Known { asked, check: check.clone(), probe, cannot });
                self.health.add(is.id, check.rules, is.is_up, now);
            }
        }
        self.health.retain(|backend| known.contains_key(&backend));
        self.hub.retain_reports(|backend| known.contains_key(&backend));
        self.known = known;
        self.say_down(&states);
    }

    /// Says which services have no backend that is up any more, and which have one again.
    fn say_down(&mut self, states: &[ServiceState]) {
        let mut down = HashSet::new();
        for state in states {
            if state.backends.is_empty() || state.backends.iter().any(|backend| backend.is_up) {
                continue;
            }
            let service = &state.service.name;
            if !self.down.contains(service) {
                let then = match state.service.all_down {
                    AllDown::Drop => "new connections are dropped",
                    AllDown::Use => "health is not believed, and all are used",
                };
                tracing::error!(service, "every backend is down: {then}");
            }
            down.insert(service.clone());
        }
        for service in self.down.difference(&down) {
            tracing::info!(service, "not every backend is down any more");
        }
        self.down = down;
    }

    /// Takes an answer; what is new by it.
    fn take(&mut self, done: &Done) -> Option<(u32, bool)> {
        let (backend, now) = (done.backend, self.yard.now());
        let known = self.known.get_mut(&backend)?;
        let fault = done.fault.as_ref().map(ToString::to_string);
        self.hub.report(backend, now, done.took, fault.clone());
        let name = format!("{}/{}", known.asked.service, known.asked.backend);
        let cannot = matches!(done.fault, Some(Fault::Cannot(_)));
        if cannot && !known.cannot {
            let why = fault.as_deref().unwrap_or_default();
            tracing::error!(backend = name, "{why}; it counts as a wrong answer");
        }
        known.cannot = cannot;
        let change = self.health.record(backend, done.fault.is_none(), now)?;
        let addr = known.asked.addr;
        match (change.is_up, fault) {
            (true, _) => tracing::info!(backend = name, %addr, "backend is up"),
            (false, why) => {
                let why = why.unwrap_or_default();
                tracing::warn!(backend = name, %addr, "backend is down: {why}");
            }
        }
        Some((backend, change.is_up))
    }

    /// Asks who is due, as long as there are probers for it.
    fn ask(&mut self, now: Nanos) {
        while self.busy < MOST
            && let Some(backend) = self.health.due(now)
        {
            let Some(known) = self.known.get(&backend) else { continue };
            let (asked, probe) = (known.asked.clone(), Arc::clone(&known.probe));
            let job = Job { backend, asked, probe, timeout: known.check.rules.timeout };
            self.busy += 1;
            if self.busy > self.probers {
                self.spawn();
            }
            let _there = self.jobs.0.send(job); // without a prober it is late, and counts as wrong
        }
        let behind = self.health.behind(now);
        let is_late = behind > 1_000_000_000;
        if is_late && self.said.is_none_or(|said| now.saturating_sub(said) > QUIET) {
            self.said = Some(now);
            let late_ms = behind / 1_000_000;
            tracing::warn!(
                late_ms,
                "health checks are late: raise 'checks_per_second' in [balance] or 'interval_ms', or \
                 lower 'timeout_ms'"
            );
        }
    }

    /// One more prober.
    fn spawn(&mut self) {
        let (jobs, done, yard) = (Arc::clone(&self.jobs.1), self.done.0.clone(), self.yard.clone());
        let work = move || {
            loop {
                let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(Job { backend, asked, probe, timeout }) = next else { return };
                let now = || yard.now();
                let began = now();
                let fault = probe.ask(&asked, Deadline::new(&now, timeout)).err();
                let took = now().saturating_sub(began);
                if done.send(Done { backend, took, fault }).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("probe".into()).stack_size(512 << 10).spawn(work);
        match thread {
            Ok(_) => self.probers += 1,
            Err(error) => tracing::error!(%error, "a health check cannot run: no thread"),
        }
    }
}
