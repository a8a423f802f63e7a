//! The hash that Linux uses for steering: that of the adapter only if its driver marks it as one that covers ports.

use flowyard_adapter::Profile;
use flowyard_analyze::{Analyzer, Question, Setup, Spec, Target};
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_testkit::Build;
use flowyard_wire::LinkType;

use crate::common::{analyze, assert_conserved, policy};

flowyard_testkit::tests! {
    rps_spreads_flows_whose_ports_the_adapter_does_not_hash,
    explain_names_the_hash_of_the_kernel,
    rps_moves_frames_that_are_not_ip_by_their_ethertype,
}

fn setup(adapter: &str) -> Setup {
    Setup::new(Profile::find(adapter).unwrap(), vec![Spec::Rss, Spec::Rps, Spec::Rfs])
}

fn key(protocol: u8, port: u16) -> FlowKey {
    let [near, far] = [[192, 0, 2, 1], [192, 0, 2, 10]].map(std::net::IpAddr::from);
    FlowKey::five_tuple(protocol, near, port, far, 53)
}

/// 300 flows between two hosts.
fn flows(protocol: u8) -> Frames {
    let mut frames = Frames::new();
    for n in 0..300 {
        let bytes = Build::new(&key(protocol, 5_000 + n)).bytes();
        frames.push(u64::from(n) * 1000, LinkType::Ethernet, &bytes);
    }
    frames
}

/// `skb_get_hash` replaces a hash that is not of type L4. ixgbe hashes UDP by its addresses, which is type L3, and igb marks
/// every hash as L3.
fn rps_spreads_flows_whose_ports_the_adapter_does_not_hash() {
    for (adapter, protocol, queues) in
        [("x520", proto::UDP, 1), ("x520", proto::TCP, 16), ("i210", proto::UDP, 1)]
    {
        let analysis = analyze(setup(adapter), &mut flows(protocol));
        assert_conserved(&analysis, adapter);
        let rss = &policy(&analysis, "rss").queues;
        assert_eq!(rss.iter().filter(|queue| queue.packets > 0).count(), queues, "{adapter}");
        let cores = &policy(&analysis, "rps").cores;
        let used = cores.iter().filter(|core| core.packets > 0).count();
        assert_eq!(used, cores.len(), "{adapter}, protocol {protocol}");
    }
}

fn explain_names_the_hash_of_the_kernel() {
    let why = |adapter, protocol| {
        let mut analyzer = Analyzer::new(setup(adapter)).unwrap();
        let target = Target::flow(key(protocol, 5_000));
        let policies = analyzer.explain(&target, &Question::default()).policies;
        let l4_hash = policies.rss.is_some_and(|rss| rss.l4_hash);
        (policies.rps.unwrap().why, policies.rfs.unwrap().why, l4_hash)
    };
    for (adapter, protocol, hash) in [
        ("x520", proto::TCP, "by the adapter's hash;"),
        ("x520", proto::UDP, "by the kernel's own hash, because the driver does not mark"),
        ("i210", proto::TCP, "by the kernel's own hash, because the driver does not mark"),
        ("x710", proto::UDP, "by the adapter's hash;"),
        ("gve", proto::SCTP, "by the kernel's own hash, because the adapter gives none;"),
    ] {
        let (rps, rfs, l4_hash) = why(adapter, protocol);
        assert_eq!(l4_hash, hash.contains("the adapter's hash;"), "{adapter}, protocol {protocol}");
        assert!(rps.contains(hash), "{adapter}, protocol {protocol}: {rps}");
        assert!(rfs.contains(hash), "{adapter}, protocol {protocol}: {rfs}");
    }
}

/// The flow dissector finds no addresses in ARP, LLDP and PTP frames, but their EtherType, which is hashed.
fn rps_moves_frames_that_are_not_ip_by_their_ethertype() {
    let mut cores = std::collections::BTreeSet::new();
    for eth_type in [0x0806_u16, 0x88cc, 0x88f7, 0x22f0, 0x88b5] {
        let mut frames = Frames::new();
        for n in 0..20_u8 {
            let addresses = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, n]].concat();
            let bytes = [&addresses[..], &eth_type.to_be_bytes(), &[n; 46]].concat();
            frames.push(u64::from(n), LinkType::Ethernet, &bytes);
        }
        let analysis = analyze(setup("x520"), &mut frames);
        assert_conserved(&analysis, "not IP");
        assert_eq!(policy(&analysis, "rss").queues[0].packets, 20);
        let rps = policy(&analysis, "rps");
        assert_eq!(rps.stages["rps"], 20, "{eth_type:#x}");
        let [core] = rps
            .cores
            .iter()
            .enumerate()
            .filter(|(_, core)| core.packets > 0)
            .collect::<Vec<_>>()[..]
        else {
            panic!("{eth_type:#x}: {rps:?}")
        };
        assert_eq!(core.1.packets, 20);
        cores.insert(core.0);
    }
    assert!(cores.len() > 1, "{cores:?}");
}
