//! Probes: frames of chosen flows, sent to the interface from another one, so that it is seen where each comes.
//!
//! ```text
//!  what ──> Probe: flow, entry ──frame──> another interface ──> adapter ──> queue's counter, packet sockets
//!                                                                                └─ rounds ──> Landed
//! ```
//!
//! Counters of a queue count everything that it receives. A flow is sent in rounds of different numbers of frames:
//! only the queue whose counter follows these numbers received it. Packet sockets see the flow itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowyard_frame::{FlowKey, Rng, proto};

use crate::card::{Card, Place};
use crate::plan::Plan;
use crate::setting::{Setting, Settings, table};

mod frame;

/// Frames of a round: at least twice those of the round before, so that traffic which follows one does not follow
/// the next.
pub const ROUNDS: [u64; 4] = [8, 24, 72, 216];

/// Flows that are tried for each entry of a table, before an entry is given up.
const TRIES: usize = 200;

/// The receive queue whose frames a driver's counter of this name counts; `None` if it counts something else.
#[must_use]
pub fn queue_of(name: &str) -> Option<u32> {
    crate::state::counters::queue_of(name)
}

/// A flow that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The flow.
    pub flow: FlowKey,
    /// The entry of the indirection table that it was chosen for.
    pub entry: Option<usize>,
}

impl Probe {
    /// A probe with this flow.
    ///
    /// # Errors
    /// In words: the flow cannot be sent.
    pub fn of(flow: FlowKey) -> Result<Self, String> {
        let is_sent = matches!(flow.proto, proto::TCP | proto::UDP | proto::SCTP);
        if !is_sent || !flow.is_ip() || flow.frag != 0 || flow.vlan_tci != 0 {
            return Err(format!(
                "{flow}: only flows of TCP, UDP and SCTP without a VLAN can be probed"
            ));
        }
        Ok(Self { flow, entry: None })
    }

    /// The frame, whose TCP, UDP or SCTP checksum is wrong: the host that receives it delivers it to no socket, and
    /// answers nothing.
    #[must_use]
    pub fn frame(&self, to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
        frame::frame(&self.flow, to, from)
    }
}

/// A probe for each of `entries` of the indirection table. They come from the addresses 198.18.0.0/15, which are
/// for tests (RFC 2544), to `address`.
///
/// # Errors
/// In words: the queues are not predictable, or no flow was found for an entry.
pub fn for_entries(card: &Card, entries: &[usize], address: IpAddr) -> Result<Vec<Probe>, String> {
    if card.entry(&from(1, address)).is_none() {
        let why = card.why_not().unwrap_or("the interface has one queue");
        return Err(format!("there are no entries to probe: {why}"));
    }
    let mut missing: BTreeSet<usize> = entries.iter().copied().collect();
    let (mut probes, mut random) = (Vec::new(), Rng::new(1));
    for _ in 0..TRIES * entries.len().max(64) {
        if missing.is_empty() {
            break;
        }
        let flow = from(random.bits(), address);
        if let Some(entry) = card.entry(&flow)
            && missing.remove(&entry)
        {
            probes.push(Probe { flow, entry: Some(entry) });
        }
    }
    probes.sort_by_key(|probe| probe.entry);
    match missing.first() {
        None => Ok(probes),
        Some(entry) => Err(format!(
            "no flow was found whose hash selects entry {entry} of the table: probe flows instead of entries"
        )),
    }
}

/// A UDP or TCP flow to `address`.
fn from(number: u64, address: IpAddr) -> FlowKey {
    let source: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::from(198 << 24 | 18 << 16 | (number as u32 & 0x1_ffff)).into(),
        // 2001:2::/48, RFC 5180
        IpAddr::V6(_) => {
            let host = u128::from(number & 0xffff_ffff);
            Ipv6Addr::from(0x2001_0002_u128 << 96 | host).into()
        }
    };
    let protocol = if number & 1 << 40 == 0 { proto::UDP } else { proto::TCP };
    let port = |shift: u32| 1024 + ((number >> shift) % 60_000) as u16;
    FlowKey::five_tuple(protocol, source, port(41), address, port(20))
}

/// The entries of the table whose queue a plan changes; all of them, if it changes what entries mean, or no entry.
#[must_use]
pub fn entries_of(plan: &Plan, now: &Settings) -> Vec<usize> {
    let all = |text: &String| table(text).unwrap_or_default();
    let today = now.get(&Setting::Table).map(all).unwrap_or_default();
    let is_other = |setting: &Setting| {
        matches!(setting, Setting::Channels | Setting::Key | Setting::Fields(_))
    };
    let old = plan.made_for.get(&Setting::Table).map(all).unwrap_or_default();
    let new = plan.steps.iter().rfind(|step| step.setting == Setting::Table);
    let new = new.map(|step| all(&step.to)).unwrap_or_default();
    let every = || (0..today.len()).collect();
    if plan.steps.iter().any(|step| is_other(&step.setting)) || old.len() != new.len() {
        return every();
    }
    let changed: Vec<usize> = (0..old.len()).filter(|&entry| old[entry] != new[entry]).collect();
    if changed.is_empty() { every() } else { changed }
}

