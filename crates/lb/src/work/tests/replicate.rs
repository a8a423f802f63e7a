//! Connections that another machine has had: balancers in one process, between which the tests carry reports.

use super::*;
use crate::{End, Scan, SyncReport};

pub(super) const SECOND: Nanos = 1_000_000_000;

/// A machine with two cores.
pub(super) struct Machine {
    pub(super) hub: Arc<Hub>,
    pub(super) cores: Vec<Balance>,
    scan: Scan,
}

impl Machine {
    pub(super) fn new(service: &Service) -> Self {
        let hub = Arc::new(Hub::new(Control::new(vec![service.clone()], 251, 7).unwrap()));
        let settings = BalanceSettings { replicated: 1024, ..settings() };
        let cores = Balance::group(&hub, 2, &settings);
        Self { hub, cores, scan: Scan::default() }
    }

    pub(super) fn set(&self, service: &Service) {
        self.hub.set(vec![service.clone()], 5).unwrap();
    }

    /// What a pass of its scan reports.
    pub(super) fn pass(&mut self, now: Nanos) -> Vec<SyncReport> {
        let mut all = Vec::new();
        self.scan.pass(&self.hub, || now, |report| all.push(report));
        all
    }

    pub(super) fn hear(&mut self, reports: &[SyncReport], now: Nanos) {
        let replica = self.hub.replicated().unwrap();
        for report in reports {
            match *report {
                SyncReport::Has { hash, backend, lifetime, .. } => {
                    replica.put(hash, backend, now, lifetime);
                }
                SyncReport::Gone { hash } => {
                    replica.remove(hash);
                    self.scan.report_again(hash);
                }
            }
        }
    }

    /// Learns the ends of connections that another machine has seen.
    pub(super) fn hear_ends(&mut self, ends: &[End], now: Nanos) {
        let changed = self.hub.apply_ends(ends, now);
        for (end, _) in ends.iter().zip(changed).filter(|(_, changed)| !changed) {
            self.scan.report_again(end.hash);
        }
    }

    pub(super) fn frame(&mut self, core: usize, key: &FlowKey, flags: u8, now: Nanos) -> To {
        self.give(core, &Build::new(key).flags(flags).bytes(), now)
    }

    /// Where a frame goes.
    pub(super) fn give(&mut self, core: usize, data: &[u8], now: Nanos) -> To {
        self.sent(core, data, now).0
    }

    /// Where a frame goes, and its bytes then.
    pub(super) fn sent(&mut self, core: usize, data: &[u8], now: Nanos) -> (To, Vec<u8>) {
        let mut pool = Pool::new(8, 2048);
        let mut batch = Batch::default();
        let frame = pool.copy(data, Meta { wire_len: data.len() as u32, ..Meta::default() });
        let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0);
        let lane = batch.push(frame.unwrap(), key).unwrap();
        batch.actions[lane] = Action::queue(0);
        self.cores[core].work(&mut batch, &pool, now);
        (batch.actions[lane].to, pool.bytes(&batch.frames[lane]).to_vec())
    }

    /// Where a packet of a client goes.
    fn send(&mut self, client: u16, flags: u8, now: Nanos) -> To {
        self.frame(usize::from(client) % 2, &flow(proto::TCP, client), flags, now)
    }

    /// Opens a connection and returns its backend.
    pub(super) fn open(&mut self, client: u16, now: Nanos) -> To {
        let first = self.send(client, FlowKey::SYN, now);
        let reply = flow(proto::TCP, client).flow().reversed();
        if let (To::Port(number), true) = (first, self.translates()) {
            let from = IpAddr::from([10, 0, 1, number as u8]);
            let reply =
                FlowKey::five_tuple(proto::TCP, from, 80, reply.dst_ip().unwrap(), reply.dport);
            self.frame(0, &reply, FlowKey::SYN | FlowKey::ACK, now);
            self.frame(0, &reply, FlowKey::ACK, now);
        }
        assert_eq!(self.send(client, FlowKey::ACK, now), first);
        first
    }

    fn translates(&self) -> bool {
        self.hub.plan().services()[0].service.mode == Mode::Dnat
    }
}

