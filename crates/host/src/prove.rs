//! Compares where frames were received and processed with the prediction, flow by flow.
//!
//! A packet socket for each receive queue and for each CPU, with a filter in the kernel, shows which queue the
//! driver received a frame on and which CPU processes it, after RPS and RFS. So each flow is compared, and frames
//! at the beginning and the end of the time cannot be counted on one side only. The driver's counters are
//! reported beside them.

use std::collections::BTreeMap;

use flowyard_frame::FlowKey;
use schemars::JsonSchema;
use serde::Serialize;

use crate::card::{Card, Place};
use crate::probe::{Landed, Probe, Verdict};
use crate::setting::{Setting, Settings};
use crate::state::State;
use crate::traffic::Traffic;

/// The traffic that was seen, by queue and by CPU.
#[derive(Debug, Default)]
pub struct Seen {
    /// By receive queue, of the drivers that store it.
    pub queues: BTreeMap<u32, Traffic>,
    /// By CPU.
    pub cpus: BTreeMap<u32, Traffic>,
    /// Frames for which a socket had no room.
    pub lost: u32,
}

/// The result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Proof {
    /// The interface.
    pub interface: String,
    /// Received frames that were seen.
    pub frames: u64,
    /// Received flows that were seen.
    pub flows: u64,
    /// Frames for which there was no room; they are compared with nothing.
    pub lost: u32,
    /// Whether every frame with a prediction came where it was predicted, and there was one.
    pub agrees: bool,
    /// By receive queue.
    pub queues: Vec<QueueProof>,
    /// By CPU.
    pub cpus: Vec<CpuProof>,
    /// Flows that were received or processed elsewhere, those with the most frames first; at most 100.
    pub differing: Vec<FlowProof>,
    /// Number of such flows.
    pub differing_flows: u64,
    /// The probes, in the order in which they were sent; none without `--probe`.
    pub probes: Vec<ProbeProof>,
    /// What could not be compared, and why.
    pub notes: Vec<String>,
}

/// A probe.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProbeProof {
    /// The flow.
    pub flow: String,
    /// The entry of the indirection table that it was chosen for; `null` if it was named.
    pub entry: Option<usize>,
    /// Frames that were sent.
    pub sent: u64,
    /// Where it was predicted, such as `queue 3`.
    pub predicted: String,
    /// Where it came; `null` if that cannot be decided.
    pub seen: Option<String>,
    /// Why it cannot be decided; `null` if it can.
    pub undecided: Option<String>,
}

/// A receive queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QueueProof {
    /// Its number.
    pub queue: u32,
    /// Frames that were predicted for it; `null` if queues are not predictable.
    pub predicted: Option<u64>,
    /// Frames that the kernel saw from it.
    pub seen: u64,
    /// Frames that the driver's counter counted from the beginning to the end; `null` without a counter.
    pub counted: Option<u64>,
}

/// A CPU.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CpuProof {
    /// Its number.
    pub cpu: u32,
    /// Frames that were predicted for it, an expected value where a secret hash decides; `null` if nothing is
    /// predicted.
    pub predicted: Option<f64>,
    /// Frames that it processed.
    pub seen: u64,
}

/// A flow that was received or processed elsewhere.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowProof {
    /// The flow.
    pub flow: String,
    /// Its frames there.
    pub frames: u64,
    /// Where it was predicted, such as `queue 3`.
    pub predicted: String,
    /// Where it came.
    pub seen: String,
}

const MOST: usize = 100;

/// Whether RFS may choose the CPUs.
fn has_rfs(settings: &Settings) -> bool {
    let is_on = |value: &String| value != "0";
    let has_flows =
        |(one, value): (&Setting, &String)| matches!(one, Setting::FlowCount(_)) && is_on(value);
    settings.get(&Setting::SockFlows).is_none_or(is_on) && settings.iter().any(has_flows)
}

/// Where a flow is predicted.
fn predicted(card: &Card, flow: &FlowKey) -> String {
    match (card.queue(flow), card.place(flow)) {
        (Some(queue), _) => format!("queue {queue}"),
        (None, Place::Cpu(cpu)) => format!("CPU {cpu}"),
        (None, Place::OneOf(cpus)) => format!("one of CPUs {}", crate::cpus::list(&cpus)),
        (None, Place::Unknown) => "not predictable".to_owned(),
    }
}

