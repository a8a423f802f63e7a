use std::net::IpAddr;

use flowyard_frame::{FlowKey, proto};
use proptest::prelude::*;

use super::*;
use crate::check::{Asks, Check};
use crate::health::Rules;
use crate::service::{AllDown, Backend, Choice, Exit, Mode, OnDown};
use crate::{ConnKey, quic};

fn backend(number: u8, weight: u32) -> Backend {
    Backend {
        name: format!("b{number}"),
        addr: IpAddr::from([10, 0, 0, number]),
        port: None,
        weight,
        drain: false,
        backup: false,
        ceiling: None,
        exit: Exit::default(),
        server_id: Vec::new(),
    }
}

fn service(name: &str, port: u16, backends: Vec<Backend>) -> Service {
    Service::new(name, IpAddr::from([192, 0, 2, 1]), proto::TCP, port..=port, Mode::Dsr, backends)
}

fn key(number: u32) -> ConnKey {
    let [a, b, c, d] = number.to_be_bytes();
    let (src, dst) = (IpAddr::from([10, a, b, c]), IpAddr::from([192, 0, 2, 1]));
    ConnKey::of(&FlowKey::five_tuple(proto::TCP, src, 1024 + u16::from(d), dst, 80))
}

/// The number of connections that each backend gets out of 1000 new ones.
fn shares(plan: &Plan) -> Vec<usize> {
    let mut turns = Plan::turns_for(8);
    plan.make_turns(0, &mut turns);
    let mut counts = vec![0; plan.services()[0].service.backends.len()];
    for number in 0..1000 {
        let key = key(number);
        if let Some(target) = plan.choose(0, &key, key.hash(plan.seed()), &mut turns) {
            counts[usize::from(target.index)] += 1;
            target.count(true);
        }
    }
    plan.targets().for_each(|t| t.active.set(0));
    counts
}

fn control(services: Vec<Service>) -> Control {
    Control::new(services, 2039, 7).unwrap()
}

#[test]
fn each_choice_gives_by_weight() {
    for (choice, tolerance) in [
        (Choice::Maglev, 60),
        (Choice::SourceHash, 700), // few sources
        (Choice::RoundRobin, 3),
        (Choice::LeastConnections, 3),
    ] {
        let all = vec![backend(1, 1), backend(2, 3), backend(3, 0)];
        let plan = control(vec![Service { choice, ..service("web", 80, all) }]).plan();
        let got = shares(&plan);
        assert!(got[0].abs_diff(250) <= tolerance && got[1].abs_diff(750) <= tolerance, "{got:?}");
        assert_eq!((got[2], got.iter().sum::<usize>()), (0, 1000));
    }
}

#[test]
fn health_drain_and_weights_make_plans() {
    let mut control = control(vec![service("web", 80, vec![backend(1, 1), backend(2, 1)])]);
    let first = control.plan();
    let down = control.set_up("web", "b1", false, 5).unwrap().unwrap();
    assert_eq!((down.generation(), shares(&down)), (first.generation() + 1, vec![0, 1000]));
    assert_eq!(control.set_up("web", "b1", false, 6).unwrap().map(|_| ()), None);
    let id = |plan: &Plan, at: usize| plan.targets().nth(at).unwrap().id;
    assert_eq!(id(&first, 0), id(&down, 0));
    assert_eq!([0, 1].map(|at| down.targets().nth(at).unwrap().keeps), [false, true]);
    let none = control.set_weight("web", "b2", Some(0), 7).unwrap();
    assert_eq!(shares(&none), [0, 0]);
    assert!(none.targets().nth(1).unwrap().keeps, "drained is not down");
    let up = control.set_up("web", "b1", true, 8).unwrap().unwrap();
    assert_eq!(shares(&up), [1000, 0]);
    let error = control.set_weight("web", "b9", None, 9).unwrap_err();
    assert_eq!(error.to_string(), "service 'web' has no backend 'b9'; did you mean 'b1'?");
    let error = control.set_up("mail", "b1", true, 9).unwrap_err();
    assert_eq!(error.to_string(), "there is no service 'mail'; choose one of web");
}

