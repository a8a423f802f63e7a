//! What actions do with a frame, as sentences for users. Nothing is sent, counted or changed.

use flowyard_openflow::act::Action;
use flowyard_openflow::group::GroupType;
use flowyard_openflow::port::{Port, reserved};
use flowyard_openflow::{Field, ofctl};

use super::World;
use crate::key::Key;
use crate::set::ActionSet;

/// The deepest chain of groups that is explained.
const DEEPEST: usize = 8;
/// The most lines of an explanation.
const LINES: usize = 256;

impl World {
    /// Appends a sentence for each output, and for each group with the bucket that it chooses. Later actions
    /// see the fields that earlier ones have set.
    pub(crate) fn explain<'a>(
        &self,
        actions: impl Iterator<Item = &'a Action>,
        key: &Key,
        depth: usize,
        lines: &mut Vec<String>,
    ) {
        let mut key = *key;
        for action in actions {
            if lines.len() >= LINES {
                return;
            }
            match action {
                Action::Output { port, .. } | Action::Enqueue { port, .. } => {
                    lines.push(self.explain_output(*port, key.bits(Field::InPort) as u32));
                }
                Action::Group(number) => self.explain_group(*number, &key, depth, lines),
                Action::SetField(oxm) if key.has(oxm.field) => key.set(oxm.field, oxm.value),
                _ => {}
            }
        }
    }

    /// A port as `2 (east)`.
    fn named(port: &Port) -> String {
        let name = port.name.0.split(|byte| *byte == 0).next().unwrap_or(&[]);
        format!("{} ({})", port.number, String::from_utf8_lossy(name))
    }

    fn explain_output(&self, number: u32, in_port: u32) -> String {
        let listed = |ports: &[u32]| {
            let others = ports.iter().filter(|port| **port != in_port);
            let names: Vec<String> =
                others.filter_map(|port| self.port(*port)).map(Self::named).collect();
            if names.is_empty() { "no port".into() } else { format!("ports {}", names.join(", ")) }
        };
        match number {
            reserved::IN_PORT => self.explain_port(in_port),
            reserved::NORMAL => "output as by a learning bridge (NORMAL)".into(),
            reserved::FLOOD => format!("output to {} (FLOOD)", listed(&self.floods)),
            reserved::ALL => format!("output to {} (ALL)", listed(&self.all)),
            reserved::CONTROLLER => "sent to the controllers".into(),
            reserved::TABLE | reserved::ANY => "no output: no frame is sent to this port".into(),
            port if port == in_port => format!(
                "no output to port {port}: the frame came from there; write IN_PORT to send it back"
            ),
            port => self.explain_port(port),
        }
    }

    fn explain_port(&self, number: u32) -> String {
        match self.port(number) {
            None => {
                let known: Vec<String> = self.ports.iter().map(|port| Self::named(port)).collect();
                format!("no output: there is no port {number}; the ports are {}", known.join(", "))
            }
            Some(port) if !Self::is_open(port) => {
                format!("no output to port {}: it is down or does not forward", Self::named(port))
            }
            Some(port) => format!("output to port {}", Self::named(port)),
        }
    }

    fn explain_group(&self, number: u32, key: &Key, depth: usize, lines: &mut Vec<String>) {
        let Some(grouping) = self.grouping(number).filter(|_| depth < DEEPEST) else {
            return lines.push(format!("no output: there is no group {number}"));
        };
        let desc = &grouping.group.desc;
        let (buckets, kind) = (&desc.buckets, ofctl::group_type(desc.kind));
        let chosen: Vec<usize> = match desc.kind {
            GroupType::All => (0..buckets.len()).collect(),
            GroupType::Indirect => (0..buckets.len().min(1)).collect(),
            GroupType::Select => self.select(buckets, key).into_iter().collect(),
            GroupType::FastFailover => {
                buckets.iter().position(|bucket| self.is_live(bucket)).into_iter().collect()
            }
        };
        if chosen.is_empty() {
            return lines.push(format!(
                "no output: group {number} ({kind}) has no bucket that is live, of {}",
                buckets.len()
            ));
        }
        for at in chosen {
            if lines.len() + 1 >= LINES {
                if lines.len() < LINES {
                    lines.push(format!("and more: only the first {} lines are printed", LINES - 1));
                }
                return;
            }
            let bucket = &buckets[at];
            let weight = match desc.kind {
                GroupType::Select => format!(" (weight {})", bucket.weight),
                _ => String::new(),
            };
            lines.push(format!(
                "group {number} ({kind}): bucket {at} of {}{weight}: {}",
                buckets.len(),
                ofctl::actions_text(&bucket.actions, &[])
            ));
            let mut set = ActionSet::default();
            bucket.actions.iter().for_each(|action| set.write(action));
            self.explain(set.actions(), key, depth + 1, lines);
        }
    }
}