impl Proof {
    /// Compares what was seen with what `card` predicts. `counted` is the increase of the driver's counters.
    #[must_use]
    pub fn new(
        state: &State,
        settings: &Settings,
        seen: &Seen,
        counted: &BTreeMap<u32, u64>,
    ) -> Self {
        let card = Card::new(state, settings);
        let mut proof = Self {
            interface: state.interface.clone(),
            frames: seen.cpus.values().map(Traffic::frames).sum(),
            flows: seen.cpus.values().map(|one| one.flows().len() as u64).sum(),
            lost: seen.lost,
            agrees: false,
            queues: Vec::new(),
            cpus: Vec::new(),
            differing: Vec::new(),
            differing_flows: 0,
            probes: Vec::new(),
            notes: Vec::new(),
        };
        let compared = proof.by_queue(&card, seen, counted) + proof.by_cpu(&card, settings, seen);
        proof.differing_flows = proof.differing.len() as u64;
        proof.differing.sort_by(|a, b| b.frames.cmp(&a.frames).then(a.flow.cmp(&b.flow)));
        proof.differing.truncate(MOST);
        proof.agrees = compared > 0 && proof.differing_flows == 0;
        if proof.frames == 0 {
            proof.notes.push("no traffic was received in this time".to_owned());
        }
        proof
    }

    /// Compares probes. `seen` has nothing but their frames.
    #[must_use]
    pub fn of_probes(
        state: &State,
        settings: &Settings,
        seen: &Seen,
        probes: &[(Probe, Landed)],
    ) -> Self {
        let mut total = BTreeMap::<u32, u64>::new();
        for round in probes.iter().flat_map(|(_, landed)| &landed.rounds) {
            for (queue, grown) in &round.grown {
                *total.entry(*queue).or_default() += grown;
            }
        }
        let mut proof = Self::new(state, settings, seen, &total);
        let card = Card::new(state, settings);
        for (probe, landed) in probes {
            let predicted = predicted(&card, &probe.flow);
            let verdict = landed.verdict(&card, &probe.flow, !has_rfs(settings));
            let (seen, undecided) = match verdict {
                Verdict::Predicted => (Some(predicted.clone()), None),
                Verdict::Elsewhere(seen) => (Some(seen), None),
                Verdict::Undecided(why) => (None, Some(why)),
            };
            let flow = probe.flow.to_string();
            // What the sockets showed is in the list already.
            let is_named = proof.differing.iter().any(|one| one.flow == flow);
            if let Some(seen) = seen.as_ref().filter(|seen| **seen != predicted && !is_named) {
                let (flow, frames) = (flow.clone(), landed.sent);
                let (predicted, seen) = (predicted.clone(), seen.clone());
                proof.differing.push(FlowProof { flow, frames, predicted, seen });
                proof.differing_flows += 1;
            }
            let (entry, sent) = (probe.entry, landed.sent);
            proof.probes.push(ProbeProof { flow, entry, sent, predicted, seen, undecided });
        }
        let undecided = proof.probes.iter().filter(|one| one.undecided.is_some()).count();
        if undecided > 0 {
            let all = probes.len();
            proof.notes.push(format!("{undecided} of {all} probes cannot be decided"));
        }
        proof.agrees = !probes.is_empty() && undecided == 0 && proof.differing_flows == 0;
        proof
    }

    /// Returns the number of frames that were compared.
    fn by_queue(&mut self, card: &Card, seen: &Seen, counted: &BTreeMap<u32, u64>) -> u64 {
        let (mut predicted, mut compared) = (BTreeMap::<u32, u64>::new(), 0);
        for (&queue, traffic) in &seen.queues {
            for flow in traffic.flows() {
                let Some(expected) = card.queue(&flow.key) else { continue };
                compared += flow.frames;
                *predicted.entry(expected).or_default() += flow.frames;
                if expected != queue {
                    self.differs(flow.key.to_string(), flow.frames, ("queue", expected), queue);
                }
            }
        }
        let is_known = card.why_not().is_none();
        for (&queue, traffic) in &seen.queues {
            let seen = traffic.frames();
            // Frames that are not IP have no prediction of their own: they are where they were seen.
            let of_flows = predicted.get(&queue).copied().unwrap_or_default() + traffic.others;
            let predicted = is_known.then_some(of_flows);
            let counted = counted.get(&queue).copied();
            self.queues.push(QueueProof { queue, predicted, seen, counted });
        }
        if let Some(why) = card.why_not() {
            self.notes.push(format!("queues are not predictable: {why}"));
        } else if compared == 0 && self.frames > 0 {
            self.notes.push("the driver does not store the receive queue of frames".to_owned());
        }
        compared
    }

    /// Returns the number of frames that were compared.
    fn by_cpu(&mut self, card: &Card, settings: &Settings, seen: &Seen) -> u64 {
        let has_rfs = has_rfs(settings);
        let (mut predicted, mut compared) = (BTreeMap::<u32, f64>::new(), 0);
        for (&cpu, traffic) in &seen.cpus {
            for flow in traffic.flows().iter().filter(|_| !has_rfs) {
                let place = card.place(&flow.key);
                let cpus = match &place {
                    Place::Cpu(cpu) => std::slice::from_ref(cpu),
                    Place::OneOf(cpus) => cpus,
                    Place::Unknown => continue,
                };
                compared += flow.frames;
                for &one in cpus {
                    *predicted.entry(one).or_default() += flow.frames as f64 / cpus.len() as f64;
                }
                if let (false, Some(&first)) = (cpus.contains(&cpu), cpus.first()) {
                    self.differs(flow.key.to_string(), flow.frames, ("CPU", first), cpu);
                }
            }
        }
        for (&cpu, traffic) in &seen.cpus {
            let expected = predicted.get(&cpu).copied().unwrap_or_default();
            let predicted = (compared > 0).then_some(expected);
            self.cpus.push(CpuProof { cpu, predicted, seen: traffic.frames() });
        }
        if has_rfs {
            let why = "RFS may be on, which processes frames where the application reads them: CPUs are not compared";
            self.notes.push(why.to_owned());
        }
        compared
    }

