//! Tracing: follows the frames of one flow and reports every step of each frame, with the reason for
//! each decision.
//!
//! ```text
//!  Follow(filter) to all cores ──> events of all cores ──by buffer──> stories ──> Follow(None)
//! ```
//!
//! If a drop reason is given instead of a flow, the flow with the most of the logged drops for this
//! reason is followed. If none of its frames is dropped for [`ROUND`], the choice is made again among
//! the drops logged meanwhile, because which flows lose frames can change.
//!
//! Invariants: a story begins with the reception of its frame; it ends when the frame is sent or
//! dropped, or when the trace ends. The filter is removed from all cores when the trace ends. A trace ends early
//! when its client closes the connection.

use std::collections::HashMap;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use flowyard_frame::{FlowKey, Nanos, To};
use flowyard_yard::ask::{Answer, Question};
use flowyard_yard::trace::{Dropped, Event, Events, Filter, Step, Why};
use flowyard_yard::{DropReason, Handle};

use crate::answers::{Gone, PATIENCE, seconds};
use crate::fix::{fix, fix_in};
use crate::names::name;
use crate::protocol::{StepState, Story, Trace, TraceRequest};

/// Capacity of the channel for events.
const ROOM: usize = 16_384;

/// The time between two reads of the channel.
const NAP: Duration = Duration::from_millis(2);

/// How long the flow chosen by its drops is followed before the choice is made again.
const ROUND: Duration = Duration::from_secs(1);

/// The most frames of a trace.
const MOST: usize = 10_000;
/// The longest duration of a trace, in seconds.
const LONGEST: f64 = 3600.0;

/// Runs the requested trace, until its client has `gone` at the latest.
pub(crate) fn trace(
    yard: &Handle,
    request: &TraceRequest,
    gone: Gone<'_>,
) -> Result<Trace, String> {
    let over = || yard.is_over() || gone();
    let span = if request.seconds > 0.0 { request.seconds.min(LONGEST) } else { 5.0 };
    let began = yard.now();
    let until = began.saturating_add(Duration::from_secs_f64(span).as_nanos() as Nanos);
    let wanted = match &request.drops {
        None => Wanted::All,
        Some(reason) => Wanted::Drops(self::reason(reason)?),
    };
    let (key, fixed) = match (&request.flow, wanted) {
        (Some(flow), _) => (FlowKey::from_str(flow).map_err(|error| error.to_string())?, true),
        (None, Wanted::Drops(reason)) => match wait_for_victim(yard, reason, until, &over) {
            Some(key) => (key, false),
            None => return Ok(nobody(yard, reason, span)),
        },
        (None, Wanted::All) => {
            return Err(
                "the request has neither 'flow' nor 'drops'; name a flow or a drop reason".into()
            );
        }
    };
    let mut trace = if fixed {
        follow_flow(yard, request, wanted, &key, [until; 2], &over)
    } else {
        follow_victims(yard, request, wanted, key, until, &over)
    };
    trace.seconds = seconds(yard.now().saturating_sub(began));
    trace.note = note(&trace, wanted);
    Ok(trace)
}

/// Follows `key`, and after each [`ROUND`] without a wanted frame the flow with the most drops since.
fn follow_victims(
    yard: &Handle,
    request: &TraceRequest,
    wanted: Wanted,
    mut key: FlowKey,
    until: Nanos,
    over: Over<'_>,
) -> Trace {
    loop {
        let start = yard.now();
        let round = until.min(start.saturating_add(ROUND.as_nanos() as Nanos));
        let trace = follow_flow(yard, request, wanted, &key, [round, until], over);
        if !trace.frames.is_empty() || yard.now() >= until || over() {
            return trace;
        }
        if let Wanted::Drops(reason) = wanted {
            key = victim(yard, reason, start).unwrap_or(key);
        }
    }
}

