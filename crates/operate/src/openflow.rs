//! OpenFlow channel: the switch's agent, and the connections to its controllers.
//!
//! ```text
//!  controller <─tcp, tls, unix─> connection ──messages──┐          ┌──changes──> data plane
//!  controller <────────────────> connection ──messages──┼─> agent ─┤             (Plane)
//!                                     ^                 │  thread  └<─frames, "n is in force"
//!                                     └──── Outbox <────┘
//! ```
//!
//! One thread owns the agent. Each connection has a thread that reads, writes and keeps the
//! connection alive; between them are queues with bounds: a controller that sends faster than the
//! agent works is not read, one that does not read loses packet-ins first (counted) and then its
//! connection. A reply leaves when the change before it is in force on every core.
//!
//! Invariants: what one connection sends or suffers does nothing to another; replies of a connection
//! leave in the order of its requests (an echo may overtake).
//! Thread-safety: a [`Channel`] may be used from any thread. Dropping it ends all threads.

mod agent;
pub mod client;
mod connection;
mod endpoint;
mod link;
mod outbox;
mod peers;
pub mod tls;

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use flowyard_openflow::Version;
use flowyard_openflow::agent::{Agent, Out};
use flowyard_openflow::change::{Change, Punt};
use flowyard_openflow::port::PortStats;

use agent::Event;
pub use endpoint::{Endpoint, EndpointError, Transport};
pub use link::{Dialed, dial};
use outbox::Outbox;
use tls::{Tls, TlsError};

/// Messages that wait for the agent, of all connections.
const EVENTS: usize = 1024;

/// Why connections are over when the channel is dropped.
const ENDS: &str = "the switch ends";

/// What the agent needs of a data plane.
pub trait Plane: Send {
    /// The time, in nanoseconds, by the clock that counts have.
    fn now(&self) -> u64;
    /// Takes changes, in order. Those of one call are to be in force together: no frame meets
    /// one without the others. Must not wait for them to be.
    fn apply(&mut self, changes: &[(u64, Change)]);
    /// The last change that is in force on every core.
    fn in_force(&self) -> u64;
    /// Where frames for the controllers come from; a bounded queue, whose other end counts what
    /// does not fit.
    fn punts(&self) -> Receiver<Punt>;
    /// The counters of all ports, as they are.
    fn port_stats(&mut self) -> Vec<PortStats>;
}

/// What a switch does with frames while no controller is there (1.3.5, section 6.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fail {
    /// Flows answer as before; what is for the controller is dropped.
    #[default]
    Secure,
    /// Frames go as in a switch without OpenFlow.
    Standalone,
}

/// Where controllers are, and how to speak with them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Controllers to connect to, and places to listen at.
    pub endpoints: Vec<Endpoint>,
    /// Auxiliary connections to each controller; none in most networks.
    pub auxiliary: u8,
    /// What is spoken.
    pub versions: Vec<Version>,
    /// Without a controller.
    pub fail: Fail,
    /// Silence after which an echo is asked for; after twice that the connection is over.
    pub probe: Duration,
    /// The first and the longest pause before a controller is tried again.
    pub backoff: (Duration, Duration),
    /// For `tls:` and `ptls:`.
    pub tls: Option<Tls>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            auxiliary: 0,
            versions: Version::ALL.to_vec(),
            fail: Fail::Secure,
            probe: Duration::from_secs(5),
            backoff: (Duration::from_millis(500), Duration::from_secs(8)),
            tls: None,
        }
    }
}

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A place to listen at.
    #[error("{endpoint}: {source}; is another switch listening there?")]
    Listen {
        /// Which.
        endpoint: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no thread or no event.
    #[error("no thread for OpenFlow: {0}")]
    System(#[from] io::Error),
}

/// How a connection is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The endpoint, as configured.
    pub endpoint: String,
    /// The other side, of one that listens.
    pub peer: String,
    /// The version, while it is up.
    pub version: Option<Version>,
    /// Auxiliary id; 0 is a main connection.
    pub auxiliary: u8,
    /// How often it was up.
    pub ups: u64,
    /// Messages that came.
    pub received: u64,
    /// Messages that were sent.
    pub sent: u64,
    /// Packet-ins that were dropped because the other side does not read.
    pub dropped: u64,
    /// Why it is, or was last, down.
    pub error: String,
}

/// The queues of all connections, to end them.
type Boxes = Arc<Mutex<Vec<Weak<Outbox>>>>;

/// The states of all connections; a listener's are there while they are up.
type Board = Arc<Mutex<Vec<Arc<Mutex<Status>>>>>;

