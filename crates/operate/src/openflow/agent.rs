//! The agent's thread.
//!
//! ```text
//!   loop: changes to the data plane ── replies whose change is in force ── wait ── messages ──
//!         frames, a few at a time ── timeouts
//! ```
//!
//! Messages come before frames: however many frames are sent to the controllers, a request is
//! answered. Replies wait in one line, in the order in which they were made.
//!
//! Invariants: never waits for a connection; at most [`HELD`] replies wait, then no message is taken.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError, never};
use flowyard_openflow::agent::{Agent, Out};
use flowyard_openflow::change::Punt;
use flowyard_openflow::multipart::Request;
use flowyard_openflow::{Message, Version, encode};

use super::connection::Part;
use super::outbox::Outbox;
use super::{Fail, Plane};

/// Replies that wait for their change.
const HELD: usize = 4096;
/// Messages, and frames, in a row.
const ROW: usize = 64;
/// How often timeouts are looked at, in nanoseconds.
const BEAT: u64 = 50_000_000;

/// Work on the agent's thread.
pub(super) type Work = Box<dyn FnOnce(&mut Agent, u64, &mut Vec<Out>) + Send>;

/// What the agent's thread hears of.
pub(super) enum Event {
    /// A connection has agreed on a version.
    Up { part: Part, version: Version, outbox: Arc<Outbox> },
    /// A message.
    Message { from: u32, xid: u32, message: Message },
    /// A connection is over.
    Down(u32),
    /// Something to do.
    Do(Work),
    /// The end.
    Stop,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Up { .. } => "Up",
            Self::Message { .. } => "Message",
            Self::Down(_) => "Down",
            Self::Do(_) => "Do",
            Self::Stop => "Stop",
        })
    }
}

/// What happens without controllers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) fail: Fail,
    /// Whether there are controllers to connect to: then only those count as such.
    pub(super) dials: bool,
}

struct Loop {
    agent: Agent,
    plane: Box<dyn Plane>,
    rules: Rules,
    open: BTreeMap<u32, (Part, Version, Arc<Outbox>)>,
    held: VecDeque<Out>,
    out: Vec<Out>,
    beat: u64,
}

/// Runs until it is told to stop, or nobody is left to tell.
pub(super) fn run(agent: Agent, plane: Box<dyn Plane>, events: &Receiver<Event>, rules: Rules) {
    let mut punts = plane.punts();
    let mut own = Loop {
        agent,
        plane,
        rules,
        open: BTreeMap::new(),
        held: VecDeque::new(),
        out: Vec::new(),
        beat: 0,
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
        // An event that was taken is never left.
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
    /// Gives changes to the data plane and replies to connections, as far as they may go.
    fn settle(&mut self) {
        let changes = self.agent.drain();
        if !changes.is_empty() {
            self.plane.apply(&changes);
        }
        for out in std::mem::take(&mut self.out) {
            // What waits for nothing need not stand in line: packet-ins.
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

    /// Waits for an event; `None` when frames or time are there instead.
    fn wait(&self, events: &Receiver<Event>, punts: &Receiver<Punt>) -> Result<Option<Event>, ()> {
        // A data plane takes a change in some microseconds: no long sleep while someone waits.
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
            Event::Up { part, version, outbox } => {
                match part.main {
                    Some(main) => {
                        self.agent.connect_auxiliary(part.number, main, part.auxiliary, version);
                    }
                    None => self.agent.connect(part.number, version),
                }
                self.open.insert(part.number, (part, version, outbox));
                self.contact();
            }
            Event::Message { from, xid, message } => {
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
                // Auxiliary connections end with the main one.
                for (part, _, outbox) in self.open.values() {
                    if part.main == Some(number) {
                        outbox.close("its main connection is over");
                    }
                }
                self.contact();
            }
            Event::Do(work) => work(&mut self.agent, now, &mut self.out),
            Event::Stop => {}
        }
    }

    /// Whether there is a controller decides how frames go.
    fn contact(&mut self) {
        let counts = |part: &Part| part.main.is_none() && part.dialed == self.rules.dials;
        let alone = !self.open.values().any(|(part, ..)| counts(part));
        self.agent.standalone(alone && self.rules.fail == Fail::Standalone);
    }

    fn frames(&mut self, punts: &mut Receiver<Punt>) {
        for _ in 0..ROW {
            match punts.try_recv() {
                Ok(punt) => {
                    let now = self.plane.now();
                    self.agent.punt(&punt, now, &mut self.out);
                }
                Err(TryRecvError::Empty) => return,
                // The data plane has ended; what is left is to answer.
                Err(TryRecvError::Disconnected) => {
                    *punts = never();
                    return;
                }
            }
        }
    }

    fn deliver(&self, out: &Out) {
        let Some((_, version, outbox)) = self.open.get(&out.to) else { return };
        let mut bytes = Vec::new();
        if let Err(problem) = encode(&out.message, *version, out.xid, &mut bytes) {
            // What a version has no words for: a request is answered with that, news is not told.
            if out.xid == 0 {
                return;
            }
            let error = Message::error(problem, *version, &[]);
            if encode(&error, *version, out.xid, &mut bytes).is_err() {
                return;
            }
        }
        outbox.put(&bytes, matches!(out.message, Message::PacketIn(_)));
    }
}