/// A round: the frames that were sent, and by how much the counter of each queue grew.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Frames that were sent.
    pub sent: u64,
    /// By receive queue.
    pub grown: BTreeMap<u32, u64>,
}

/// What the counters say about a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// It came to this queue.
    Queue(u32),
    /// No counter grew by as much as was sent.
    Lost,
    /// Other traffic hides it; another round may show it.
    Hidden,
    /// The driver has no counter for each queue.
    Nothing,
}

/// What the counters of these rounds of one probe say.
#[must_use]
pub fn counted(rounds: &[Round]) -> Counted {
    let Some(last) = rounds.last() else { return Counted::Nothing };
    if last.grown.is_empty() {
        return Counted::Nothing;
    }
    // Without other traffic, one round is enough.
    let mut exact = last.grown.iter().filter(|(_, grown)| **grown > 0);
    if let (Some((&queue, &grown)), None) = (exact.next(), exact.next())
        && grown == last.sent
    {
        return Counted::Queue(queue);
    }
    if rounds.iter().all(|round| round.grown.values().all(|grown| 2 * grown <= round.sent)) {
        return Counted::Lost;
    }
    // Some frames may be lost, and others come: two rounds in which one counter alone follows what was sent.
    let follows = |round: &Round| {
        let mut most = round.grown.iter().filter(|(_, grown)| 2 * **grown > round.sent);
        let (queue, grown) = most.next()?;
        let is_quiet = |(other, grown): (&u32, &u64)| other == queue || 4 * grown <= round.sent;
        let is_alone = most.next().is_none() && 4 * grown <= 5 * round.sent;
        (is_alone && round.grown.iter().all(is_quiet)).then_some(*queue)
    };
    let found: Vec<u32> = rounds.iter().filter_map(follows).collect();
    match found[..] {
        [.., one, other] if one == other => Counted::Queue(other),
        _ => Counted::Hidden,
    }
}

/// Where a probe came.
#[derive(Clone, Debug, Default)]
pub struct Landed {
    /// Frames that were sent.
    pub sent: u64,
    /// Its rounds, if the driver has counters.
    pub rounds: Vec<Round>,
    /// The receive queues on which packet sockets saw it.
    pub queues: BTreeSet<u32>,
    /// The CPUs on which packet sockets saw it.
    pub cpus: BTreeSet<u32>,
}

/// The result of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It came where it was predicted.
    Predicted,
    /// It came elsewhere; where.
    Elsewhere(String),
    /// Nothing shows where it came; why.
    Undecided(String),
}

