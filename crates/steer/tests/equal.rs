//! Every policy, on frames of a seed and on the shared captures: the program decides as the model does.

use std::collections::BTreeMap;

use flowyard_adapter::rss::{Fields, FlowType, HashFields, Hfunc};
use flowyard_adapter::rules;
use flowyard_flow::Quic;
use flowyard_flow::toeplitz::{SYMMETRIC_KEY, random_key};
use flowyard_steer::{Model, Pieces, Policy, Program, Reason};
use flowyard_testkit::captures;
use flowyard_testkit::harness::{self, Need, shared};
use flowyard_testkit::{Rng, note};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::generate::Frames;

flowyard_testkit::tests! {
    generated_frames_have_equal_decisions needs [Need::Check(bpf)],
    long_frames_have_equal_decisions needs [Need::Check(bpf)],
    captured_frames_have_equal_decisions needs [Need::Check(bpf), Need::Shared("captures")],
}

/// Whether this process may load programs.
pub(crate) fn bpf() -> Result<(), String> {
    match Program::load(&Policy::over(&[0]), 64) {
        Ok(_) => Ok(()),
        Err(flowyard_steer::Error::Privilege(_)) => Err("CAP_BPF and CAP_NET_ADMIN".to_owned()),
        // A defect of the program is found by the tests themselves.
        Err(_) => Ok(()),
    }
}

/// Frames longer than this are cut: BPF_PROG_TEST_RUN takes no more than a page, less what is reserved in it.
const LONGEST: usize = 3400;
/// The shortest frame that BPF_PROG_TEST_RUN takes.
const SHORTEST: usize = 14;

/// Rules for some of the generated frames, of each kind: for one flow, with masks, overlapping, dropping.
const RULES: &str = "\
flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 80 dst-port 443 action 1 loc 5
flow-type tcp4 src-ip 10.0.0.1 action 2 loc 4
flow-type udp4 dst-port 80 action -1 loc 9
flow-type udp4 src-ip 10.0.0.2 dst-ip 10.0.0.2 src-port 80 dst-port 80 action 3 loc 8
flow-type tcp6 src-ip fd09::1 dst-ip fd09::2 src-port 443 dst-port 11211 action 0
flow-type ip6 src-ip fd09::3 action 4
flow-type ip4 dst-ip 10.0.0.0 m 0.0.0.1 tos 16 action 5
flow-type sctp4 src-port 443 action 6
flow-type ether dst 02:00:00:00:00:00 m fd:ff:ff:ff:ff:ff action 7
";

/// Connection IDs of packets to two of the generated ports.
fn quic(bytes: u8, server: Option<u8>) -> Option<Quic> {
    Some(Quic::new(&[443, 11211], bytes, server).unwrap())
}

/// Policies that differ in every setting.
fn policies() -> Vec<(&'static str, Policy)> {
    let eight = Policy::over(&[0; 8]);
    let fields = [Fields::SRC_IP, Fields::DST_PORT, Fields::NONE, Fields::FOUR_TUPLE];
    let odd = (0..).zip(FlowType::ALL).fold(HashFields::ALL_PORTS, |all, (at, flow)| {
        let one: Fields = fields[at % 4];
        all.with(flow, if flow == flow.bare() && !one.is_portless() { Fields::DST_IP } else { one })
    });
    let table = (0..1000).map(|entry| (entry * 7 % 8) as u16).collect();
    let rules = rules::parse("rules", RULES).unwrap();
    vec![
        ("rss", eight.clone()),
        ("inner", Policy { is_inner: true, key: random_key(3).to_vec(), ..eight.clone() }),
        (
            "symmetric-xor, 1000 entries",
            Policy { hfunc: Hfunc::SymmetricXor, table, ..eight.clone() },
        ),
        (
            "symmetric-or-xor, inner",
            Policy {
                hfunc: Hfunc::SymmetricOrXor,
                key: SYMMETRIC_KEY.to_vec(),
                is_inner: true,
                ..eight.clone()
            },
        ),
        ("fields", Policy { fields: odd, ..eight.clone() }),
        ("rules", Policy { rules: rules.clone(), ..eight.clone() }),
        ("rules, inner", Policy { rules, is_inner: true, ..eight.clone() }),
        ("connection ids", Policy { quic: quic(8, None), ..eight.clone() }),
        (
            "server ids, inner, addresses of mobile IPv6",
            Policy {
                quic: quic(8, Some(3)),
                hashes_ipv6_ex: true,
                is_inner: true,
                ..eight.clone()
            },
        ),
        (
            "addresses of mobile IPv6",
            Policy { hashes_ipv6_ex: true, hfunc: Hfunc::SymmetricOrXor, ..eight },
        ),
    ]
}