/// Follows one flow until enough frames are complete: until the first time if no frame is, otherwise
/// until the second.
fn follow_flow(
    yard: &Handle,
    request: &TraceRequest,
    wanted: Wanted,
    key: &FlowKey,
    [round, until]: [Nanos; 2],
    over: Over<'_>,
) -> Trace {
    let (filter, events) = Filter::new(key, request.both, ROOM);
    let mut stories = Stories::new(yard, key.flow(), wanted, request.count.clamp(1, MOST));
    let silent = follow(yard, Some(filter));
    let limit = |stories: &Stories| if stories.is_empty() { round } else { until };
    while !stories.is_full() && yard.now() < limit(&stories) && !over() {
        stories.take(&events);
        thread::sleep(NAP);
    }
    follow(yard, None);
    stories.take(&events);
    let mut trace = stories.end();
    trace.flow = key.flow().to_string();
    (trace.lost_events, trace.silent_cores) = (events.lost(), silent);
    trace
}

/// Sets or removes the filter on every core; returns the cores that did not answer.
fn follow(yard: &Handle, filter: Option<Filter>) -> Vec<u16> {
    let answers = yard.ask(&Question::Follow(filter), PATIENCE);
    (0..).zip(answers).filter(|(_, answer)| answer.is_none()).map(|(core, _)| core).collect()
}

/// Whether the trace ends early: all cores have ended, so that no more events can come, or the client has gone.
type Over<'a> = &'a dyn Fn() -> bool;

/// Which frames are reported.
#[derive(Clone, Copy)]
enum Wanted {
    All,
    /// Frames dropped for this reason, or for any reason.
    Drops(Option<DropReason>),
}

impl Wanted {
    fn takes(self, outcome: &str) -> bool {
        match self {
            Self::All => true,
            Self::Drops(None) => outcome != SENT,
            Self::Drops(Some(reason)) => outcome == reason.name(),
        }
    }
}

const SENT: &str = "sent";

/// The drop reason with this name; `None` for `any`.
fn reason(text: &str) -> Result<Option<DropReason>, String> {
    let same = |reason: &DropReason| reason.name() == text.replace(['-', ' '], "_");
    match DropReason::ALL.into_iter().find(same) {
        None if text != "any" => {
            let names = DropReason::ALL.map(DropReason::name).join(", ");
            Err(format!("'{text}' is not a drop reason; choose one of any, {names}"))
        }
        reason => Ok(reason),
    }
}

/// The flow with the most logged drops for this reason. Waits for one until `until`.
fn wait_for_victim(
    yard: &Handle,
    reason: Option<DropReason>,
    until: Nanos,
    over: Over<'_>,
) -> Option<FlowKey> {
    loop {
        if let Some(key) = victim(yard, reason, 0) {
            return Some(key);
        }
        if yard.now() >= until || over() {
            return None;
        }
        thread::sleep(NAP * 25);
    }
}

/// The flow with the most drops for this reason that were logged at `since` or later; of equals, the
/// one with the latest drop.
fn victim(yard: &Handle, reason: Option<DropReason>, since: Nanos) -> Option<FlowKey> {
    let mut flows = HashMap::<FlowKey, (u64, Nanos)>::new();
    for answer in yard.ask(&Question::Drops, PATIENCE).into_iter().flatten() {
        let Answer::Drops(drops) = answer else { continue };
        let fits =
            |drop: &Dropped| drop.at >= since && reason.is_none_or(|reason| drop.reason == reason);
        for drop in drops.into_iter().filter(fits) {
            let Some(key) = drop.key else { continue };
            let (count, last) = flows.entry(key.flow()).or_default();
            (*count, *last) = (*count + 1, drop.at.max(*last));
        }
    }
    flows.into_iter().max_by_key(|(_, rank)| *rank).map(|(key, _)| key)
}

