use std::net::IpAddr;
use std::sync::Arc;

use flowyard_frame::{FlowKey, proto};
use proptest::prelude::*;

use super::*;
use crate::{Backend, Choice, Control, Exit, Mode, Service};

fn plan(choice: Choice, weights: &[u32], ceilings: &[Option<Ceiling>]) -> Arc<Plan> {
    let backend = |(n, (&weight, &ceiling)): (u8, (&u32, &Option<Ceiling>))| Backend {
        name: format!("b{n}"),
        addr: IpAddr::from([10, 0, 0, n]),
        port: None,
        weight,
        drain: false,
        backup: false,
        ceiling,
        exit: Exit::default(),
        server_id: Vec::new(),
    };
    let backends = (0..).zip(weights.iter().zip(ceilings)).map(backend).collect();
    let vip = IpAddr::from([192, 0, 2, 1]);
    let mut service = Service::new("s", vip, proto::TCP, 80..=80, Mode::Dsr, backends);
    service.choice = choice;
    Control::new(vec![service], 251, 7).unwrap().plan()
}

fn key(number: u32) -> ConnKey {
    let (src, dst) = (IpAddr::from(number.to_be_bytes()), IpAddr::from([192, 0, 2, 1]));
    ConnKey::of(&FlowKey::five_tuple(proto::TCP, src, 1024, dst, 80))
}

#[test]
fn the_lower_threshold_is_that_of_ipvs_unless_it_is_written() {
    for most in 1..2000u32 {
        let resume = Ceiling::new(most, None).resume();
        // ip_vs_dest: accepts again when connections * 4 < u_threshold * 3.
        let accepts = |count: u32| count * 4 < most * 3;
        assert!(accepts(resume - 1) && (most < 4 || !accepts(resume)), "{most}: {resume}");
    }
    for (most, resume, wanted) in
        [(0, None, (1, 1)), (10, Some(0), (10, 1)), (10, Some(11), (10, 10)), (9, Some(4), (9, 4))]
    {
        let ceiling = Ceiling::new(most, resume);
        assert_eq!((ceiling.most(), ceiling.resume()), wanted);
    }
}

#[test]
fn a_backend_without_a_limit_has_always_room() {
    let plan = plan(Choice::Maglev, &[1], &[None]);
    let target = plan.targets().next().unwrap();
    target.active.set(u32::MAX);
    target.count(true);
    assert!(target.has_room());
    assert_eq!(target.active.get(), u32::MAX);
}

#[test]
fn what_a_full_backend_does_not_get_is_spread_by_weight() {
    let ceilings = [Some(Ceiling::new(5, None)), None, None, None];
    for choice in [Choice::Maglev, Choice::SourceHash, Choice::RoundRobin] {
        let plan = plan(choice, &[1, 1, 2, 0], &ceilings);
        let full = plan.targets().next().unwrap();
        full.active.set(5);
        let mut counts = [0; 4];
        for number in 0..3000 {
            let key = key(number);
            let other = plan.instead(full, &key, key.hash(plan.seed()), |_| true).unwrap();
            counts[usize::from(other.index)] += 1;
        }
        assert!(counts[0] == 0 && counts[3] == 0, "{choice:?} {counts:?}");
        assert!((700..1300).contains(&counts[1]), "{choice:?} {counts:?}");
    }
}

/// If only one of many backends has room, it is found, although the near entries of the table do not name it.
#[test]
fn the_last_backend_with_room_is_found() {
    let ceilings = [Some(Ceiling::new(1, None)); 120];
    for choice in [Choice::Maglev, Choice::RoundRobin, Choice::LeastConnections] {
        let plan = plan(choice, &[1; 120], &ceilings);
        let all: Vec<_> = plan.targets().collect();
        all.iter().for_each(|target| target.count(true));
        for open in [0, 7, 119] {
            all[open].count(false);
            for number in 0..50 {
                let (key, full) = (key(number), all[(open + 1) % 120]);
                let found = plan.instead(full, &key, key.hash(plan.seed()), |_| true).unwrap();
                assert_eq!(usize::from(found.index), open, "{choice:?}");
            }
            all[open].count(true);
        }
        assert!(
            plan.instead(all[3], &key(1), 1, |_| true).is_none()
                && !plan.has_room(&plan.services()[0])
        );
    }
}

proptest! {
    /// Whether a backend has room follows from all numbers of connections that it had.
    #[test]
    fn room_returns_below_the_lower_threshold(most in 1u32..20, resume in prop::option::of(1u32..20), steps in prop::collection::vec(any::<bool>(), 0..200)) {
        let ceiling = Ceiling::new(most, resume);
        let plan = plan(Choice::Maglev, &[1], &[Some(ceiling)]);
        let target = plan.targets().next().unwrap();
        let (mut count, mut is_full) = (0u32, false);
        for came in steps {
            if came && !is_full {
                count += 1;
            } else if !came {
                count = count.saturating_sub(1);
            } else {
                continue;
            }
            target.count(came);
            is_full = if is_full { count >= ceiling.resume() } else { count >= most };
            prop_assert_eq!((target.active.get(), !target.has_room()), (count, is_full));
            prop_assert!(count <= most);
        }
    }
}
