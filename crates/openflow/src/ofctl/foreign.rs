//! Words that have no meaning in OpenFlow: those of Open vSwitch's extensions, and misspelt ones.

use super::{Part, TextError};

/// Actions that only Open vSwitch has, and what to write instead.
const ACTIONS: &[(&str, &str)] = &[
    ("resubmit", "write goto_table:NUMBER, with a higher number"),
    (
        "push",
        "write push_vlan:0x8100, push_mpls:0x8847 or push_pbb:0x88e7, or set_field for a copy",
    ),
    ("pop", "write pop_vlan, pop_mpls:ETHERTYPE or pop_pbb"),
    ("load", "write set_field:VALUE->FIELD, or write_metadata:VALUE for a register"),
    ("move", "write set_field:VALUE->FIELD; OpenFlow 1.4 cannot copy a field"),
    ("output_trunc", "write output:PORT; OpenFlow cannot cut a frame, except for a controller"),
    ("learn", "add the flows with a controller; work.kind = \"bridge\" learns addresses itself"),
    ("bundle", "write group:NUMBER, with a group of type select"),
    ("bundle_load", "write group:NUMBER, with a group of type select"),
    ("multipath", "write group:NUMBER, with a group of type select"),
    ("conjunction", "write one flow for each combination"),
    ("fin_timeout", "write idle_timeout=SECONDS before the actions"),
    ("exit", "leave it out, and write no action behind it"),
    ("clone", "write group:NUMBER, with a group of type all"),
    ("note", "write cookie=NUMBER before the actions"),
    ("sample", "leave it out; 'flowyard trace' follows frames"),
    ("ct", "leave it out; the switch tracks no connections"),
    ("ct_clear", "leave it out; the switch tracks no connections"),
    ("nat", "leave it out; work.kind = \"balance\" translates addresses"),
    ("check_pkt_larger", "leave it out; OpenFlow cannot compare the length of a frame"),
    ("encap", "leave it out, or write push_vlan, push_mpls or push_pbb"),
    ("decap", "leave it out, or write pop_vlan, pop_mpls or pop_pbb"),
    ("delete_field", "leave it out"),
];

/// Beginnings of the names of fields that only Open vSwitch has, and what to write instead. A name is
/// one of these, or one of those that end in `*` and more.
const FIELDS: &[(&str, &str)] = &[
    ("reg*", REGISTER),
    ("xreg*", REGISTER),
    ("xxreg*", REGISTER),
    ("ct_*", "leave it out; the switch tracks no connections (tcp_flags=+syn-ack finds new ones)"),
    ("nw_ttl", "leave it out; OpenFlow 1.4 cannot match it (dec_ttl drops frames whose TTL ends)"),
    ("mpls_ttl", "leave it out; OpenFlow 1.4 cannot match it"),
    ("ip_frag", FRAGMENT),
    ("nw_frag", FRAGMENT),
    ("vlan_tci*", "write dl_vlan=ID, dl_vlan_pcp=PRIORITY, or vlan_vid=0x1000/0x1000 for any tag"),
    ("tun_*", "write tun_id, the only field of a tunnel in OpenFlow 1.4"),
    ("pkt_mark", REGISTER),
    ("skb_mark", REGISTER),
    ("skb_priority", REGISTER),
    ("conj_id", "write one flow for each combination"),
    ("dp_hash", "write group:NUMBER, with a group of type select"),
    ("recirc_id", "leave it out"),
    ("packet_type", "leave it out; every frame is an Ethernet frame"),
    ("in_port_oxm", "write in_port"),
    ("nsh_*", "leave it out"),
    ("nd_reserved", "leave it out"),
    ("nd_options_type", "leave it out"),
];

const REGISTER: &str = "write metadata=VALUE/MASK, which write_metadata sets";
const FRAGMENT: &str = "leave it out; fragments are matched like other frames, but without ports";

/// What to write instead of a field that is an extension of Open vSwitch; `None` for other words.
fn field(name: &str) -> Option<&'static str> {
    let is = |(known, _): &&(&str, &str)| match known.strip_suffix('*') {
        // `reg` needs a digit, so that `region` is only misspelt.
        Some(front) if front.ends_with("reg") => {
            name.strip_prefix(front).is_some_and(|rest| rest.parse::<u8>().is_ok())
        }
        Some(front) => name.starts_with(front),
        None => name == *known,
    };
    let name = FIELDS.iter().find(is);
    name.map(|(_, fix)| *fix)
}

/// Whether this is the name of a field of Open vSwitch's extensions.
pub(super) fn is_field(name: &str) -> bool {
    field(name).is_some()
}

/// The error for an unknown field: an extension of Open vSwitch, or a misspelt one of `known`.
pub(super) fn no_field<'a>(
    part: Part<'_>,
    known: impl Iterator<Item = &'a str>,
    otherwise: &str,
) -> TextError {
    match field(part.text) {
        Some(fix) => part.wrong("this field is an extension of Open vSwitch", fix),
        None => part.wrong("no such field or setting", near(part.text, known, otherwise)),
    }
}

/// The error for an unknown action: an extension of Open vSwitch, or a misspelt one of `known`.
pub(super) fn no_action<'a>(
    word: Part<'_>,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> TextError {
    match ACTIONS.iter().find(|(action, _)| *action == name) {
        Some((_, fix)) => word.wrong("this action is an extension of Open vSwitch", *fix),
        None => {
            let fix = "write one such as output:1, set_field:VALUE->FIELD, group:1, drop";
            word.wrong("no such action", near(name, known, fix))
        }
    }
}

/// A question for the known word that is most like `word`, or `otherwise` if none is.
pub(super) fn near<'a>(
    word: &str,
    known: impl Iterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    let letters = word.chars().count();
    let most = if letters <= 4 { 1 } else { 2 };
    // Every letter too many is an edit: most names need no comparison, and a long word needs none.
    let alike = known.filter(|name| name.len().abs_diff(letters) <= most);
    let all = alike.map(|name| (strsim::osa_distance(word, name), name));
    match all.filter(|(edits, _)| *edits <= most).min_by_key(|(edits, _)| *edits) {
        Some((_, name)) => format!("did you mean '{name}'?"),
        None => otherwise.into(),
    }
}
