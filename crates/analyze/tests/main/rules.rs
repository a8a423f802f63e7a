//! The rules of the user in an analysis: accepted rules steer, refused rules have a reason.

use flowyard_analyze::{Analysis, PolicySummary, Spec};
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_testkit::{Build, Profile as Mix};
use flowyard_wire::LinkType;

use crate::common::{analyze, assert_conserved, fdir, policy, setup, traffic};

flowyard_testkit::tests! {
    an_accepted_rule_steers_its_packets_to_its_queue,
    a_drop_rule_drops_and_nothing_else_does,
    the_82599_accepts_one_mask_and_reports_that,
    a_rule_to_a_queue_that_is_not_open_is_refused_and_fixes_no_mask,
    of_a_thousand_duplicates_one_is_accepted,
    a_full_table_refuses_the_rest,
    fragments_do_not_match_ports,
    a_vlan_etype_of_the_82599_is_compared_with_the_frame,
    a_flexible_word_is_where_the_adapter_counts_it,
}

/// HTTP and DNS traffic of 100 clients; the server is 198.18.0.0/24.
fn frames() -> Frames {
    traffic(Mix { flows: 100, ipv6_every: 0, ..Mix::default() }, 2, 10_000)
}

fn with(adapter: &str, rules: &str, frames: &mut Frames) -> Analysis {
    let analysis = analyze(setup(adapter, vec![Spec::Rss, fdir(rules)]), frames);
    assert_conserved(&analysis, adapter);
    analysis
}

fn verdicts(policy: &PolicySummary) -> Vec<&str> {
    policy.rules.iter().map(|rule| rule.verdict.as_str()).collect()
}

/// Number of frames whose key satisfies `holds`.
fn count(frames: &Frames, holds: impl Fn(&FlowKey) -> bool) -> u64 {
    let key = |bytes: &[u8], link| {
        flowyard_flow::parse::key(&flowyard_wire::Headers::parse(link, bytes), bytes, 0)
    };
    frames.iter().filter(|(record, bytes)| holds(&key(bytes, record.link))).count() as u64
}

fn an_accepted_rule_steers_its_packets_to_its_queue() {
    let mut frames = frames();
    let http = count(&frames, |key| key.proto == proto::TCP && key.dport == 80);
    assert!(http > 1000);
    for adapter in ["82599", "x520", "x550", "x710", "x722", "e810"] {
        let analysis = with(adapter, "flow-type tcp4 dst-port 80 action 13", &mut frames);
        let fdir = policy(&analysis, "fdir");
        assert_eq!(verdicts(fdir), ["accepted"], "{adapter}");
        assert_eq!((fdir.rules[0].packets, fdir.rules[0].line), (http, 1), "{adapter}");
        assert_eq!(fdir.stages["rule"], http, "{adapter}");
        let others = policy(&analysis, "rss").queues[13].packets;
        assert!((http..=http + others).contains(&fdir.queues[13].packets), "{adapter}");
        let filters = fdir.filters.as_ref().unwrap();
        let stats = &filters.stats;
        assert_eq!((stats.adds, stats.occupancy, stats.hits), (1, 1, http), "{adapter}");
    }
}

fn a_drop_rule_drops_and_nothing_else_does() {
    let mut frames = frames();
    let dns = count(&frames, |key| key.proto == proto::UDP && key.dport == 53);
    assert!(dns > 500, "{dns}");
    for adapter in ["82599", "x540", "xl710", "e810"] {
        let analysis = with(adapter, "flow-type udp4 dst-port 53 action -1", &mut frames);
        let fdir = policy(&analysis, "fdir");
        assert_eq!((fdir.rules[0].packets, fdir.stages["dropped"]), (dns, dns), "{adapter}");
        let kept: u64 = fdir.queues.iter().map(|queue| queue.packets).sum();
        assert_eq!(kept + dns, analysis.traffic.received, "{adapter}");
    }
}

fn the_82599_accepts_one_mask_and_reports_that() {
    let mut frames = frames();
    let rules = "flow-type tcp4 dst-port 80 action 1\n\
                 flow-type tcp4 src-ip 10.0.0.7 action 2\n\
                 flow-type udp4 dst-port 53 action 3";
    let analysis = with("x520", rules, &mut frames);
    let fdir = policy(&analysis, "fdir");
    assert_eq!(verdicts(fdir), ["accepted", "refused", "accepted"]);
    let refused = &fdir.rules[1];
    assert!(refused.why.contains("Only one mask"), "{}", refused.why);
    assert!(refused.why.contains("line 1"), "the fix names the line: {}", refused.why);
    assert_eq!(
        (refused.packets, refused.rule.as_str()),
        (0, "flow-type tcp4 src-ip 10.0.0.7 action 2")
    );
    assert!(fdir.rules[0].packets > 0 && fdir.rules[2].packets > 0);
    // The X710 has an input set per flow type, and another message.
    let analysis = with("x710", rules, &mut frames);
    let fdir = policy(&analysis, "fdir");
    assert_eq!(verdicts(fdir), ["accepted", "refused", "accepted"]);
    assert!(!fdir.rules[1].why.contains("Only one mask"), "{}", fdir.rules[1].why);
}

fn a_rule_to_a_queue_that_is_not_open_is_refused_and_fixes_no_mask() {
    let rules = "flow-type tcp4 src-ip 10.0.0.7 action 16\nflow-type tcp4 dst-port 80 action 15";
    let analysis = with("x520", rules, &mut frames());
    let fdir = policy(&analysis, "fdir");
    assert_eq!(verdicts(fdir), ["refused", "accepted"]);
    assert!(fdir.rules[0].why.contains("no queue 16"), "{}", fdir.rules[0].why);
    assert!(fdir.rules[1].packets > 0);
}

