use flowyard_frame::proto;
use flowyard_lb::check::{Asks, Check};
use flowyard_lb::health::Rules;
use flowyard_lb::{AllDown, Backend, Control, Exit, Mode, Service};
use proptest::prelude::*;

use super::*;

/// A table whose kernel refuses some addresses.
#[derive(Default)]
struct Fake {
    routes: BTreeSet<IpAddr>,
    refuses: BTreeSet<IpAddr>,
    changes: usize,
}

impl RouteTable for &mut Fake {
    fn add(&mut self, address: IpAddr) -> io::Result<()> {
        self.changes += 1;
        if self.refuses.contains(&address) {
            return Err(io::Error::other("no"));
        }
        self.routes.insert(address);
        Ok(())
    }

    fn remove(&mut self, address: IpAddr) -> io::Result<()> {
        self.changes += 1;
        if self.refuses.contains(&address) {
            return Err(io::Error::other("no"));
        }
        self.routes.remove(&address);
        Ok(())
    }
}

fn vip(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

/// A service at VIP `last` with `backends`, which are drained if their number is `false`.
fn service(last: u8, port: u16, backends: &[bool]) -> Service {
    let exit = Exit { port: 1, src: [2; 6], dst: [4; 6], via: None };
    let backend = |(at, &takes): (usize, &bool)| Backend {
        name: format!("b{at}"),
        addr: [10, 0, 1, at as u8 + 1].into(),
        port: None,
        weight: 1,
        drain: !takes,
        backup: false,
        ceiling: None,
        exit,
        server_id: Vec::new(),
    };
    Service::new(
        &format!("s{last}-{port}"),
        vip(last),
        proto::TCP,
        port..=port,
        Mode::Dsr,
        backends.iter().enumerate().map(backend).collect(),
    )
}

fn states(services: Vec<Service>) -> Vec<ServiceState> {
    Control::new(services, 251, 1).unwrap().states()
}

/// A backend whose checks pass.
fn reached(_backend: u32) -> Checked {
    Checked { has_passed: true, is_up: true }
}

const LATER: Facts = Facts { age: 9_000_000_000, is_synchronized: true, cores_answer: true };

fn reconciler(table: &mut Fake) -> Reconciler<&mut Fake> {
    Reconciler::new(table, 3_000_000_000)
}

#[test]
fn a_vip_is_announced_while_one_of_its_services_has_a_backend() {
    let (shared, mut table) = (Announcements::default(), Fake::default());
    let mut reconciler = reconciler(&mut table);
    let one =
        states(vec![service(1, 80, &[true]), service(1, 443, &[false]), service(2, 80, &[false])]);
    reconciler.round(&one, reached, &LATER, &shared);
    assert_eq!(reconciler.table.routes, [vip(1)].into());
    assert_eq!(shared.vips(), [(vip(1), None), (vip(2), Some(Why::NoBackend))].into());
    // The last backend is drained, and the service of the other VIP is removed.
    reconciler.round(&states(vec![service(1, 80, &[false])]), reached, &LATER, &shared);
    assert_eq!(reconciler.table.routes, [].into());
    assert_eq!(shared.vips(), [(vip(1), Some(Why::NoBackend))].into());
    let changes = reconciler.table.changes;
    reconciler.round(&states(vec![service(1, 80, &[false])]), reached, &LATER, &shared);
    assert_eq!(reconciler.table.changes, changes, "nothing has changed");
}

#[test]
fn a_vip_waits_for_a_check_of_one_of_its_backends() {
    let (shared, mut table) = (Announcements::default(), Fake::default());
    let mut reconciler = reconciler(&mut table);
    let checked = |all_down| {
        let check = Check { port: None, rules: Rules::default(), asks: Asks::Tcp, agreed: false };
        Service { check: Some(check), all_down, ..service(1, 80, &[true, false, true]) }
    };
    let mut expect = |services: Vec<Service>, passed: &[usize], why: Option<Why>| {
        let states = states(services);
        let ids: Vec<u32> = passed.iter().map(|at| states[0].backends[*at].id).collect();
        reconciler.round(
            &states,
            |id| Checked { has_passed: ids.contains(&id), is_up: true },
            &LATER,
            &shared,
        );
        assert_eq!(shared.vips()[&vip(1)], why);
        assert_eq!(reconciler.table.routes.contains(&vip(1)), why.is_none());
    };
    let drop = || vec![checked(AllDown::Drop)];
    expect(drop(), &[], Some(Why::Unchecked));
    expect(drop(), &[1], Some(Why::Unchecked)); // it is drained
    expect(drop(), &[2], None);
    // Until checks find all backends down, or all are drained.
    expect(drop(), &[], None);
    expect(vec![service(1, 80, &[false])], &[0], Some(Why::NoBackend));
    expect(drop(), &[], Some(Why::Unchecked));
    // Another service of the VIP has no checks.
    expect([drop(), vec![service(1, 443, &[true])]].concat(), &[], None);
    expect(vec![service(1, 80, &[false])], &[], Some(Why::NoBackend));
    expect(vec![checked(AllDown::Use)], &[], None);
}

#[test]
fn a_vip_is_withdrawn_from_a_node_that_reaches_no_backend_of_those_that_nodes_agree_on() {
    let (shared, mut table) = (Announcements::default(), Fake::default());
    let mut reconciler = reconciler(&mut table);
    let service = |agreed| {
        let check = Check { port: None, rules: Rules::default(), asks: Asks::Tcp, agreed };
        Service { check: Some(check), ..service(1, 80, &[true, false, true]) }
    };
    let mut expect = |agreed: bool, up: &[usize], why: Option<Why>| {
        let states = states(vec![service(agreed)]);
        let ids: Vec<u32> = up.iter().map(|at| states[0].backends[*at].id).collect();
        let checked = |id| Checked { has_passed: true, is_up: ids.contains(&id) };
        reconciler.round(&states, checked, &LATER, &shared);
        assert_eq!(shared.vips()[&vip(1)], why);
    };
    expect(true, &[0, 2], None);
    expect(true, &[2], None);
    expect(true, &[1], Some(Why::Unreached)); // it is drained
    expect(true, &[0], None);
    expect(true, &[], Some(Why::Unreached));
    expect(false, &[], None); // the node alone decides, and has found them up
}

#[test]
fn nothing_is_announced_at_first_without_cores_or_after_a_withdrawal() {
    let (shared, mut table) = (Announcements::default(), Fake::default());
    let mut reconciler = reconciler(&mut table);
    let services = states(vec![service(1, 80, &[true])]);
    let young = Facts { age: 2_999_000_000, is_synchronized: true, cores_answer: true };
    let silent = Facts { cores_answer: false, ..LATER };
    let mut expect = |facts: &Facts, why: Option<Why>| {
        reconciler.round(&services, reached, facts, &shared);
        assert_eq!(shared.vips(), [(vip(1), why)].into());
        assert_eq!(reconciler.table.routes.len(), usize::from(why.is_none()), "{why:?}");
    };
    expect(&young, Some(Why::Starting));
    expect(&LATER, None);
    expect(&silent, Some(Why::Silent));
    expect(&LATER, None);
    shared.lock().is_withdrawn = true;
    expect(&LATER, Some(Why::Withdrawn));
    shared.lock().is_withdrawn = false;
    expect(&LATER, None);
    shared.lock().is_stopping = true;
    expect(&LATER, Some(Why::Stopping));
}

#[test]
fn a_refused_route_is_reported_and_tried_again_a_second_later() {
    let (shared, mut table) = (Announcements::default(), Fake::default());
    table.refuses.insert(vip(1));
    let mut reconciler = reconciler(&mut table);
    let services = states(vec![service(1, 80, &[true])]);
    for _ in 0..3 {
        reconciler.round(&services, reached, &LATER, &shared);
        assert_eq!(shared.vips(), [(vip(1), Some(Why::Refused))].into());
    }
    assert_eq!(reconciler.table.changes, 1, "one attempt a second");
    reconciler.table.refuses.clear();
    reconciler.refused.values_mut().for_each(|at| *at -= RETRY);
    reconciler.round(&services, reached, &LATER, &shared);
    assert_eq!(shared.vips(), [(vip(1), None)].into());
}

proptest! {
    /// After each round the table has exactly the VIPs that are to be announced, whatever was there before.
    #[test]
    fn the_table_is_what_the_services_demand(
        rounds in prop::collection::vec(
            (prop::collection::btree_map((1_u8..5, 80_u16..83), prop::collection::vec(any::<bool>(), 1..3), 1..6), any::<bool>()),
            1..12,
        ),
    ) {
        let (shared, mut table) = (Announcements::default(), Fake::default());
        let mut reconciler = reconciler(&mut table);
        for (services, cores_answer) in rounds {
            let all = services.iter().map(|((last, port), backends)| service(*last, *port, backends));
            reconciler.round(&states(all.collect()), reached, &Facts { cores_answer, ..LATER }, &shared);
            let with_backends = services.iter().filter(|(_, backends)| backends.contains(&true));
            let expected: BTreeSet<_> = match cores_answer {
                true => with_backends.map(|((last, _), _)| vip(*last)).collect(),
                false => BTreeSet::new(),
            };
            prop_assert_eq!(&reconciler.table.routes, &expected);
            let shown = shared.vips().into_iter().filter(|(_, why)| why.is_none());
            prop_assert_eq!(shown.map(|(vip, _)| vip).collect::<BTreeSet<_>>(), expected);
        }
    }
}