    fn differs(&mut self, flow: String, frames: u64, predicted: (&str, u32), seen: u32) {
        let (kind, number) = predicted;
        let (predicted, seen) = (format!("{kind} {number}"), format!("{kind} {seen}"));
        self.differing.push(FlowProof { flow, frames, predicted, seen });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::setting::settings_of;
    use flowyard_frame::proto;

    fn flow(port: u16) -> FlowKey {
        let ip = |last| std::net::Ipv4Addr::new(10, 0, 0, last).into();
        FlowKey::five_tuple(proto::TCP, ip(1), port, ip(2), 80)
    }

    #[test]
    fn flows_elsewhere_are_named() {
        let state = State::read(&Fake::virtio(), "eth0").unwrap();
        let settings = settings_of(&state);
        let card = Card::new(&state, &settings);
        let mut seen = Seen::default();
        (0..4).for_each(|n| {
            seen.queues.insert(n, Traffic::default());
            seen.cpus.insert(n, Traffic::default());
        });
        let mut receive = |key: FlowKey, queue: u32| {
            seen.queues.get_mut(&queue).unwrap().count(key, false, &[]);
            seen.cpus.get_mut(&queue).unwrap().count(key, false, &[]);
        };
        for port in 1000..1100 {
            receive(flow(port), card.queue(&flow(port)).unwrap());
        }
        let wrong = (card.queue(&flow(1100)).unwrap() + 1) % 4;
        let counted: BTreeMap<_, _> = seen.queues.iter().map(|(q, t)| (*q, t.frames())).collect();
        let proof = Proof::new(&state, &settings, &seen, &counted);
        assert!(proof.agrees, "{proof:?}");
        assert!(proof.queues.iter().all(|one| one.predicted == Some(one.seen)), "{proof:?}");
        assert!(proof.cpus.iter().all(|one| one.predicted == Some(one.seen as f64)), "{proof:?}");
        let seen_wrong = |seen: &mut Seen| {
            seen.queues.get_mut(&wrong).unwrap().count(flow(1100), false, &[]);
            seen.cpus.get_mut(&wrong).unwrap().count(flow(1100), false, &[]);
        };
        seen_wrong(&mut seen);
        let proof = Proof::new(&state, &settings, &seen, &counted);
        assert!(!proof.agrees && proof.differing_flows == 2, "{proof:?}");
        assert_eq!(proof.differing[0].flow, flow(1100).to_string());
    }

    #[test]
    fn probes_that_differ_are_named() {
        let state = State::read(&Fake::virtio(), "eth0").unwrap();
        let settings = settings_of(&state);
        let card = Card::new(&state, &settings);
        let probe = |port, shift| {
            let flow = flow(port);
            let queue = (card.queue(&flow).unwrap() + shift) % 4;
            let grown = (0..4).map(|one| (one, if one == queue { 8 } else { 0 })).collect();
            let rounds = vec![crate::probe::Round { sent: 8, grown }];
            (Probe::of(flow).unwrap(), Landed { sent: 8, rounds, ..Landed::default() })
        };
        let prove = |all: &[_]| Proof::of_probes(&state, &settings, &Seen::default(), all);
        assert!(prove(&[probe(1000, 0), probe(1001, 0)]).agrees);
        let proof = prove(&[probe(1000, 0), probe(1001, 1)]);
        assert!(!proof.agrees && proof.differing_flows == 1, "{proof:?}");
        assert_eq!(proof.differing[0].flow, flow(1001).to_string());
        let nothing = (Probe::of(flow(1002)).unwrap(), Landed::default());
        let proof = prove(&[probe(1000, 0), nothing]);
        assert!(!proof.agrees && proof.differing_flows == 0, "{proof:?}");
        assert!(proof.probes[1].undecided.is_some());
        assert!(!prove(&[]).agrees);
    }

    #[test]
    fn nothing_seen_proves_nothing() {
        let state = State::read(&Fake::virtio(), "eth0").unwrap();
        let proof = Proof::new(&state, &settings_of(&state), &Seen::default(), &BTreeMap::new());
        assert!(!proof.agrees && proof.notes.iter().any(|note| note.contains("no traffic")));
    }
}
