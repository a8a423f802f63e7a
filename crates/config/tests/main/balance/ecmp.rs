//! Several balancers behind a router that spreads flows over them by hash: the effect on
//! connections when one balancer dies, and when one backend of many is removed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use flowyard_config::Config;
use flowyard_flow::table::Maglev;
use flowyard_flow::table::maglev::Choice;
use flowyard_frame::{FlowKey, proto};
use flowyard_lb::Hub;
use flowyard_ports::port::Collect;
use flowyard_testkit::{Build, Rng};
use flowyard_yard::Parts;
use flowyard_yard::sim::{Faults, Sim};

use crate::balance::Fed;

flowyard_testkit::tests! {
    killing_one_of_three_breaks_no_flow_whose_backends_have_not_changed,
    removing_one_of_many_backends_breaks_no_established_flow,
    removing_one_of_many_backends_moves_no_more_entries_than_published,
}

/// A machine.
struct Node {
    sim: Sim,
    fed: Fed,
    out: Collect,
    given: u64,
}

fn config(web: &[u32], api: &[u32]) -> Config {
    let mut text = String::from(
        r#"
        [yard]
        cores = 2
        [[port]]
        name = "west"
        kind = "mem"
        in = "given"
        [[port]]
        name = "east"
        kind = "mem"
        [[queue]]
        name = "q"
        order = "atomic"
        consumers = [0, 1]
        [work]
        kind = "balance"
        [balance]
        seed = 99
        entries = 2039
        local = ["10.9.0.1"]
        "#,
    );
    for (name, port, mode, backends) in [("web", 80, "dsr", web), ("api", 81, "ipip", api)] {
        text += &format!(
            "[[service]]\nname = \"{name}\"\nvip = \"192.0.2.1\"\nproto = \"tcp\"\nport = {port}\nmode = \"{mode}\"\n"
        );
        for n in backends {
            let [.., high, low] = n.to_be_bytes();
            let mac = format!("02:00:00:{high:02x}:{port}:{low:02x}");
            let exit = format!("{{ port = \"east\", next_hop = \"{mac}\" }}");
            text += &format!(
                "[[service.backend]]\nname = \"b{n}\"\naddr = \"10.{high}.{port}.{low}\"\nexit = {exit}\n"
            );
        }
    }
    Config::parse("node.toml", &text).unwrap()
}

impl Node {
    fn new(config: &Config, seed: u64) -> Self {
        let (fed, out, mut parts) = (Fed::default(), Collect::default(), Parts::default());
        parts.rx.insert(0, Box::new(fed.clone()));
        parts.tx.insert(1, Box::new(out.clone()));
        let yard = config.build(parts).unwrap();
        let faults = Faults { stall_every: 50, stall_ns: 10_000, ..Faults::default() };
        Self { sim: Sim::new(yard, seed, faults), fed, out, given: 0 }
    }

    fn give(&mut self, frame: Vec<u8>) {
        self.fed.give(frame);
        self.given += 1;
    }

    /// All frames that the machine received and forwarded: the MAC address of the backend, by
    /// client.
    fn forwarded(&mut self) -> Vec<(u16, [u8; 6])> {
        while self.sim.total().rx_frames < self.given || self.sim.total().inside() > 0 {
            self.sim.step();
        }
        assert_eq!(self.sim.total().drops.total(), 0);
        let sent = self.out.take();
        let client = |sent: &FlowKey| sent.sport;
        sent.iter().map(|(one, data)| (client(&one.key), data[..6].try_into().unwrap())).collect()
    }
}

/// Client `number` of a service.
fn flow(number: u16, port: u16) -> FlowKey {
    let client = IpAddr::from([10, 2, (number >> 8) as u8, number as u8]);
    FlowKey::five_tuple(proto::TCP, client, number, [192, 0, 2, 1].into(), port)
}

const FLOWS: u16 = 600;

/// Sends a segment of every connection of a service through the router. Returns the backend of
/// each.
fn send(nodes: &mut [Option<Node>], port: u16, flags: u8, salt: u64) -> Vec<[u8; 6]> {
    let alive: Vec<usize> = (0..nodes.len()).filter(|&node| nodes[node].is_some()).collect();
    for number in 1..=FLOWS {
        // The router has a hash of its own, and a table of the live balancers.
        let hash = Rng::new(u64::from(number) << 16 | u64::from(port) ^ salt).bits();
        let node = alive[(hash % alive.len() as u64) as usize];
        let frame = Build::new(&flow(number, port)).flags(flags).bytes();
        nodes[node].as_mut().unwrap().give(frame);
    }
    let mut all = vec![[0; 6]; FLOWS.into()];
    for (number, backend) in nodes.iter_mut().flatten().flat_map(Node::forwarded) {
        all[usize::from(number) - 1] = backend;
    }
    assert!(all.iter().all(|backend| backend[0] == 2), "each came out");
    all
}