#[test]
fn backups_get_new_connections_only_while_no_other_backend_accepts_any() {
    let backup = |number| Backend { backup: true, ..backend(number, 1) };
    for choice in [Choice::Maglev, Choice::SourceHash, Choice::RoundRobin, Choice::LeastConnections]
    {
        let backends = vec![backup(1), backend(2, 1), backend(3, 1), backup(4)];
        let web = Service { choice, ..service("web", 80, backends) };
        let mut control = control(vec![web]);
        let who = |plan: &Plan| shares(plan).iter().map(|share| *share > 0).collect::<Vec<_>>();
        let configured = control.plan().configured_checksum();
        assert_eq!(who(&control.plan()), [false, true, true, false], "{choice:?}");
        control.set_up("web", "b2", false, 1).unwrap();
        assert_eq!(who(&control.plan()), [false, false, true, false]);
        // The last other backend is drained by hand, which is as good as down.
        let plan = control.drain("web", "b3", true, 2).unwrap();
        assert_eq!(who(&plan), [true, false, false, true], "{choice:?}");
        assert_eq!(plan.configured_checksum(), configured, "health and drains do not change it");
        control.set_up("web", "b1", false, 3).unwrap();
        assert_eq!(who(&control.plan()), [false, false, false, true]);
        control.set_up("web", "b2", true, 4).unwrap();
        assert_eq!(who(&control.plan()), [false, true, false, false]);
        // The connections that a backup has, it keeps.
        assert!(control.plan().targets().filter(|target| target.index == 3).all(|t| t.keeps));
    }
    let other = service("web", 80, vec![backend(1, 1), backend(2, 1)]);
    let one = Service { backends: vec![backend(1, 1), backup(2)], ..other.clone() };
    assert_ne!(
        control(vec![other]).plan().configured_checksum(),
        control(vec![one]).plan().configured_checksum()
    );
}

#[test]
fn backups_are_used_last_when_health_is_ignored() {
    let backup = |number| Backend { backup: true, ..backend(number, 1) };
    let web = service("web", 80, vec![backend(1, 1), backup(2)]);
    let mut control = control(vec![Service { all_down: AllDown::Use, ..web }]);
    control.set_up("web", "b1", false, 1).unwrap();
    assert_eq!(shares(&control.plan()), [0, 1000], "the backup is up");
    control.set_up("web", "b2", false, 2).unwrap();
    assert_eq!(shares(&control.plan()), [1000, 0], "every backend is down");
}

#[test]
fn manual_settings_survive_a_reload() {
    let all = |weight| vec![service("web", 80, vec![backend(1, weight), backend(2, 1)])];
    let mut control = control(all(1));
    control.drain("web", "b1", true, 5).unwrap();
    control.set_weight("web", "b2", Some(7), 6).unwrap();
    let plan = control.set(all(50), 7).unwrap();
    assert_eq!(shares(&plan), [0, 1000]);
    let state = |control: &Control, at: usize| control.states()[0].backends[at];
    assert_eq!((state(&control, 0).drained, state(&control, 1).set_weight), (true, Some(7)));
    assert_eq!([state(&control, 0), state(&control, 1)].map(|b| b.weight), [0, 700]);
    assert_eq!([state(&control, 0), state(&control, 1)].map(|b| b.entries), [0, 2039]);
    control.set_weight("web", "b2", None, 8).unwrap();
    let plan = control.drain("web", "b1", false, 8).unwrap();
    assert!(shares(&plan)[0] > 900, "{:?}", shares(&plan));
    let again = control.drain("web", "b1", false, 9).unwrap();
    assert_eq!(again.generation(), plan.generation(), "no news is no plan");
    // A backend that is removed and added again is another one.
    control.drain("web", "b1", true, 9).unwrap();
    control.set(vec![service("web", 80, vec![backend(2, 1)])], 10).unwrap();
    control.set(all(1), 11).unwrap();
    assert!(!state(&control, 0).drained);
}

