use crate::{Choice, Mode, Service};
use flowyard_flow::parse;
use flowyard_frame::{Action, Batch, To, proto};
use flowyard_testkit::Build;
use flowyard_wire::{Headers, LinkType};
use proptest::prelude::*;

use super::super::tests::{addrs, backend, group, ip, service};
use super::super::{Balance, Hub, Work};
use super::*;
use flowyard_pool::{Meta, Pool};

#[test]
fn a_lease_ends_with_its_time_and_when_connections_move() {
    let timeouts = Timeouts { datagrams: 40_000_000, ..Timeouts::default() };
    let mut leases = Leases::new(&timeouts);
    let [key, other] = [1, 2].map(|sport| {
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        ConnKey::of(&FlowKey::five_tuple(proto::UDP, src, sport, dst, 53))
    });
    leases.put(&key, 7, 1000, 3, "a");
    assert_eq!(leases.get(&key, 7, 10_000_999, 3), Some("a"));
    assert_eq!(leases.get(&key, 7, 10_001_000, 3), None, "a quarter of the least timeout");
    assert_eq!(leases.get(&key, 7, 1000, 4), None, "a connection moved");
    assert_eq!(leases.get(&other, 7, 1000, 3), None, "another's");
    leases.put(&other, 7, 1000, 3, "b");
    assert_eq!(leases.get(&key, 7, 1000, 3), None, "the newer one is in its place");
    leases.clear();
    assert_eq!(leases.get(&other, 7, 1000, 3), None);
    assert!(Leases::<()>::covers(FlowKey::ACK));
    for flags in [FlowKey::SYN, FlowKey::FIN | FlowKey::ACK, FlowKey::RST] {
        assert!(!Leases::<()>::covers(flags));
    }
    assert_eq!(Leases::<()>::new(&Timeouts::default()).length, LONGEST);
}

/// The balancers of two cores. If `leases` is false, all leases are ended before each packet.
struct Cores {
    hub: std::sync::Arc<Hub>,
    all: Vec<Balance>,
    leases: bool,
    /// The frames that were sent to backends, by flow, from which replies are built.
    sent: Vec<Option<FlowKey>>,
    /// The number of packets for which a lease may have been used.
    used: usize,
}

impl Cores {
    fn new(services: Vec<Service>, leases: bool) -> Self {
        let (hub, all) = group(services, 2);
        Self { hub, all, leases, sent: vec![None; FLOWS], used: 0 }
    }

    fn pass(&mut self, core: usize, key: &FlowKey, now: Nanos) -> (Action, Vec<u8>) {
        let work = &mut self.all[core];
        if !self.leases {
            work.leases.clear();
            work.answer_leases.clear();
        }
        let moves = work.moves.load(std::sync::atomic::Ordering::Relaxed);
        let conn = ConnKey::of(key);
        let hash = conn.hash(work.plan.seed());
        self.used += usize::from(
            work.leases.get(&conn, hash, now, moves).is_some()
                || work.answer_leases.get(&conn, hash, now, moves).is_some(),
        );
        let data = Build::new(key).payload(b"payload").bytes();
        let mut pool = Pool::new(4, 2048);
        let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
        let frame = pool.copy(&data, meta).unwrap();
        let mut batch = Batch::default();
        let key = parse::key(&Headers::parse(LinkType::Ethernet, &data), &data, 0);
        let lane = batch.push(frame, key).unwrap();
        batch.actions[lane] = Action::queue(0);
        work.work(&mut batch, &pool, now);
        (batch.actions[lane], pool.bytes(&batch.frames[lane]).to_vec())
    }