pub(super) fn flow(proto: u8, client: u16) -> FlowKey {
    let [a, b] = client.to_be_bytes();
    FlowKey::five_tuple(proto, IpAddr::from([10, 1, a, b]), 7000, ip("192.0.2.1"), 80)
}

/// Backends 1 to `count`, of which `drained` get no new connections.
pub(super) fn web(mode: Mode, choice: Choice, count: u8, drained: &[u8]) -> Service {
    let mut service = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
    service.choice = choice;
    let one = |n| Backend {
        drain: drained.contains(&n),
        ..backend(n, IpAddr::from([10, 0, 1, n]), None)
    };
    service.backends = (1..=count).map(one).collect();
    service
}

fn new(reports: &[SyncReport]) -> usize {
    reports.iter().filter(|report| matches!(report, SyncReport::Has { is_new: true, .. })).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// After any change of backends, another machine that has heard one pass sends each connection where it was.
    #[test]
    fn connections_stay_with_their_backends_on_another_machine(
        mode in 0usize..4, choice in 0usize..4, before in 1u8..6, after in 1u8..6,
        drained in prop::collection::vec(1u8..6, 0..4), later in 0u16..30,
    ) {
        let mode = [Mode::Dsr, Mode::Dnat, Mode::Ipip, Mode::Gue][mode];
        let choice =
            [Choice::Maglev, Choice::SourceHash, Choice::RoundRobin, Choice::LeastConnections][choice];
        let first = web(mode, choice, before, &[]);
        let [mut had, mut heard] = [(); 2].map(|()| Machine::new(&first));
        let mut clients: Vec<_> = (0..60).map(|client| (client, had.open(client, SECOND))).collect();
        let second = web(mode, choice, after, &drained);
        [&had, &heard].into_iter().for_each(|machine| machine.set(&second));
        if drained.iter().filter(|n| **n <= after).count() < usize::from(after) {
            clients.extend((60..60 + later).map(|client| (client, had.open(client, SECOND))));
        }
        let reports = had.pass(SECOND);
        prop_assert_eq!(new(&reports), reports.len());
        heard.hear(&reports, SECOND);
        for (client, to) in clients {
            let To::Port(number) = to else { panic!("{to:?}") };
            if number <= after.into() {
                prop_assert_eq!(heard.send(client, FlowKey::ACK, SECOND), to);
                prop_assert_eq!(had.send(client, FlowKey::ACK, SECOND), to);
            }
        }
    }
}

#[test]
fn only_connections_that_the_table_does_not_explain_are_reported() {
    let first = web(Mode::Dsr, Choice::Maglev, 4, &[]);
    let [mut had, mut heard, mut alone] = [(); 3].map(|()| Machine::new(&first));
    let clients: Vec<_> = (0..200).map(|client| (client, had.open(client, SECOND))).collect();
    assert_eq!(had.pass(SECOND), []);
    let second = web(Mode::Dsr, Choice::Maglev, 4, &[1]);
    [&had, &heard, &alone].into_iter().for_each(|machine| machine.set(&second));
    let reports = had.pass(SECOND);
    heard.hear(&reports, SECOND);
    let moved = |machine: &mut Machine| {
        let at = |(client, to): &&(u16, To)| machine.send(*client, FlowKey::ACK, SECOND) != *to;
        clients.iter().filter(at).count()
    };
    assert_eq!(moved(&mut heard), 0);
    // Each report was needed: the machine that has not heard it sends exactly these connections elsewhere.
    assert_eq!(moved(&mut alone), reports.len());
    let of_first = clients.iter().filter(|(_, to)| *to == To::Port(1)).count();
    assert!(reports.len() >= of_first && reports.len() < 100, "{} {of_first}", reports.len());
    assert_eq!(heard.hub.states()[0].counts.resumed, reports.len() as u64);
    assert_eq!(heard.hub.states()[0].counts.connections, 200 - reports.len() as u64);
}