#[test]
fn health_of_many_makes_one_plan_and_unchanged_tables_are_shared() {
    let some = |name: &str, port| service(name, port, vec![backend(1, 1), backend(2, 1)]);
    let mut control = control(vec![some("a", 80), some("b", 81)]);
    let before = control.plan();
    let of = |plan: &Plan, service| -> Vec<u32> {
        plan.targets().filter(|t| t.service == service).map(|t| t.id).collect()
    };
    let (a, b) = (of(&before, 0), of(&before, 1));
    let change = |(backend, is_up)| Change { backend, is_up };
    let health = [(a[0], false), (a[1], false), (b[0], true), (99 << 20, false)].map(change);
    let plan = control.set_health(&health, 5).unwrap();
    assert_eq!(plan.generation(), before.generation() + 1);
    assert_eq!(plan.services()[0].weights, [0, 0]);
    assert!(Arc::ptr_eq(&plan.services()[1].maglev, &before.services()[1].maglev));
    assert!(!Arc::ptr_eq(&plan.services()[0].maglev, &before.services()[0].maglev));
    assert!(control.set_health(&health, 6).is_none(), "nothing changed");
    let down = control.states()[0].backends[0];
    assert_eq!((down.is_up, down.since), (false, 5));
}

#[test]
fn a_backend_whose_check_is_removed_is_up() {
    let check = Some(Check { asks: Asks::Tcp, rules: Rules::default(), port: None, agreed: false });
    let with = |check| Service { check, ..service("web", 80, vec![backend(1, 1)]) };
    let mut control = control(vec![with(check.clone())]);
    control.set_up("web", "b1", false, 1).unwrap();
    assert_eq!(shares(&control.set(vec![with(check)], 2).unwrap()), [0]);
    assert_eq!(shares(&control.set(vec![with(None)], 3).unwrap()), [1000]);
    assert_eq!(control.states()[0].backends[0].since, 3);
}

#[test]
fn moves_and_keeps_when_one_is_down_and_when_all_are() {
    for (all_down, on_down, one, both) in [
        (AllDown::Drop, OnDown::Move, false, false),
        (AllDown::Drop, OnDown::Keep, true, true),
        (AllDown::Use, OnDown::Move, false, true),
        (AllDown::Use, OnDown::Keep, true, true),
    ] {
        let all = vec![backend(1, 1), backend(2, 1)];
        let mut control = control(vec![Service { all_down, on_down, ..service("web", 80, all) }]);
        let keeps = |plan: &Plan| plan.targets().next().unwrap().keeps;
        let plan = control.set_up("web", "b1", false, 1).unwrap().unwrap();
        assert_eq!(keeps(&plan), one, "{all_down:?} {on_down:?}");
        let plan = control.set_up("web", "b2", false, 1).unwrap().unwrap();
        assert_eq!(keeps(&plan), both, "{all_down:?} {on_down:?}");
    }
}

#[test]
fn counters_of_a_service_include_removed_backends() {
    let mut control = control(vec![service("web", 80, vec![backend(1, 1), backend(2, 1)])]);
    let plan = control.count_by(2);
    let first = plan.targets().next().unwrap();
    first.counts.of(0).unwrap().went_in(60);
    first.counts.of(1).unwrap().connection();
    plan.services()[0].counts.as_ref().unwrap().of(1).unwrap().dropped(19);
    let only = || vec![service("web", 80, vec![backend(2, 1)])];
    control.set(only(), 1).unwrap();
    first.counts.of(0).unwrap().went_in(40); // by a core with the old plan
    let sum = |control: &Control| control.states()[0].counts;
    let sums = |control: &Control| {
        let sum = sum(control);
        (sum.in_packets, sum.in_bytes, sum.connections, sum.drops[19])
    };
    assert_eq!(sums(&control), (2, 100, 1, 1));
    drop(plan);
    for now in 2..5 {
        control.set(only(), now).unwrap();
        assert_eq!(sums(&control), (2, 100, 1, 1));
    }
    assert!(control.totals["web"].leaving.is_empty());
    control.set(Vec::new(), 6).unwrap();
    control.set(only(), 7).unwrap();
    assert_eq!(sums(&control), (0, 0, 0, 0), "another service");
}

