//! The agent's thread.
//!
//! ```text
//!   loop: changes to the data plane ── replies whose change is in force ── wait ── messages ──
//!         frames, a few at a time ── timeouts
//! ```
//!
//! Messages have priority over frames, so a request is answered however many frames are sent to the
//! controllers. Replies wait in one queue, in the order in which they were made.
//!
//! Invariants: the thread never waits for a connection; if [`HELD`] replies wait, no message is taken.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError, never};
use flowyard_openflow::agent::{Agent, Out, Standalone};
use flowyard_openflow::change::{Change, Punt};
use flowyard_openflow::multipart::Request;
use flowyard_openflow::port::PortStats;
use flowyard_openflow::{Message, Version, encode};

use super::config::Fail;
use super::outbox::Outbox;
use super::shared::{Event, Part};
use super::tap::Tap;

/// The most replies that wait for their change.
const HELD: usize = 4096;
/// The most messages, and the most frames, that are handled in a row.
const ROW: usize = 64;
/// The time between two checks of flow timeouts, in nanoseconds.
const BEAT: u64 = 50_000_000;

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

/// When the switch counts as being without a controller, and its behaviour then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) fail: Fail,
    /// Whether the configuration has controllers to connect to. Only those count as controllers.
    pub(super) dials: bool,
}

/// A connection that is up.
struct Open {
    part: Part,
    version: Version,
    outbox: Arc<Outbox>,
    /// The address of the controller.
    who: String,
}

struct Loop {
    agent: Agent,
    plane: Box<dyn Plane>,
    rules: Rules,
    /// By the number of the connection.
    open: BTreeMap<u32, Open>,
    held: VecDeque<Out>,
    out: Vec<Out>,
    beat: u64,
    tap: Tap,
}

/// Runs until [`Event::Stop`], or until all senders of events are gone.
pub(super) fn run(
    agent: Agent,
    plane: Box<dyn Plane>,
    events: &Receiver<Event>,
    rules: Rules,
    tap: Tap,
) {
    let mut punts = plane.punts();
    let mut own = Loop {
        agent,
        plane,
        rules,
        open: BTreeMap::new(),
        held: VecDeque::new(),
        out: Vec::new(),
        beat: 0,
        tap,
    };
    own.contact();
    loop {
        own.settle();
        let Ok(mut next) = own.wait(events, &punts) else { return };
        for _ in 0..ROW {
            let Some(event) = next.take() else { break };
            if matches!(event, Event::Stop) {
                return;
            }
            own.event(event);
            if own.held.len() < HELD {
                next = events.try_recv().ok();
            }
        }
        // An event that was received must be handled.
        if let Some(event) = next {
            if matches!(event, Event::Stop) {
                return;
            }
            own.event(event);
        }
        own.frames(&mut punts);
        let now = own.plane.now();
        if now.saturating_sub(own.beat) >= BEAT {
            own.beat = now;
            own.agent.expire(now, &mut own.out);
        }
    }
}

impl Loop {
    /// Passes changes to the data plane, and replies whose changes are in force to the connections.
    fn settle(&mut self) {
        let changes = self.agent.drain();
        if !changes.is_empty() {
            self.plane.apply(&changes);
        }
        for out in std::mem::take(&mut self.out) {
            // Packet-ins do not depend on a change, so they do not wait.
            if matches!(out.message, Message::PacketIn(_)) {
                self.deliver(&out);
            } else {
                self.held.push_back(out);
            }
        }
        let in_force = self.plane.in_force();
        while let Some(out) = self.held.pop_front() {
            if out.after > in_force {
                self.held.push_front(out);
                break;
            }
            self.deliver(&out);
        }
    }

