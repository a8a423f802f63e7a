//! Tests of the verdicts: each documented peculiarity of a driver once.

use crate::fdir::Pballoc;

use super::*;
use crate::rules::{overlaps, parse};

const IXGBE: Target = Target::E82599 { pballoc: Pballoc::K64, driver: Driver::InTree };
const OOT: Target = Target::E82599 { pballoc: Pballoc::K64, driver: Driver::OutOfTree };
const I40E: Target = Target::I40e { guaranteed: 512, best_effort: 6912 };

fn verdicts(target: Target, text: &str) -> Vec<Verdict> {
    compile(&parse("rules", text).unwrap(), target)
}

/// `+loc`, `=line` or the reason, for each rule.
fn brief(target: Target, text: &str) -> Vec<String> {
    let short = |verdict: Verdict| match verdict {
        Verdict::Accepted { loc, .. } => format!("+{loc}"),
        Verdict::Merged { with, .. } => format!("={with}"),
        Verdict::Refused { reason, text, fix } => {
            assert!(!text.is_empty() && !fix.is_empty());
            format!("{reason:?}")
        }
    };
    verdicts(target, text).into_iter().map(short).collect()
}

#[test]
fn ixgbe_has_one_mask_and_the_first_rule_sets_it() {
    let text = "flow-type tcp4 src-ip 10.0.0.1 dst-port 80 action 1 loc 1\n\
                flow-type udp4 src-ip 10.0.0.2 dst-port 53 action 2 loc 2\n\
                flow-type tcp4 src-ip 10.0.0.3 action 2 loc 3\n\
                flow-type ip4 src-ip 10.0.0.3 action 2 loc 4\n\
                flow-type tcp4 src-ip 10.0.0.3 m 0.0.0.255 dst-port 80 loc 1\n\
                flow-type ip4 src-ip 10.0.0.9 l4proto 6 action 3 loc 5\n\
                flow-type tcp4 src-ip 10.0.0.9 dst-port 80 action 3 loc 2";
    let expect = ["+1", "=7", "OneMask", "OneMask", "OneMask", "OneMask", "+2"];
    assert_eq!(brief(IXGBE, text), expect);
    let conflict = "flow-type ip4 src-ip 10.0.0.3\nflow-type tcp4 src-ip 10.0.0.3";
    match &verdicts(IXGBE, conflict)[1] {
        Verdict::Refused { reason: Reason::OneMask, text, .. } => assert!(text.contains("L4 type")),
        other => panic!("{other:?}"),
    }
    // The hardware masks IPv4 addresses and ports bit by bit.
    let bitwise = "flow-type udp4 src-ip 10.0.0.0 m 0.0.0.255 dst-port 0x4400 m 0xff action -1";
    assert_eq!(brief(IXGBE, bitwise), ["+2045"]);
}

#[test]
fn ixgbe_refuses_fields_that_it_cannot_mask_or_ignores() {
    for (text, reason) in [
        ("flow-type tcp6 dst-port 80", "Ipv6"),
        ("flow-type ether dst 2:0:0:0:0:1", "FlowType"),
        ("flow-type esp4 spi 4", "FlowType"),
        ("flow-type ip4 l4proto 47", "FlowType"),
        ("flow-type ip4 dst-port 80", "PortsWithoutL4"),
        ("flow-type tcp4 vlan 5 m 0xff00", "VlanMask"),
        ("flow-type tcp4 vlan 5 m 0xf000", "+2045"),
        ("flow-type tcp4 vlan 0x2000 m 0x1fff", "+2045"),
        ("flow-type tcp4 vlan 5", "+2045"),
        ("flow-type tcp4 vlan-etype 0x800 m 0xff", "FlexMask"),
        ("flow-type tcp4 vlan-etype 0x800", "+2045"),
        ("flow-type tcp4 user-def 1", "FlexMask"),
        ("flow-type tcp4 tos 4", "IgnoredField"),
        ("flow-type tcp4 dst-mac 2:0:0:0:0:1", "Field"),
        ("flow-type tcp4 action -2", "Action"),
        ("flow-type tcp4 context 1", "RssContext"),
        ("flow-type tcp4 action 127", "Queue"),
        ("flow-type tcp4 vf 3 queue 1", "+2045"),
        ("flow-type tcp4 loc 2046", "Location"),
        ("flow-type tcp4 loc 2045", "+2045"),
    ] {
        assert_eq!(brief(IXGBE, text), [reason], "{text}");
    }
    for (pballoc, last) in [(Pballoc::K64, 2045), (Pballoc::K128, 4093), (Pballoc::K256, 8189)] {
        let target = Target::E82599 { pballoc, driver: Driver::InTree };
        assert_eq!(target.locations() - 1, last);
    }
}

