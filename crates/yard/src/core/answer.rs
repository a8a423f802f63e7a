//! Answers of a core to questions from outside, between two batches.
//!
//! Thread-safety: belongs to a core.

use flowyard_flow::learn::elephant::Seen;

use flowyard_frame::Nanos;

use super::Core;
use super::parts::{LEARNT, MARKED, PROMOTED, RULES, USER};
use crate::question::{Answer, Ask, Question, TableState, Tables};

impl Core {
    /// Answers, unless the caller has gone.
    #[cold]
    pub(crate) fn answer(&mut self, ask: Ask, now: Nanos) {
        let Ask { question, reply } = ask;
        let answer = match question {
            Question::Alive => Answer::Done,
            Question::Tables { entries } => Answer::Tables(Box::new(self.tables(entries))),
            Question::Stages => Answer::Stages(Box::new(self.stages())),
            Question::Drops => Answer::Drops(self.observers.tracer.drops()),
            Question::Follow(filter) => {
                self.observers.tracer.follow(filter);
                Answer::Done
            }
            Question::Sample(sampler) => {
                self.observers.tracer.sample(Some(sampler));
                Answer::Done
            }
            Question::Seen => {
                let mut seen = Seen::default();
                if let Some(mut sampler) = self.observers.tracer.sample(None) {
                    sampler.window(&mut seen);
                }
                Answer::Seen(Box::new(seen))
            }
            Question::Work(question) => Answer::Work(self.server.work.ask(&*question)),
            Question::Descriptors => Answer::Descriptors(self.descriptors()),
            Question::State => Answer::State(self.state(now)),
        };
        self.publish(); // the caller also expects current counters
        let _gone = reply.try_send((self.id, answer));
    }

    fn tables(&mut self, most: usize) -> Tables {
        let entry = &mut self.entry;
        let hits = entry.steer.hits().to_vec();
        let mut front = Vec::new();
        for (at, &hits) in hits.iter().enumerate() {
            let Some(table) = entry.steer.table(at) else { continue };
            let name = match at {
                USER => "exact".into(),
                LEARNT => "learnt".into(),
                RULES => "rules".into(),
                PROMOTED => "promoted".into(),
                MARKED if entry.marks.is_none() => continue,
                MARKED => "marked".into(),
                _ => format!("table {at}"),
            };
            let (entries, capacity) = table.occupancy().unzip();
            let mut listed = Vec::new();
            table.each(&mut |key, action| {
                if listed.len() < most {
                    listed.push((*key, *action));
                }
            });
            front.push(TableState { name, entries, capacity, hits, listed });
        }
        front.extend(self.server.work.table(most).map(|table| TableState {
            name: table.name.into(),
            entries: Some(table.entries),
            capacity: Some(table.capacity),
            hits: table.hits,
            listed: table.listed,
        }));
        Tables {
            receives: !entry.ports.is_empty() || !entry.ended.is_empty(),
            front,
            spread: entry.steer.spread.entries().to_vec(),
            spread_hits: hits.last().copied().unwrap_or(0),
        }
    }
}
