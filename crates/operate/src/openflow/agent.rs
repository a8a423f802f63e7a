//! The agent's thread.
//!
//! ```text
//!   loop: changes to the data plane ── replies whose change is in force ── wait ── messages ──
//!         frames, a few at a time ── timeouts
//! ```
//!
//! Messages have priority over frames, so a request is answered however many frames are sent to the
//! controllers. Replies wait in one queue, in the order in which they were made, as the bytes to send. A connection
//! for which much waits, or whose last request is answered in pieces, has its further messages put aside.
//!
//! Invariants: the thread never waits for a connection; if [`HELD`] replies, or [`LATE`] bytes of changes wait, no
//! message is taken; for no connection, more than [`PLENTY`] bytes and one reply are made; for all together, no more
//! than [`ALL`] bytes and one reply wait.

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
use super::gate::Ticket;
use super::outbox::{ALL, Outbox, PLENTY};
use super::shared::{Event, Part};
use super::tap::Tap;
use super::watchdog::Heartbeat;

/// The most replies that wait for their change.
const HELD: usize = 4096;
/// The bytes of changes that are not in force yet.
const LATE: usize = 64 << 20;
/// What a change takes besides the message that makes it, at most about.
const CHANGE: usize = 512;
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
    /// The bytes of replies that wait for their change.
    held: usize,
    /// Messages that were put aside.
    later: VecDeque<(u32, Message, Ticket)>,
}

impl Open {
    /// The bytes that wait for the controller.
    fn waiting(&self) -> usize {
        self.outbox.waiting() + self.held
    }
}

/// A message to a controller, which waits for its change.
struct Held {
    to: u32,
    after: u64,
    bytes: Vec<u8>,
    /// A message whose counters are complete when its change is in force.
    counted: Option<Box<Out>>,
}

struct Loop {
    agent: Agent,
    plane: Box<dyn Plane>,
    rules: Rules,
    /// By the number of the connection.
    open: BTreeMap<u32, Open>,
    held: VecDeque<Held>,
    out: Vec<Out>,
    /// The changes that are not in force yet: the number of the last one of a batch, and its bytes.
    late: VecDeque<(u64, usize)>,
    late_bytes: usize,
    /// The bytes of the messages since the last batch of changes.
    heard: usize,
    beat: u64,
    tap: Tap,
    heartbeat: Arc<Heartbeat>,
}