/// What a thread of this module has in common with the others.
#[derive(Clone)]
struct Shared {
    config: Arc<Config>,
    tls: Option<Arc<tls::Loaded>>,
    events: Sender<Event>,
    /// Ends when the channel is dropped.
    stop: Receiver<()>,
    board: Board,
    boxes: Boxes,
    numbers: Arc<std::sync::atomic::AtomicU32>,
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// A queue that the end of the channel closes.
    fn outbox(&self) -> io::Result<Arc<Outbox>> {
        let outbox = Arc::new(Outbox::new()?);
        let mut boxes = lock(&self.boxes);
        boxes.retain(|other| other.strong_count() > 0);
        boxes.push(Arc::downgrade(&outbox));
        drop(boxes);
        // The end may have come before it was in the list.
        if self.stops() {
            outbox.close(ENDS);
        }
        Ok(outbox)
    }
}

/// The clock that connections to other machines are kept alive by.
#[allow(clippy::disallowed_methods, reason = "silence on a live connection is measured")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// A lock whose owner cannot fail inside: what is there is whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A switch's agent at work.
#[derive(Debug)]
pub struct Channel {
    events: Sender<Event>,
    /// Dropped first: threads see it.
    stop: Option<Sender<()>>,
    board: Board,
    boxes: Boxes,
    listening: Vec<String>,
    threads: Vec<JoinHandle<()>>,
}

impl Channel {
    /// Starts the agent's thread and the connections. Ports come by [`Self::with`].
    ///
    /// # Errors
    /// When certificates cannot be read, or a place to listen at is taken.
    pub fn start(
        config: Config,
        agent: Agent,
        plane: Box<dyn Plane>,
    ) -> Result<Self, ChannelError> {
        let tls = config.tls.as_ref().map(tls::Loaded::new).transpose()?.map(Arc::new);
        let secure = config.endpoints.iter().find(|one| one.is_tls());
        if let (Some(endpoint), None) = (secure, &tls) {
            return Err(TlsError::Missing(endpoint.to_string()).into());
        }
        let (events, inbox) = bounded(EVENTS);
        let (stop, stopped) = bounded(0);
        let (board, boxes) = (Board::default(), Boxes::default());
        let shared = Shared {
            config: Arc::new(config),
            tls,
            events: events.clone(),
            stop: stopped,
            board: Arc::clone(&board),
            boxes: Arc::clone(&boxes),
            numbers: Arc::default(),
        };
        let (listening, threads) = (Vec::new(), Vec::new());
        let mut channel = Self { events, stop: Some(stop), board, boxes, listening, threads };
        let config = Arc::clone(&shared.config);
        let dials = config.endpoints.iter().any(Endpoint::dials);
        let rules = agent::Rules { fail: config.fail, dials };
        channel.spawn("of-agent", move || agent::run(agent, plane, &inbox, rules))?;
        for endpoint in &config.endpoints {
            if endpoint.dials() {
                peers::dial_all(endpoint, &shared, &mut channel)?;
            } else {
                peers::listen(endpoint, &shared, &mut channel)?;
            }
        }
        Ok(channel)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let builder = std::thread::Builder::new().name(name.into());
        self.threads.push(builder.spawn(work)?);
        Ok(())
    }

    /// Does something with the agent, on its thread: adds a port, say. The messages that it puts
    /// into the list are sent. Waits while the agent has much to do; nothing is done when the
    /// channel has ended.
    pub fn with(&self, work: impl FnOnce(&mut Agent, u64, &mut Vec<Out>) + Send + 'static) {
        let _ = self.events.send(Event::Do(Box::new(work)));
    }

    /// Asks the agent something, and waits for the answer. `None` when the channel has ended.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Agent, u64, &mut Vec<Out>) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = bounded(1);
        self.with(move |agent, now, out| drop(answer.send(question(agent, now, out))));
        answered.recv().ok()
    }

    /// Whether the agent is at work: not if a defect ended its thread.
    #[must_use]
    pub fn is_running(&self) -> bool {
        // It is the first that was started.
        self.threads.first().is_some_and(|agent| !agent.is_finished())
    }

    /// How the connections are.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        lock(&self.board).iter().map(|status| lock(status).clone()).collect()
    }

    /// Where it listens, with the ports that the system chose.
    #[must_use]
    pub fn listening(&self) -> &[String] {
        &self.listening
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        drop(self.stop.take());
        for outbox in lock(&self.boxes).iter().filter_map(Weak::upgrade) {
            outbox.close(ENDS);
        }
        let _ = self.events.send(Event::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