#[test]
fn all_down_is_as_configured() {
    let all = || vec![backend(1, 1), backend(2, 1)];
    for (all_down, sum) in [(AllDown::Drop, 0), (AllDown::Use, 1000)] {
        let mut control = control(vec![Service { all_down, ..service("web", 80, all()) }]);
        control.set_up("web", "b1", false, 0).unwrap();
        let plan = control.set_up("web", "b2", false, 0).unwrap().unwrap();
        assert_eq!(shares(&plan).iter().sum::<usize>(), sum);
    }
}

#[test]
fn a_new_backend_starts_slowly() {
    let slow = |backends| Service {
        slow_start: 1000,
        choice: Choice::RoundRobin,
        ..service("web", 80, backends)
    };
    let mut control = control(vec![slow(vec![backend(1, 10)])]);
    assert!(control.tick(500).is_none(), "the first ones need no start");
    let plan = control.set(vec![slow(vec![backend(1, 10), backend(2, 10)])], 5000).unwrap();
    let mut seen = vec![shares(&plan)[1]];
    for now in (5000..6200).step_by(50) {
        if let Some(plan) = control.tick(now) {
            seen.push(shares(&plan)[1]);
        }
    }
    assert_eq!(seen.len(), 10, "{seen:?}");
    assert!(seen.is_sorted() && seen[0].abs_diff(91) <= 5 && seen[9] == 500, "{seen:?}");
    assert!(control.tick(9000).is_none());
}

#[test]
fn an_id_is_not_reused_soon() {
    let mut control = control(vec![service("web", 80, vec![backend(1, 1), backend(2, 1)])]);
    let first = control.plan();
    let ids: Vec<u32> = first.targets().map(|t| t.id).collect();
    let without = control.set(vec![service("web", 80, vec![backend(2, 1)])], 1).unwrap();
    assert!(without.target(ids[0]).is_none());
    assert_eq!(without.target(ids[1]).unwrap().addr, backend(2, 1).addr);
    let again =
        control.set(vec![service("web", 80, vec![backend(2, 1), backend(3, 1)])], 2).unwrap();
    assert!(again.target(ids[0]).is_none(), "the index has a new ID");
    assert_eq!(again.targets().count(), 2);
    // Another address is another backend.
    let moved = Backend { addr: IpAddr::from([10, 9, 9, 9]), ..backend(2, 1) };
    let moved = control.set(vec![service("web", 80, vec![moved])], 3).unwrap();
    assert!(moved.target(ids[1]).is_none());
}

#[test]
fn an_invalid_configuration_changes_nothing() {
    let good = || service("web", 80, vec![backend(1, 1), backend(2, 1)]);
    let with = |change: fn(&mut Service)| {
        let mut service = good();
        change(&mut service);
        service
    };
    let cases: Vec<(Vec<Service>, &str)> = vec![
        (vec![good(), good()], "another service has the same name"),
        (
            vec![good(), Service { name: "b".into(), ..good() }],
            "'web' already uses this address and port",
        ),
        (vec![with(|s| s.ports = 0..=0)], "the port range is empty"),
        (vec![with(|s| s.backends[0].weight = 1_000_001)], "write 0 to 1000000"),
        (vec![with(|s| s.backends[1].name = "b1".into())], "'b1' is there twice"),
        (vec![with(|s| s.backends[1].port = Some(8080))], "does not translate ports"),
        (
            vec![with(|s| (s.mode, s.ports, s.backends[0].port) = (Mode::Dnat, 80..=81, Some(1)))],
            "leave out the backend's 'port'",
        ),
        (vec![with(|s| s.backends[1].addr = IpAddr::from([0; 16]))], "different address families"),
        (
            vec![with(|s| (s.mode, s.backends[1].addr) = (Mode::Dnat, s.backends[0].addr))],
            "backend 'b2' has the same address and port as backend 'b1'",
        ),
        (vec![with(|s| s.quic = vec![quic::Config::new(0, 2, 4, None).unwrap()])], "no server ID"),
        (
            vec![with(|s| s.backends.iter_mut().for_each(|b| b.server_id = vec![1]))],
            "same server ID as another",
        ),
    ];
    for (services, said) in cases {
        let error = Control::new(services.clone(), 251, 0).unwrap_err();
        assert_eq!(Control::check(&services, 251, 0), Err(error.clone()));
        let error = error.to_string();
        assert!(error.contains(said), "{error}");
        let mut control = control(vec![good()]);
        let before = control.plan().generation();
        assert_eq!(control.set(services, 1).unwrap_err().to_string(), error);
        assert_eq!((control.plan().generation(), control.plan().targets().count()), (before, 2));
    }
    assert!(
        Control::new(vec![good()], 250, 0).unwrap_err().to_string().contains("not a prime number")
    );
    // Adjacent ports, other protocols and ranges are accepted.
    let udp = Service { name: "u".into(), proto: proto::UDP, ports: 1..=65_535, ..good() };
    let plan = control(vec![good(), service("next", 81, vec![]), udp]).plan();
    let at = |proto, port| plan.service(good().vip, proto, port);
    assert_eq!([at(6, 79), at(6, 80), at(6, 81), at(6, 82)], [None, Some(0), Some(1), None]);
    assert_eq!([at(17, 1), at(17, 65_535), at(132, 80)], [Some(2), Some(2), None]);
    assert!(plan.is_vip(good().vip) && !plan.is_vip(IpAddr::from([192, 0, 2, 2])));
}

