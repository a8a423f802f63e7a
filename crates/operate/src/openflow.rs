//! OpenFlow channel: runs the switch's agent and its connections to controllers.
//!
//! ```text
//!  controller <─tcp, tls, unix─> connection ──messages──┐          ┌──changes──> data plane
//!  controller <────────────────> connection ──messages──┼─> agent ─┤             (Plane)
//!                                     ^                 │  thread  └<─frames, number of the last
//!                                     └──── Outbox <────┘             change in force
//! ```
//!
//! One thread owns the agent. Each connection has a thread that reads, writes and sends echo requests.
//! Between them are bounded queues. If a controller sends faster than the agent works, reading from it
//! pauses. If a controller does not read, packet-ins to it are dropped first (and counted), and then
//! the connection is closed. A reply is sent when the changes before it are in force on every core.
//!
//! Invariants: connections do not affect each other; replies of a connection are sent in the order of
//! its requests, except echo replies, which may be sent earlier.
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

/// Capacity of the queue of messages from all connections to the agent.
const EVENTS: usize = 1024;

/// The reason given for the end of connections when the channel is dropped.
const ENDS: &str = "the switch is shutting down";

/// The data plane, as the agent uses it.
pub trait Plane: Send {
    /// The time in nanoseconds, by the clock of the flow counters.
    fn now(&self) -> u64;
    /// Accepts changes, which are numbered in ascending order. The changes of one call must take effect
    /// together, so that no frame sees one without the others. Must not wait until they are in force.
    fn apply(&mut self, changes: &[(u64, Change)]);
    /// The number of the last change that is in force on every core.
    fn in_force(&self) -> u64;
    /// A bounded queue of frames for the controllers. The sender counts the frames that do not fit.
    fn punts(&self) -> Receiver<Punt>;
    /// The current counters of all ports.
    fn port_stats(&mut self) -> Vec<PortStats>;
}

/// How a switch handles frames while it has no controller (OpenFlow 1.3.5, section 6.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fail {
    /// Flow entries stay in effect; packets to the controller are dropped.
    #[default]
    Secure,
    /// Frames are forwarded as by a switch without OpenFlow.
    Standalone,
}

/// Configuration of the connections to controllers.
#[derive(Clone, Debug)]
pub struct Config {
    /// Controllers to connect to, and addresses to listen on.
    pub endpoints: Vec<Endpoint>,
    /// The number of auxiliary connections to each controller, usually 0.
    pub auxiliary: u8,
    /// The protocol versions to offer.
    pub versions: Vec<Version>,
    /// The behaviour without a controller.
    pub fail: Fail,
    /// Idle time after which an echo request is sent. The connection is closed after twice this time.
    pub probe: Duration,
    /// The first and the longest pause before connecting to a controller again.
    pub backoff: (Duration, Duration),
    /// Certificates for the endpoints `tls:` and `ptls:`.
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

/// The channel could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A certificate or key is invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The switch cannot listen on an address.
    #[error("{endpoint}: {source}; is another switch listening on this address?")]
    Listen {
        /// The endpoint in the configuration.
        endpoint: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// A thread or an eventfd could not be created.
    #[error("an OpenFlow thread could not be started: {0}")]
    System(#[from] io::Error),
}

/// The state of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The endpoint in the configuration.
    pub endpoint: String,
    /// The address of the controller, for a connection that it opened.
    pub peer: String,
    /// The negotiated version while the connection is up.
    pub version: Option<Version>,
    /// Auxiliary ID; 0 is a main connection.
    pub auxiliary: u8,
    /// How many times the connection came up.
    pub ups: u64,
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Packet-ins that were dropped because the controller did not read.
    pub dropped: u64,
    /// Why the connection is down, or was last down.
    pub error: String,
}

/// The queues of all connections, which are closed when the channel ends.
type Boxes = Arc<Mutex<Vec<Weak<Outbox>>>>;

/// The states of all connections; those of a listener are present while they are up.
type Board = Arc<Mutex<Vec<Arc<Mutex<Status>>>>>;

/// State that is shared by the threads of this module.
#[derive(Clone)]
struct Shared {
    config: Arc<Config>,
    tls: Option<Arc<tls::Loaded>>,
    events: Sender<Event>,
    /// Disconnected when the channel is dropped.
    stop: Receiver<()>,
    board: Board,
    boxes: Boxes,
    numbers: Arc<std::sync::atomic::AtomicU32>,
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// A queue that is closed when the channel ends.
    fn outbox(&self) -> io::Result<Arc<Outbox>> {
        let outbox = Arc::new(Outbox::new()?);
        let mut boxes = lock(&self.boxes);
        boxes.retain(|other| other.strong_count() > 0);
        boxes.push(Arc::downgrade(&outbox));
        drop(boxes);
        // The channel may have ended before the queue was in the list.
        if self.stops() {
            outbox.close(ENDS);
        }
        Ok(outbox)
    }
}

/// The clock that measures the idle time of connections.
#[allow(clippy::disallowed_methods, reason = "idle time of a live connection is measured")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// Locks a mutex. Its data is consistent even if a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running agent with its connections.
#[derive(Debug)]
pub struct Channel {
    events: Sender<Event>,
    /// Dropped first, which the threads detect.
    stop: Option<Sender<()>>,
    board: Board,
    boxes: Boxes,
    listening: Vec<String>,
    threads: Vec<JoinHandle<()>>,
}

impl Channel {
    /// Starts the agent's thread and the connections. Ports are added later, by [`Self::with`].
    ///
    /// # Errors
    /// A certificate cannot be read, the switch cannot listen on an address, or a thread cannot be
    /// started.
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

    /// Runs `work` on the agent's thread, for example to add a port. Messages that it puts into the
    /// list are sent. Blocks while the agent's queue is full; does nothing if the channel has ended.
    pub fn with(&self, work: impl FnOnce(&mut Agent, u64, &mut Vec<Out>) + Send + 'static) {
        let _ = self.events.send(Event::Do(Box::new(work)));
    }

    /// Runs `question` on the agent's thread and waits for its result; `None` if the channel has ended.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Agent, u64, &mut Vec<Out>) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = bounded(1);
        self.with(move |agent, now, out| drop(answer.send(question(agent, now, out))));
        answered.recv().ok()
    }

    /// Whether the agent's thread is running; false if it panicked.
    #[must_use]
    pub fn is_running(&self) -> bool {
        // The agent's thread is started first.
        self.threads.first().is_some_and(|agent| !agent.is_finished())
    }

    /// The states of all connections.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        lock(&self.board).iter().map(|status| lock(status).clone()).collect()
    }

    /// The addresses on which the switch listens, with the ports that the system chose.
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

#[cfg(test)]
mod tests;