    /// Waits for an event; `None` if frames arrived or the time is over. An error means that all senders
    /// are gone.
    fn wait(&self, events: &Receiver<Event>, punts: &Receiver<Punt>) -> Result<Option<Event>, ()> {
        // A change takes effect within microseconds, so the wait is short while a reply depends on one.
        let span = if self.held.is_empty() { 50_000 } else { 50 };
        let span = Duration::from_micros(span);
        let full = self.held.len() >= HELD;
        if full || !self.held.is_empty() {
            if full {
                std::thread::sleep(span);
                return Ok(None);
            }
            return match events.recv_timeout(span) {
                Ok(event) => Ok(Some(event)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(()),
            };
        }
        if !punts.is_empty() {
            return Ok(events.try_recv().ok());
        }
        let mut ready = crossbeam_channel::Select::new();
        ready.recv(events);
        ready.recv(punts);
        let _ = ready.ready_timeout(span);
        match events.try_recv() {
            Ok(event) => Ok(Some(event)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(()),
        }
    }

    fn event(&mut self, event: Event) {
        let now = self.plane.now();
        match event {
            Event::Up { part, version, outbox, who } => {
                match part.main {
                    Some(main) => {
                        self.agent.connect_auxiliary(part.number, main, part.auxiliary, version);
                    }
                    None => self.agent.connect(part.number, version),
                }
                self.open.insert(part.number, Open { part, version, outbox, who });
                self.contact();
            }
            Event::Message { from, xid, message } => {
                self.hear(from, xid, &message, now);
                let counters = matches!(
                    message,
                    Message::MultipartRequest { body: Request::PortStats(_), .. }
                );
                if counters {
                    let stats = self.plane.port_stats();
                    self.agent.port_stats(stats);
                }
                self.agent.handle(from, xid, &message, now, &mut self.out);
            }
            Event::Down(number) => {
                self.agent.disconnect(number);
                self.open.remove(&number);
                // Auxiliary connections end with their main connection.
                for other in self.open.values() {
                    if other.part.main == Some(number) {
                        other.outbox.close("the main connection has ended");
                    }
                }
                self.contact();
            }
            Event::Do(work) => work(&mut self.agent, now, &mut self.out),
            Event::Stop => {}
        }
    }

    /// Keeps a message that was received, if someone reads along.
    fn hear(&self, from: u32, xid: u32, message: &Message, now: u64) {
        let Some(open) = self.open.get(&from).filter(|_| self.tap.is_on()) else { return };
        let mut bytes = Vec::new();
        if encode(message, open.version, xid, &mut bytes).is_ok() {
            self.tap.put(now, &open.who, false, &bytes);
        }
    }

    /// Notifies the agent whether there is a controller, which decides how frames are forwarded.
    fn contact(&mut self) {
        let controls = |open: &Open| open.part.main.is_none() && open.part.dialed;
        let frames = match self.rules.fail {
            Fail::Secure => Standalone::Off,
            // Without controllers to connect to, flows come from the operator, whose tools connect for
            // a moment only. They must have an effect, and the rest must be forwarded meanwhile.
            Fail::Standalone if !self.rules.dials => Standalone::Unmatched,
            Fail::Standalone if self.open.values().any(controls) => Standalone::Off,
            Fail::Standalone => Standalone::All,
        };
        let now = self.plane.now();
        self.agent.standalone(frames, now);
    }

    fn frames(&mut self, punts: &mut Receiver<Punt>) {
        for _ in 0..ROW {
            match punts.try_recv() {
                Ok(punt) => {
                    let now = self.plane.now();
                    self.agent.punt(&punt, now, &mut self.out);
                }
                Err(TryRecvError::Empty) => return,
                // The data plane has ended; requests are still answered.
                Err(TryRecvError::Disconnected) => {
                    *punts = never();
                    return;
                }
            }
        }
    }

    fn deliver(&self, out: &Out) {
        let Some(Open { version, outbox, who, .. }) = self.open.get(&out.to) else { return };
        let mut bytes = Vec::new();
        if let Err(problem) = encode(&out.message, *version, out.xid, &mut bytes) {
            // The version cannot express the message. A request gets an error, and an asynchronous
            // message is not sent.
            if out.xid == 0 {
                return;
            }
            let error = Message::error(problem, *version, &[]);
            if encode(&error, *version, out.xid, &mut bytes).is_err() {
                return;
            }
        }
        if self.tap.is_on() {
            self.tap.put(self.plane.now(), who, true, &bytes);
        }
        outbox.put(&bytes, matches!(out.message, Message::PacketIn(_)));
    }
}