proptest! {
    #[test]
    fn machines_agree_whatever_the_order_of_backends(weights in prop::collection::vec(0u32..9, 1..8), down in 0u8..8, turn in 0usize..8) {
        let all: Vec<Backend> = (0..).zip(&weights).map(|(n, w)| backend(n, *w)).collect();
        let mut other = all.clone();
        other.rotate_left(turn % all.len());
        let mut nodes = [all, other].map(|all| control(vec![service("web", 80, all)]));
        let plans = nodes.each_mut().map(|node| {
            let _ = node.set_up("web", &format!("b{down}"), false, 0);
            node.plan()
        });
        prop_assert_eq!(plans[0].services()[0].checksum(), plans[1].services()[0].checksum());
        for number in 0..200 {
            let key = key(number);
            let to = plans.each_ref().map(|plan| plan.fall_back(0, &key, key.hash(7)).map(|t| t.addr));
            prop_assert_eq!(to[0], to[1]);
        }
    }
}

/// A service for each list of weights, named after its place.
fn services(all: &[Vec<u32>]) -> Vec<Service> {
    let one = |(at, weights): (u16, &Vec<u32>)| {
        let backends = (0..).zip(weights).map(|(n, weight)| backend(n, *weight)).collect();
        service(&format!("s{at}"), 80 + at, backends)
    };
    (0..).zip(all).map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn the_checksum_of_a_configuration_depends_on_nothing_else(
        all in prop::collection::vec(prop::collection::vec(0u32..5, 0..6), 0..4),
        turns in (0usize..4, 0usize..6), down in (0usize..4, 0u8..6),
    ) {
        let there = services(&all);
        let mut other = there.clone();
        let count = other.len().max(1);
        other.rotate_left(turns.0 % count);
        for service in &mut other {
            let count = service.backends.len().max(1);
            service.backends.rotate_left(turns.1 % count);
        }
        let (one, mut two) = (control(there.clone()), control(other));
        let (service, backend) = (format!("s{}", down.0), format!("b{}", down.1));
        // Health, drains and weights by hand do not count, if there is such a backend.
        let _ = two.set_up(&service, &backend, false, 0);
        let _ = two.set_weight(&service, "b0", Some(7), 0);
        let _ = two.drain(&service, "b1", true, 0);
        let sum = one.plan().configured_checksum();
        prop_assert_eq!(sum, two.plan().configured_checksum());
        // A change of the configuration does.
        if let Some(last) = there.iter().position(|service| service.backends.iter().filter(|b| b.weight > 0).count() > 1) {
            let mut changed = there;
            let backend = changed[last].backends.iter_mut().find(|b| b.weight > 0).unwrap();
            backend.drain = true;
            prop_assert_ne!(sum, control(changed).plan().configured_checksum());
        }
    }
}