impl Landed {
    /// Compares with the prediction of `card`. CPUs are compared if RFS does not choose them.
    #[must_use]
    pub fn verdict(&self, card: &Card, flow: &FlowKey, with_cpus: bool) -> Verdict {
        let counted = counted(&self.rounds);
        let mut compared = false;
        if let Some(expected) = card.queue(flow) {
            let by_counter = match counted {
                Counted::Queue(queue) => Some(queue),
                _ => None,
            };
            let wrong = self.queues.iter().copied().chain(by_counter).find(|one| *one != expected);
            if let Some(queue) = wrong {
                return Verdict::Elsewhere(format!("queue {queue}"));
            }
            compared |= by_counter.is_some() || !self.queues.is_empty();
        }
        let cpus = match card.place(flow) {
            Place::Cpu(cpu) => vec![cpu],
            Place::OneOf(cpus) => cpus,
            Place::Unknown => Vec::new(),
        };
        if with_cpus && !cpus.is_empty() {
            if let Some(cpu) = self.cpus.iter().find(|cpu| !cpus.contains(cpu)) {
                return Verdict::Elsewhere(format!("CPU {cpu}"));
            }
            // That it came to the right CPU shows its queue only if the queue is not asked for.
            compared |= card.queue(flow).is_none() && !self.cpus.is_empty();
        }
        if compared {
            return Verdict::Predicted;
        }
        Verdict::Undecided(
            match (counted, card.queue(flow)) {
                _ if self.cpus.is_empty() && counted != Counted::Hidden => {
                    "the frames did not arrive: is the interface that sends them connected to this one?"
                }
                (_, None) => "neither its queue nor its CPU is predictable",
                (Counted::Hidden, _) => {
                    "other traffic hides it in the counters, and the driver does not store the queue of frames"
                }
                _ => "the driver has no counter for each queue, and does not store the queue of frames",
            }
            .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::goal::{Goal, plan};
    use crate::setting::settings_of;
    use crate::state::State;
    use crate::traffic::Traffic;

    fn card() -> (State, Card) {
        let state = State::read(&Fake::virtio(), "eth0").unwrap();
        let card = Card::new(&state, &settings_of(&state));
        (state, card)
    }

    fn round(sent: u64, grown: [u64; 4]) -> Round {
        Round { sent, grown: (0..).zip(grown).collect() }
    }

    #[test]
    fn every_entry_has_a_flow() {
        let (_, card) = card();
        for address in ["10.0.0.1", "fd00::1"] {
            let all: Vec<usize> = (0..128).collect();
            let probes = for_entries(&card, &all, address.parse().unwrap()).unwrap();
            assert_eq!(probes.len(), 128);
            for (entry, probe) in probes.iter().enumerate() {
                assert_eq!((probe.entry, card.entry(&probe.flow)), (Some(entry), Some(entry)));
            }
        }
        let state = State::read(&Fake::veth(), "eth0").unwrap();
        let card = Card::new(&state, &settings_of(&state));
        assert!(for_entries(&card, &[0], "10.0.0.1".parse().unwrap()).is_err());
    }

    #[test]
    fn a_plan_names_its_entries() {
        let (state, _) = card();
        let now = settings_of(&state);
        let mut plan = plan(&state, &Goal::Symmetric, &Traffic::default(), "test");
        assert_eq!(entries_of(&plan, &now).len(), 128);
        let mut changed = state.rss.value().unwrap().table.clone();
        changed[5] = 3;
        changed[100] = 2;
        plan.steps[0].setting = Setting::Table;
        plan.steps[0].to = crate::setting::table_text(&changed);
        plan.steps.truncate(1);
        assert_eq!(entries_of(&plan, &now), [5, 100]);
    }

    #[test]
    fn counters_tell_a_probe_from_other_traffic() {
        let mut none = round(8, [0; 4]);
        none.grown.clear();
        assert_eq!(counted(&[none]), Counted::Nothing);
        assert_eq!(counted(&[round(8, [0, 8, 0, 0])]), Counted::Queue(1));
        assert_eq!(counted(&[round(8, [0, 0, 0, 0])]), Counted::Lost);
        // Eight frames of others on another queue: the next round shows which queue follows.
        let hidden = round(8, [8, 8, 0, 0]);
        assert_eq!(counted(std::slice::from_ref(&hidden)), Counted::Hidden);
        let [second, third] = [round(24, [3, 26, 0, 1]), round(72, [9, 73, 0, 1])];
        assert_eq!(counted(&[hidden.clone(), second.clone()]), Counted::Hidden);
        assert_eq!(counted(&[hidden, second, third]), Counted::Queue(1));
        // One lost frame is no reason for doubt, if two rounds agree.
        assert_eq!(counted(&[round(8, [0, 0, 7, 0]), round(24, [0, 0, 23, 0])]), Counted::Queue(2));
        // Traffic that is more than what was sent hides it.
        let much =
            [round(8, [500, 8, 0, 0]), round(24, [500, 24, 0, 0]), round(72, [500, 72, 9, 9])];
        assert_eq!(counted(&much), Counted::Hidden);
        // A counter that grows by as much whatever is sent is not the probe's.
        assert_eq!(counted(&[round(8, [10, 0, 0, 0]), round(24, [10, 0, 0, 0])]), Counted::Hidden);
    }

    #[test]
    fn verdicts() {
        let (_, card) = card();
        let probe = for_entries(&card, &[9], "10.0.0.1".parse().unwrap()).unwrap()[0];
        let (flow, queue) = (&probe.flow, card.queue(&probe.flow).unwrap());
        let mut landed = Landed { sent: 8, ..Landed::default() };
        let undecided =
            |landed: &Landed| matches!(landed.verdict(&card, flow, true), Verdict::Undecided(_));
        assert!(undecided(&landed));
        let mut grown = [0; 4];
        grown[queue as usize] = 8;
        landed.rounds.push(round(8, grown));
        landed.cpus.insert(queue);
        assert_eq!(landed.verdict(&card, flow, true), Verdict::Predicted);
        landed.cpus.insert((queue + 1) % 4);
        let elsewhere = Verdict::Elsewhere(format!("CPU {}", (queue + 1) % 4));
        assert_eq!(landed.verdict(&card, flow, true), elsewhere);
        assert_eq!(landed.verdict(&card, flow, false), Verdict::Predicted);
        grown.rotate_right(1);
        landed.rounds = vec![round(8, grown)];
        let elsewhere = Verdict::Elsewhere(format!("queue {}", (queue + 1) % 4));
        assert_eq!(landed.verdict(&card, flow, false), elsewhere);
        landed.rounds = vec![round(8, [8, 8, 8, 8])];
        assert!(undecided(&Landed { cpus: [queue].into(), ..landed.clone() }));
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        for text in ["icmp 10.0.0.1 > 10.0.0.2", "tcp 10.0.0.1:1 > 10.0.0.2:2 vlan 5"] {
            assert!(Probe::of(text.parse().unwrap()).is_err(), "{text}");
        }
        assert!(Probe::of("sctp 10.0.0.1:1 > 10.0.0.2:2".parse().unwrap()).is_ok());
    }
}