#[test]
fn ixgbe_duplicates_use_another_entry_or_are_refused_by_hash() {
    let twice =
        "flow-type tcp4 dst-port 80 action 1 loc 1\nflow-type tcp4 dst-port 80 action 1 loc 2";
    assert_eq!(brief(IXGBE, twice), ["+1", "=1"]);
    assert_eq!(brief(OOT, twice), ["+1", "AlreadyExists"]);
    let overwritten = format!("{twice}\nflow-type tcp4 dst-port 81 action 1 loc 1");
    assert_eq!(brief(IXGBE, &overwritten), ["=3", "+2", "+1"], "the copy remains");
    let repeat =
        "flow-type tcp4 dst-port 80 action 1 loc 1\nflow-type tcp4 dst-port 80 action 1 loc 1";
    assert_eq!(brief(IXGBE, repeat), ["=2", "+1"], "the driver of the kernel overwrites");
    assert_eq!(brief(OOT, repeat), ["+1", "AlreadyExists"]);
    // Source and destination address are exchanged: another flow with the same hash.
    let other = "flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 action 1\n\
                    flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 action 1\n\
                    flow-type tcp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 action 2";
    assert_eq!(brief(OOT, other), ["+2045", "AlreadyExists", "+2044"]);
    assert_eq!(brief(IXGBE, other), ["+2045", "+2044", "=2"]);
}

/// Random rules with the same action, compared with the number of refusals that a 13-bit hash is
/// expected to cause.
#[test]
fn out_of_tree_false_refusals_are_as_many_as_a_13_bit_hash_causes() {
    for (count, expect) in [(500usize, 15.0f64), (1000, 59.0), (2000, 225.0)] {
        let mut random = flowyard_frame::Rng::new(1);
        let line = |_| {
            let (ip, port) = (random.bits() as u32 | 1, random.bits() as u16 | 1);
            format!(
                "flow-type tcp4 src-ip {} src-port {port} action 1\n",
                std::net::Ipv4Addr::from(ip)
            )
        };
        let text: String = (0..count).map(line).collect();
        let refused = brief(OOT, &text).iter().filter(|v| *v == "AlreadyExists").count() as f64;
        let sigma = expect.sqrt();
        assert!((refused - expect).abs() < 4.0 * sigma, "{count}: {refused}, not {expect}");
    }
}

