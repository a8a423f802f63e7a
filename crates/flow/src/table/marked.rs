//! Marked: entries that an adapter names by a mark on the frame, so that they need not be looked up.
//!
//! ```text
//!  mark, 24 bits    0 | generation, 7 bits | index, 16 bits     an entry of the user
//!                   1 | number, 23 bits                         a flow that a work has offered
//! ```
//!
//! An adapter has been given a rule for an entry, and marks the frames that match. The mark says where the entry is; it
//! proves nothing. The entry's own key is compared with the frame's, and the generation with that of the tables: a mark
//! that was set before a change of the tables, or by another rule, is ignored, and the frame is looked up as any other.
//! Some adapters have marks of 24 bits.
//!
//! Flows that works offer are named to the work, which looks their number up itself. A flow that is split over cores (an
//! elephant) is named to this table: with its number, while no entry of the user's generation matches any of its frames.
//!
//! Invariants: only entries that no entry in front of them overlaps are in the table, so a match is the answer.
//! Thread-safety: a [`Marked`] is one core's; the entries are immutable and shared.

use std::sync::Arc;

use flowyard_frame::{Action, Batch, FlowKey, Lanes};

use super::{Rule, Table};

/// The bit of marks that name a flow of a work.
const FLOW: u32 = 1 << 23;
/// The bits of an index.
const INDEX: u32 = 0xffff;
/// The greatest generation; then it begins at 1 again.
const GENERATIONS: u32 = 0x7f;

/// The greatest number of entries of the user that can be named.
pub const ENTRIES: usize = INDEX as usize;

/// The mark of entry `at` of generation `generation`; `None` if there are fewer marks.
#[must_use]
pub fn of_entry(generation: u8, at: usize) -> Option<u32> {
    let index = u32::try_from(at + 1).ok().filter(|index| *index <= INDEX)?;
    Some((u32::from(generation) & GENERATIONS) << 16 | index)
}

/// The mark of a work's flow; `None` if there are fewer marks.
#[must_use]
pub const fn of_flow(number: u32) -> Option<u32> {
    if number < FLOW { Some(FLOW | number) } else { None }
}

/// The flow that a mark names, if it names one.
#[must_use]
#[inline]
pub const fn flow(mark: u32) -> Option<u32> {
    if mark & FLOW != 0 { Some(mark & (FLOW - 1)) } else { None }
}

/// The generation after `generation`.
#[must_use]
pub const fn next(generation: u8) -> u8 {
    if generation as u32 >= GENERATIONS { 1 } else { generation + 1 }
}

/// The entries that marks of one generation name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answers {
    /// The generation, from 1.
    pub generation: u8,
    /// By index; `None` for entries that need a lookup.
    pub entries: Vec<Option<Rule>>,
}

impl Answers {
    /// The entry that a mark names, if it is one of this generation.
    #[inline]
    fn named(&self, mark: u32) -> Option<&Rule> {
        if mark >> 16 != u32::from(self.generation) {
            return None;
        }
        self.entries.get((mark & INDEX).checked_sub(1)? as usize)?.as_ref()
    }
}

/// A flow of the engine that a mark names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// Its number.
    pub number: u32,
    /// The generation of the user's entries that match none of its frames.
    pub generation: u8,
    /// The flow.
    pub key: FlowKey,
    /// Its answer.
    pub action: Action,
}

/// The table of a core.
#[derive(Clone, Debug, Default)]
pub struct Marked {
    answers: Arc<Answers>,
    /// Flows, by number.
    flows: Vec<Named>,
}

impl Marked {
    /// The table of these entries.
    #[must_use]
    pub const fn new(answers: Arc<Answers>) -> Self {
        Self { answers, flows: Vec::new() }
    }

    /// The same table, which also has the flows `flows`. Those of another generation are left out.
    #[must_use]
    pub fn with_flows(mut self, flows: &[Named]) -> Self {
        let generation = self.answers.generation;
        self.flows = flows.iter().filter(|flow| flow.generation == generation).copied().collect();
        self.flows.sort_by_key(|flow| flow.number);
        self
    }

    /// The answer for a frame with this mark and key.
    #[inline]
    fn answer(&self, mark: u32, key: &FlowKey) -> Option<Action> {
        if let Some(number) = flow(mark) {
            return if self.flows.is_empty() { None } else { self.split(number, key) };
        }
        let entry = self.answers.named(mark)?;
        entry.matches(key).then_some(entry.action)
    }

    /// The answer for a frame of a flow that is split over cores.
    fn split(&self, number: u32, key: &FlowKey) -> Option<Action> {
        let at = self.flows.binary_search_by_key(&number, |flow| flow.number).ok()?;
        let named = &self.flows[at];
        (named.key == key.masked(&FlowKey::FLOW)).then_some(named.action)
    }
}

impl Table for Marked {
    #[inline]
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes {
        let mut missed = want;
        for lane in want {
            let mark = batch.frames[lane].mark;
            if mark != 0
                && let Some(action) = self.answer(mark, &batch.keys[lane])
            {
                batch.actions[lane] = action;
                missed = missed.without(Lanes(1 << lane));
            }
        }
        missed
    }