fn differ(a: &[[u8; 6]], b: &[[u8; 6]]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

fn killing_one_of_three_breaks_no_flow_whose_backends_have_not_changed() {
    let (mut api_broken, mut api_all) = (0, 0);
    for seed in 0..6 {
        let all: Vec<u32> = (1..=10).collect();
        let before = config(&all, &all);
        let mut nodes: Vec<_> = (0..3).map(|n| Some(Node::new(&before, seed * 3 + n))).collect();
        let web = send(&mut nodes, 80, FlowKey::SYN, seed);
        let api = send(&mut nodes, 81, FlowKey::SYN, seed);
        let used: BTreeSet<_> = web.iter().collect();
        assert_eq!(used.len(), 10, "all have some");
        assert_eq!(differ(&send(&mut nodes, 80, FlowKey::ACK, seed), &web), 0);

        // One backend of `api` is removed and one is added; the order differs in each machine's
        // file.
        let mut changed: Vec<u32> = (2..=11).collect();
        for node in nodes.iter_mut().flatten() {
            changed.rotate_left(3);
            let services = config(&all, &changed).services().unwrap();
            node.sim.yard.control_plane::<Hub>().unwrap().set(services, node.sim.now).unwrap();
        }
        let gone = [2, 0, 0, 0, 0x81, 1];
        let api_now = send(&mut nodes, 81, FlowKey::ACK, seed);
        for (was, is) in api.iter().zip(&api_now) {
            assert!(was == is || *was == gone, "established, and its backend is there");
        }

        // Node 1 dies; the router spreads all flows over the other two.
        drop(nodes[1].take());
        let web_after = send(&mut nodes, 80, FlowKey::ACK, seed ^ 0xdead);
        assert_eq!(differ(&web_after, &web), 0, "seed {seed}: no flow of a service that stays");
        let api_after = send(&mut nodes, 81, FlowKey::ACK, seed ^ 0xdead);
        api_broken += differ(&api_after, &api_now);
        api_all += usize::from(FLOWS);
    }
    // Flows of a service whose backends changed, and that are now at another machine: as many break
    // as the table moved.
    let share = api_broken as f64 / api_all as f64;
    flowyard_testkit::note!(
        "{:.1} % of the flows of a service that changed before are broken",
        share * 100.0
    );
    assert!(share < 0.15, "{share}");
}

fn removing_one_of_many_backends_breaks_no_established_flow() {
    for n in [3, 10, 100, 1000] {
        let all: Vec<u32> = (1..=n).collect();
        let mut nodes = [Some(Node::new(&config(&all, &[1]), 7))];
        let before = send(&mut nodes, 80, FlowKey::SYN, 0);
        let gone = n / 2;
        let rest: Vec<u32> = all.into_iter().filter(|n| *n != gone).collect();
        let node = nodes[0].as_mut().unwrap();
        let services = config(&rest, &[1]).services().unwrap();
        node.sim.yard.control_plane::<Hub>().unwrap().set(services, node.sim.now).unwrap();
        let after = send(&mut nodes, 80, FlowKey::ACK, 0);
        let mac = [2, 0, 0, (gone >> 8) as u8, 0x80, gone as u8];
        for (was, is) in before.iter().zip(&after) {
            assert_eq!(was == is, *was != mac, "of {n}: {was:x?} {is:x?}");
        }
    }
}

/// The pseudocode of the paper (section 3.4, figure 1 and the following text), with random orders.
/// Returns the owner of each entry.
fn as_published(orders: &[(u64, u64)], gone: Option<usize>, entries: u64) -> Vec<usize> {
    let mut next = vec![0u64; orders.len()];
    let (mut table, mut filled) = (vec![usize::MAX; entries as usize], 0);
    loop {
        for (choice, (offset, skip)) in orders.iter().enumerate() {
            if gone == Some(choice) {
                continue;
            }
            let mut entry = ((offset + next[choice] * skip) % entries) as usize;
            while table[entry] != usize::MAX {
                next[choice] += 1;
                entry = ((offset + next[choice] * skip) % entries) as usize;
            }
            table[entry] = choice;
            next[choice] += 1;
            filled += 1;
            if filled == entries {
                return table;
            }
        }
    }
}

/// The share of entries of other backends that changed, in per cent.
fn moved(before: &[usize], after: &[usize], gone: usize) -> f64 {
    let others = before.iter().filter(|&&choice| choice != gone).count();
    let pairs = before.iter().zip(after);
    let moved = pairs.filter(|(before, after)| **before != gone && before != after).count();
    100.0 * moved as f64 / others as f64
}

fn removing_one_of_many_backends_moves_no_more_entries_than_published() {
    let entries = 65_537u64;
    flowyard_testkit::note!("backends  others' entries that move  by the published algorithm");
    for n in [3, 10, 100, 1000] {
        let names: Vec<String> = (0..n).map(|n| format!("backend-{n}")).collect();
        let (mut ours, mut published) = (0.0, 0.0);
        let rounds = if n == 1000 { 4 } else { 6 };
        for round in 0..rounds {
            let gone = (round * 7 + 1) % n;
            let table = |gone: Option<usize>| {
                let choice = |(at, name)| Choice { name, weight: u32::from(Some(at) != gone) };
                let names = names.iter().map(String::as_str).enumerate();
                let choices: Vec<_> = names.map(choice).collect();
                let maglev = Maglev::new(&choices, entries as u32, round as u64).unwrap();
                maglev.entries().iter().map(|&choice| usize::from(choice)).collect::<Vec<_>>()
            };
            ours += moved(&table(None), &table(Some(gone)), gone);
            let mut rng = Rng::new(round as u64);
            let order = |_| (rng.below(entries), 1 + rng.below(entries - 1));
            let orders: Vec<_> = (0..n).map(order).collect();
            let table = |gone| as_published(&orders, gone, entries);
            published += moved(&table(None), &table(Some(gone)), gone);
        }
        let (ours, published) = (ours / rounds as f64, published / rounds as f64);
        flowyard_testkit::note!("{n:>8}  {ours:>23.2} %  {published:>23.2} %");
        assert!(ours <= published * 1.25 + 0.05, "{n}: {ours} {published}");
    }
}
