//! Examples in both directions.

use super::*;
use crate::flow::{FlowCommand, FlowMod};
use crate::{Message, decode, encode, ofctl};

/// A flow as a version writes it, as text; or the reason for which it cannot.
fn written(text: &str, version: Version) -> Result<String, Problem> {
    let m = ofctl::flow(text, FlowCommand::Add).expect("a flow");
    let mut bytes = Vec::new();
    encode(&Message::FlowMod(m), version, 0, &mut bytes)?;
    let Ok((_, Message::FlowMod(m))) = decode(&bytes) else { panic!("no flow-mod") };
    let text = ofctl::flow_mod_text(&FlowMod { out_port: reserved::ANY, ..m });
    Ok(text.split("actions=").nth(1).unwrap_or("").into())
}

const UDP: &str = "udp,dl_vlan=5,";
const OPEN: &str = "in_port=1,";
const UNTAGGED: &str = "dl_vlan=0xffff,";

#[test]
fn actions_of_1_0_are_written_in_1_3_if_the_match_decides_what_they_do() {
    for (matching, old, new) in [
        (UDP, "mod_vlan_vid:11", Some("set_field:0x100b->vlan_vid")),
        (UDP, "mod_vlan_pcp:3", Some("set_field:3->dl_vlan_pcp")),
        (UNTAGGED, "mod_vlan_vid:0", Some("push_vlan:0x8100,set_field:0x1000->vlan_vid")),
        (
            UNTAGGED,
            "mod_vlan_vid:11,mod_vlan_pcp:1",
            Some("push_vlan:0x8100,set_field:0x100b->vlan_vid,set_field:1->dl_vlan_pcp"),
        ),
        (OPEN, "mod_vlan_vid:11", None),
        (OPEN, "mod_vlan_pcp:1", None),
        // An earlier action of the list has added or removed a tag.
        (
            UNTAGGED,
            "push_vlan:0x8100,mod_vlan_vid:5,output:2",
            Some("push_vlan:0x8100,set_field:0x1005->vlan_vid,output:2"),
        ),
        (
            OPEN,
            "push_vlan:0x88a8,mod_vlan_pcp:5",
            Some("push_vlan:0x88a8,set_field:5->dl_vlan_pcp"),
        ),
        (UDP, "pop_vlan,mod_vlan_vid:5", None),
        (UNTAGGED, "push_vlan:0x8100,strip_vlan,mod_vlan_vid:5", None),
        (UNTAGGED, "push_vlan:0x8100,strip_vlan", Some("push_vlan:0x8100,pop_vlan")),
        (UDP, "strip_vlan", Some("pop_vlan")),
        (OPEN, "strip_vlan", Some("pop_vlan")),
        (UNTAGGED, "strip_vlan,output:1", Some("output:1")),
        ("udp,", "mod_tp_src:7", Some("set_field:7->udp_src")),
        ("tcp6,", "mod_tp_dst:7", Some("set_field:7->tcp_dst")),
        ("icmp,", "mod_tp_dst:7", Some("set_field:7->icmp_code")),
        ("arp,", "mod_tp_dst:7,output:1", Some("output:1")),
        ("ip,", "mod_tp_dst:7", None),
        (OPEN, "mod_tp_dst:7", None),
        (OPEN, "enqueue:1:7", Some("set_queue:7,output:1")),
        (OPEN, "enqueue:1:7,output:2", Some("set_queue:7,output:1,set_queue:0,output:2")),
    ] {
        for version in [Version::V13, Version::V14] {
            let text = format!("{matching}actions={old}");
            assert_eq!(written(&text, version).ok().as_deref(), new, "{text}");
        }
    }
    let why = written("in_port=1,actions=mod_vlan_vid:3", Version::V13).expect_err("refused").why;
    assert!(why.contains("add dl_vlan"), "{why}");
}

#[test]
fn actions_are_written_in_1_0_if_it_has_them() {
    for (matching, new, old) in [
        (OPEN, "mod_vlan_vid:11,strip_vlan", Some("mod_vlan_vid:11,strip_vlan")),
        (OPEN, "mod_tp_src:7,enqueue:1:7", Some("mod_tp_src:7,enqueue:1:7")),
        (OPEN, "mod_nw_src:10.0.0.1", Some("set_field:10.0.0.1->nw_src")),
        (UDP, "set_field:11->vlan_vid", Some("mod_vlan_vid:11")),
        (OPEN, "set_field:11->vlan_vid", None),
        (UDP, "set_field:3->vlan_pcp,pop_vlan", Some("mod_vlan_pcp:3,strip_vlan")),
        (UDP, "set_field:3->udp_dst", Some("mod_tp_dst:3")),
        (UNTAGGED, "push_vlan:0x8100,set_field:11->vlan_vid", Some("mod_vlan_vid:11")),
        (UNTAGGED, "push_vlan:0x8100,output:1", Some("mod_vlan_vid:0,output:1")),
        (UDP, "push_vlan:0x8100", None),
        (UNTAGGED, "push_vlan:0x88a8", None),
        (OPEN, "set_queue:7,output:1,set_queue:0,output:2", Some("enqueue:1:7,output:2")),
        (OPEN, "set_queue:7,flood", None),
        (OPEN, "group:1", None),
        ("ip,", "dec_ttl", None),
    ] {
        let text = format!("{matching}actions={new}");
        assert_eq!(written(&text, Version::V10).ok().as_deref(), old, "{text}");
    }
    assert!(written("table=1,actions=drop", Version::V10).is_err());
}
