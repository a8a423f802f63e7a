//! Path: what of the flows that a frame meets may be kept in front of the tables, and why.
//!
//! Thread-safety: plain data.

use std::sync::Arc;

use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::flow::FlowMod;
use flowyard_openflow::port::reserved;
use flowyard_openflow::{Field, group, ofctl};

use super::{Datapath, Flow};
use crate::cache::{Ends, Path, Watch};
use crate::key::Key;
use crate::set::reveals;
use crate::why::{Answer, Rest, Why};

impl Datapath {
    /// Whether a key that went this path proves that all that agree with it do: no table but the
    /// first looks at what the key does not say.
    pub(super) fn proves(&self, path: &Path) -> bool {
        let looked = path.flows.len() + usize::from(path.miss.is_some());
        let before = path.flows.iter().take(looked.saturating_sub(1));
        before.filter_map(|number| self.flow(*number)).all(|flow| self.hides(flow).is_none())
    }

    /// What of a flow changes fields as no key tells.
    fn hides<'a>(&self, flow: &'a Flow) -> Option<&'a Instruction> {
        flow.entry.instructions.iter().find(|instruction| match instruction {
            Instruction::ApplyActions(list) => list.iter().any(reveals),
            Instruction::Meter(number) => self.world.remarks(*number),
            _ => false,
        })
    }

    /// Why frames with these fields are, or are not, offloaded. They are looked up as they would be;
    /// nothing is counted or changed.
    #[must_use]
    pub fn why(&self, key: &Key) -> Why {
        let mut key = *key;
        if !key.has(Field::Metadata) {
            key.set(Field::Metadata, 0);
        }
        let is_known = self.cache.knows(&key);
        let (mut path, mut at, mut unknown) = (Path::default(), 0, None);
        while let Some(table) = self.tables.get(usize::from(at)) {
            let Some(number) = table.lookup(&key) else {
                path.miss = Some(at);
                break;
            };
            path.flows.push(number);
            let Some(flow) = self.flow(number) else { break };
            let mut next = None;
            for instruction in &flow.entry.instructions {
                match instruction {
                    Instruction::ApplyActions(list) => {
                        for action in list {
                            match action {
                                Action::SetField(oxm) if key.has(oxm.field) => {
                                    key.set(oxm.field, oxm.value);
                                }
                                Action::Output { .. }
                                | Action::Group(_)
                                | Action::SetField(_)
                                | Action::SetQueue(_)
                                | Action::DecNwTtl
                                | Action::SetNwTtl(_) => {}
                                _ => unknown = Some(()),
                            }
                        }
                    }
                    Instruction::WriteMetadata { value, mask } => {
                        let old = key.bits(Field::Metadata) as u64;
                        key.set(Field::Metadata, (old & !mask | value & mask).into());
                    }
                    Instruction::GotoTable(to) if *to > at => next = Some(*to),
                    _ => {}
                }
            }
            let Some(to) = next else { break };
            at = to;
            if unknown.is_some() {
                break;
            }
        }
        let open = unknown.is_some()
            && path
                .flows
                .last()
                .and_then(|n| self.flow(*n))
                .is_some_and(|flow| flow.entry.table < at);
        let looked = path.flows.len() + usize::from(path.miss.is_some() || open);
        let before = path.flows.iter().take(looked.saturating_sub(1));
        let hides = before.filter_map(|number| {
            let flow = self.flow(*number)?;
            Some((flow, self.hides(flow)?))
        });
        let answer = match (hides.into_iter().next(), mapping(&self.flows, &path)) {
            _ if !self.cache.is_on() => Answer::NoCache,
            (Some((flow, does)), _) => Answer::Unproven {
                table: flow.entry.table,
                priority: flow.entry.priority,
                does: Box::new(does.clone()),
            },
            (None, _) if open => Answer::Unknown { table: at },
            (None, Some(port)) => Answer::Mapped { port },
            (None, None) if path.miss.is_some() => Answer::CachedMiss,
            (None, None) => Answer::Cached,
        };
        let word = |number: &u32| {
            let entry = &self.flow(*number)?.entry;
            Some((entry.table, entry.priority, entry.cookie))
        };
        let rest =
            self.cache.watch.rests().map(|(known, of)| Rest { one_in: Watch::ONE_IN, known, of });
        let text = |number: &u32| {
            let entry = &self.flow(*number)?.entry;
            let flow = FlowMod {
                table: entry.table,
                priority: entry.priority,
                cookie: entry.cookie,
                out_port: reserved::ANY,
                out_group: group::ANY,
                matching: entry.matching.clone(),
                instructions: entry.instructions.clone(),
                ..FlowMod::default()
            };
            let offloaded = self.offloaded(entry).unwrap_or_default().0;
            Some((ofctl::flow_mod_text(&flow), offloaded))
        };
        Why {
            path: path.flows.iter().filter_map(word).collect(),
            flows: path.flows.iter().filter_map(text).collect(),
            miss: path.miss,
            answer,
            is_known,
            rest,
        }
    }
}

fn flow(flows: &[Option<Flow>], number: u32) -> Option<&Flow> {
    flows.get(number as usize)?.as_ref()
}

/// What a path comes to.
pub(super) fn ends(flows: &[Option<Flow>], path: &Path) -> Ends {
    let port = mapping(flows, path);
    let only = match path.flows[..] {
        [number] if path.miss.is_none() => flow(flows, number),
        _ => None,
    };
    let only = only.map(|flow| (flow.entry.table, Arc::clone(&flow.entry.counts)));
    Ends { port, only }
}

/// The port, if all that a path does is to put out to one.
pub(super) fn mapping(flows: &[Option<Flow>], path: &Path) -> Option<u32> {
    let mut port = None;
    for number in &path.flows {
        for instruction in &flow(flows, *number)?.entry.instructions {
            match instruction {
                Instruction::GotoTable(_) => {}
                Instruction::WriteMetadata { .. } => {}
                Instruction::ApplyActions(list) | Instruction::WriteActions(list) => {
                    for action in list {
                        match action {
                            Action::Output { port: to, .. }
                                if port.is_none() && *to < reserved::MAX =>
                            {
                                port = Some(*to);
                            }
                            _ => return None,
                        }
                    }
                }
                _ => return None,
            }
        }
    }
    port.filter(|_| path.miss.is_none())
}
