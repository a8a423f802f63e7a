//! Connections of other cores: found wherever they are, and not searched for where they are not.

use super::ports::{ack, client, syn};
use super::*;

const CORES: usize = 16;

fn sixteen(mode: Mode) -> (Arc<Hub>, Vec<Balance>) {
    let mut web = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
    web.backends = (1..=8)
        .map(|n| backend(n, IpAddr::from([10, 0, 1, n]), mode.translates().then_some(8080)))
        .collect();
    web.choice = Choice::RoundRobin; // a core that does not find the connection chooses another backend
    let hub = Arc::new(Hub::new(Control::new(vec![web], 251, 7).unwrap()));
    let local = (1..=16).map(|n| IpAddr::from([10, 9, 0, n])).collect();
    let works = Balance::group(&hub, CORES, &BalanceSettings { local, ..settings() });
    (hub, works)
}

/// Passes a packet at time `now`. Returns where it went, and its flow afterwards, inside a tunnel.
fn pass_at(work: &mut Balance, key: &FlowKey, now: Nanos) -> (To, FlowKey) {
    let data = Build::new(key).flags(key.tcp_flags).bytes();
    let (mut pool, mut batch) = (Pool::new(1, 2048), Batch::default());
    let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
    let key = parse::key(&Headers::parse(LinkType::Ethernet, &data), &data, 0);
    let lane = batch.push(pool.copy(&data, meta).unwrap(), key).unwrap();
    batch.actions[lane] = Action::queue(0);
    work.work(&mut batch, &pool, now);
    let out = pool.bytes(&batch.frames[lane]);
    let outer = Headers::parse(LinkType::Ethernet, out);
    let flow = parse::key(&outer.inner(out).unwrap_or(outer), out, 0).flow();
    (batch.actions[lane].to, flow)
}

fn pass(work: &mut Balance, key: &FlowKey) -> (To, FlowKey) {
    pass_at(work, key, 5)
}

/// The other tables that were searched since the last call.
fn asked() -> usize {
    ASKED.replace(0)
}

fn flow(number: u32) -> FlowKey {
    client(number, proto::TCP, "192.0.2.1", 80)
}

#[test]
fn a_new_connection_searches_no_table_of_another_core() {
    for mode in [Mode::Dsr, Mode::Ipip, Mode::Dnat, Mode::FullNat] {
        let (_hub, mut works) = sixteen(mode);
        asked();
        for number in 0..1000 {
            let key = flow(number);
            let [first, second] = [syn(key), ack(key)].map(|key| pass(&mut works[0], &key));
            assert!(!first.0.is_drop() && first == second, "{mode:?}");
        }
        assert_eq!(asked(), 0, "{mode:?}, other tables are empty");
        // The tables of the other cores have 15,000 connections, which is a quarter of their room.
        for number in 0..15_000 {
            pass(&mut works[1 + number as usize % 15], &syn(flow(10_000 + number)));
        }
        asked();
        for number in 0..1000 {
            pass(&mut works[0], &ack(flow(5000 + number))); // no entry and no SYN: as a flood of unknown segments
        }
        assert!(asked() < 10, "{mode:?}, other tables hold other connections");
    }
}

#[test]
fn a_connection_that_visits_every_core_keeps_its_backend() {
    for mode in [Mode::Dsr, Mode::Ipip, Mode::Dnat, Mode::FullNat] {
        let (_hub, mut works) = sixteen(mode);
        for number in 0..400u32 {
            let key = flow(number);
            let first = pass(&mut works[number as usize % CORES], &syn(key));
            assert!(!first.0.is_drop());
            for step in 1..CORES {
                let core = (number as usize + step * 7) % CORES;
                assert_eq!(pass(&mut works[core], &ack(key)), first, "{mode:?}");
            }
        }
    }
}

#[test]
fn answers_find_the_connection_of_another_core() {
    for mode in [Mode::Dnat, Mode::FullNat] {
        let (_hub, mut works) = sixteen(mode);
        for number in 0..200u32 {
            let key = flow(number);
            let (_, sent) = pass(&mut works[number as usize % CORES], &syn(key));
            asked();
            let other = (number as usize + 5) % CORES;
            let got = pass(&mut works[other], &ack(sent.reversed()));
            assert_eq!(got, (To::Port(40), key.flow().reversed()), "{mode:?}");
            assert_eq!(asked(), 1, "{mode:?}: the table that has it");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Packets of few flows on any core, while entries are evicted and expire: every entry of every table is listed,
    /// and nothing else is listed in the end.
    #[test]
    fn the_directory_misses_no_entry_of_any_table(
        steps in prop::collection::vec((0u32..60, 0usize..4, 0u8..4, 0u64..3), 1..300), room in 4usize..60, full: bool,
    ) {
        let mode = if full { Mode::FullNat } else { Mode::Dsr };
        let mut web = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
        web.backends = vec![backend(1, ip("10.0.1.1"), None), backend(2, ip("10.0.1.2"), None)];
        let hub = Arc::new(Hub::new(Control::new(vec![web], 251, 7).unwrap()));
        let local = (1..=4).map(|n| IpAddr::from([10, 9, 0, n])).collect();
        let settings = BalanceSettings { connections: room, opening_most: room / 2, local, ..settings() };
        let mut works = Balance::group(&hub, 4, &settings);
        let (pool, mut now) = (Pool::new(1, 64), 5);
        for (number, core, kind, wait) in steps {
            now += wait * 7_000_000_000;
            let key = flow(number);
            let key = FlowKey { tcp_flags: [FlowKey::SYN, FlowKey::ACK, FlowKey::RST, FlowKey::FIN][usize::from(kind)], ..key };
            works[core].work(&mut Batch::default(), &pool, now); // removes expired entries
            pass_at(&mut works[core], &key, now);
            let seed = works[0].plan.seed();
            for (core, table) in works[0].conns.iter().enumerate() {
                let table = table.lock().unwrap();
                for (_, conn) in table.iter(0) {
                    let listed = works[(core + 1) % 4].others(conn.key().hash(seed)).any(|c| c == core);
                    prop_assert!(listed, "core {core} has {:?}", conn.key());
                }
            }
        }
        // Without entries, nothing is listed.
        for work in &mut works {
            for _ in 0..20 {
                work.work(&mut Batch::default(), &pool, now + 5_000_000_000_000);
            }
        }
        for number in 0..60 {
            let hash = ConnKey::of(&flow(number)).hash(works[0].plan.seed());
            prop_assert_eq!(works[0].others(hash).count(), 0);
        }
    }
}
