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
//! Everything that a controller can make the switch store is limited in bytes (docs/openflow.md lists the limits). A
//! watchdog notices an agent that is stuck; the cores forward in any case.
//!
//! Invariants: connections do not affect each other; replies of a connection are sent in the order of
//! its requests, except echo replies, which may be sent earlier.
//! Thread-safety: a [`Channel`] may be used from any thread. Dropping it ends all threads.

mod agent;
pub mod client;
mod config;
mod connection;
mod endpoint;
mod endpoints;
mod gate;
mod link;
mod outbox;
mod peers;
mod shared;
mod sync;
mod tap;
pub mod tls;
mod watchdog;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use flowyard_openflow::agent::{Agent, Out};

pub use agent::Plane;
use agent::Rules;
pub use config::{Config, Fail};
pub use endpoint::{Endpoint, EndpointError, Transport};
use endpoints::Endpoints;
pub use endpoints::Prepared;
pub use link::{Dialed, dial};
use shared::{Board, Boxes, ENDS, Event, Shared, Threads};
pub use shared::{Connections, Status};
use sync::lock;
pub use tap::{Passed, Tap};
use tls::TlsError;

/// When a switch with this configuration counts as being without a controller.
fn rules(config: &Config) -> Rules {
    Rules { fail: config.fail, dials: config.endpoints.iter().any(Endpoint::dials) }
}

/// Capacity of the queue of messages from all connections to the agent.
const EVENTS: usize = 1024;

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

/// A running agent with its connections.
#[derive(Debug)]
pub struct Channel {
    events: Sender<Event>,
    /// Dropped first, which the threads detect.
    stop: Option<Sender<()>>,
    board: Board,
    boxes: Boxes,
    /// What all endpoints have in common.
    shared: Shared,
    endpoints: Mutex<Endpoints>,
    /// The agent's thread.
    agent: Threads,
    threads: Threads,
    heartbeat: Arc<watchdog::Heartbeat>,
}

/// The longest time for which the end of a channel waits for an agent that may be stuck.
const ENDING: Duration = Duration::from_secs(2);

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
        let (events, inbox) = bounded(EVENTS);
        let (stop, stopped) = bounded(0);
        let Connections { board, heartbeat } = config.connections.clone();
        let boxes = Boxes::default();
        let shared = Shared {
            config: Arc::new(config.clone()),
            tls: None,
            events: events.clone(),
            stop: stopped,
            board: Arc::clone(&board),
            boxes: Arc::clone(&boxes),
            own: Boxes::default(),
            gate: Arc::default(),
            heartbeat: Arc::clone(&heartbeat),
            numbers: Arc::default(),
        };
        let mut channel = Self {
            events,
            stop: Some(stop),
            board,
            boxes,
            shared,
            endpoints: Mutex::default(),
            agent: Threads::default(),
            threads: Threads::default(),
            heartbeat,
        };
        let (rules, tap, patience) = (rules(&config), config.tap.clone(), config.patience);
        let next = channel.prepare(config)?;
        let heartbeat = Arc::clone(&channel.heartbeat);
        channel.agent.spawn("of-agent", move || {
            agent::run(agent, plane, &inbox, rules, tap, heartbeat);
        })?;
        let threads = &mut channel.threads;
        let (heartbeat, boxes, stop) = (
            Arc::clone(&channel.heartbeat),
            Arc::clone(&channel.boxes),
            channel.shared.stop.clone(),
        );
        let close_all = move |why| shared::close_all(&boxes, why);
        threads
            .spawn("of-watch", move || watchdog::watch(&heartbeat, close_all, &stop, patience))?;
        lock(&channel.endpoints).replace(next)?;
        Ok(channel)
    }

    /// Prepares other endpoints, certificates, versions and rules: reads certificates and binds addresses. Nothing is
    /// changed before [`Self::change`].
    ///
    /// # Errors
    /// A certificate cannot be read, or the switch cannot listen on an address.
    pub fn prepare(&self, config: Config) -> Result<Prepared, ChannelError> {
        lock(&self.endpoints).prepare(&self.shared, config)
    }

    /// Uses other endpoints, certificates, versions and rules. Connections whose endpoint stays stay open; if the
    /// versions or certificates differ, all are opened again.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn change(&self, next: Prepared) -> Result<(), ChannelError> {
        let Rules { fail, dials } = rules(&next.config);
        let rules = Event::Rules { fail, dials };
        let changed = lock(&self.endpoints).replace(next);
        let _ = shared::tell(&self.events, rules, || self.heartbeat.ends());
        changed
    }

    /// Runs `work` on the agent's thread, for example to add a port. Messages that it puts into the
    /// list are sent. Waits while the agent's queue is full; does nothing if the channel ends.
    pub fn with(&self, work: impl FnOnce(&mut Agent, u64, &mut Vec<Out>) + Send + 'static) {
        let _ = shared::tell(&self.events, Event::Do(Box::new(work)), || self.heartbeat.ends());
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
        self.agent.0.first().is_some_and(|agent| !agent.is_finished())
    }

    /// The states of all connections.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        lock(&self.board).iter().map(|status| lock(status).clone()).collect()
    }

    /// The addresses on which the switch listens, with the ports that the system chose.
    #[must_use]
    pub fn listening(&self) -> Vec<String> {
        lock(&self.endpoints).listening()
    }
}

impl Channel {
    /// Begins to end the channel, so that nothing waits for an agent that may be stuck.
    pub fn end(&self) {
        self.heartbeat.end();
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.end();
        drop(self.stop.take());
        shared::close_all(&self.boxes, ENDS);
        lock(&self.endpoints).end();
        // The agent also looks at the heartbeat, so it ends even if this does not fit into its queue.
        let _ = self.events.try_send(Event::Stop);
        for thread in self.threads.0.drain(..) {
            let _ = thread.join();
        }
        let from = sync::clock();
        for agent in self.agent.0.drain(..) {
            while !agent.is_finished() && from.elapsed() < ENDING {
                std::thread::sleep(Duration::from_millis(1));
            }
            if agent.is_finished() {
                let _ = agent.join();
            } else {
                tracing::error!("the OpenFlow agent does not end: it is left behind");
            }
        }
    }
}
