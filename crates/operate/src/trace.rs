//! Trace: follows the frames of one flow and tells each one's life, with the reason of each
//! decision.
//!
//! ```text
//!  Follow(filter) to all cores ──> events of all cores ──by buffer──> stories ──> Follow(None)
//! ```
//!
//! For a reason of drops the flow is found first: one that has just lost a frame for it.
//!
//! Invariants: a story begins with its frame's reception; it ends with the frame sent or dropped,
//! or with the trace. Cores follow nothing any more when the trace is over.

use std::collections::HashMap;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use flowyard_frame::{FlowKey, Nanos, To};
use flowyard_yard::ask::{Answer, Question};
use flowyard_yard::trace::{Event, Events, Filter, Step, Why};
use flowyard_yard::{DropReason, Handle};

use crate::answers::{PATIENCE, seconds};
use crate::mend;
use crate::names::name;
use crate::protocol::{StepState, Story, Trace, TraceRequest};

/// Events that may wait to be read.
const ROOM: usize = 16_384;

/// Between two looks for events.
const NAP: Duration = Duration::from_millis(2);

/// The most frames, and the longest time, of a trace.
const MOST: usize = 10_000;
const LONGEST: f64 = 3600.0;

/// Follows what `request` says.
pub(crate) fn trace(yard: &Handle, request: &TraceRequest) -> Result<Trace, String> {
    let span = if request.seconds > 0.0 { request.seconds.min(LONGEST) } else { 5.0 };
    let began = yard.now();
    let until = began.saturating_add(Duration::from_secs_f64(span).as_nanos() as Nanos);
    let wanted = match &request.drops {
        None => Wanted::All,
        Some(reason) => Wanted::Drops(self::reason(reason)?),
    };
    let key = match (&request.flow, wanted) {
        (Some(flow), _) => FlowKey::from_str(flow).map_err(|error| error.to_string())?,
        (None, Wanted::Drops(reason)) => match victim(yard, reason, until) {
            Some(key) => key,
            None => return Ok(nobody(yard, reason, span)),
        },
        (None, Wanted::All) => return Err("name a flow, or a reason of drops".into()),
    };
    let (filter, events) = Filter::new(&key, request.both, ROOM);
    let mut stories = Stories::new(yard, wanted, request.count.clamp(1, MOST));
    let silent = follow(yard, Some(filter));
    while !stories.is_full() && yard.now() < until && !over(yard) {
        stories.take(&events);
        thread::sleep(NAP);
    }
    follow(yard, None);
    stories.take(&events);
    let mut trace = stories.end();
    trace.flow = key.flow().to_string();
    trace.seconds = seconds(yard.now().saturating_sub(began));
    (trace.lost, trace.silent) = (events.lost(), silent);
    trace.note = note(&trace, wanted);
    Ok(trace)
}

/// Tells every core what to follow; returns those that did not answer.
fn follow(yard: &Handle, filter: Option<Filter>) -> Vec<u16> {
    let answers = yard.ask(&Question::Follow(filter), PATIENCE);
    (0..).zip(answers).filter(|(_, answer)| answer.is_none()).map(|(core, _)| core).collect()
}

/// Whether no core is left that could tell anything.
fn over(yard: &Handle) -> bool {
    yard.is_over()
}

/// Which stories are told.
#[derive(Clone, Copy)]
enum Wanted {
    All,
    /// Of frames dropped for this reason, or for any.
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

/// The reason of this name; `None` is any.
fn reason(text: &str) -> Result<Option<DropReason>, String> {
    let same = |reason: &DropReason| reason.name() == text.replace(['-', ' '], "_");
    match DropReason::ALL.into_iter().find(same) {
        None if text != "any" => {
            let names = DropReason::ALL.map(DropReason::name).join(", ");
            Err(format!("'{text}' is no reason of drops; choose one of any, {names}"))
        }
        reason => Ok(reason),
    }
}

/// A flow that loses frames for this reason: of the latest drop that is known by then.
fn victim(yard: &Handle, reason: Option<DropReason>, until: Nanos) -> Option<FlowKey> {
    loop {
        let answers = yard.ask(&Question::Drops, PATIENCE).into_iter().flatten();
        let drops = answers.flat_map(|answer| match answer {
            Answer::Drops(drops) => drops,
            _ => Vec::new(),
        });
        let fits = drops.filter(|drop| reason.is_none_or(|reason| drop.reason == reason));
        let last = fits.filter(|drop| drop.key.is_some()).max_by_key(|drop| drop.at);
        if let Some(key) = last.and_then(|drop| drop.key) {
            return Some(key);
        }
        if yard.now() >= until || over(yard) {
            return None;
        }
        thread::sleep(NAP * 25);
    }
}

/// The trace when no flow was found.
fn nobody(yard: &Handle, reason: Option<DropReason>, span: f64) -> Trace {
    let counters = yard.counters();
    let count = |reason| counters.iter().map(|core| core.drops.get(reason)).sum::<u64>();
    let unread = [DropReason::TooLong, DropReason::NoBuffer, DropReason::Empty];
    let note = match reason {
        Some(reason) if unread.contains(&reason) => format!(
            "frames are dropped as {} by the port, before they have a flow to follow ({} so far): {}",
            reason.name(),
            count(reason),
            mend(reason.name(), "the port"),
        ),
        Some(reason) => format!(
            "no frame whose flow is known was dropped as {} ({} so far in all)",
            reason.name(),
            count(reason)
        ),
        None => "no frame whose flow is known was dropped".into(),
    };
    Trace { seconds: span, note: Some(note), ..Trace::default() }
}

/// What a trace that shows nothing means.
fn note(trace: &Trace, wanted: Wanted) -> Option<String> {
    match (trace.frames.is_empty(), trace.seen, wanted) {
        (false, ..) => None,
        (true, 0, _) => Some(
            "no frame of this flow came: is the direction right (--both follows both)? 'flowyard show flows' \
             lists flows that come"
                .into(),
        ),
        (true, seen, _) => Some(format!("{seen} frames of this flow came, and none was dropped so")),
    }
}

/// Puts events together.
struct Stories<'a> {
    yard: &'a Handle,
    wanted: Wanted,
    count: usize,
    /// Names of the tables, by number.
    tables: Vec<String>,
    /// Entries of the indirection table.
    entries: usize,
    /// By buffer: frames that are inside.
    open: HashMap<u32, Story>,
    trace: Trace,
}

