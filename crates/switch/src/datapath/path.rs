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
use crate::effects::Reason;
use crate::key::Key;
use crate::packet::{Fault, Packet};
use crate::sample;
use crate::set::{ActionSet, reveals};
use crate::why::{Answer, Rest, Why};
use crate::world::Told;

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

    /// Why frames with these fields are, or are not, offloaded. A frame with these fields goes through
    /// the tables, and each table sees what the actions of the tables before it have changed. Nothing is
    /// counted, sent, or learnt.
    #[must_use]
    pub fn why(&self, key: &Key) -> Why {
        let (frame, rest) = sample::frame(key);
        let mut packet = Packet::new(&frame, rest, Vec::new());
        if key.has(Field::Ipv6Exthdr) {
            // The sample has no extension headers.
            packet.key.set(Field::Ipv6Exthdr, key.bits(Field::Ipv6Exthdr));
        }
        let is_known = self.cache.knows(&packet.key);
        let (path, open) = self.follow(packet.branch(Vec::new()));
        let is_complete = path.miss.is_none() && open.is_none();
        let told = self.outputs(&path, packet, is_complete);
        let result = match (told.to.is_empty(), path.miss, open) {
            (false, ..) => told.to.join(", "),
            (true, Some(_), _) => "dropped (no_flow)".into(),
            (true, None, Some(_)) => "not determined by these fields".into(),
            // The outputs lead nowhere, or there is none.
            (true, None, None) => format!("dropped ({})", Reason::counted(told.reason).name()),
        };
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
            let offloaded = self.hits(*number).unwrap_or_default().0;
            Some((ofctl::flow_mod_text(&flow), offloaded))
        };
        let pause = self.cache.watch.pause();
        Why {
            path: path.flows.iter().filter_map(name).collect(),
            flows: path.flows.iter().filter_map(text).collect(),
            outputs: told.lines,
            result,
            miss: path.miss,
            answer: self.answer(&path, open, key.bits(Field::InPort) as u32),
            is_known,
            ahead: self.ahead(key),
            rest: pause.map(|(known, of)| Rest { one_in: Watch::ONE_IN, known, of }),
        }
    }

    /// The path of a packet. If an action uncovers headers that are not known, the path ends before the
    /// next table, whose number is returned with it.
    pub(super) fn follow(&self, mut packet: Packet<'_>) -> (Path, Option<u8>) {
        let (mut path, mut at, mut set) = (Path::default(), 0, ActionSet::default());
        while let Some(table) = self.tables.get(usize::from(at)) {
            let Some(number) = table.lookup(&packet.key) else {
                path.miss = Some(at);
                break;
            };
            path.flows.push(number);
            let Some(flow) = self.flow(number) else { break };
            let step = change(&flow.entry.instructions, &mut packet, &mut set);
            let Ok((next, is_determined)) = step else { break };
            let Some(to) = next.filter(|to| *to > at) else { break };
            if !is_determined {
                return (path, Some(to));
            }
            at = to;
        }
        (path, None)
    }

    /// Where the flows of a path send a packet. The action set is applied at the end of a complete path.
    fn outputs(&self, path: &Path, mut packet: Packet<'_>, is_complete: bool) -> Told {
        let (mut told, mut set) = (Told::default(), ActionSet::default());
        for flow in path.flows.iter().filter_map(|number| self.flow(*number)) {
            let instructions = &flow.entry.instructions;
            for instruction in instructions {
                if let Instruction::ApplyActions(list) = instruction {
                    self.world.explain(list.iter(), &packet.key, 0, &mut told);
                }
            }
            if change(instructions, &mut packet, &mut set).is_err() {
                let why = "no further output: the time to live has expired";
                told.nowhere(Reason::Ttl, why.into());
                return told;
            }
        }
        if is_complete {
            self.world.explain(set.actions(), &packet.key, 0, &mut told);
            if told.lines.is_empty() {
                told.lines.push("no output: the frame is dropped".into());
            }
        }
        told
    }

    /// Whether the flows of a path have nothing to do with a frame but to drop it.
    fn does_nothing(&self, path: &Path) -> bool {
        let flows = path.flows.iter().filter_map(|number| self.flow(*number));
        flows.flat_map(|flow| &flow.entry.instructions).all(|instruction| match instruction {
            Instruction::ApplyActions(list) | Instruction::WriteActions(list) => list.is_empty(),
            Instruction::Meter(_) => false,
            _ => true,
        })
    }

    /// How frames of port `in_port` that take this path are answered. `open` is the table at which the path is no
    /// longer determined by the fields.
    fn answer(&self, path: &Path, open: Option<u8>, in_port: u32) -> Answer {
        if !self.cache.is_on() {
            return Answer::NoCache;
        }
        let tables = path.flows.len() + usize::from(path.miss.is_some() || open.is_some());
        if let Some((flow, does)) = self.unproven(path, tables) {
            let (table, priority) = (flow.entry.table, flow.entry.priority);
            return Answer::Unproven { table, priority, does: Box::new(does.clone()) };
        }
        let port = mapping(&self.flows, path).and_then(|port| egress_port(port, in_port));
        match (open, port) {
            (Some(table), _) => Answer::Unknown { table },
            (None, Some(port)) if self.world.sends(port) => Answer::Mapped { port },
            (None, Some(port)) => Answer::MappedNowhere { port },
            (None, None) if path.miss.is_some() => Answer::CachedMiss,
            (None, None) if self.does_nothing(path) => Answer::CachedDrop,
            (None, None) => Answer::Cached,
        }
    }
}

/// Applies to a packet what instructions change, in their order (1.3.5, section 5.9). Returns the next
/// table, and whether the headers of the packet are still known. A frame whose TTL expires goes no
/// further.
fn change(
    instructions: &[Instruction],
    packet: &mut Packet<'_>,
    set: &mut ActionSet,
) -> Result<(Option<u8>, bool), Fault> {
    let (mut next, mut is_determined) = (None, true);
    let applied = instructions.iter().filter_map(|one| match one {
        Instruction::ApplyActions(list) => Some(list),
        _ => None,
    });
    for action in applied.flatten() {
        let before = packet.key;
        packet.change(action)?;
        // The only tag of the frame can be removed: there is no other header below it.
        let is_tag = matches!(action, Action::PopVlan | Action::StripVlan);
        is_determined &= packet.key == before || is_tag || !reveals(action);
    }
    if instructions.contains(&Instruction::ClearActions) {
        set.clear();
    }
    for instruction in instructions {
        match instruction {
            Instruction::WriteActions(list) => list.iter().for_each(|action| set.write(action)),
            Instruction::WriteMetadata { value, mask } => packet.key.write_metadata(*value, *mask),
            Instruction::GotoTable(table) => next = Some(*table),
            _ => {}
        }
    }
    if let Some(port) = set.output() {
        packet.key.set(Field::ActsetOutput, port.into());
    }
    Ok((next, is_determined))
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

/// The output port or `IN_PORT`, if a path only sends the frame to one port.
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
                                if port.is_none()
                                    && (*to < reserved::MAX || *to == reserved::IN_PORT) =>
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

/// The port by which a frame of `in_port` leaves that is output to `port`, a port or `IN_PORT`. A frame returns to its
/// port only by `IN_PORT` (OpenFlow 1.5.1, section 4.5).
#[inline]
pub(super) const fn egress_port(port: u32, in_port: u32) -> Option<u32> {
    if port == reserved::IN_PORT {
        Some(in_port)
    } else if port == in_port {
        None
    } else {
        Some(port)
    }
}