#[test]
fn i40e_has_one_input_set_per_flow_type_and_whole_fields() {
    let text = "flow-type tcp4 src-ip 10.0.0.1 dst-port 80 action 1\n\
                flow-type tcp4 src-ip 10.0.0.1 action 2\n\
                flow-type udp4 dst-port 53 action 2\n\
                flow-type udp6 dst-port 53 action 2 loc 7423\n\
                flow-type udp4 dst-port 54 user-def 0x20001";
    let expect = ["+7423", "InputSet", "+7422", "+7423", "InputSet"];
    let mut seen = brief(I40E, text);
    assert_eq!(seen.remove(0), "=4", "location 7423 is overwritten");
    assert_eq!(seen, expect[1..]);
    for (text, reason) in [
        ("flow-type tcp4 src-ip 10.0.0.0 m 0.0.0.255", "PartialMask"),
        ("flow-type tcp4 dst-port 80 m 1", "PartialMask"),
        ("flow-type tcp4 vlan 5 m 0xf000", "PartialMask"),
        ("flow-type ip4 l4proto 47", "Field"),
        ("flow-type ip4 tos 4", "Field"),
        ("flow-type ip4 dst-port 4", "+7423"),
        ("flow-type tcp4 vlan-etype 0x8100", "Field"),
        ("flow-type tcp4 dst-mac 2:0:0:0:0:1", "Field"),
        ("flow-type ether dst 2:0:0:0:0:1", "FlowType"),
        ("flow-type ah6 spi 1", "FlowType"),
        ("flow-type tcp4 user-def 0x30001", "FlexOffset"),
        ("flow-type tcp4 user-def 0x420001", "FlexOffset"),
        ("flow-type tcp4 user-def 0x400001", "+7423"),
        ("flow-type tcp4 user-def 0x100000001", "FlexMask"),
        ("flow-type tcp4 user-def 1 m 1", "FlexMask"),
        ("flow-type tcp4 loc 7424", "Location"),
        ("flow-type tcp4 vf 1", "+7423"),
    ] {
        assert_eq!(brief(I40E, text), [reason], "{text}");
    }
    let twice = "flow-type tcp4 dst-port 80 action 1\nflow-type tcp4 dst-port 80 action 2";
    assert_eq!(brief(I40E, twice), ["+7423", "AlreadyExists"]);
    let tcp = verdicts(I40E, "flow-type tcp4 dst-port 80");
    assert!(matches!(&tcp[0], Verdict::Accepted { notes, .. }
        if notes.iter().any(|note| note.contains("ATR is off"))));
}

#[test]
fn ice_through_ethtool_has_no_partial_masks_either() {
    for (text, reason) in [
        ("flow-type tcp4 src-ip 10.0.0.0 m 0.0.0.255", "PartialMask"),
        ("flow-type ip4", "EmptyRule"),
        ("flow-type ip4 src-ip 10.0.0.1 dst-port 9", "Field"),
        ("flow-type ip4 src-ip 10.0.0.1", "+16383"),
        ("flow-type ether dst 2:0:0:0:0:1", "+16383"),
        ("flow-type tcp4 user-def 0x1f80001", "+16383"),
        ("flow-type tcp4 user-def 0x1fa0001", "FlexOffset"),
        ("flow-type tcp4 vf 1", "Action"),
        ("flow-type tcp4 loc 16384", "Location"),
    ] {
        assert_eq!(brief(Target::Ice, text), [reason], "{text}");
    }
    let sets = "flow-type tcp4 dst-port 80\nflow-type tcp4 src-port 80\nflow-type udp4 src-port 80";
    assert_eq!(brief(Target::Ice, sets), ["+16383", "InputSet", "+16382"]);
}

