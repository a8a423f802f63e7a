//! What actions do with a frame, as sentences for users. Nothing is sent, counted or changed.

use flowyard_openflow::act::Action;
use flowyard_openflow::group::GroupType;
use flowyard_openflow::port::{Port, reserved};
use flowyard_openflow::{Field, ofctl};

use super::World;
use crate::effects::Reason;
use crate::key::Key;
use crate::set::ActionSet;

/// The deepest chain of groups that is explained.
const DEEPEST: usize = 8;
/// The most lines of an explanation.
const LINES: usize = 256;

/// The explanation of one frame.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// A sentence for each output, and for each group with the bucket that it chooses.
    pub(crate) lines: Vec<String>,
    /// Where the frame leaves, as `port 2 (east)`.
    pub(crate) to: Vec<String>,
    /// Why the first of the other outputs leads nowhere.
    pub(crate) reason: Option<Reason>,
}

impl Told {
    /// A sentence about an output that leads nowhere.
    pub(crate) fn nowhere(&mut self, reason: Reason, why: String) {
        self.reason.get_or_insert(reason);
        self.lines.push(why);
    }

    /// An output to this place. `how` is the name of the port if it is a reserved one.
    fn leaves(&mut self, to: String, how: &str) {
        self.lines.push(format!("output to {to}{how}"));
        self.to.push(to);
    }
}

impl World {
    /// Tells each output, and each group with the bucket that it chooses. Later actions see the fields that
    /// earlier ones have set.
    pub(crate) fn explain<'a>(
        &self,
        actions: impl Iterator<Item = &'a Action>,
        key: &Key,
        depth: usize,
        told: &mut Told,
    ) {
        let mut key = *key;
        for action in actions {
            if told.lines.len() >= LINES {
                return;
            }
            match action {
                Action::Output { port, .. } | Action::Enqueue { port, .. } => {
                    self.explain_output(*port, &key, told);
                }
                Action::Group(number) => self.explain_group(*number, &key, depth, told),
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

    fn explain_output(&self, number: u32, key: &Key, told: &mut Told) {
        let in_port = key.bits(Field::InPort) as u32;
        match number {
            reserved::IN_PORT => self.explain_port(in_port, "", told),
            reserved::NORMAL => self.explain_normal(key, in_port, told),
            reserved::FLOOD => self.explain_ports(&self.floods, in_port, " (FLOOD)", told),
            reserved::ALL => self.explain_ports(&self.all, in_port, " (ALL)", told),
            reserved::CONTROLLER => {
                told.lines.push("sent to the controllers".into());
                told.to.push("the controllers".into());
            }
            reserved::TABLE | reserved::ANY => {
                told.nowhere(Reason::NoOutput, "no output: no frame is sent to this port".into());
            }
            port if port == in_port => told.nowhere(Reason::Filtered, format!(
                "no output to port {port}: the frame came from there; write IN_PORT to send it back"
            )),
            port => self.explain_port(port, "", told),
        }
    }

    /// All of these ports but the one that received the frame.
    fn explain_ports(&self, ports: &[u32], in_port: u32, how: &str, told: &mut Told) {
        let others = ports.iter().filter(|port| **port != in_port);
        let names: Vec<String> =
            others.filter_map(|port| self.port(*port)).map(Self::named).collect();
        match names.len() {
            0 => told.nowhere(
                Reason::Filtered,
                format!("no output{how}: there is no other port that is up"),
            ),
            1 => told.leaves(format!("port {}", names[0]), how),
            _ => told.leaves(format!("ports {}", names.join(", ")), how),
        }
    }

    /// As a learning bridge: to the port of the station, or to all others. Every core has its own table of
    /// stations.
    fn explain_normal(&self, key: &Key, in_port: u32, told: &mut Told) {
        let bytes = (key.bits(Field::EthDst) as u64).to_be_bytes();
        let mac: [u8; 6] = std::array::from_fn(|at| bytes[at + 2]);
        if mac == [0; 6] {
            let how = " (NORMAL: dl_dst is not given, so the station is taken as unknown)";
            return self.explain_ports(&self.floods, in_port, how, told);
        }
        if matches!(mac, [1, 0x80, 0xc2, 0, 0, 0..=15]) {
            return told.nowhere(
                Reason::Filtered,
                "no output (NORMAL): a bridge never forwards this destination".into(),
            );
        }
        let vlan = key.bits(Field::VlanVid) as u16 & 0xfff;
        match self.stations.get(&mac, vlan).map(u32::from) {
            Some(port) if port == in_port => told.nowhere(
                Reason::Filtered,
                format!(
                    "no output (NORMAL): the station is at port {port}, which received the frame"
                ),
            ),
            Some(port) => self.explain_port(port, " (NORMAL: the station was seen there)", told),
            None if mac[0] & 1 != 0 => {
                self.explain_ports(&self.floods, in_port, " (NORMAL: a group address)", told);
            }
            None => self.explain_ports(
                &self.floods,
                in_port,
                " (NORMAL: the station is not known)",
                told,
            ),
        }
    }

    fn explain_port(&self, number: u32, how: &str, told: &mut Told) {
        match self.port(number) {
            None => {
                let known: Vec<String> = self.ports.iter().map(|port| Self::named(port)).collect();
                told.nowhere(
                    Reason::Filtered,
                    format!(
                        "no output: there is no port {number}; the ports are {}",
                        known.join(", ")
                    ),
                );
            }
            Some(port) if !Self::is_open(port) => told.nowhere(
                Reason::Filtered,
                format!("no output to port {}: it is down or does not forward", Self::named(port)),
            ),
            Some(port) => told.leaves(format!("port {}", Self::named(port)), how),
        }
    }

    fn explain_group(&self, number: u32, key: &Key, depth: usize, told: &mut Told) {
        let Some(grouping) = self.grouping(number).filter(|_| depth < DEEPEST) else {
            return told
                .nowhere(Reason::NoOutput, format!("no output: there is no group {number}"));
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
            return told.nowhere(
                Reason::NoOutput,
                format!(
                    "no output: group {number} ({kind}) has no bucket that is live, of {}",
                    buckets.len()
                ),
            );
        }
        for at in chosen {
            if told.lines.len() + 1 >= LINES {
                if told.lines.len() < LINES {
                    let why = format!("and more: only the first {} lines are printed", LINES - 1);
                    told.lines.push(why);
                }
                return;
            }
            let bucket = &buckets[at];
            let weight = match desc.kind {
                GroupType::Select => format!(" (weight {})", bucket.weight),
                _ => String::new(),
            };
            told.lines.push(format!(
                "group {number} ({kind}): bucket {at} of {}{weight}: {}",
                buckets.len(),
                ofctl::actions_text(&bucket.actions, &[])
            ));
            let mut set = ActionSet::default();
            bucket.actions.iter().for_each(|action| set.write(action));
            self.explain(set.actions(), key, depth + 1, told);
        }
    }
}