/// The answer when no flow with such drops was found.
fn nobody(yard: &Handle, reason: Option<DropReason>, span: f64) -> Trace {
    let counters = yard.counters();
    let count = |reason| counters.iter().map(|core| core.drops.get(reason)).sum::<u64>();
    let unread = [DropReason::TooLong, DropReason::NoBuffer, DropReason::Empty];
    let note = match reason {
        Some(reason) if unread.contains(&reason) => format!(
            "ports drop frames for the reason {} before they are parsed, so there is no flow to follow ({} \
             drops so far): {}",
            reason.name(),
            count(reason),
            fix(reason, "the port"),
        ),
        Some(reason) => format!(
            "during the trace no frame with a known flow was dropped for the reason {} ({} drops so far)",
            reason.name(),
            count(reason)
        ),
        None => "during the trace no frame with a known flow was dropped".into(),
    };
    Trace { seconds: span, note: Some(note), ..Trace::default() }
}

/// An explanation for a trace without frames.
fn note(trace: &Trace, wanted: Wanted) -> Option<String> {
    match (trace.frames.is_empty(), trace.finished_frames, wanted) {
        (false, ..) => None,
        (true, 0, _) => Some(
            "no frame of this flow was received; check the direction (--both follows both directions): \
             'flowyard show flows' lists the largest flows"
                .into(),
        ),
        (true, seen, _) => Some(format!(
            "{seen} frames of this flow were received, and none was dropped for this reason"
        )),
    }
}

/// Assembles the events of each frame.
struct Stories<'a> {
    yard: &'a Handle,
    /// The flow that is followed.
    flow: FlowKey,
    wanted: Wanted,
    count: usize,
    /// Names of the tables, by number.
    tables: Vec<String>,
    /// Size of the indirection table.
    entries: usize,
    /// Frames in flight, by buffer.
    open: HashMap<u32, (FlowKey, Story)>,
    trace: Trace,
}

impl<'a> Stories<'a> {
    fn new(yard: &'a Handle, flow: FlowKey, wanted: Wanted, count: usize) -> Self {
        let mut tables = (Vec::new(), 0);
        for answer in yard.ask(&Question::Tables { entries: 0 }, PATIENCE).into_iter().flatten() {
            if let Answer::Tables(of) = answer {
                tables = (of.front.into_iter().map(|table| table.name).collect(), of.spread.len());
            }
        }
        let ((tables, entries), open) = (tables, HashMap::new());
        Self { yard, flow, wanted, count, tables, entries, open, trace: Trace::default() }
    }

    fn is_empty(&self) -> bool {
        self.trace.frames.is_empty()
    }

    fn is_full(&self) -> bool {
        self.trace.frames.len() >= self.count
    }

    fn take(&mut self, events: &Events) {
        while !self.is_full()
            && let Some(event) = events.next()
        {
            self.add(&event);
        }
    }

    fn add(&mut self, event: &Event) {
        let outcome = match event.step {
            Step::Received { key, .. } => {
                let reverse = key.flow() != self.flow;
                self.open.insert(event.frame, (key, Story { reverse, ..Story::default() }));
                None
            }
            Step::Sent { .. } => Some((SENT, None)),
            Step::Dropped { reason, at } => {
                let key = self.open.get(&event.frame).map(|(key, _)| key);
                let place = name(self.yard.places(), at);
                Some((reason.name(), Some(fix_in(self.yard, reason, &place, key))))
            }
            _ => None,
        };
        let (stage, text) = self.describe(&event.step);
        // A frame that was received before the trace began has no story.
        let Some((_, story)) = self.open.get_mut(&event.frame) else { return };
        // The time is that of the start of the tick, but a core may dequeue a frame that was enqueued
        // later during its tick.
        let before = story.steps.last().map_or(0.0, |step| step.at_s);
        let (at_s, core) = (seconds(event.at).max(before), event.core);
        story.steps.push(StepState { at_s, core, stage: stage.into(), text });
        if let Some((outcome, fix)) = outcome
            && let Some((_, mut story)) = self.open.remove(&event.frame)
        {
            (story.outcome, story.fix) = (outcome.into(), fix);
            self.trace.finished_frames += 1;
            *self.trace.outcomes.entry(outcome.into()).or_default() += 1;
            if self.wanted.takes(outcome) {
                self.trace.frames.push(story);
            }
        }
    }