    /// Handles a packet or a reply of `flow`.
    fn step(&mut self, step: &Step) -> Option<(Action, Vec<u8>)> {
        let &Step { core, flow, answer, flags, now } = step;
        let [vip, _, client] = addrs(false);
        let proto = if flow % 2 == 0 { proto::TCP } else { proto::UDP };
        let flags = if proto == proto::TCP { flags } else { 0 };
        if answer {
            let sent = self.sent[flow]?;
            return Some(self.pass(core, &FlowKey { tcp_flags: flags, ..sent.reversed() }, now));
        }
        let key = FlowKey::five_tuple(proto, client, 5000 + flow as u16, vip, 80);
        let (action, bytes) = self.pass(core, &FlowKey { tcp_flags: flags, ..key }, now);
        if matches!(action.to, To::Port(_)) {
            let headers = Headers::parse(LinkType::Ethernet, &bytes);
            self.sent[flow] = Some(parse::key(&headers, &bytes, 0).flow());
        }
        Some((action, bytes))
    }
}

const FLOWS: usize = 4;

#[derive(Clone, Debug)]
struct Step {
    core: usize,
    flow: usize,
    answer: bool,
    flags: u8,
    now: Nanos,
}

fn services(weights: [u32; 3]) -> Vec<Service> {
    [proto::TCP, proto::UDP]
        .map(|proto| {
            let name = if proto == proto::TCP { "tcp" } else { "udp" };
            let mut service = service(name, addrs(false)[0], proto, 80..=80, Mode::FullNat);
            service.choice = Choice::RoundRobin; // a connection that begins again gets another backend
            let all = (1..).zip(weights).filter(|(_, weight)| *weight > 0);
            let one = |(n, weight)| crate::Backend {
                weight,
                ..backend(n, ip(&format!("10.0.1.{n}")), None)
            };
            service.backends = all.map(one).collect();
            service
        })
        .into()
}

/// Mostly data, and occasionally a packet that changes a connection, or another plan.
fn steps() -> impl Strategy<Value = Vec<(Step, Option<[u32; 3]>)>> {
    let flags = prop_oneof![
        8 => Just(FlowKey::ACK),
        2 => Just(FlowKey::SYN),
        1 => Just(FlowKey::SYN | FlowKey::ACK),
        1 => Just(FlowKey::FIN | FlowKey::ACK),
        1 => Just(FlowKey::RST),
    ];
    let apart = prop_oneof![8 => 0u64..1_000_000, 1 => 0u64..60_000_000_000];
    let plan = prop_oneof![20 => Just(None), 1 => [0u32..3, 0..3, 1..3].prop_map(Some)];
    let step = (0usize..2, 0..FLOWS, prop::bool::weighted(0.3), flags, apart, plan);
    prop::collection::vec(step, 1..200).prop_map(|steps| {
        let mut now = 5;
        let mut at = |(core, flow, answer, flags, apart, plan)| {
            now += apart;
            (Step { core, flow, answer, flags, now }, plan)
        };
        steps.into_iter().map(&mut at).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Without leases, the same frames are sent to the same destinations.
    #[test]
    fn leases_do_not_change_the_result(steps in steps()) {
        let mut both = [true, false].map(|leases| Cores::new(services([1, 1, 1]), leases));
        for (step, plan) in &steps {
            if let Some(weights) = plan {
                for cores in &both {
                    cores.hub.set(services(*weights), step.now).unwrap();
                }
            }
            let [got, want] = both.each_mut().map(|cores| cores.step(step));
            prop_assert_eq!(got, want, "{:?}", step);
        }
        prop_assert_eq!(both[1].used, 0);
    }
}

#[test]
fn data_of_another_cores_connection_is_leased() {
    let mut cores = Cores::new(services([1, 1, 1]), true);
    let step = |core, answer, flags| Step { core, flow: 0, answer, flags, now: 5 };
    cores.step(&step(0, false, FlowKey::SYN));
    // Until the connection is established, its entry may be replaced at any time.
    for _ in 0..2 {
        cores.step(&step(1, false, FlowKey::ACK));
    }
    assert_eq!(cores.used, 0);
    cores.step(&step(0, true, FlowKey::SYN | FlowKey::ACK));
    cores.step(&step(0, false, FlowKey::ACK));
    for answer in [false, true] {
        cores.step(&step(1, answer, FlowKey::ACK));
        assert_eq!(cores.used, usize::from(answer));
        cores.step(&step(1, answer, FlowKey::ACK));
        assert_eq!(cores.used, 1 + usize::from(answer));
    }
}
