//! Every message of every version is the same after encoding and decoding; no input causes a panic.

use flowyard_openflow::act::Action;
use flowyard_openflow::multipart::{FlowStats, Reply};
use flowyard_openflow::oxm::{Field, Oxm};
use flowyard_openflow::{Match, Message, Version, decode, encode, make, problem, view};
use proptest::prelude::*;
use std::collections::BTreeSet;

flowyard_testkit::tests! {
    a_message_comes_back,
    a_broken_message_is_refused_or_read,
    any_bytes_are_refused_or_read,
    random_messages_have_every_kind,
    views_agree_with_decoded_messages,
    a_reply_that_does_not_fit_is_split_between_flows,
    each_fault_is_answered_with_its_type_and_code,
    both_sides_agree_on_the_highest_common_version,
    messages_that_version_1_0_cannot_express_are_refused,
}

fn bytes(message: &Message, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    let done = encode(message, version, 7, &mut out);
    assert!(done.is_ok(), "{version:?} {message:?}: {done:?}");
    out
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V10), Just(Version::V13), Just(Version::V14)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    fn a_message_comes_back(version in version(), seed: u64) {
        let message = make(version, seed);
        prop_assert!(message.is_some());
        let message = message.unwrap();
        let wire = bytes(&message, version);
        let back = decode(&wire);
        prop_assert!(back.is_ok(), "{:?} of {:?}", back, message);
        let (header, back) = back.unwrap();
        prop_assert_eq!(header.xid, 7);
        prop_assert_eq!(back, message);
    }

    /// Damaged bytes are refused, or decode to another message, which is then checked in the same
    /// way.
    fn a_broken_message_is_refused_or_read(
        version in version(), seed: u64, at: prop::sample::Index, value: u8, cut: prop::sample::Index,
    ) {
        let mut wire = bytes(&make(version, seed).unwrap(), version);
        let at = at.index(wire.len());
        wire[at] = value;
        check(&wire);
        wire.truncate(cut.index(wire.len() + 1));
        check(&wire);
        // With a matching length, the cut is inside the body.
        if wire.len() >= 8 {
            let len = (wire.len() as u16).to_be_bytes();
            wire[2..4].copy_from_slice(&len);
            check(&wire);
        }
    }

    fn any_bytes_are_refused_or_read(mut wire in prop::collection::vec(any::<u8>(), 8..200), kind in 0..35_u8, version in version()) {
        let len = (wire.len() as u16).to_be_bytes();
        (wire[0], wire[1], wire[2], wire[3]) = (version as u8, kind, len[0], len[1]);
        check(&wire);
    }
}

/// A message that was decoded can be encoded, and then decodes to the same message.
fn check(wire: &[u8]) {
    let _ = (view::FlowMod::new(wire), view::PacketIn::new(wire), view::PacketOut::new(wire));
    let Ok((header, message)) = decode(wire) else { return };
    let version = Version::of(header.version).unwrap_or(Version::V13);
    let again = bytes(&message, version);
    assert_eq!(decode(&again).map(|(_, message)| message), Ok(message));
    // A view accepts every message that decoding accepts.
    match header.kind {
        10 => assert!(view::PacketIn::new(wire).is_ok()),
        13 => assert!(view::PacketOut::new(wire).is_ok()),
        14 => assert!(view::FlowMod::new(wire).is_ok()),
        _ => {}
    }
}

fn random_messages_have_every_kind() {
    for (version, wanted) in [(Version::V10, 22), (Version::V13, 30), (Version::V14, 33)] {
        let made = (0..3000).filter_map(|seed| make(version, seed));
        let kinds: BTreeSet<_> = made.filter_map(|message| message.number(version)).collect();
        assert_eq!(kinds.len(), wanted, "{version:?}");
    }
}

