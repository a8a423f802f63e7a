//! Path: which flows a frame matches, whether the cache may keep them, and why.
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
use crate::set::{ActionSet, reveals};
use crate::why::{Answer, Rest, Why};

impl Datapath {
    /// Whether every frame with an equal key takes this path: each table but the first looks only at
    /// fields that the key determines.
    pub(super) fn proves(&self, path: &Path) -> bool {
        let tables = path.flows.len() + usize::from(path.miss.is_some());
        self.unproven(path, tables).is_none()
    }

    /// The first flow on the path that changes the key in a way which the key of the received frame does
    /// not determine, if a later table is looked up. `tables` is the number of tables that are looked up.
    fn unproven(&self, path: &Path, tables: usize) -> Option<(&Flow, &Instruction)> {
        let before = path.flows.iter().take(tables.saturating_sub(1));
        before.filter_map(|number| self.flow(*number)).find_map(|flow| {
            let hides = |instruction: &&Instruction| match instruction {
                Instruction::ApplyActions(list) => list.iter().any(reveals),
                Instruction::Meter(number) => self.world.remarks(*number),
                _ => false,
            };
            Some((flow, flow.entry.instructions.iter().find(hides)?))
        })
    }

    /// Why frames with these fields are, or are not, offloaded. The fields are looked up as those of a
    /// frame are; nothing is counted or changed.
    #[must_use]
    pub fn why(&self, key: &Key) -> Why {
        let mut key = *key;
        if !key.has(Field::Metadata) {
            key.set(Field::Metadata, 0);
        }
        let is_known = self.cache.knows(&key);
        let (path, open) = self.follow(key);
        let is_complete = path.miss.is_none() && open.is_none();
        let outputs = self.outputs(&path, key, is_complete);
        let name = |number: &u32| {
            let entry = &self.flow(*number)?.entry;
            Some((entry.table, entry.priority, entry.cookie))
        };
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
        let pause = self.cache.watch.pause();
        Why {
            path: path.flows.iter().filter_map(name).collect(),
            flows: path.flows.iter().filter_map(text).collect(),
            outputs,
            miss: path.miss,
            answer: self.answer(&path, open),
            is_known,
            rest: pause.map(|(known, of)| Rest { one_in: Watch::ONE_IN, known, of }),
        }
    }

    /// The path of a frame with these fields. If an action makes the next lookup depend on bytes that the
    /// fields do not include, the path ends there, and the number of the next table is returned with it.
    fn follow(&self, mut key: Key) -> (Path, Option<u8>) {
        let (mut path, mut at) = (Path::default(), 0);
        while let Some(table) = self.tables.get(usize::from(at)) {
            let Some(number) = table.lookup(&key) else {
                path.miss = Some(at);
                break;
            };
            path.flows.push(number);
            let Some(flow) = self.flow(number) else { break };
            let (next, is_determined) = change_key(&flow.entry.instructions, &mut key);
            let Some(to) = next.filter(|to| *to > at) else { break };
            if !is_determined {
                return (path, Some(to));
            }
            at = to;
        }
        (path, None)
    }

    /// Where the flows of a path send a frame with these fields. The action set is applied at the end of a
    /// complete path.
    fn outputs(&self, path: &Path, mut key: Key, is_complete: bool) -> Vec<String> {
        let (mut lines, mut set) = (Vec::new(), ActionSet::default());
        for flow in path.flows.iter().filter_map(|number| self.flow(*number)) {
            let instructions = &flow.entry.instructions;
            for instruction in instructions {
                match instruction {
                    Instruction::ApplyActions(list) => {
                        self.world.explain(list.iter(), &key, 0, &mut lines);
                    }
                    Instruction::ClearActions => set.clear(),
                    Instruction::WriteActions(list) => list.iter().for_each(|one| set.write(one)),
                    _ => {}
                }
            }
            change_key(instructions, &mut key);
        }
        if is_complete {
            self.world.explain(set.actions(), &key, 0, &mut lines);
            if lines.is_empty() {
                lines.push("no output: the frame is dropped".into());
            }
        }
        lines
    }

    /// How frames that take this path are answered. `open` is the table at which the path is no longer
    /// determined by the fields.
    fn answer(&self, path: &Path, open: Option<u8>) -> Answer {
        if !self.cache.is_on() {
            return Answer::NoCache;
        }
        let tables = path.flows.len() + usize::from(path.miss.is_some() || open.is_some());
        if let Some((flow, does)) = self.unproven(path, tables) {
            let (table, priority) = (flow.entry.table, flow.entry.priority);
            return Answer::Unproven { table, priority, does: Box::new(does.clone()) };
        }
        match (open, mapping(&self.flows, path)) {
            (Some(table), _) => Answer::Unknown { table },
            (None, Some(port)) if self.world.sends(port) => Answer::Mapped { port },
            (None, Some(port)) => Answer::MappedNowhere { port },
            (None, None) if path.miss.is_some() => Answer::CachedMiss,
            (None, None) => Answer::Cached,
        }
    }
}

/// Applies to `key` what instructions do to the fields of a frame. Returns the next table, and whether the
/// key still has every field that a table may look at.
fn change_key(instructions: &[Instruction], key: &mut Key) -> (Option<u8>, bool) {
    let (mut next, mut is_determined) = (None, true);
    for instruction in instructions {
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
                        _ => is_determined = false,
                    }
                }
            }
            Instruction::WriteMetadata { value, mask } => key.write_metadata(*value, *mask),
            Instruction::GotoTable(table) => next = Some(*table),
            _ => {}
        }
    }
    (next, is_determined)
}

fn flow(flows: &[Option<Flow>], number: u32) -> Option<&Flow> {
    flows.get(number as usize)?.as_ref()
}

/// The result of a path, as the cache keeps it.
pub(super) fn ends(flows: &[Option<Flow>], path: &Path) -> Ends {
    let port = mapping(flows, path);
    let only = match path.flows[..] {
        [number] if path.miss.is_none() => flow(flows, number),
        _ => None,
    };
    let only = only.map(|flow| (flow.entry.table, Arc::clone(&flow.entry.counts)));
    Ends { port, only }
}

/// The output port, if a path only sends the frame to one port.
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
