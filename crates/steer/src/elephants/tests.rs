use std::net::Ipv4Addr;

use flowyard_frame::{Rng, proto};

use super::*;

const MS: Nanos = 1_000_000;
/// Frames that a CPU serves in a window of 100 ms.
const SERVED: u64 = 100_000;

fn key(n: usize) -> FlowKey {
    let [src, dst] = [0x0a00_0000 + n as u32, 0x0a80_0001].map(Ipv4Addr::from_bits);
    FlowKey::five_tuple(proto::UDP, src.into(), 1024, dst.into(), 53)
}

/// CPUs and flows with rates, in frames per window. Flow `n` belongs to CPU `n` modulo the number of CPUs that are free.
struct Host {
    cpus: u32,
    flows: Vec<u64>,
    elephants: Elephants,
    now: Nanos,
    log: Vec<Decision>,
}

impl Host {
    fn new(cpus: u32, flows: Vec<u64>, settings: Settings) -> Self {
        let elephants = Elephants::new(settings, (0..cpus).collect(), 0);
        Self { cpus, flows, elephants, now: 0, log: Vec::new() }
    }

    fn cpu(&self, flow: usize) -> u32 {
        if let Some((_, cpu)) = self.elephants.own().find(|(own, _)| **own == key(flow)) {
            return cpu;
        }
        let home = flow as u32 % self.cpus;
        let free: Vec<_> = (0..self.cpus).filter(|&cpu| !self.elephants.is_taken(cpu)).collect();
        if self.elephants.is_taken(home) { free[flow % free.len()] } else { home }
    }

    fn run(&mut self, windows: u32) -> Vec<What> {
        let before = self.log.len();
        for _ in 0..windows {
            self.now += 100 * MS;
            let all = 0..self.flows.len();
            let seen: Vec<_> = all
                .map(|n| Seen { key: key(n), cpu: self.cpu(n), samples: self.flows[n] / 64 })
                .collect();
            let load = |cpu| {
                let here = (0..self.flows.len()).filter(|&n| self.cpu(n) == cpu);
                let frames: u64 = here.map(|n| self.flows[n]).sum();
                let drops = frames.saturating_sub(SERVED);
                let busy = (frames as f64 / SERVED as f64).min(1.0);
                Load { cpu, busy, waiting: 0, drops, frames }
            };
            let loads: Vec<_> = (0..self.cpus).map(load).collect();
            let mut taken: Vec<_> = self.elephants.own().map(|(key, cpu)| (*key, cpu)).collect();
            let decisions = self.elephants.window(self.now, &loads, &seen);
            for decision in &decisions {
                match decision.what {
                    What::Promote { key, to, .. } => {
                        assert!(taken.iter().all(|own| own.1 != to), "{decision}");
                        taken.push((key, to));
                    }
                    What::Demote { key, .. } => taken.retain(|own| own.0 != key),
                    What::Refuse(_) => {}
                }
            }
            let own = self.elephants.own().count() as u32;
            assert!(own < self.cpus, "nothing remains for the others: {decisions:?}");
            self.log.extend(decisions);
        }
        self.log[before..].iter().map(|decision| decision.what).collect()
    }
}

#[test]
fn a_flow_that_overloads_its_cpu_gets_the_least_loaded_one() {
    // Flows 0, 4 and 8 are on CPU 0; CPU 2 has the least.
    let flows = vec![90_000, 30_000, 1_000, 40_000, 20_000, 0, 0, 0, 10_000];
    let mut host = Host::new(4, flows, Settings::default());
    assert_eq!(host.run(2), [], "patience");
    let [What::Promote { key: flow, to, share }] = host.run(1)[..] else {
        panic!("{:?}", host.log)
    };
    assert_eq!((flow, to), (key(0), 2));
    assert!((0.74..0.76).contains(&share), "{share}");
    assert_eq!(host.run(50), []);
    assert!((1..9).all(|flow| host.cpu(flow) != 2));
    // The flow becomes calm; it returns when that has lasted for some windows.
    host.flows[0] = 10_000;
    let [What::Demote { key: flow, share, after }] = host.run(3)[..] else {
        panic!("{:?}", host.log)
    };
    assert_eq!((flow, after), (key(0), 53 * 100 * MS));
    assert!((0.09..0.11).contains(&share), "{share}");
    assert_eq!(host.cpu(0), 0);
}

