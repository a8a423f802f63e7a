//! The suite against our queues, and against schedulers that break one rule each.

use std::collections::VecDeque;

use super::own::Own;
use super::rules;
use super::twin::Twin;
use super::*;

fn verdicts(scheduler: &mut dyn Scheduler) -> Vec<(&'static str, Verdict)> {
    rules::all(scheduler).into_iter().map(|row| (row.rule, row.verdict)).collect()
}

#[test]
fn our_queues_keep_every_rule_that_they_have() {
    for row in rules::all(&mut Own::default()) {
        let has = !["threshold", "priority"].contains(&row.rule);
        let wanted = if has { Verdict::Kept } else { Verdict::Absent };
        assert_eq!(row.verdict, wanted, "{row:?}");
    }
}

/// The twin of DLB does what event_sw is documented to do, and what DLB does: it has every rule, and keeps each but one.
/// An event that a worker forgets is released by its next dequeue, which the rule accepts.
#[test]
fn the_twin_of_dlb_keeps_the_rules() {
    for row in rules::all(&mut Twin::default()) {
        assert_eq!(row.verdict, Verdict::Kept, "{row:?}");
    }
}

#[test]
fn events_of_a_rate_arrive_once_and_in_order() {
    for kind in [Kind::Ordered, Kind::Atomic, Kind::Parallel] {
        let mut own = Own::default();
        own.start(&rules::plan(&[kind], 1)).unwrap();
        assert_eq!(pump(&mut own, kind, 100_000), (0, 100_000));
    }
}

/// What a scheduler does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Events leave when they are finished.
    Unordered,
    /// Each tenth event is lost.
    Loses,
    /// Each tenth event arrives twice.
    Repeats,
    /// A flow is with several workers.
    Shares,
    /// There is no limit of events in flight.
    Unlimited,
}

/// A line of events in which a worker takes the oldest; it has no order at all.
struct Broken {
    fault: Fault,
    stages: Vec<VecDeque<(u32, u32)>>,
    out: Vec<Item>,
    limit: usize,
    in_flight: usize,
}

impl Broken {
    fn new(fault: Fault) -> Self {
        Self { fault, stages: Vec::new(), out: Vec::new(), limit: 0, in_flight: 0 }
    }
}

impl Scheduler for Broken {
    fn title(&self) -> String {
        format!("{:?}", self.fault)
    }

    fn start(&mut self, plan: &Plan) -> Result<(), String> {
        self.stages = vec![VecDeque::new(); plan.stages.len()];
        (self.limit, self.in_flight) = (plan.threshold.min(plan.limit) as usize, 0);
        self.out.clear();
        Ok(())
    }

    fn enter(&mut self, events: &[(u32, u32)]) -> usize {
        let room =
            if self.fault == Fault::Unlimited { usize::MAX } else { self.limit - self.in_flight };
        let events = &events[..events.len().min(room)];
        self.stages[0].extend(events);
        self.in_flight += events.len();
        events.len()
    }

    fn take(&mut self, _: usize, most: usize) -> Vec<Item> {
        let most = most.min(16);
        let Some(stage) =
            (0..self.stages.len()).rev().find(|stage| !self.stages[*stage].is_empty())
        else {
            return Vec::new();
        };
        let count = most.min(self.stages[stage].len());
        let taken = self.stages[stage].drain(..count);
        taken.map(|(number, flow)| Item { number, flow, stage: stage as u8 }).collect()
    }

    fn finish(&mut self, _: usize, events: &[(Item, Done)]) -> usize {
        for (item, done) in events {
            let next = usize::from(item.stage) + 1;
            let is_tenth = item.number.is_multiple_of(10);
            let is_lost = *done == Done::Release || self.fault == Fault::Loses && is_tenth;
            let copies =
                if is_lost { 0 } else { 1 + usize::from(self.fault == Fault::Repeats && is_tenth) };
            for _ in 0..copies {
                match self.stages.get_mut(next) {
                    Some(stage) => stage.push_back((item.number, item.flow)),
                    None => self.out.push(*item),
                }
            }
            if next >= self.stages.len() || is_lost {
                self.in_flight = self.in_flight.saturating_sub(1);
            }
        }
        events.len()
    }

    fn run(&mut self) {}

    fn consume(&mut self) -> Vec<Item> {
        std::mem::take(&mut self.out)
    }
}

#[test]
fn every_fault_is_found() {
    for (fault, rules) in [
        (Fault::Unordered, &["ordered-late", "ordered-reverse", "ordered-head-of-line"][..]),
        (Fault::Loses, &["once-ordered", "once-atomic", "once-parallel", "stages"]),
        (Fault::Repeats, &["once-ordered", "once-atomic", "once-parallel", "stages"]),
        (Fault::Shares, &["atomic-exclusive", "atomic-elephant"]),
        (Fault::Unlimited, &["threshold", "credits"]),
    ] {
        let found = verdicts(&mut Broken::new(fault));
        for rule in rules {
            assert!(found.contains(&(rule, Verdict::Differs)), "{fault:?}: {rule}: {found:?}");
        }
    }
    // What the broken scheduler has right is not held against it.
    let right = verdicts(&mut Broken::new(Fault::Unordered));
    assert!(right.contains(&("once-parallel", Verdict::Kept)), "{right:?}");
    assert!(right.contains(&("credits", Verdict::Kept)), "{right:?}");
}