impl<'a> Stories<'a> {
    fn new(yard: &'a Handle, wanted: Wanted, count: usize) -> Self {
        let mut tables = (Vec::new(), 0);
        for answer in yard.ask(&Question::Tables { entries: 0 }, PATIENCE).into_iter().flatten() {
            if let Answer::Tables(of) = answer {
                tables = (of.front.into_iter().map(|table| table.name).collect(), of.spread.len());
            }
        }
        let ((tables, entries), open) = (tables, HashMap::new());
        Self { yard, wanted, count, tables, entries, open, trace: Trace::default() }
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
            Step::Received { .. } => {
                self.open.insert(event.frame, Story::default());
                None
            }
            Step::Sent { .. } => Some((SENT, None)),
            Step::Dropped { reason, at } => {
                Some((reason.name(), Some(mend(reason.name(), &name(self.yard.places(), at)))))
            }
            _ => None,
        };
        let (stage, text) = self.tell(&event.step);
        // A frame that came in before the trace began has no story.
        let Some(story) = self.open.get_mut(&event.frame) else { return };
        // A tick's time is when it began: a core may take a frame that came while its tick ran.
        let before = story.steps.last().map_or(0.0, |step| step.at_s);
        let (at_s, core) = (seconds(event.at).max(before), event.core);
        story.steps.push(StepState { at_s, core, stage: stage.into(), text });
        if let Some((outcome, mend)) = outcome
            && let Some(mut story) = self.open.remove(&event.frame)
        {
            (story.outcome, story.mend) = (outcome.into(), mend);
            self.trace.seen += 1;
            *self.trace.outcomes.entry(outcome.into()).or_default() += 1;
            if self.wanted.takes(outcome) {
                self.trace.frames.push(story);
            }
        }
    }

    /// All is told; frames that are still inside last.
    fn end(mut self) -> Trace {
        let room = self.count - self.trace.frames.len().min(self.count);
        if matches!(self.wanted, Wanted::All) {
            let mut inside: Vec<_> = self.open.into_values().collect();
            let began = |story: &Story| story.steps.first().map_or(0.0, |step| step.at_s);
            inside.sort_by(|a, b| began(a).total_cmp(&began(b)));
            inside.truncate(room);
            inside.iter_mut().for_each(|story| story.outcome = "inside".into());
            self.trace.frames.extend(inside);
        }
        self.trace
    }

    /// A step's stage, and what is to be said of it.
    fn tell(&self, step: &Step) -> (&'static str, String) {
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
                    _ => format!("{} have no entry for it; ", self.tables.join(", ")),
                };
                (
                    "steer",
                    format!("{front}entry {entry} of {of} of the indirection table says {to}"),
                )
            }
            Step::Answered { table: Step::FRONT, action, .. } => (
                "steer",
                format!("the switch's port mapping has an entry for it: {}", name(action.to)),
            ),
            Step::Answered { table, action, .. } => {
                let known = self.tables.get(usize::from(table)).map_or("unnamed", String::as_str);
                let mark = match action.mark {
                    0 => String::new(),
                    mark => format!(", mark {mark}"),
                };
                ("steer", format!("table {known} has an entry for it: {}{mark}", name(action.to)))
            }
            Step::Settled { said, home, why } => {
                ("settle", settled(&name(said), &name(home), why, &name))
            }
            Step::Waits { home } => (
                "enqueue",
                format!("{} is full and makes its producers wait: so does this", name(home)),
            ),
            Step::Worked { queue, to } => {
                let queue = name(To::Queue(queue));
                ("work", format!("taken out of {queue} and worked on: {}", name(to)))
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

/// Where the settle stage sent a frame, and why.
fn settled(said: &str, home: &str, why: Why, name: &dyn Fn(To) -> String) -> String {
    let flight = |head: u64, last: Option<u64>| match last {
        Some(last) => format!("{head} of {home}'s frames are done, and {last} have to be"),
        None => "more of it is just being enqueued".into(),
    };
    match why {
        Why::Off => format!("enters {home}: there is no settle stage"),
        Why::Nowhere => format!("goes no further: the table said {said}"),
        Why::First => format!("enters {home}: the first frame of its flow that is known"),
        Why::Home => format!("enters {home}: its flow is there"),
        Why::Moves { from } => {
            format!("its flow moves to {home}: nothing of it is left in {}", name(from))
        }
        Why::InFlight { head, last } => format!(
            "enters {home}, not {said}: some of its flow is in flight there ({})",
            flight(head, last)
        ),
        Why::HeldBack { head, last } => format!(
            "held back at the entry until its flow may move to {said} ({})",
            flight(head, last).replace(home, "its old home")
        ),
    }
}