    fn occupancy(&self) -> Option<(usize, usize)> {
        let entries = self.answers.entries.iter().flatten().count();
        Some((entries + self.flows.len(), ENTRIES))
    }

    fn each(&self, show: &mut dyn FnMut(&FlowKey, &Action)) {
        self.answers.entries.iter().flatten().for_each(|entry| show(&entry.key, &entry.action));
        self.flows.iter().for_each(|flow| show(&flow.key, &flow.action));
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::Frame;

    use super::*;

    fn key(port: u16) -> FlowKey {
        FlowKey { dport: port, eth_type: 0x0800, ..FlowKey::ZERO }
    }

    fn rule(port: u16, queue: u16) -> Rule {
        let mask = FlowKey { dport: 0xffff, ..FlowKey::ZERO };
        Rule { key: key(port).masked(&mask), mask, priority: 0, action: Action::queue(queue) }
    }

    #[test]
    fn a_mark_is_an_entry_or_a_flow_and_never_zero() {
        assert_eq!(of_entry(1, 0), Some(0x1_0001));
        assert_eq!(of_entry(127, ENTRIES - 1), Some(0x7f_ffff));
        assert_eq!(of_entry(1, ENTRIES), None);
        assert_eq!((of_flow(0), of_flow((1 << 23) - 1)), (Some(0x80_0000), Some(0xff_ffff)));
        assert_eq!(of_flow(1 << 23), None);
        assert_eq!((flow(0x80_0007), flow(0x7f_ffff), flow(0)), (Some(7), None, None));
        assert_eq!((next(1), next(126), next(127)), (2, 127, 1));
    }

    #[test]
    fn a_mark_of_a_split_flow_answers_if_its_key_agrees_and_its_generation_is_the_users() {
        let named = |number, generation, port| Named {
            number,
            generation,
            key: key(port).masked(&FlowKey::FLOW),
            action: Action::queue(number as u16),
        };
        let answers = Arc::new(Answers { generation: 5, entries: vec![Some(rule(80, 3))] });
        let flows = [named(9, 5, 1), named(2, 5, 2), named(4, 4, 3)];
        let mut table = Marked::new(answers).with_flows(&flows);
        assert_eq!(table.occupancy(), Some((3, ENTRIES)), "without that of another generation");
        let mut asked = |mark, port| {
            let mut batch = Batch::default();
            let mut frame = Frame::unbacked(60);
            frame.mark = mark;
            let lane = batch.push(frame, FlowKey { in_port: 6, tos: 1, ..key(port) }).unwrap();
            let missed = table.lookup(&mut batch, Lanes(1));
            missed.is_empty().then_some(batch.actions[lane].to)
        };
        let mark = |number| of_flow(number).unwrap();
        assert_eq!(asked(mark(9), 1), Some(Action::queue(9).to));
        assert_eq!(asked(mark(2), 2), Some(Action::queue(2).to));
        assert_eq!([asked(mark(2), 1), asked(mark(4), 3), asked(mark(3), 1)], [None; 3]);
        assert_eq!(asked(of_entry(5, 0).unwrap(), 80), Some(Action::queue(3).to));
    }

    #[test]
    fn a_mark_answers_only_if_its_generation_and_its_key_agree() {
        let entries = vec![Some(rule(80, 3)), None, Some(rule(53, 4))];
        let mut table = Marked::new(Arc::new(Answers { generation: 5, entries }));
        assert_eq!(table.occupancy(), Some((2, ENTRIES)));
        let mark = |generation, at| of_entry(generation, at).unwrap();
        let marks = [
            (mark(5, 0), 80, Some(3)),
            (mark(5, 2), 53, Some(4)),
            (mark(5, 0), 53, None), // another rule's frame
            (mark(4, 0), 80, None), // set before a change of the tables
            (mark(5, 1), 80, None), // an entry that is not offered
            (mark(5, 9), 80, None),
            (0, 80, None),
            (of_flow(0).unwrap(), 80, None),
            (u32::MAX, 80, None),
        ];
        let mut batch = Batch::default();
        for (mark, port, _) in marks {
            let mut frame = Frame::unbacked(60);
            frame.mark = mark;
            let lane = batch.push(frame, key(port)).unwrap();
            batch.actions[lane] = Action::queue(99);
        }
        let all = batch.lanes();
        let missed = table.lookup(&mut batch, all);
        for (lane, (mark, port, wanted)) in marks.into_iter().enumerate() {
            assert_eq!(missed.has(lane), wanted.is_none(), "{mark:#x} on port {port}");
            assert_eq!(batch.actions[lane], Action::queue(wanted.unwrap_or(99)));
        }
        // Lanes that are not asked about stay as they are.
        batch.actions[0] = Action::queue(99);
        assert_eq!(table.lookup(&mut batch, Lanes(0b10)), Lanes::NONE);
        assert_eq!(batch.actions[0], Action::queue(99));
        let mut shown = Vec::new();
        table.each(&mut |key, action| shown.push((key.dport, action.to)));
        assert_eq!(shown.len(), 2);
        assert!(Marked::default().lookup(&mut batch, Lanes(1)) == Lanes(1));
    }
}