#[test]
fn a_flow_returns_when_there_is_room_for_it_and_not_within_the_dwell_time() {
    let mut host = Host::new(2, vec![90_000, 20_000, 30_000], Settings::default());
    assert_eq!(host.run(3).len(), 1);
    // It has a third of a CPU now, and the others have 0.25 of theirs.
    (host.flows[0], host.flows[1], host.flows[2]) = (33_000, 5_000, 20_000);
    assert_eq!(host.run(19), []);
    assert!(matches!(host.run(1)[..], [What::Demote { .. }]), "{:?}", host.log);
    // It grows again, and has to wait.
    (host.flows[0], host.flows[2]) = (90_000, 30_000);
    let refused = host.run(5);
    assert_eq!(refused, [What::Refuse(Refused::Resting)]);
    assert!(matches!(host.run(20)[..], [What::Promote { .. }]), "{:?}", host.log);
}

#[test]
fn refusals_have_their_reasons_and_are_reported_once() {
    let refused = |cpus, flows: &[u64], settings| {
        let mut host = Host::new(cpus, flows.to_vec(), settings);
        host.run(15)
            .into_iter()
            .map(|what| match what {
                What::Refuse(reason) => reason,
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    let usual = Settings::default();
    let mice = [30_000, 0, 30_000, 0, 30_000, 0, 30_000];
    let [Refused::NoElephant { share, .. }] =
        refused(2, &mice, Settings { promote: 0.4, ..usual.clone() })[..]
    else {
        panic!()
    };
    assert!((0.24..0.26).contains(&share));
    let one = [60_000, 90_000, 60_000];
    assert_eq!(refused(2, &one, usual.clone()), [Refused::NotWorthIt]);
    assert_eq!(refused(1, &one, usual.clone()), [Refused::NoCpu]);
    // Nothing that keeps up is touched, however busy it is, nor on few samples.
    assert_eq!(refused(2, &[100_000], usual.clone()), []);
    assert_eq!(refused(2, &[200_000], Settings { samples_min: 1 << 20, ..usual }), []);
}

#[test]
fn elephants_get_cpus_of_the_list() {
    let settings = Settings { cpus: vec![1], ..Settings::default() };
    let mut host = Host::new(3, vec![90_000, 40_000, 0, 60_000], settings);
    let [What::Promote { to: 1, .. }] = host.run(3)[..] else { panic!("{:?}", host.log) };
    // Another one finds the list empty.
    host.flows.extend([0, 90_000]);
    assert_eq!(host.run(3), [What::Refuse(Refused::NoCpu)]);
}

/// Whatever the load does, every flow has at most one CPU, one remains for the others, and no flow moves twice within the
/// dwell time.
#[test]
fn moves_last() {
    for seed in 0..25 {
        let mut random = Rng::new(seed);
        let cpus = 2 + random.below(6) as u32;
        let promoted_max = 1 + random.below(4) as usize;
        let settings = Settings { promoted_max, ..Settings::default() };
        let mut host = Host::new(cpus, vec![0; 20], settings.clone());
        let mut moved: BTreeMap<Vec<u8>, Nanos> = BTreeMap::new();
        for _ in 0..60 {
            for flow in 0..20 {
                let limit = if random.below(5) == 0 { 200_000 } else { 10_000 };
                host.flows[flow] = random.below(limit);
            }
            let from = host.log.len();
            host.run(1 + random.below(30) as u32);
            assert!(host.elephants.own().count() <= promoted_max);
            for decision in &host.log[from..] {
                let key = match decision.what {
                    What::Promote { key, .. } | What::Demote { key, .. } => key,
                    What::Refuse(_) => continue,
                };
                let last = moved.insert(key.src.to_vec(), decision.at);
                assert!(
                    last.is_none_or(|last| decision.at - last >= settings.dwell),
                    "seed {seed}: {decision}"
                );
            }
        }
    }
}

#[test]
fn impossible_settings_are_named() {
    let usual = Settings::default;
    assert_eq!(usual().wrong(), None);
    for (settings, word) in [
        (Settings { promote: 1.5, ..usual() }, "promote is 1.5"),
        (Settings { demote: 0.5, ..usual() }, "demote is not below promote"),
        (Settings { busy_low: 0.95, ..usual() }, "busy_low is not below busy_high"),
        (Settings { window: 0, ..usual() }, "window_us is 0"),
        (Settings { sample_every: 0, ..usual() }, "sample_every is 0"),
        (Settings { promoted_max: 65, ..usual() }, "promoted_max is too large"),
    ] {
        let wrong = settings.wrong().unwrap_or_default();
        assert!(wrong.contains(word), "{word}: {wrong}");
    }
}