/// The ixgbe of the kernel installs each copy in the table; i40e and ice refuse them.
fn of_a_thousand_duplicates_one_is_accepted() {
    let mut frames = frames();
    let http = count(&frames, |key| key.proto == proto::TCP && key.dport == 80);
    let rules = "flow-type tcp4 dst-port 80 action 1\n".repeat(1000);
    for (adapter, expected) in [("x520", "merged"), ("x710", "refused"), ("e810", "refused")] {
        let analysis = with(adapter, &rules, &mut frames);
        let fdir = policy(&analysis, "fdir");
        let of = |verdict: &str| fdir.rules.iter().filter(|rule| rule.verdict == verdict).count();
        assert_eq!((of("accepted"), of(expected)), (1, 999), "{adapter}");
        let packets: u64 = fdir.rules.iter().map(|rule| rule.packets).sum();
        assert_eq!(packets, http, "{adapter}");
        let counted = fdir.rules.iter().find(|rule| rule.packets > 0).unwrap();
        assert_eq!(counted.verdict, "accepted", "{adapter}");
    }
}

/// Rules that do not fit are refused one by one, and the analysis continues.
fn a_full_table_refuses_the_rest() {
    let rules: String = (0..9000)
        .map(|n| format!("flow-type tcp4 src-port {} action {}\n", n + 1, n % 16))
        .collect();
    for (adapter, most) in [("x520", 2046), ("x710", 8192), ("e810", 16_384)] {
        let analysis = with(adapter, &rules, &mut frames());
        let fdir = policy(&analysis, "fdir");
        let accepted = verdicts(fdir).iter().filter(|verdict| **verdict == "accepted").count();
        assert!(accepted <= most && accepted > 1000, "{adapter}: {accepted}");
        assert!(accepted == 9000 || accepted > most / 2, "{adapter}: {accepted}");
        assert_eq!(fdir.filters.as_ref().unwrap().stats.occupancy as usize, accepted, "{adapter}");
    }
}

/// Fragments never match a rule with ports; RSS steers them.
fn fragments_do_not_match_ports() {
    let ip = |n| std::net::Ipv4Addr::new(10, 0, 0, n).into();
    let key = FlowKey::five_tuple(proto::UDP, ip(1), 4000, ip(2), 53);
    let mut frames = Frames::new();
    for time in 0..10 {
        frames.push(time, LinkType::Ethernet, &Build::new(&key).payload(&[0; 64]).bytes());
        let later = Build::new(&key).payload(&[0; 64]).fragment(8, false).bytes();
        frames.push(time, LinkType::Ethernet, &later);
    }
    for adapter in ["x520", "x710", "e810"] {
        let analysis = with(adapter, "flow-type udp4 dst-port 53 action -1", &mut frames);
        assert_eq!(policy(&analysis, "fdir").stages["dropped"], 10, "{adapter}");
        assert_eq!(analysis.traffic.fragments, 10);
    }
}

/// The flexible word of ixgbe is at offset 12: 0x8100 for tagged frames, and the EtherType for others.
fn a_vlan_etype_of_the_82599_is_compared_with_the_frame() {
    let ip = |n| std::net::Ipv4Addr::new(10, 0, 0, n).into();
    let key = FlowKey::five_tuple(proto::TCP, ip(1), 4000, ip(2), 80);
    let tagged = FlowKey { vlan_tci: 5, ..key };
    let mut frames = Frames::new();
    for (count, key) in [(10, key), (3, tagged)] {
        for time in 0..count {
            frames.push(time, LinkType::Ethernet, &Build::new(&key).bytes());
        }
    }
    for (rule, packets) in [
        ("vlan-etype 0x8100", 3),
        ("vlan-etype 0x0800", 10),
        ("vlan 5 vlan-etype 0x8100", 3),
        ("vlan 5 vlan-etype 0x0800", 0),
        ("vlan-etype 0x86dd", 0),
    ] {
        let text = format!("flow-type tcp4 {rule} action 3");
        let analysis = with("x520", &text, &mut frames);
        let [found] = &policy(&analysis, "fdir").rules[..] else { panic!("{rule}") };
        assert_eq!((&*found.verdict, found.packets), ("accepted", packets), "{rule}");
    }
}

/// The X710 counts the offset from the start of the payload, the E810 from the start of the packet. The payload of this one is
/// behind 14 bytes of Ethernet, 20 of IP and 20 of TCP.
fn a_flexible_word_is_where_the_adapter_counts_it() {
    let ip = |n| std::net::Ipv4Addr::new(10, 0, 0, n).into();
    let key = FlowKey::five_tuple(proto::TCP, ip(1), 4000, ip(2), 80);
    let mut frames = Frames::new();
    let bytes = Build::new(&key).payload(&[0, 0, 0xbe, 0xef, 0, 0]).bytes();
    frames.push(0, LinkType::Ethernet, &bytes);
    for (adapter, offset, packets) in
        [("x710", 2, 1), ("x710", 56, 0), ("e810", 56, 1), ("e810", 2, 0)]
    {
        let rule = format!("flow-type tcp4 dst-port 80 user-def 0x{offset:04x}beef action 3");
        let analysis = with(adapter, &rule, &mut frames);
        let [found] = &policy(&analysis, "fdir").rules[..] else { panic!("{rule}") };
        assert_eq!((&*found.verdict, found.packets), ("accepted", packets), "{adapter}: {rule}");
    }
}