/// Runs until [`Event::Stop`], or until all senders of events are gone.
pub(super) fn run(
    agent: Agent,
    plane: Box<dyn Plane>,
    events: &Receiver<Event>,
    rules: Rules,
    tap: Tap,
    heartbeat: Arc<Heartbeat>,
) {
    let mut punts = plane.punts();
    let mut own = Loop {
        agent,
        plane,
        rules,
        open: BTreeMap::new(),
        held: VecDeque::new(),
        out: Vec::new(),
        late: VecDeque::new(),
        late_bytes: 0,
        heard: 0,
        beat: 0,
        tap,
        heartbeat,
    };
    own.contact();
    loop {
        own.heartbeat.beat();
        if own.heartbeat.ends() {
            return;
        }
        own.settle();
        own.catch_up();
        let Ok(mut next) = own.wait(events, &punts) else { return };
        for _ in 0..ROW {
            let Some(event) = next.take() else { break };
            if matches!(event, Event::Stop) {
                return;
            }
            own.event(event);
            if !own.is_full() {
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
            own.heartbeat.begins("timeouts of flow entries");
            own.agent.expire(now, &mut own.out);
            own.make();
        }
    }
}

impl Loop {
    /// Passes changes to the data plane, and replies whose changes are in force to the connections.
    fn settle(&mut self) {
        self.make();
        let changes = self.agent.drain();
        if let Some((last, _)) = changes.last() {
            let bytes = std::mem::take(&mut self.heard) + changes.len() * CHANGE;
            self.late.push_back((*last, bytes));
            self.late_bytes += bytes;
            self.heartbeat.begins("changes, which a core does not take");
            self.plane.apply(&changes);
            self.heartbeat.beat();
        }
        for lost in self.agent.lost_notices() {
            self.close(lost, "too many notices of flow entries would wait for the controller");
        }
        let in_force = self.plane.in_force();
        while let Some((_, bytes)) = self.late.pop_front_if(|(last, _)| *last <= in_force) {
            self.late_bytes -= bytes;
        }
        while let Some(held) = self.held.pop_front_if(|held| held.after <= in_force) {
            let fresh = held.counted.and_then(|mut out| {
                out.refresh();
                self.encoded(&out, true)
            });
            let Some(open) = self.open.get_mut(&held.to) else { continue };
            open.held -= held.bytes.len();
            open.outbox.put(fresh.as_ref().unwrap_or(&held.bytes), false);
        }
        self.relieve();
    }

    /// Encodes the messages that the agent has made. Packet-ins do not depend on a change, so they do not
    /// wait.
    fn make(&mut self) {
        for out in std::mem::take(&mut self.out) {
            let may_drop = matches!(out.message, Message::PacketIn(_));
            let Some(bytes) = self.encoded(&out, out.counts.is_none()) else { continue };
            let Some(open) = self.open.get_mut(&out.to) else { continue };
            if may_drop {
                open.outbox.put(&bytes, true);
            } else if !open.outbox.is_closed() {
                open.held += bytes.len();
                let (to, after) = (out.to, out.after);
                let counted = out.counts.is_some().then(|| Box::new(out));
                self.held.push_back(Held { to, after, bytes, counted });
            }
        }
    }

    /// Closes the connection for which the most waits, while too much waits for all together.
    fn relieve(&mut self) {
        while self.open.values().map(Open::waiting).sum::<usize>() > ALL {
            let open = self.open.iter().filter(|(_, open)| !open.outbox.is_closed());
            let most = open.max_by_key(|(_, open)| open.waiting());
            let Some(number) = most.map(|(number, _)| *number) else { return };
            self.close(
                number,
                "controllers do not read their messages, and the most wait for this one",
            );
        }
    }

    fn close(&mut self, number: u32, why: &'static str) {
        let Some(open) = self.open.get_mut(&number) else { return };
        open.outbox.close(why);
        open.held = 0;
        open.later.clear();
        self.held.retain(|held| held.to != number);
    }

    /// Whether no more messages can be taken.
    fn is_full(&self) -> bool {
        self.held.len() >= HELD || self.late_bytes >= LATE
    }

    /// Goes on with replies that are made in pieces, and with messages that were put aside, as far as there is
    /// room to send.
    fn catch_up(&mut self) {
        let busy = |(number, open): (&u32, &Open)| {
            (self.agent.is_replying(*number) || !open.later.is_empty()).then_some(*number)
        };
        let busy: Vec<u32> = self.open.iter().filter_map(busy).collect();
        for number in busy {
            // One piece or message of each, and then the others.
            if self.is_full() || !self.can_go_on(number) {
                continue;
            }
            let now = self.plane.now();
            if self.agent.is_replying(number) {
                self.heartbeat.begins("a reply in pieces");
                self.agent.proceed(number, now, &mut self.out);
            } else if let Some((xid, message, ticket)) =
                self.open.get_mut(&number).and_then(|open| open.later.pop_front())
            {
                self.message(number, xid, &message, &ticket, now);
            }
            self.make();
        }
    }

    /// Whether there is room to send more to a connection.
    fn can_go_on(&self, number: u32) -> bool {
        self.open.get(&number).is_some_and(|open| open.waiting() < PLENTY / 2)
    }

    /// Whether [`Self::catch_up`] would do something.
    fn is_behind(&self) -> bool {
        let busy = |(number, open): (&u32, &Open)| {
            (self.agent.is_replying(*number) || !open.later.is_empty())
                && open.waiting() < PLENTY / 2
        };
        !self.is_full() && self.open.iter().any(busy)
    }

    /// Waits for an event; `None` if frames arrived or the time is over. An error means that all senders
    /// are gone.
    fn wait(&self, events: &Receiver<Event>, punts: &Receiver<Punt>) -> Result<Option<Event>, ()> {
        // A change takes effect within microseconds, so the wait is short while a reply depends on one.
        if self.is_behind() {
            return Ok(events.try_recv().ok());
        }
        // A connection for which too much waits sends it within milliseconds, if its controller reads.
        let waits = self.open.values().any(|open| !open.later.is_empty());
        let full = self.is_full();
        let span = match (self.held.is_empty() && !full, waits) {
            (false, _) => 50,
            (true, true) => 1000,
            (true, false) => 50_000,
        };
        let span = Duration::from_micros(span);
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
                let open = Open { part, version, outbox, who, held: 0, later: VecDeque::new() };
                self.open.insert(part.number, open);
                self.contact();
            }
            Event::Message { from, xid, message, ticket } => {
                let is_replying = self.agent.is_replying(from);
                let Some(open) = self.open.get_mut(&from) else { return };
                if is_replying || !open.later.is_empty() || open.waiting() > PLENTY {
                    open.later.push_back((xid, message, ticket));
                } else {
                    self.message(from, xid, &message, &ticket, now);
                }
            }
            Event::Down(number) => {
                self.agent.disconnect(number);
                self.open.remove(&number);
                self.held.retain(|held| held.to != number);
                // Auxiliary connections end with their main connection.
                for other in self.open.values() {
                    if other.part.main == Some(number) {
                        other.outbox.close("the main connection has ended");
                    }
                }
                self.contact();
            }
            Event::Rules { fail, dials } => {
                self.rules = Rules { fail, dials };
                self.contact();
            }
            Event::Do(work) => {
                self.heartbeat.begins("a change of a port, or a question");
                work(&mut self.agent, now, &mut self.out);
            }
            Event::Stop => {}
        }
        self.make();
    }

    fn message(&mut self, from: u32, xid: u32, message: &Message, ticket: &Ticket, now: u64) {
        if let Some(open) = self.open.get(&from) {
            self.heartbeat.begins(&open.who);
        }
        self.heard += ticket.bytes;
        self.hear(from, xid, message, now);
        let counters =
            matches!(message, Message::MultipartRequest { body: Request::PortStats(_), .. });
        if counters {
            let stats = self.plane.port_stats();
            self.agent.port_stats(stats);
        }
        self.agent.handle(from, xid, message, now, &mut self.out);
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

    /// The bytes of a message; `None` if nobody gets it.
    fn encoded(&self, out: &Out, tapped: bool) -> Option<Vec<u8>> {
        let Open { version, who, .. } = self.open.get(&out.to)?;
        let mut bytes = Vec::new();
        if let Err(problem) = encode(&out.message, *version, out.xid, &mut bytes) {
            // The version cannot express the message. A request gets an error, and an asynchronous
            // message is not sent.
            if out.xid == 0 {
                return None;
            }
            let error = Message::error(problem, *version, &[]);
            encode(&error, *version, out.xid, &mut bytes).ok()?;
        }
        if tapped && self.tap.is_on() {
            self.tap.put(self.plane.now(), who, true, &bytes);
        }
        Some(bytes)
    }
}
