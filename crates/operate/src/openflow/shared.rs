//! State and events that the OpenFlow threads share.

use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TryRecvError};
use flowyard_openflow::agent::{Agent, Out};
use flowyard_openflow::{Message, Version};
use flowyard_yard::ControlPlane;

use super::config::{Config, Fail};
use super::gate::{Gate, Ticket};
use super::outbox::Outbox;
use super::sync::lock;
use super::tls::Loaded;
use super::watchdog::Heartbeat;

/// The reason given for the end of connections when the channel is dropped.
pub(super) const ENDS: &str = "the switch is shutting down";

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
    /// How many attempts to connect failed since the connection was last up.
    pub failed: u64,
    /// Whether the switch opens this connection; the others are opened by controllers.
    pub dialed: bool,
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Packet-ins that were dropped because the controller did not read.
    pub dropped: u64,
    /// Why the connection is down, or was last down.
    pub error: String,
}

impl Status {
    /// The endpoint, and the address of the other side if it has opened the connection.
    pub(super) fn who(&self) -> String {
        let Self { endpoint, peer, .. } = self;
        if peer.is_empty() { endpoint.clone() } else { format!("{endpoint} ({peer})") }
    }
}

/// Identity of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Unique among all connections of the channel.
    pub(super) number: u32,
    /// The number of the main connection, for an auxiliary one.
    pub(super) main: Option<u32>,
    /// Auxiliary ID; 0 is a main connection.
    pub(super) auxiliary: u8,
    /// Whether the switch opened the connection.
    pub(super) dialed: bool,
}

/// A function that runs on the agent's thread.
pub(super) type Work = Box<dyn FnOnce(&mut Agent, u64, &mut Vec<Out>) + Send>;

/// An event for the agent's thread.
pub(super) enum Event {
    /// A connection has negotiated a version.
    Up {
        part: Part,
        version: Version,
        outbox: Arc<Outbox>,
        /// The address of the controller, as text.
        who: String,
    },
    /// A connection has received a message.
    Message {
        from: u32,
        xid: u32,
        message: Message,
        /// The room that the message takes until it is handled.
        ticket: Ticket,
    },
    /// A connection with this number has ended.
    Down(u32),
    Do(Work),
    /// There are other rules for the time without a controller.
    Rules {
        fail: Fail,
        /// Whether the configuration has controllers to connect to.
        dials: bool,
    },
    /// The channel ends.
    Stop,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Up { .. } => "Up",
            Self::Message { .. } => "Message",
            Self::Down(_) => "Down",
            Self::Do(_) => "Do",
            Self::Rules { .. } => "Rules",
            Self::Stop => "Stop",
        })
    }
}

/// The queues of all connections, which are closed when the channel ends.
pub(super) type Boxes = Arc<Mutex<Vec<Weak<Outbox>>>>;

/// Ends all connections with a reason.
pub(super) fn close_all(boxes: &Boxes, why: &'static str) {
    for outbox in lock(boxes).iter().filter_map(Weak::upgrade) {
        outbox.close(why);
    }
}

/// The states of all connections; those of a listener are present while they are up.
pub(super) type Board = Arc<Mutex<Vec<Arc<Mutex<Status>>>>>;

/// The states of a switch's agent and its connections, for queries while the channel runs. Clones share the
/// states.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    pub(super) board: Board,
    pub(super) heartbeat: Arc<Heartbeat>,
}

impl Connections {
    /// Whether the agent responds. While it does not, its connections are closed.
    #[must_use]
    pub fn responds(&self) -> bool {
        !self.heartbeat.is_stuck()
    }

    /// How many times the agent was found stuck.
    #[must_use]
    pub fn times_stuck(&self) -> u64 {
        self.heartbeat.times()
    }

    /// The states of all connections.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        lock(&self.board).iter().map(|status| lock(status).clone()).collect()
    }
}

impl ControlPlane for Connections {}

/// State that is shared by the threads of this module.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) config: Arc<Config>,
    pub(super) tls: Option<Arc<Loaded>>,
    pub(super) events: Sender<Event>,
    /// Disconnected when the endpoint is not used any more, or the channel is dropped.
    pub(super) stop: Receiver<()>,
    pub(super) board: Board,
    /// The queues of all connections.
    pub(super) boxes: Boxes,
    /// Those of the connections of the same endpoint.
    pub(super) own: Boxes,
    pub(super) gate: Arc<Gate>,
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) numbers: Arc<AtomicU32>,
}

impl Shared {
    pub(super) fn stops(&self) -> bool {
        self.stop.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Gives the agent an event, and waits while its queue is full. Returns false if the channel ends, or if
    /// `gives_up` returns true.
    pub(super) fn tell(&self, event: Event, gives_up: impl Fn() -> bool) -> bool {
        tell(&self.events, event, || self.stops() || gives_up())
    }

    /// A queue that is closed when the channel ends.
    pub(super) fn outbox(&self) -> io::Result<Arc<Outbox>> {
        let outbox = Arc::new(Outbox::new()?);
        for boxes in [&self.boxes, &self.own] {
            let mut boxes = lock(boxes);
            boxes.retain(|other| other.strong_count() > 0);
            boxes.push(Arc::downgrade(&outbox));
        }
        // The channel may have ended before the queue was in the list.
        if self.stops() {
            outbox.close(ENDS);
        }
        Ok(outbox)
    }
}

/// Gives the agent an event, and waits while its queue is full, unless `gives_up` returns true.
pub(super) fn tell(events: &Sender<Event>, mut event: Event, gives_up: impl Fn() -> bool) -> bool {
    loop {
        match events.send_timeout(event, LOOK) {
            Ok(()) => return true,
            Err(SendTimeoutError::Disconnected(_)) => return false,
            Err(SendTimeoutError::Timeout(_)) if gives_up() => return false,
            Err(SendTimeoutError::Timeout(back)) => event = back,
        }
    }
}

/// The longest time until a thread that waits notices that it has to give up.
const LOOK: Duration = Duration::from_millis(100);

/// The threads of a channel.
#[derive(Debug, Default)]
pub(super) struct Threads(pub(super) Vec<JoinHandle<()>>);

impl Threads {
    pub(super) fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let builder = std::thread::Builder::new().name(name.into());
        self.0.push(builder.spawn(work)?);
        Ok(())
    }
}
