//! A slow model of RSS and of connections for comparison: packet by packet, with a map of connections
//! and the hash of the adapter.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use flowyard_adapter::profile::Tunnels;
use flowyard_adapter::{Profile, Rss};
use flowyard_analyze::{Local, Setup, Spec};
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_testkit::Profile as Mix;
use flowyard_wire::{Headers, Net};

use crate::common::{analyze, load, policy, setup, traffic, yard_pcap};

flowyard_testkit::tests! {
    rss_and_connections_equal_the_slow_model,
}

type End = (IpAddr, u16);

/// The state of a connection.
struct Connection {
    /// The end that is the host; `None` if the host is a monitor.
    host: Option<End>,
    /// Packets and bytes by the end that sent them.
    sent: BTreeMap<End, (u64, u64)>,
}

#[derive(Default)]
struct Model {
    connections: HashMap<(End, End, u8), Connection>,
    /// Packets and bytes by queue.
    queues: Vec<(u64, u64)>,
    received: u64,
}

fn ends(key: &FlowKey) -> Option<(End, End)> {
    Some(((key.src_ip()?, key.sport), (key.dst_ip()?, key.dport)))
}

/// The end that is the server, by the first packet: the receiver of a SYN, the sender of a SYN+ACK,
/// the end with the only port below 1024, otherwise the receiver.
fn server(key: &FlowKey) -> End {
    let (src, dst) = ends(key).unwrap();
    let tcp = key.proto == proto::TCP;
    let (syn, ack) = (key.tcp_flags & 2 != 0, key.tcp_flags & 16 != 0);
    match (src.1, dst.1) {
        _ if tcp && syn && ack => src,
        _ if tcp && syn => dst,
        (..1024, 1024..) => src,
        _ => dst,
    }
}

fn model(setup: &Setup, frames: &Frames) -> Model {
    let rss = Rss::new(setup.adapter, setup.queues, setup.rss.clone()).unwrap();
    let queues = vec![(0, 0); setup.queues.into()];
    let mut model = Model { queues, ..Model::default() };
    for (record, bytes) in frames.iter() {
        let mut levels = Headers::levels(record.link, bytes);
        let mut headers = levels.next().unwrap();
        if setup.adapter.tunnels == Tunnels::Inner
            && let Some(inner) = levels.next().filter(|h| matches!(h.net, Net::Ipv4 | Net::Ipv6))
        {
            headers = inner;
        }
        let key = flowyard_flow::parse::key(&headers, bytes, 0);
        let wire = u64::from(record.wire_len);
        let mut received = true;
        if let Some((src, dst)) = ends(&key) {
            let between = (src.min(dst), src.max(dst), key.proto);
            let connection = model.connections.entry(between).or_insert_with(|| Connection {
                host: match setup.local {
                    Local::All => None,
                    Local::Client if server(&key) == src => Some(dst),
                    Local::Client => Some(src),
                    _ => Some(server(&key)),
                },
                sent: BTreeMap::new(),
            });
            let sent = connection.sent.entry(src).or_default();
            *sent = (sent.0 + 1, sent.1 + wire);
            received = connection.host != Some(src);
        }
        if received {
            let queue = usize::from(
                rss.hash(&key).map_or(0, |hash| rss.reta()[hash as usize % rss.reta().len()]),
            );
            model.queues[queue] = (model.queues[queue].0 + 1, model.queues[queue].1 + wire);
            model.received += 1;
        }
    }
    model
}

fn compare(setup: &Setup, frames: &mut Frames, what: &str) {
    let model = model(setup, frames);
    let mut setup = setup.clone();
    (setup.elephant_share, setup.elephants_most) = (0.0, usize::MAX);
    let analysis = analyze(setup, frames);
    let traffic = &analysis.traffic;
    assert_eq!(traffic.connections, model.connections.len() as u64, "{what}: connections");
    assert_eq!(traffic.received, model.received, "{what}: received");
    let queues: Vec<_> =
        policy(&analysis, "rss").queues.iter().map(|load| (load.packets, load.bytes)).collect();
    assert_eq!(queues, model.queues, "{what}: queues");
    // There is one flow for every end that sent to the host. If both ends are equal, it is one flow.
    let mut flows: Vec<_> = model
        .connections
        .values()
        .flat_map(|connection| {
            connection.sent.iter().filter(|(from, _)| connection.host != Some(**from))
        })
        .map(|(_, &(packets, bytes))| (bytes, packets))
        .collect();
    flows.sort_unstable();
    let mut seen: Vec<_> =
        analysis.elephants.iter().map(|flow| (flow.bytes, flow.packets)).collect();
    seen.sort_unstable();
    assert_eq!((traffic.received_flows, seen), (flows.len() as u64, flows), "{what}: flows");
}

fn rss_and_connections_equal_the_slow_model() {
    let mut yard = load(&yard_pcap()).unwrap();
    let mix = Mix { flows: 500, ..Mix::default() };
    let mut made = traffic(mix, 4, 20_000);
    for adapter in Profile::ALL.iter().filter(|adapter| adapter.rss.is_some()) {
        for local in [Local::Server, Local::Client, Local::All] {
            for queues in [1, 7, 16, 64] {
                let mut setup = setup(adapter.name, vec![Spec::Rss]);
                (setup.queues, setup.cores, setup.local) = (queues, 5, local.clone());
                let what = format!("{}, {queues} queues, {local}", adapter.name);
                compare(&setup, &mut yard, &what);
                if queues == 16 {
                    compare(&setup, &mut made, &what);
                }
            }
        }
    }
}
