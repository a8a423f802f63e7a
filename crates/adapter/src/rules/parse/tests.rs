//! Tests of the parser for rule files.

use super::*;
use flowyard_frame::{FlowKey, proto};

fn one(text: &str) -> Rule {
    parse("rules", text).unwrap().remove(0)
}

fn faults(text: &str) -> Vec<String> {
    parse("rules", text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn a_rule_with_everything() {
    let rule = one(concat!(
        "ethtool -N eth0 flow-type tcp4 src-ip 10.1.2.3 m 0.0.0.255 dst-port 0x50 vlan 5 m ",
        "0xf000 user-def 0x40ff action 3 loc 7   # a comment"
    ));
    assert_eq!(rule.key.src[..4], [10, 1, 2, 0], "the key is masked");
    assert_eq!(rule.written.src[..4], [10, 1, 2, 3], "what was written is kept");
    assert_eq!(rule.mask.src[..5], [255, 255, 255, 0, 0]);
    assert_eq!((rule.key.dport, rule.mask.dport, rule.mask.sport), (80, 0xffff, 0));
    assert_eq!((rule.key.vlan_tci, rule.mask.vlan_tci), (5, 0x0fff));
    assert_eq!((rule.key.proto, rule.key.eth_type), (proto::TCP, 0x0800));
    assert_eq!((rule.action, rule.loc, rule.line), (RuleAction::Queue(3), Some(7), 1));
    assert!(rule.text.ends_with("loc 7") && rule.text.starts_with("ethtool"));
    assert_eq!(rule.key.flex, 0x40ff);
    let hit = FlowKey { vlan_tci: 0x3005, flex: 0x40ff, sport: 9, ..rule.key };
    assert!(rule.matches(&hit) && !rule.matches(&FlowKey { vlan_tci: 6, ..hit }));
}

#[test]
fn every_flow_type_and_action() {
    let text = "-U eth1 flow-type ip6 src-ip 2001:db8:: m ::ffff l4proto 47 tclass 4 action -1\n\
                flow-type ether dst 02:00:00:00:00:01 proto 0x88cc queue 2\n\n# nothing\n\
                flow-type udp4 vf 3 queue 1\n\
                flow-type esp4 spi 0x100 action -2\n\
                flow-type ip4 l4data 0x00500035 context 2\n\
                flow-type sctp6 dst-mac 2:0:0:0:0:1 action 017";
    let rules = parse("rules", text).unwrap();
    let actions: Vec<_> = rules.iter().map(|rule| rule.action).collect();
    assert_eq!(
        actions,
        [
            RuleAction::Drop,
            RuleAction::Queue(2),
            RuleAction::Vf { vf: 3, queue: 1 },
            RuleAction::Wake,
            RuleAction::Context { context: 2, queue: 0 },
            RuleAction::Queue(15),
        ]
    );
    assert_eq!(rules.iter().map(|rule| rule.line).collect::<Vec<_>>(), [1, 2, 5, 6, 7, 8]);
    assert_eq!(rules[0].mask.src[13..], [0xff, 0, 0]);
    assert_eq!((rules[4].key.sport, rules[4].key.dport), (0x50, 0x35));
    assert!(!rules[3].matches(&rules[3].key), "a key has no SPI");
}

#[test]
fn mac_addresses_and_their_masks() {
    let rule = one(concat!(
        "flow-type ether src 02:14:26:38:4a:5c m 01:00:00:ff:00:0c ",
        "dst 81:92:a3:b4:c5:d6 action 1"
    ));
    assert_eq!(rule.mask.eth_src, [0xfe, 0xff, 0xff, 0, 0xff, 0xf3], "bits of `m` are ignored");
    assert_eq!(rule.key.eth_src, [0x02, 0x14, 0x26, 0, 0x4a, 0x50]);
    assert_eq!(rule.mask.eth_dst, [0xff; 6]);
    assert_eq!(rule.key.eth_dst, [0x81, 0x92, 0xa3, 0xb4, 0xc5, 0xd6]);
    let rule = one("flow-type udp4 dst-mac 2:14:26:38:4a:5c action 1");
    assert_eq!(rule.key.eth_dst, [0x02, 0x14, 0x26, 0x38, 0x4a, 0x5c]);
    assert_eq!((rule.key.eth_src, rule.mask.eth_src), ([0; 6], [0; 6]));
}

#[test]
fn every_error_of_the_file_has_a_place_and_a_fix() {
    let seen = faults(
        "flow-type tcp4 src-ip 10.0.0.0/8 action 1\n\
         flow-type tcp9 action 1\n\
         flow-type udp4 src-port 70000 proto 5 dst-port\n\
         flow-type ip4 tclass 1 m 2 src-ip 10.0.0.1 src-ip 10.0.0.2\n\
         delete 4\n\
         drop everything\n\
         flow-type ip4 action 1 queue 2\n\
         flow-type tcp4 action 1 vf 2\n\
         flow-type ether dst-mac 2:0:0:0:0:1",
    );
    let starts = [
        "rules:1:23: ethtool accepts no prefix length (`10.0.0.0/8`); write `src-ip 10.0.0.0 m 0.255.255.255`",
        "rules:2:11: unknown flow type `tcp9`; use one of ether, ip4",
        "rules:3:25: 70000 is too large; use a number up to 65535",
        "rules:3:31: flow type udp4 has no option `proto`; use src-ip",
        "rules:3:47: `dst-port` has no value; add a value",
        "rules:4:15: flow type ip4 has no option `tclass`",
        "rules:4:44: `src-ip` is given twice; remove one",
        "rules:5:8: no rule above has location 4; remove this line",
        "rules:6:1: `drop` does not start a rule; start with `flow-type`",
        "rules:7:11: `action` and `queue` are both given; remove one",
        "rules:8:11: `action` and `vf` are both given; write `vf N queue M`",
        "rules:9:17: flow type ether has no option `dst-mac`; use src, dst, proto, vlan-etype, vlan, user-def, action",
    ];
    assert_eq!(seen.len(), starts.len(), "{seen:#?}");
    for (fault, start) in seen.iter().zip(starts) {
        assert!(fault.starts_with(start), "{fault}\nshould start with\n{start}");
    }
}

#[test]
fn delete_removes_the_rule_at_a_location() {
    let rules = parse("f", "flow-type tcp4 loc 1\nflow-type udp4 loc 2\ndelete 1").unwrap();
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].flow_type, FlowType::Udp4);
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(flow-type|tcp4|ip6|src-ip|m|10.0.0.1|ff|:|/|0x|é|#| |\n|\t|delete|-1|loc|action|[ -~]){0,60}") {
        let _ = parse("f", &text);
    }
}