/// Compares the decisions on `frames`; returns how many were made for each reason.
fn compare(
    name: &str,
    policy: &Policy,
    pieces: Pieces,
    frames: impl Iterator<Item = (String, Vec<u8>)>,
) -> BTreeMap<Reason, u64> {
    let model = Model::new(policy).unwrap();
    let mut program = Program::load_for(policy, 64, Some(pieces)).unwrap();
    let plain = Policy { quic: None, hashes_ipv6_ex: false, ..policy.clone() };
    let is_plain = policy.quic.is_none() && !policy.hashes_ipv6_ex;
    let (plain, mut special) = (Model::new(&plain).unwrap(), 0_u32);
    let mut reasons = BTreeMap::new();
    let mut queues = vec![BTreeMap::new(); policy.cpus.len()];
    for (from, frame) in frames {
        let expected = model.decide(&frame);
        let seen = program.decide(&frame).unwrap();
        assert_eq!(seen, Some(expected), "{name}: {from}: {:?}: {frame:02x?}", model.key(&frame));
        special += u32::from(!is_plain && plain.decide(&frame) != expected);
        *reasons.entry(expected.reason).or_insert(0) += 1;
        *queues[usize::from(expected.queue)].entry(expected.reason).or_insert(0) += 1;
    }
    for counts in program.counts().unwrap() {
        let mut counted = counts.frames;
        counted.retain(|_, frames| *frames > 0);
        assert_eq!(counted, queues[usize::from(counts.queue)], "{name}: queue {}", counts.queue);
    }
    note!("{name}, {pieces:?}: {reasons:?}; {special} by other fields");
    reasons
}

/// Keeps the calling thread on a CPU, whose copy of the last decision is read.
pub(crate) fn stay() {
    let mut one = CpuSet::new();
    one.set(rustix::thread::sched_getcpu());
    sched_setaffinity(None, &one).unwrap();
}

/// The number of frames for each policy; a slow machine names fewer.
fn frames_each() -> u32 {
    let named = std::env::var("FLOWYARD_FRAMES").ok();
    named.and_then(|number| number.parse().ok()).unwrap_or(40_000)
}

fn generated_frames_have_equal_decisions() {
    stay();
    for pieces in known() {
        for (number, (name, policy)) in (1..).zip(policies()) {
            let mut frames = Frames::new(number);
            let generated =
                (0..frames_each()).map(|n| (format!("seed {number}, frame {n}"), frames.next()));
            let reasons = compare(name, &policy, pieces, generated);
            let kinds = if policy.rules.is_empty() { 2 } else { 4 };
            assert_eq!(reasons.len(), kinds, "{name}: {reasons:?}");
        }
    }
}

/// The frames reach to the tenth kilobyte: the kernel hands them over in three pieces.
fn long_frames_have_equal_decisions() {
    stay();
    if !known().contains(&Pieces::Many) {
        harness::ignore("this kernel hands XDP only frames that fit in a page");
    }
    for (number, (name, policy)) in (31..).zip(policies()) {
        let (mut frames, mut random) = (Frames::new(number), Rng::new(number));
        let mut long = || {
            let mut frame = frames.next();
            let length = LONGEST as u64 + random.below(6_000);
            frame.resize_with(length as usize, || random.bits() as u8);
            frame
        };
        let generated =
            (0..frames_each() / 10).map(|n| (format!("seed {number}, frame {n}"), long()));
        compare(name, &policy, Pieces::Many, generated);
    }
}

/// What this kernel can load.
fn known() -> Vec<Pieces> {
    let both = [Pieces::One, Pieces::Many];
    let loads = |pieces| Program::load_for(&Policy::over(&[0]), 64, Some(pieces)).is_ok();
    both.into_iter().filter(|pieces| loads(*pieces)).collect()
}

fn captured_frames_have_equal_decisions() {
    stay();
    let folder = shared("captures");
    let mut packets = Vec::new();
    let (mut cut, mut short, mut other) = (0, 0, 0);
    for entry in captures::manifest(&folder) {
        let file = captures::read_file(&folder.join(&entry.file));
        for (number, mut packet) in (1..).zip(captures::packets(&file)) {
            let is_ethernet = packet.link == 1;
            other += u32::from(!is_ethernet);
            short += u32::from(is_ethernet && packet.bytes.len() < SHORTEST);
            if !is_ethernet || packet.bytes.len() < SHORTEST {
                continue;
            }
            cut += u32::from(packet.bytes.len() > LONGEST);
            packet.bytes.truncate(LONGEST);
            packets.push((format!("{}, packet {number}", entry.file), packet.bytes));
        }
    }
    note!("{} frames; {cut} cut, {short} too short, {other} not Ethernet", packets.len());
    assert!(packets.len() > 10_000);
    for (name, policy) in policies() {
        for pieces in known() {
            compare(name, &policy, pieces, packets.iter().cloned());
        }
    }
}
