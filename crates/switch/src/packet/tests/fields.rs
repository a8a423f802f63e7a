//! Set-field and times to live.

use super::*;

/// The bytes that differ: offset, old and new value.
fn changed(old: &[u8], new: &[u8]) -> Vec<usize> {
    assert_eq!(old.len(), new.len());
    (0..old.len()).filter(|at| old[*at] != new[*at]).collect()
}

/// Fields that share a header with those that are set, but decide which headers follow.
const KINDS: [Field; 4] = [Field::EthType, Field::IpProto, Field::Icmpv6Type, Field::VlanVid];

#[test]
fn a_field_that_the_frame_has_is_set_and_no_other_changes() {
    let mut set = 0;
    for (name, frame) in frames() {
        let fresh = packet(&frame);
        for field in Field::ALL.iter().copied().filter(|field| field.settable()) {
            for value in [0, 1, field.full(), field.full() / 3, field.full() / 5 * 2] {
                if KINDS.contains(&field) {
                    continue;
                }
                let oxm = Oxm::exact(field, value);
                let bytes = after(&frame, &[Action::SetField(oxm)]);
                if !fresh.key.has(field) || field == Field::TunnelId {
                    assert_eq!(bytes, frame, "{name}: {field:?}");
                    continue;
                }
                set += 1;
                let new = packet(&bytes);
                for other in Field::ALL {
                    let wanted = if *other == field { Some(value) } else { fresh.key.get(*other) };
                    assert_eq!(new.key.get(*other), wanted, "{name}: {other:?} after {oxm:?}");
                }
            }
        }
    }
    assert!(set > 500, "{set}");
}

#[test]
fn setting_the_same_value_changes_nothing() {
    // A length in place of the EtherType has a number of its own in the key.
    for (name, frame) in frames().into_iter().filter(|(name, _)| *name != "length") {
        let key = packet(&frame).key;
        for (field, value) in key.fields().filter(|(field, _)| field.settable()) {
            let bytes = after(&frame, &[Action::SetField(Oxm::exact(field, value))]);
            assert_eq!(bytes, frame, "{name}: {field:?}");
        }
    }
}

#[test]
fn the_field_of_the_kind_of_frame_is_parsed_again() {
    let all = frames();
    let frame = |name: &str| &all.iter().find(|(other, _)| *other == name).expect(name).1;
    let set = |field, value| Action::SetField(Oxm::exact(field, value));
    // TCP becomes UDP: its first bytes are the ports now.
    let mut packet = packet(frame("udp"));
    assert_eq!(packet.change(&set(Field::IpProto, 132)), Ok(()));
    assert_eq!(packet.key.get(Field::SctpDst), Some(53));
    assert_eq!(packet.key.get(Field::UdpDst), None);
    assert_eq!(sum(&[&packet.bytes()[14..34]]), 0);
    assert_eq!(packet.change(&set(Field::EthType, 0x88cc)), Ok(()));
    assert_eq!((packet.key.get(Field::Ipv4Src), packet.layout.net), (None, Net::Other));
    assert_eq!(packet.bytes()[12..14], [0x88, 0xcc]);
    let bytes = after(frame("solicitation"), &[set(Field::Icmpv6Type, 128)]);
    assert_eq!(self::packet(&bytes).key.get(Field::Ipv6NdTarget), None);
    // The EtherType behind tags.
    let bytes = after(frame("tagged arp"), &[set(Field::EthType, 0x88b5)]);
    assert_eq!(bytes[12..18], [0x81, 0, 0x60, 5, 0x88, 0xb5]);
}

#[test]
fn a_tag_is_set_by_bits_and_1_0_adds_a_missing_one() {
    let all = frames();
    for (name, frame) in &all {
        let tagged = packet(frame).layout.tagged;
        let tci = if tagged { u16::from_be_bytes([frame[14], frame[15]]) } else { 0 };
        for (action, wanted) in [
            (Action::SetVlanVid(0xabc), tci & 0xf000 | 0xabc),
            (Action::SetVlanVid(0), tci & 0xf000),
            (Action::SetVlanPcp(5), tci & 0x1fff | 0xa000),
            (Action::SetVlanPcp(0), tci & 0x1fff),
        ] {
            let bytes = after(frame, std::slice::from_ref(&action));
            let tpid = if tagged { [frame[12], frame[13]] } else { [0x81, 0] };
            let rest = if tagged { &frame[16..] } else { &frame[12..] };
            let wanted = [&frame[..12], &tpid, &wanted.to_be_bytes(), rest].concat();
            assert_eq!(bytes, wanted, "{name}: {action:?}");
        }
        // A set-field of 1.3 needs the tag.
        let vid = after(frame, &[Action::SetField(Oxm::exact(Field::VlanVid, 0x1abc))]);
        let pcp = after(frame, &[Action::SetField(Oxm::exact(Field::VlanPcp, 5))]);
        if tagged {
            let word = |bytes: &[u8]| u16::from_be_bytes([bytes[14], bytes[15]]);
            assert_eq!((word(&vid), word(&pcp)), (tci & 0xf000 | 0xabc, tci & 0x1fff | 0xa000));
        } else {
            assert_eq!((&vid, &pcp), (frame, frame), "{name}");
        }
    }
}