#[test]
fn a_packet_that_begins_a_connection_is_placed_as_new() {
    let [mut had, mut heard] =
        [(); 2].map(|()| Machine::new(&web(Mode::Dsr, Choice::Maglev, 2, &[])));
    let clients: Vec<u16> = (0..40).filter(|&n| had.open(n, SECOND) == To::Port(1)).collect();
    let second = web(Mode::Dsr, Choice::Maglev, 2, &[1]);
    [&had, &heard].into_iter().for_each(|machine| machine.set(&second));
    heard.hear(&had.pass(SECOND), SECOND);
    for client in clients {
        assert_eq!(heard.send(client, FlowKey::SYN, SECOND), To::Port(2));
    }
}

#[test]
fn a_connection_is_reported_again_only_as_its_time_passes() {
    let mut had = Machine::new(&web(Mode::Dsr, Choice::Maglev, 2, &[]));
    let clients: Vec<u16> = (0..40).filter(|&n| had.open(n, SECOND) == To::Port(1)).collect();
    had.set(&web(Mode::Dsr, Choice::Maglev, 2, &[1]));
    let open = Timeouts::default().open;
    let (mut reported, step) = (0, open / 64);
    for turn in 0..64 {
        let now = SECOND + turn * step;
        clients.iter().for_each(|&client| {
            had.send(client, FlowKey::ACK, now);
        });
        let reports = had.pass(now);
        assert_eq!(reports.len(), clients.len());
        for report in &reports {
            let SyncReport::Has { lifetime, .. } = *report else { panic!("{report:?}") };
            // The report holds as long as the connection, and no more than a part longer.
            let most = open + Timeouts::default().longest() / 8 + 2 * SECOND;
            assert!(
                (open..most).contains(&(Nanos::from(lifetime) * SECOND + SECOND)),
                "{lifetime}"
            );
        }
        reported += new(&reports);
    }
    let most = clients.len() * 11;
    assert!((clients.len() * 8..most).contains(&reported), "{reported} of {}", clients.len());
}

#[test]
fn a_connection_that_has_ended_is_reported_as_gone() {
    let first = web(Mode::Dsr, Choice::Maglev, 2, &[]);
    let [mut had, mut heard] = [(); 2].map(|()| Machine::new(&first));
    let client = (0..40).find(|&n| had.open(n, SECOND) == To::Port(1)).unwrap();
    [&had, &heard]
        .into_iter()
        .for_each(|machine| machine.set(&web(Mode::Dsr, Choice::Maglev, 2, &[1])));
    heard.hear(&had.pass(SECOND), SECOND);
    assert_eq!(heard.hub.replicated().unwrap().len(SECOND), 1);
    // The client's port begins another connection, which gets the other backend.
    had.send(client, FlowKey::FIN, SECOND);
    assert_eq!(had.open(client, SECOND), To::Port(2));
    let reports: Vec<_> = (0..3).flat_map(|_| had.pass(SECOND)).collect();
    assert!(matches!(reports[..], [SyncReport::Gone { .. }]), "{reports:?}");
    heard.hear(&reports, SECOND);
    assert_eq!(heard.send(client, FlowKey::ACK, SECOND), To::Port(2));
}

