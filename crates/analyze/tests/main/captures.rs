//! Runs captures of public projects through every policy of every adapter, and compares the number of
//! connections with the manifest. The manifest's definition differs in three cases, named here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use flowyard_adapter::Profile;
use flowyard_analyze::Spec;
use flowyard_ports::mem::Frames;
use flowyard_testkit::harness::{self, Need};
use flowyard_wire::{Headers, LinkType, Net};

use crate::common::{all_policies, analyze, assert_conserved, load, setup};

flowyard_testkit::tests! {
    every_capture_goes_through_every_policy_of_every_adapter needs [CAPTURES],
    connections_equal_the_manifests_flows_or_differ_for_a_known_reason needs [CAPTURES],
}

const CAPTURES: Need = Need::Shared("captures/MANIFEST.tsv");

/// Path and number of flows of each capture in the manifest.
fn manifest(shared: &Path) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(shared.join("captures/MANIFEST.tsv")).expect("manifest");
    let rows = text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    rows.map(|row| (row[0].to_owned(), row[5].parse().unwrap_or(0))).collect()
}

/// The captures with a link type that flowyard reads.
fn captures(shared: &Path) -> Vec<(String, u64, Frames)> {
    let (mut read, mut refused) = (Vec::new(), BTreeMap::<String, u32>::new());
    for (file, flows) in manifest(shared) {
        match load(&shared.join("captures").join(&file)) {
            Ok(frames) => read.push((file, flows, frames)),
            Err(flowyard_ports::Error::LinkType { number, .. }) => {
                *refused.entry(format!("link type {number}")).or_default() += 1;
            }
            Err(error) => panic!("{file}: {error}"),
        }
    }
    flowyard_testkit::note!("{} captures read; not read: {refused:?}", read.len());
    read
}

fn every_capture_goes_through_every_policy_of_every_adapter() {
    let shared = harness::shared("");
    let mut captures = captures(&shared);
    let mut packets = 0;
    for (file, _, frames) in &mut captures {
        for adapter in Profile::ALL {
            let mut setup = setup(adapter.name, all_policies(adapter));
            (setup.migrate_every, setup.cores) = (1_000_000, 12);
            let analysis = analyze(setup, frames);
            assert_eq!(analysis.traffic.packets, frames.len() as u64, "{file}");
            assert_conserved(&analysis, &format!("{file}, {}", adapter.name));
            packets += analysis.traffic.packets;
        }
    }
    flowyard_testkit::note!(
        "{packets} packets through all policies of {} adapters",
        Profile::ALL.len()
    );
    assert!(captures.len() > 400 && packets > 1_000_000, "{} {packets}", captures.len());
}

type End = (Vec<u8>, u16);
type Flow = (End, End, u8);

/// The flow of a packet by two definitions.
#[derive(Default)]
struct Seen {
    /// Of the manifest: the outermost IP header at any level, if its ports can be read. The flag is set
    /// for later fragments, which are separate flows.
    theirs: Option<(Flow, bool)>,
    /// Of this crate: the outermost level, with as much as can be read of it.
    ours: Option<Flow>,
    /// The reason if they differ.
    why: Option<&'static str>,
}

fn flow(headers: &Headers, bytes: &[u8], ports: (u16, u16)) -> Flow {
    let a = (headers.src_octets(bytes).to_vec(), ports.0);
    let b = (headers.dst_octets(bytes).to_vec(), ports.1);
    let (a, b) = if a < b { (a, b) } else { (b, a) };
    (a, b, headers.proto)
}

fn see(link: LinkType, bytes: &[u8]) -> Seen {
    let is_ip = |h: &Headers| matches!(h.net, Net::Ipv4 | Net::Ipv6);
    let levels: Vec<_> = Headers::levels(link, bytes).collect();
    let mut seen = Seen::default();
    if is_ip(&levels[0]) {
        seen.ours = Some(flow(&levels[0], bytes, levels[0].ports.unwrap_or_default()));
    }
    let Some((at, ip)) = levels.iter().enumerate().find(|(_, h)| is_ip(h)) else { return seen };
    let later = ip.fragment.is_later();
    let cut = ip.l4 == 0 || (ip.ports.is_none() && !later && matches!(ip.proto, 6 | 17 | 132));
    if !cut {
        seen.theirs = Some((flow(ip, bytes, ip.ports.unwrap_or_default()), later));
    }
    seen.why = match (at, cut, later) {
        (1.., ..) => Some("the IP header is in a tunnel that has no outer IP header"),
        (_, true, _) => Some("TCP, UDP or SCTP whose ports cannot be read, or truncated headers"),
        (_, _, true) => Some("a later fragment"),
        _ => None,
    };
    seen
}