#[test]
fn actions_of_1_0_set_the_ports_of_tcp_and_udp_and_the_type_of_icmp() {
    for (name, frame) in frames() {
        let l4 = packet(&frame).layout.l4;
        let ports = matches!(packet(&frame).layout.proto, 6 | 17) && l4 != 0;
        let is_icmp = name == "icmp";
        let (src, dst) = (
            after(&frame, &[Action::SetTpSrc(0x00fe)]),
            after(&frame, &[Action::SetTpDst(0x00fe)]),
        );
        if ports {
            assert_eq!(
                (&src[l4..l4 + 2], &dst[l4 + 2..l4 + 4]),
                (&[0, 0xfe][..], &[0, 0xfe][..]),
                "{name}"
            );
            assert_eq!(src[l4 + 2..l4 + 4], frame[l4 + 2..l4 + 4]);
        } else if is_icmp {
            assert_eq!((src[l4], dst[l4 + 1]), (0xfe, 0xfe));
            // A number that does not fit in eight bits is not set.
            assert_eq!(after(&frame, &[Action::SetTpSrc(0x100), Action::SetTpDst(0x1ff)]), frame);
        } else {
            assert_eq!((&src, &dst), (&frame, &frame), "{name}");
        }
    }
}

#[test]
fn times_to_live_are_set_decremented_and_copied() {
    let all = frames();
    let frame = |name: &str| all.iter().find(|(other, _)| *other == name).expect(name).1.clone();
    for (name, frame) in &all {
        let layout = packet(frame).layout;
        let at = match layout.net {
            Net::Ipv4 => Some(layout.l3 + 8),
            Net::Ipv6 => Some(layout.l3 + 7),
            _ => None,
        };
        let (set, down) =
            (after(frame, &[Action::SetNwTtl(200)]), after(frame, &[Action::DecNwTtl]));
        match at {
            Some(at) => {
                assert_eq!((set[at], down[at]), (200, frame[at] - 1), "{name}");
                for ttl in [0, 1] {
                    let low = after(frame, &[Action::SetNwTtl(ttl)]);
                    assert_eq!(packet(&low).change(&Action::DecNwTtl), Err(Fault::Ttl));
                }
                let two = after(frame, &[Action::SetNwTtl(2), Action::DecNwTtl]);
                assert_eq!(two[at], 1);
            }
            None => assert_eq!((&set, &down), (frame, frame), "{name}"),
        }
        let at = layout.l3 + 3;
        let (set, down) =
            (after(frame, &[Action::SetMplsTtl(200)]), after(frame, &[Action::DecMplsTtl]));
        if layout.net == Net::Mpls {
            assert_eq!((changed(frame, &set), changed(frame, &down)), (vec![at], vec![at]));
            assert_eq!((set[at], down[at]), (200, 39), "{name}");
            for ttl in [0, 1] {
                let low = after(frame, &[Action::SetMplsTtl(ttl)]);
                assert_eq!(packet(&low).change(&Action::DecMplsTtl), Err(Fault::Ttl));
            }
            assert_eq!(after(frame, &[Action::SetMplsTtl(2), Action::DecMplsTtl])[at], 1);
        } else {
            assert_eq!((&set, &down), (frame, frame), "{name}");
        }
    }
    for (name, inner) in [("label", 64), ("label over ipv6", 63), ("labels", 9)] {
        let frame = frame(name);
        let l3 = packet(&frame).layout.l3;
        let out = after(&frame, &[Action::CopyTtlOut]);
        assert_eq!((changed(&frame, &out), out[l3 + 3]), (vec![l3 + 3], inner), "{name}");
        let into = after(&frame, &[Action::CopyTtlIn]);
        let at = match name {
            "label" => l3 + 4 + 8,
            "label over ipv6" => l3 + 4 + 7,
            _ => l3 + 7,
        };
        assert_eq!(into[at], 40, "{name}");
        if name == "label" {
            assert_eq!(sum(&[&into[l3 + 4..l3 + 24]]), 0, "the checksum of the inner header");
        } else {
            assert_eq!(changed(&frame, &into), [at], "{name}");
        }
    }
    // Without a label there is nothing to copy, and behind the last label there may be no IP header.
    let tcp = frame("tcp");
    assert_eq!(after(&tcp, &[Action::CopyTtlOut, Action::CopyTtlIn]), tcp);
    for inner in [&[][..], &[0x45; 19], &[0x15; 30]] {
        let cut = eth(&[], 0x8847, &mpls(&[(1, 0, 1, 40)], inner));
        assert_eq!(after(&cut, &[Action::CopyTtlOut, Action::CopyTtlIn]), cut);
    }
    let cut = eth(&[], 0x8847, &mpls(&[(1, 0, 0, 40)], &[1, 2, 3]));
    assert_eq!(after(&cut, &[Action::CopyTtlOut, Action::CopyTtlIn]), cut);
}

/// RFC 2597, section 6: AF11 is 10, AF12 12, AF13 14; the next class is eight higher.
#[test]
fn a_remark_raises_the_drop_precedence_of_assured_forwarding_only() {
    let all = frames();
    for (_, frame) in all.iter().filter(|(name, _)| matches!(*name, "tcp" | "udp6")) {
        for dscp in 0..64_u8 {
            for levels in 0..=5 {
                let marked =
                    after(frame, &[Action::SetField(Oxm::exact(Field::IpDscp, dscp.into()))]);
                let mut packet = packet(&marked);
                packet.remark(levels);
                let assured = [10, 12, 14, 18, 20, 22, 26, 28, 30, 34, 36, 38].contains(&dscp);
                let highest = dscp / 8 * 8 + 6;
                let wanted = if assured { (dscp + 2 * levels).min(highest) } else { dscp };
                assert_eq!(packet.key.get(Field::IpDscp), Some(wanted.into()), "{dscp} {levels}");
                assert_eq!(packet.key.get(Field::IpEcn), Some(1));
                check(&packet, &marked, &Action::DecNwTtl);
            }
        }
    }
    let (_, arp) = all.iter().find(|(name, _)| *name == "arp").expect("arp");
    let mut packet = packet(arp);
    packet.remark(1);
    assert!(packet.is_same());
}