#[test]
fn a_machine_that_has_the_connection_reports_it_again_if_another_one_loses_it() {
    let first = web(Mode::Dsr, Choice::Maglev, 2, &[]);
    let [mut had, mut has, mut third] = [(); 3].map(|()| Machine::new(&first));
    let client = (0..40).find(|&n| had.open(n, SECOND) == To::Port(1)).unwrap();
    [&had, &has, &third]
        .into_iter()
        .for_each(|machine| machine.set(&web(Mode::Dsr, Choice::Maglev, 2, &[1])));
    let reports = had.pass(SECOND);
    has.hear(&reports, SECOND);
    third.hear(&reports, SECOND);
    // The router sends the client to another machine from now on.
    let much_later = SECOND + Timeouts::default().open;
    let mut last = Vec::new();
    for now in [SECOND, SECOND + (much_later - SECOND) / 2, much_later] {
        assert_eq!(has.send(client, FlowKey::ACK, now), To::Port(1));
        last = has.pass(now);
        third.hear(&last, now);
    }
    assert_eq!(last.len(), 1);
    let gone: Vec<_> = (0..2).flat_map(|_| had.pass(much_later + SECOND)).collect();
    assert!(matches!(gone[..], [SyncReport::Gone { .. }]), "{gone:?}");
    third.hear(&gone, much_later);
    has.hear(&gone, much_later);
    let again = has.pass(much_later);
    assert_eq!(new(&again), 1);
    third.hear(&again, much_later);
    assert_eq!(third.send(client, FlowKey::ACK, much_later), To::Port(1));
}

#[test]
fn a_reply_of_a_backend_is_translated_before_the_client_has_sent_anything() {
    let first = web(Mode::Dnat, Choice::RoundRobin, 4, &[]);
    let [mut had, mut heard] = [(); 2].map(|()| Machine::new(&first));
    let clients: Vec<_> = (0..40).map(|client| (client, had.open(client, SECOND))).collect();
    let reports = had.pass(SECOND);
    assert!(reports.len() > 20 && reports.len() < 40);
    let answered = |machine: &mut Machine| {
        let reply = |(client, to): &&(u16, To)| {
            let To::Port(number) = *to else { panic!("{to:?}") };
            let [client, from] = [
                flow(proto::TCP, *client).src_ip().unwrap(),
                IpAddr::from([10, 0, 1, number as u8]),
            ];
            let key = FlowKey::five_tuple(proto::TCP, from, 80, client, 7000);
            machine.frame(0, &key, FlowKey::ACK, SECOND) == To::Port(40)
        };
        clients.iter().filter(reply).count()
    };
    assert_eq!(answered(&mut heard), 0);
    heard.hear(&reports, SECOND);
    assert_eq!(answered(&mut heard), reports.len());
}

#[test]
fn connections_with_a_local_port_are_not_reported() {
    let mut service = web(Mode::FullNat, Choice::RoundRobin, 4, &[]);
    service.ports = 80..=80;
    let mut had = Machine::new(&service);
    for client in (0..40).filter(|client| client % 2 == 0) {
        let To::Port(number) = had.send(client, FlowKey::SYN, SECOND) else { panic!() };
        let from = IpAddr::from([10, 0, 1, number as u8]);
        let reply = FlowKey::five_tuple(proto::TCP, from, 80, ip("10.9.0.1"), 1024 + client / 2);
        had.frame(0, &reply, FlowKey::ACK, SECOND);
        had.send(client, FlowKey::ACK, SECOND);
    }
    assert!(had.hub.occupancy()[0].connections == 20 && had.hub.occupancy()[0].unestablished == 0);
    assert_eq!(had.pass(SECOND), []);
}

#[test]
fn udp_connections_continue_too() {
    let mut first = web(Mode::Dsr, Choice::RoundRobin, 4, &[]);
    first.proto = proto::UDP;
    let [mut had, mut heard] = [(); 2].map(|()| Machine::new(&first));
    let send =
        |machine: &mut Machine, client| machine.frame(0, &flow(proto::UDP, client), 0, SECOND);
    let all: Vec<_> = (0..40).map(|client| (client, send(&mut had, client))).collect();
    all.iter().for_each(|(client, to)| assert_eq!(send(&mut had, *client), *to));
    heard.hear(&had.pass(SECOND), SECOND);
    assert!(all.iter().all(|(client, to)| send(&mut heard, *client) == *to));
}
