//! Each choice beside the loop of the scheduler of IPVS that it equals.

use std::net::IpAddr;
use std::sync::Arc;

use flowyard_frame::{FlowKey, proto};
use proptest::prelude::*;

use super::*;
use crate::{Backend, Ceiling, ConnKey, Control, Exit, Mode, Service};

const CHOICES: [Choice; 5] = [
    Choice::WeightedLeast,
    Choice::LeastConnections,
    Choice::NeverQueue,
    Choice::Failover,
    Choice::Overflow,
];

fn plan(choice: Choice, backends: &[(u32, u32)]) -> Arc<Plan> {
    let backend = |(n, &(weight, most)): (u8, &(u32, u32))| Backend {
        name: format!("b{n}"),
        addr: IpAddr::from([10, 0, 0, n]),
        port: None,
        weight,
        drain: false,
        backup: false,
        ceiling: (most > 0).then(|| Ceiling::new(most, Some(most))),
        exit: Exit::default(),
        server_id: Vec::new(),
    };
    let backends = (0..).zip(backends).map(backend).collect();
    let vip = IpAddr::from([192, 0, 2, 1]);
    let mut service = Service::new("s", vip, proto::TCP, 80..=80, Mode::Dsr, backends);
    service.choice = choice;
    Control::new(vec![service], 251, 7).unwrap().plan()
}

/// A server of IPVS: weight, connections, and the number of these with which it is overloaded (0 is never).
#[derive(Clone, Copy)]
struct Dest {
    weight: u64,
    active: u64,
    threshold: u64,
}

impl Dest {
    const fn is_overloaded(&self) -> bool {
        self.threshold > 0 && self.active >= self.threshold
    }
}

/// The loops of `ip_vs_wlc.c`, `ip_vs_sed.c`, `ip_vs_nq.c`, `ip_vs_fo.c` and `ip_vs_ovf.c`, where all connections are active.
fn scheduled(choice: Choice, all: &[Dest]) -> Option<usize> {
    let mut found: Option<usize> = None;
    for (at, dest) in all.iter().enumerate() {
        if dest.is_overloaded() || dest.weight == 0 {
            continue;
        }
        let overhead = |dest: &Dest| match choice {
            Choice::WeightedLeast => dest.active << 8,
            _ => dest.active + 1,
        };
        let is_better = match (choice, found.map(|found| all[found])) {
            (Choice::NeverQueue, _) if dest.active == 0 => return Some(at),
            (Choice::Overflow, _) if dest.active >= dest.weight => false,
            (_, None) => true,
            (Choice::Failover | Choice::Overflow, Some(best)) => dest.weight > best.weight,
            (_, Some(best)) => overhead(&best) * dest.weight > overhead(dest) * best.weight,
        };
        if is_better {
            found = Some(at);
        }
    }
    found
}

/// The backend for a new connection: the choice, and another one if that is at its limit.
fn placed(plan: &Plan) -> Option<usize> {
    let client =
        FlowKey::five_tuple(proto::TCP, [10, 9, 9, 9].into(), 7, [192, 0, 2, 1].into(), 80);
    let key = ConnKey::of(&client);
    let mut turns = Plan::turns_for(1);
    plan.make_turns(0, &mut turns);
    let hash = key.hash(plan.seed());
    let chosen = plan.choose(0, &key, hash, &mut turns)?;
    let fits = match chosen.has_room() {
        true => Some(chosen),
        false => plan.instead(chosen, &key, hash, |_| true),
    };
    fits.map(|target| usize::from(target.index))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Connections come and end; each new one goes to the server that IPVS would choose.
    #[test]
    fn each_choice_equals_the_scheduler_of_ipvs(
        which in 0usize..5,
        backends in prop::collection::vec((0u32..6, 0u32..8), 1..7),
        steps in prop::collection::vec((any::<bool>(), 0usize..7), 0..120),
    ) {
        let choice = CHOICES[which];
        // With 'ovf' and limits, IPVS has one loop; here the limit is examined after the choice, which comes to the same.
        let plan = plan(choice, &backends);
        let targets: Vec<_> = plan.targets().collect();
        let dest = |&(weight, most): &(u32, u32)| Dest { weight: weight.into(), active: 0, threshold: most.into() };
        let mut model: Vec<_> = backends.iter().map(dest).collect();
        for (comes, at) in steps {
            let at = at % model.len();
            if comes {
                let want = scheduled(choice, &model);
                prop_assert_eq!(placed(&plan), want, "{:?}", choice);
                if let Some(to) = want {
                    targets[to].count(true);
                    model[to].active += 1;
                }
            } else if model[at].active > 0 {
                targets[at].count(false);
                model[at].active -= 1;
            }
            let has: Vec<_> = targets.iter().map(|target| u64::from(target.active.get())).collect();
            prop_assert_eq!(has, model.iter().map(|dest| dest.active).collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_each_choice_does_with_three_servers() {
    // Weights 1, 3 and 2; the servers of the first eight connections, none of which ends.
    for (choice, wanted) in [
        (Choice::WeightedLeast, [0, 1, 2, 1, 2, 1, 0, 1]),
        (Choice::LeastConnections, [1, 2, 1, 0, 1, 2, 1, 2]),
        (Choice::NeverQueue, [0, 1, 2, 1, 1, 2, 1, 2]),
        (Choice::Failover, [1; 8]),
    ] {
        let plan = plan(choice, &[(1, 0), (3, 0), (2, 0)]);
        let targets: Vec<_> = plan.targets().collect();
        let all = wanted.map(|_| {
            let at = placed(&plan).unwrap();
            targets[at].count(true);
            at
        });
        assert_eq!(all, wanted, "{choice:?}");
    }
    let plan = plan(Choice::Overflow, &[(1, 0), (3, 0), (2, 0)]);
    let targets: Vec<_> = plan.targets().collect();
    let all: Vec<_> = (0..8)
        .map(|_| {
            let at = placed(&plan);
            at.inspect(|at| targets[*at].count(true))
        })
        .collect();
    let some = [1, 1, 1, 2, 2, 0].map(Some);
    assert_eq!(all, [&some[..], &[None, None]].concat());
    let key = ConnKey::of(&FlowKey::ZERO);
    assert!(plan.fall_back(0, &key, 9).is_some(), "packets of connections without an entry");
    assert_eq!(plan.why_none(0), flowyard_yard::DropReason::BackendLimit);
    assert_eq!(
        self::plan(Choice::Overflow, &[(0, 0)]).why_none(0),
        flowyard_yard::DropReason::NoBackend
    );
}