#[test]
fn virtio_and_software_accept_none_and_name_the_alternative() {
    for target in [Target::Virtio, Target::Software] {
        match &verdicts(target, "flow-type tcp4 dst-port 80")[0] {
            Verdict::Refused { reason: Reason::NoNtuple, fix, .. } => {
                assert!(fix.contains("XDP"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_full_table_has_no_location_left() {
    let small = Target::I40e { guaranteed: 2, best_effort: 0 };
    let text = "flow-type tcp4 dst-port 1\nflow-type tcp4 dst-port 2\nflow-type tcp4 dst-port 3";
    assert_eq!(brief(small, text), ["+1", "+0", "TableFull"]);
}

/// Whether a rule that is accepted has a note with this text.
fn has_note(target: Target, text: &str, part: &str) -> bool {
    match &verdicts(target, text)[0] {
        Verdict::Accepted { notes, .. } => notes.iter().any(|note| note.contains(part)),
        other => panic!("{text}: {other:?}"),
    }
}

/// A mask that matches the low bits only, and ignores eight or more above them, is taken for a netmask.
#[test]
fn a_netmask_in_m_is_reported() {
    for (mask, is_netmask) in [
        ("", false),
        (" m 255.255.255.0", true),
        (" m 255.0.0.0", true),
        (" m 254.0.0.0", false),
        (" m 255.255.0.255", false),
        (" m 0.0.0.255", false),
        (" m 255.255.255.255", false),
    ] {
        for field in ["src-ip", "dst-ip"] {
            let text = format!("flow-type tcp4 {field} 10.0.0.7{mask} dst-port 80");
            assert_eq!(has_note(IXGBE, &text, "inverted netmask"), is_netmask, "{text}");
        }
    }
    assert!(!has_note(I40E, "flow-type tcp6 src-ip 2001:db8::1", "inverted netmask"));
}

/// aRFS of ice needs rules that match the whole 4-tuple, and nothing else.
#[test]
fn ice_tells_which_rules_turn_arfs_off() {
    let all = ["src-ip 10.0.0.1", "dst-ip 10.0.0.2", "src-port 5", "dst-port 80"];
    for kind in ["tcp4", "udp4", "sctp4"] {
        let off = |fields: &[&str], more: &str| {
            let text = format!("flow-type {kind} {}{more}", fields.join(" "));
            has_note(Target::Ice, &text, "turns aRFS off")
        };
        assert!(!off(&all, ""), "{kind}");
        let has_arfs = kind != "sctp4";
        for without in 0..4 {
            let some: Vec<_> = (0..4).filter(|at| *at != without).map(|at| all[at]).collect();
            assert_eq!(off(&some, ""), has_arfs, "{kind} {some:?}");
        }
        assert_eq!(off(&all, " vlan 5"), has_arfs, "{kind} with a tag");
        assert_eq!(off(&all, " user-def 0x20001"), has_arfs, "{kind} with a flexible word");
    }
    assert!(!has_note(Target::Ice, "flow-type ip4 src-ip 10.0.0.1", "turns aRFS off"));
}

/// i40e and ice match rules of the types ip4 and ip6 only in packets of other protocols; ixgbe in all.
#[test]
fn rules_for_ip_are_reported_not_to_match_tcp_and_udp() {
    let other = "matches only packets that are neither TCP, UDP nor SCTP";
    for (text, is_ip) in [
        ("flow-type ip4 src-ip 10.0.0.1 dst-ip 10.0.0.2 action 1", true),
        ("flow-type ip6 src-ip 2001:db8::1 dst-ip 2001:db8::2 action 1", true),
        ("flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 5 dst-port 6 action 1", false),
        (
            "flow-type udp6 src-ip 2001:db8::1 dst-ip 2001:db8::2 src-port 5 dst-port 6 action 1",
            false,
        ),
    ] {
        assert_eq!(has_note(Target::Ice, text, other), is_ip, "{text}");
        assert_eq!(has_note(I40E, text, other), is_ip, "{text}");
    }
    assert!(!has_note(IXGBE, "flow-type ip4 src-ip 10.0.0.1 action 1", other));
}

#[test]
fn overlapping_rules_are_reported_if_their_order_has_no_effect() {
    let text = "flow-type tcp4 dst-port 80 action 1 loc 1\n\
                flow-type ip4 src-ip 10.0.0.1 action 2 loc 2\n\
                flow-type tcp4 src-ip 10.0.0.1 action 3 loc 3\n\
                flow-type tcp4 dst-port 81 action 1 loc 4";
    let rules = parse("rules", text).unwrap();
    let pairs = |target| -> Vec<(u32, u32)> {
        overlaps(&rules, target).iter().map(|o| (o.first, o.second)).collect()
    };
    assert_eq!(pairs(IXGBE), [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]);
    assert_eq!(pairs(I40E), [(1, 3), (3, 4)], "ip4 and tcp4 are different packet classes");
}

#[test]
fn a_full_e810_compiles_in_reasonable_time() {
    let line = |i| {
        format!(
            "flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.{}.{} src-port 5 dst-port 80\n",
            i / 256,
            i % 256
        )
    };
    let text: String = (0..16385).map(line).collect();
    let seen = brief(Target::Ice, &text);
    assert_eq!((seen[0].as_str(), seen[16383].as_str()), ("+16383", "+0"));
    assert_eq!(seen[16384], "TableFull");
}