fn views_agree_with_decoded_messages() {
    let mut seen = 0;
    for version in Version::ALL {
        for message in (0..4000).filter_map(|seed| make(version, seed)) {
            let wire = bytes(&message, version);
            match &message {
                Message::FlowMod(m) => {
                    let view = view::FlowMod::new(&wire).unwrap();
                    let command = m.command as u16;
                    assert_eq!((view.cookie(), view.priority()), (m.cookie, m.priority));
                    assert_eq!((view.command(), view.buffer()), (command, m.buffer));
                    assert_eq!(view.table(), m.table);
                }
                Message::PacketIn(m) => {
                    let view = view::PacketIn::new(&wire).unwrap();
                    assert_eq!((view.buffer(), view.total()), (m.buffer, m.total));
                    assert_eq!((view.reason(), view.data), (m.reason as u8, &m.data[..]));
                }
                Message::PacketOut(m) => {
                    let view = view::PacketOut::new(&wire).unwrap();
                    assert_eq!((view.buffer(), view.in_port()), (m.buffer, m.in_port));
                    assert_eq!(view.data, m.data);
                }
                _ => continue,
            }
            seen += 1;
        }
    }
    assert!(seen > 300, "{seen}");
}

/// 1.3.5, section 7.3.5: a reply that does not fit becomes several messages, and all but the last
/// have the flag "more".
fn a_reply_that_does_not_fit_is_split_between_flows() {
    for version in Version::ALL {
        let flow = |priority| FlowStats { priority, ..FlowStats::default() };
        let all: Vec<FlowStats> = (0..3000).map(flow).collect();
        let reply = Message::MultipartReply { more: false, body: Reply::Flow(all.clone()) };
        let mut rest = &bytes(&reply, version)[..];
        let (mut found, mut parts) = (Vec::new(), 0);
        while !rest.is_empty() {
            let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
            let (part, behind) = rest.split_at(len);
            let Ok((_, Message::MultipartReply { more, body: Reply::Flow(flows) })) = decode(part)
            else {
                panic!("no reply");
            };
            assert_eq!(more, !behind.is_empty());
            found.extend(flows);
            (parts, rest) = (parts + 1, behind);
        }
        assert!(parts > 2, "{parts}");
        let plain = |flow: &FlowStats| (flow.priority, flow.packets);
        assert!(found.iter().map(plain).eq(all.iter().map(plain)));
    }
}