    /// The complete trace; frames still in flight come last.
    fn end(mut self) -> Trace {
        let room = self.count - self.trace.frames.len().min(self.count);
        if matches!(self.wanted, Wanted::All) {
            let mut inside: Vec<_> = self.open.into_values().map(|(_, story)| story).collect();
            let began = |story: &Story| story.steps.first().map_or(0.0, |step| step.at_s);
            inside.sort_by(|a, b| began(a).total_cmp(&began(b)));
            inside.truncate(room);
            inside.iter_mut().for_each(|story| story.outcome = "in_flight".into());
            self.trace.frames.extend(inside);
        }
        self.trace
    }

    /// The stage of a step, and a text that describes it.
    fn describe(&self, step: &Step) -> (&'static str, String) {
        let name = |to: To| name(self.yard.places(), to);
        match *step {
            Step::Received { key, hash, bytes } => {
                let port = name(To::Port(key.in_port));
                ("rx", format!("received on {port}: {bytes} bytes of {key}; hash {hash:#010x}"))
            }
            Step::Answered { entry: Some(entry), action, .. } => {
                let to = name(action.to);
                let of = self.entries;
                let front = match self.tables.len() {
                    0 => String::new(),
                    _ => format!("no match in the tables {}; ", self.tables.join(", ")),
                };
                ("steer", format!("{front}entry {entry} of {of} of the indirection table: {to}"))
            }
            Step::Answered { table: Step::FRONT, action, .. } => (
                "steer",
                format!("matched an entry of the switch's port mapping: {}", name(action.to)),
            ),
            Step::Answered { table, action, .. } => {
                let known = self.tables.get(usize::from(table)).map_or("unnamed", String::as_str);
                let mark = match action.mark {
                    0 => String::new(),
                    mark => format!(", mark {mark}"),
                };
                ("steer", format!("matched an entry of table {known}: {}{mark}", name(action.to)))
            }
            Step::Settled { said, home, why } => {
                ("settle", settled(&name(said), &name(home), why, &name))
            }
            Step::Waits { home } => (
                "enqueue",
                format!(
                    "waits because {} is full and configured to hold its producers",
                    name(home)
                ),
            ),
            Step::Worked { queue, to } => {
                let queue = name(To::Queue(queue));
                ("work", format!("dequeued from {queue} and processed; destination: {}", name(to)))
            }
            Step::Sent { port } => ("tx", format!("transmitted by {}", name(To::Port(port)))),
            Step::Dropped { reason, at } => {
                let at = match at {
                    To::Drop(_) => String::new(),
                    at => format!(" at {}", name(at)),
                };
                ("drop", format!("dropped: {}{at}", reason.name()))
            }
        }
    }
}

/// The queue that the settle stage chose for a frame, and the reason.
fn settled(said: &str, home: &str, why: Why, name: &dyn Fn(To) -> String) -> String {
    let flight = |head: u64, last: Option<u64>| match last {
        Some(last) => format!("{home} has completed {head} frames and must complete {last}"),
        None => "another frame of the flow is being enqueued".into(),
    };
    match why {
        Why::Off => format!("enqueued in {home}: the settle stage is off"),
        Why::Nowhere => format!("not enqueued: the table's action is {said}"),
        Why::First => format!("enqueued in {home}: the first known frame of its flow"),
        Why::Home => format!("enqueued in {home}: the current queue of the flow"),
        Why::Moves { from } => {
            format!("flow moved to {home}: it has no frames left in {}", name(from))
        }
        Why::InFlight { head, last } => format!(
            "enqueued in {home} instead of {said}: the flow has frames in flight there ({})",
            flight(head, last)
        ),
        Why::HeldBack { head, last } => format!(
            "held back until the flow can move to {said} ({})",
            flight(head, last).replace(home, "its current queue")
        ),
    }
}
