//! Kept connections, each of which sends a request about every second, and what became of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use super::super::load::Web;
use super::super::site::vips;
use super::{clock, wait_until};
use flowyard_livekit::net::Net;

/// Threads of each IP version.
const THREADS: usize = 4;
/// Connections of each thread: together a thousand.
const EACH: usize = 125;
/// Between two requests of a thread.
const PAUSE: Duration = Duration::from_millis(8);
/// More than TCP needs to send a packet again several times, while routers learn of a loss.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request on a kept connection that failed.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// The client's end of the connection.
    pub(crate) from: SocketAddr,
    /// The backend of the connection.
    #[allow(dead_code, reason = "it is printed by Debug")]
    who: String,
    #[allow(dead_code, reason = "it is printed by Debug")]
    why: String,
    /// When it failed, in seconds since 1970-01-01, as in the logs of the balancers.
    #[allow(dead_code, reason = "it is printed by Debug")]
    at: f64,
}

#[allow(clippy::disallowed_methods, reason = "live tests use the real clock")]
fn seconds() -> f64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

#[derive(Default)]
struct Ledger {
    requests: u64,
    broken: Vec<Broken>,
    longest: u64,
    /// Both ends of each connection, by thread and number.
    ends: BTreeMap<(usize, usize), [SocketAddr; 2]>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    /// Whole rounds of each thread.
    rounds: [AtomicU64; 2 * THREADS],
    ledger: Mutex<Ledger>,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }
}

/// A connection, and the backend that answered its first request.
struct One {
    web: Web,
    who: String,
}

impl One {
    fn open(to: SocketAddr) -> std::io::Result<Self> {
        let mut web = Web::open(to, PATIENCE)?;
        let who = web.get("/who", false)?;
        Ok(Self { web, who })
    }

    fn ask(&mut self) -> Result<(), String> {
        match self.web.get("/who", false) {
            Ok(who) if who == self.who => Ok(()),
            Ok(who) => Err(format!("{who} answered in place of {}", self.who)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A thread with its connections to one VIP.
struct Client {
    thread: usize,
    to: SocketAddr,
    shared: Arc<Shared>,
}

impl Client {
    /// Opens a connection in place `at`.
    fn open(&self, at: usize) -> One {
        let one = One::open(self.to).unwrap_or_else(|error| panic!("{}: {error}", self.to));
        self.shared.ledger().ends.insert((self.thread, at), [one.web.here(), self.to]);
        one
    }

    fn run(self, mut all: Vec<One>) {
        let clock = clock();
        while !self.shared.over.load(Ordering::Relaxed) {
            for (at, one) in all.iter_mut().enumerate() {
                if self.shared.over.load(Ordering::Relaxed) {
                    return;
                }
                let began = clock();
                let done = one.ask();
                {
                    let mut ledger = self.shared.ledger();
                    ledger.requests += 1;
                    ledger.longest = ledger.longest.max(clock() - began);
                    if let Err(why) = &done {
                        let from = ledger.ends[&(self.thread, at)][0];
                        let (who, why, at) = (one.who.clone(), why.clone(), seconds());
                        ledger.broken.push(Broken { from, who, why, at });
                    }
                }
                if done.is_err() {
                    *one = self.open(at);
                }
                std::thread::sleep(PAUSE);
            }
            self.shared.rounds[self.thread].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A thousand kept connections.
pub(crate) struct Kept {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Kept {
    /// Opens all connections, and begins to use them.
    pub(crate) fn start(net: &Net) -> Self {
        let shared = Arc::<Shared>::default();
        let opened = |thread: usize| {
            let to = (vips()[thread % 2], 80).into();
            let client = Client { thread, to, shared: Arc::clone(&shared) };
            net.spawn(move || {
                let all: Vec<_> = (0..EACH).map(|at| client.open(at)).collect();
                (client, all)
            })
        };
        let opened: Vec<_> = (0..2 * THREADS).map(opened).collect();
        let all: Vec<_> = opened.into_iter().map(|thread| thread.join().unwrap()).collect();
        let threads = all.into_iter().map(|(client, all)| net.spawn(move || client.run(all)));
        Self { threads: threads.collect(), shared }
    }

    /// Waits until each connection has had a whole request since the beginning of this call.
    pub(crate) fn round(&self) {
        let now = || self.shared.rounds.each_ref().map(|rounds| rounds.load(Ordering::Relaxed));
        let began = now();
        wait_until("a round of all kept connections", || {
            // The present round may be in its middle.
            now().iter().zip(&began).all(|(now, began)| *now >= began + 2)
        });
    }

    /// Both ends of each connection.
    pub(crate) fn ends(&self) -> Vec<[SocketAddr; 2]> {
        self.shared.ledger().ends.values().copied().collect()
    }

    /// The requests since the last call, those that failed, and the longest time of one in milliseconds.
    pub(crate) fn take(&self) -> (u64, Vec<Broken>, u64) {
        let mut ledger = self.shared.ledger();
        let broken = std::mem::take(&mut ledger.broken);
        let longest = std::mem::take(&mut ledger.longest) / 1_000_000;
        (std::mem::take(&mut ledger.requests), broken, longest)
    }

    /// Closes all connections; returns the same as [`Self::take`].
    pub(crate) fn stop(mut self) -> (u64, Vec<Broken>, u64) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        self.take()
    }
}

/// Ends the threads of a test that failed.
impl Drop for Kept {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
    }
}