/// The error with which each fault is answered.
fn each_fault_is_answered_with_its_type_and_code() {
    let field = |header: u32, value: &[u8]| [&header.to_be_bytes()[..], value].concat();
    let flow_mod = |matching: &[u8], instructions: &[u8]| {
        let mut wire = vec![4, 14, 0, 0, 0, 0, 0, 1];
        wire.extend([0; 40]);
        wire.extend([0, 1]);
        wire.extend((4 + matching.len() as u16).to_be_bytes());
        wire.extend(matching);
        wire.resize(wire.len().next_multiple_of(8), 0);
        wire.extend(instructions);
        let len = (wire.len() as u16).to_be_bytes();
        wire[2..4].copy_from_slice(&len);
        decode(&wire).err().map(|rejected| rejected.problem)
    };
    let action = |bytes: &[u8]| {
        let len = 8 + bytes.len() as u8;
        flow_mod(&[], &[&[0, 4, 0, len, 0, 0, 0, 0], bytes].concat())
    };
    assert_eq!(flow_mod(&field(Field::InPort.header(false), &[0, 0, 0, 1]), &[]), None);
    assert_eq!(flow_mod(&field(0x8000_5004, &[0; 4]), &[]), Some(problem::MATCH_BAD_FIELD));
    assert_eq!(flow_mod(&field(0x0000_0004, &[0; 4]), &[]), Some(problem::MATCH_BAD_FIELD));
    assert_eq!(flow_mod(&field(0x8000_0003, &[0; 3]), &[]), Some(problem::MATCH_BAD_LEN));
    assert_eq!(flow_mod(&field(0x8000_0004, &[0; 2]), &[]), Some(problem::MATCH_BAD_LEN));
    assert_eq!(flow_mod(&field(0x8000_0108, &[0; 8]), &[]), Some(problem::MATCH_BAD_MASK));
    assert_eq!(flow_mod(&field(0x8000_1001, &[64]), &[]), Some(problem::MATCH_BAD_VALUE));
    let outside = field(0x8000_1708, &[1, 2, 3, 4, 255, 0, 0, 0]);
    assert_eq!(flow_mod(&outside, &[]), Some(problem::MATCH_BAD_WILDCARDS));
    assert_eq!(flow_mod(&[], &[0, 9, 0, 8, 0, 0, 0, 0]), Some(problem::INSTRUCTION_UNKNOWN));
    assert_eq!(flow_mod(&[], &[0, 1, 0, 16, 0, 0, 0, 0]), Some(problem::INSTRUCTION_BAD_LEN));
    assert_eq!(flow_mod(&[], &[0, 1, 0, 4, 0, 0, 0, 0]), Some(problem::INSTRUCTION_BAD_LEN));
    assert_eq!(action(&[0, 1, 0, 8, 0, 0, 0, 0]), Some(problem::ACTION_BAD_TYPE));
    assert_eq!(action(&[0, 0, 0, 8, 0, 0, 0, 0]), Some(problem::ACTION_BAD_LEN));
    let set = |header: u32, value: &[u8]| {
        let mut bytes = [&[0, 25, 0, 16][..], &header.to_be_bytes(), value].concat();
        bytes.resize(16, 0);
        action(&bytes)
    };
    assert_eq!(set(Field::EthDst.header(false), &[1; 6]), None);
    assert_eq!(set(Field::InPort.header(false), &[1; 4]), Some(problem::ACTION_BAD_SET_TYPE));
    assert_eq!(set(0x8000_0605, &[1; 5]), Some(problem::ACTION_BAD_SET_LEN));
    let vid = Field::VlanVid.header(false);
    assert_eq!(set(vid, &[0xff, 0xff]), Some(problem::ACTION_BAD_SET_ARGUMENT));
    let kind = |wire: &[u8]| decode(wire).err().map(|rejected| rejected.problem);
    assert_eq!(kind(&[3, 5, 0, 8, 0, 0, 0, 0]), Some(problem::REQUEST_BAD_VERSION));
    assert_eq!(kind(&[4, 99, 0, 8, 0, 0, 0, 0]), Some(problem::REQUEST_BAD_TYPE));
    assert_eq!(kind(&[4, 5, 0, 9, 0, 0, 0, 0, 0]), Some(problem::REQUEST_BAD_LEN));
    let multipart = [4, 18, 0, 16, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0];
    assert_eq!(kind(&multipart), Some(problem::REQUEST_BAD_MULTIPART));
}

/// 1.3.5, section 6.3.1.
fn both_sides_agree_on_the_highest_common_version() {
    let agree = |header, bitmap| Version::agree(&Version::ALL, header, bitmap);
    assert_eq!(agree(1, None), Some(Version::V10));
    assert_eq!(agree(6, None), Some(Version::V14));
    assert_eq!(agree(3, None), None);
    assert_eq!(agree(6, Some(1 << 6 | 1 << 4)), Some(Version::V13));
    assert_eq!(agree(6, Some(1 << 6)), None);
}

/// A message that 1.0 cannot express is refused with a reason.
fn messages_that_version_1_0_cannot_express_are_refused() {
    let refuse = |action: Action| {
        let out =
            flowyard_openflow::flow::PacketOut { actions: vec![action], ..Default::default() };
        encode(&Message::PacketOut(out), Version::V10, 0, &mut Vec::new()).err().map(|p| p.why)
    };
    assert_eq!(refuse(Action::PopVlan), Some("the version has no such action"));
    assert_eq!(refuse(Action::StripVlan), None);
    let to = Action::Output { port: 0x1_0000, max_len: 0 };
    assert_eq!(refuse(to), Some("1.0 has no such port"));
    let mut m = flowyard_openflow::flow::FlowMod::default();
    for oxm in [Oxm::exact(Field::Metadata, 1), Oxm::masked(Field::EthDst, 0, 1)] {
        m.matching = Match(vec![oxm]);
        assert!(encode(&Message::FlowMod(m.clone()), Version::V10, 0, &mut Vec::new()).is_err());
    }
}