/// Captures for which the manifest's own definition gives another number than the manifest (as in the
/// comparison of the headers with the oracle).
const FLOWS_OTHERWISE: [&str; 5] = [
    "05-fragments/ndpi__fuzz-2020-02-16-11740.pcap",
    "10-ipsec/tcpdump__heapoverflow-ip_demux_print.pcap",
    "12-malformed/tcpdump__ip_printroute_asan.pcap",
    "12-malformed/tcpdump__ipv6-srh-tlv-pad1-padn-5-trunc.pcap",
    "13-formats/gopacket__be__test901.pcapng", // its second section has version 2.0 and is not read
];

fn connections_equal_the_manifests_flows_or_differ_for_a_known_reason() {
    let shared = harness::shared("");
    let (mut same, mut reasons) = (0, BTreeMap::<&str, (usize, usize)>::new());
    let mut connections = 0;
    for (file, flows, mut frames) in captures(&shared) {
        if skips_packets(&shared, &file) {
            flowyard_testkit::note!(
                "{file}: the manifest also counts packets of link types that are not read"
            );
            continue;
        }
        let seen: Vec<Seen> = frames.iter().map(|(r, bytes)| see(r.link, bytes)).collect();
        let theirs: BTreeSet<_> = seen.iter().filter_map(|seen| seen.theirs.as_ref()).collect();
        let ours: BTreeSet<_> = seen.iter().filter_map(|seen| seen.ours.as_ref()).collect();
        if !FLOWS_OTHERWISE.contains(&file.as_str()) {
            assert_eq!(theirs.len() as u64, flows, "{file}: flows by the manifest's definition");
        }
        for outer in ["x520", "virtio"] {
            let adapter = Profile::find(outer).unwrap();
            assert_eq!(adapter.tunnels, flowyard_adapter::profile::Tunnels::Outer);
            let analysis = analyze(setup(outer, vec![Spec::Rps]), &mut frames);
            assert_eq!(analysis.traffic.connections, ours.len() as u64, "{file}, {outer}");
        }
        connections += ours.len();
        // For all other packets the two definitions agree.
        let plain: BTreeSet<_> = seen
            .iter()
            .filter(|seen| seen.why.is_none())
            .map(|seen| (seen.theirs.as_ref().map(|theirs| &theirs.0), seen.ours.as_ref()))
            .collect();
        assert!(plain.iter().all(|(theirs, ours)| theirs == ours), "{file}");
        if theirs.len() == ours.len() {
            same += 1;
            continue;
        }
        let here: BTreeSet<_> = seen.iter().filter_map(|seen| seen.why).collect();
        assert!(!here.is_empty(), "{file}: {} flows, not {}", ours.len(), theirs.len());
        flowyard_testkit::note!("{file}: {} connections, manifest {flows}: {here:?}", ours.len());
        for why in here {
            let files = reasons.entry(why).or_default();
            *files = (files.0 + 1, files.1 + theirs.len().abs_diff(ours.len()));
        }
    }
    flowyard_testkit::note!(
        "{connections} connections; as many as the manifest's flows in {same} files"
    );
    flowyard_testkit::note!("files and connections that differ, by reason: {reasons:#?}");
    assert!(same > 300, "{same}");
}

/// Whether the reader skipped packets.
fn skips_packets(shared: &Path, file: &str) -> bool {
    use flowyard_ports::Source;
    let mut source = flowyard_ports::pcap::open(shared.join("captures").join(file)).unwrap();
    while !source.read().unwrap().is_empty() {}
    !source.skipped().is_empty()
}
