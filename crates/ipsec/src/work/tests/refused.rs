//! Packets that must not leave unprotected, and SAs that are refused.

use flowyard_wire::checksum;

use super::*;
use crate::hub::SaError;

/// The packet of an Ethernet frame behind `count` tags.
fn tagged(frame: &[u8], count: usize) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 0].repeat(count), &frame[12..]].concat()
}

fn of(states: &str, policies: &str) -> Result<Arc<IpsecHub>, SaError> {
    IpsecHub::new(&settings(states, policies)).map(Arc::new).map_err(|bad| bad.error)
}

/// An SA of this gateway, 192.0.2.1, from or to 192.0.2.`peer`.
fn sa(is_out: bool, peer: u8, mode: &str, more: &str) -> String {
    let (src, dst) = if is_out { (1, peer) } else { (peer, 1) };
    format!(
        "src 192.0.2.{src} dst 192.0.2.{dst}\n proto esp spi {} reqid {peer} mode {mode}\n aead rfc4106(gcm(aes)) {KEY} 128\n{more}",
        0x1000 * u32::from(peer) + u32::from(is_out)
    )
}

/// A policy of packets between two networks, with an SA from or to 192.0.2.`peer`.
fn policy(dir: &str, nets: [&str; 2], peer: u8) -> String {
    let (src, dst) = if dir == "out" { (1, peer) } else { (peer, 1) };
    format!(
        "src {} dst {}\n dir {dir} priority 10\n tmpl src 192.0.2.{src} dst 192.0.2.{dst}\n proto esp reqid {peer} mode tunnel\n",
        nets[0], nets[1]
    )
}

/// A gateway that joins two tunnels: 10.1.0.0/16 is behind 192.0.2.2, and 10.2.0.0/16 behind 192.0.2.3; and the gateway at 192.0.2.2.
fn joined(more: &str, selector: &str) -> [Arc<IpsecHub>; 2] {
    let (one, two) = ("10.1.0.0/16", &format!("10.2.0.0/16{selector}")[..]);
    let states = [sa(false, 2, "tunnel", ""), sa(true, 3, "tunnel", more)].concat();
    let policies = [policy("fwd", [one, "10.2.0.0/16"], 2), policy("out", [one, two], 3)].concat();
    let spoke = policy("out", [one, "10.2.0.0/16"], 2)
        .replace("src 192.0.2.1 dst 192.0.2.2", "src 192.0.2.2 dst 192.0.2.1");
    [of(&states, &policies).unwrap(), of(&sa(false, 2, "tunnel", ""), &spoke).unwrap()]
}

const NAT: &str = " encap type espinudp sport 4500 dport 4500 addr 0.0.0.0\n";

#[test]
fn policies_see_packets_behind_more_tags_than_a_key_is_made_through() {
    let (one, two) = (hub(true, "", 0), hub(false, "", 0));
    let (mut a, mut b) = (gateway(&one), gateway(&two));
    let mut pool = Pool::new(64, 2048);
    for count in [0, 1, 16, 17, 20] {
        let sent = tagged(&frame([10, 2, 0, 1], 53, 100), count);
        let sealed = worked(&mut a, &mut pool, std::slice::from_ref(&sent)).remove(0).unwrap();
        assert_eq!(sealed[4 * count + 26..][..8], [192, 0, 2, 1, 192, 0, 2, 2], "{count} tags");
        // What has to come protected.
        assert_eq!(worked(&mut b, &mut pool, &[sent]), [Err(DropReason::Policy)], "{count} tags");
    }
}

/// An action list has changed the packet after its key was made.
#[test]
fn policies_see_the_fields_that_a_packet_has_now() {
    let more =
        "src 10.1.0.0/16 dst 10.3.0.0/16 proto udp dport 53\n dir out action block priority 1\n";
    let one = hub(true, more, 0);
    let mut a = gateway(&one);
    let mut pool = Pool::new(64, 2048);
    for (received, now, wanted) in [
        (([10, 9, 0, 1], 53), ([10, 2, 0, 1], 53), Ok(192)),
        (([10, 2, 0, 1], 53), ([10, 9, 0, 1], 53), Ok(10)),
        (([10, 3, 0, 1], 99), ([10, 3, 0, 1], 53), Err(DropReason::Policy)),
        (([10, 3, 0, 1], 0), ([10, 3, 0, 1], 53), Err(DropReason::Policy)),
    ] {
        // The source port is 0 if the destination port is, as that of a key without ports.
        let frame = |(dst, dport): ([u8; 4], u16)| {
            let mut bytes = frame(dst, dport, 40);
            if received.1 == 0 {
                bytes[34..36].fill(0);
            }
            bytes
        };
        let mut batch = batch(&mut pool, &[frame(received)]);
        let bytes = frame(now);
        pool.bytes_mut(&mut batch.frames[0]).copy_from_slice(&bytes);
        a.work(&mut batch, &pool, 0);
        let got = results(&mut batch, &mut pool).remove(0).map(|frame| frame[26]);
        assert_eq!(got, wanted, "{now:?}");
    }
}

#[test]
fn what_came_protected_is_not_quoted_by_an_error() {
    let [center, spoke] = joined(NAT, "");
    let (mut a, mut b) = (gateway(&spoke), gateway(&center));
    let mut pool = Pool::new(64, 2048);
    // It fits the first tunnel, and not the second, whose packets have a UDP header, too.
    for (payload, wanted) in [(1446 - 28, Err(DropReason::TooBig)), (1000, Ok(true))] {
        let sent = frame([10, 2, 0, 1], 53, payload);
        let sealed = worked(&mut a, &mut pool, &[sent]).remove(0).unwrap();
        assert!(sealed.len() <= 1514);
        let got = worked(&mut b, &mut pool, &[sealed]).remove(0);
        assert_eq!(got.map(|frame| frame[26..34] == [192, 0, 2, 1, 192, 0, 2, 3]), wanted);
    }
    assert_eq!(center.totals.values()[3], ("too_big_sent", 0));
}

#[test]
fn fragments_of_a_tunnel_do_not_leave_unprotected() {
    for (selector, wanted) in [
        (" proto udp dport 53", Err(DropReason::IpsecFragment)),
        ("", Err(DropReason::IpsecFragment)),
        (" proto tcp", Ok(())),
        // An exception without ports is one for fragments, too.
        ("\n dir out action allow priority 1\nsrc 10.1.0.0/16 dst 10.2.0.0/16", Ok(())),
        (
            " proto udp dport 53\n dir out action allow priority 1\nsrc 10.1.0.0/16 dst 10.2.0.0/16",
            Err(DropReason::IpsecFragment),
        ),
    ] {
        let [center, _] = joined("", selector);
        let sa = center.sas().iter().position(|sa| sa.config.spi == 0x2000).unwrap();
        for place in [0x2000_u16, 0x0010] {
            let mut fragment = frame([10, 2, 0, 1], 53, 64);
            fragment[20..22].copy_from_slice(&place.to_be_bytes());
            crate::ip::write_sum(&mut fragment[14..], 20);
            let key = key_of(&fragment, 0);
            assert!(center.may_arrive(&key, sa));
            let got = match center.classify_opened(&key) {
                Class::Drop(reason) => Err(reason),
                Class::Pass => Ok(()),
                other => panic!("{other:?}"),
            };
            assert_eq!(got, wanted, "{selector} {place:x}");
        }
    }
}

#[test]
fn a_damaged_header_is_not_made_valid() {
    let one = hub(true, "", 0);
    let (mut a, mut pool) = (gateway(&one), Pool::new(200, 2048));
    let right = frame([10, 2, 0, 1], 53, 100);
    let mut damaged = right.clone();
    damaged[33] ^= 2; // the last byte of the destination
    assert!(!checksum::verify_ipv4_header(&damaged[14..34]));
    let got = worked(&mut a, &mut pool, &[damaged.clone(), right]);
    assert_eq!((&got[0], got[1].is_ok()), (&Err(DropReason::Malformed), true));
    // The segments of a long frame would get headers with a right checksum, too.
    let mut batch = batch(&mut pool, &[damaged]);
    let left = Offload {
        segment: flowyard_wire::Segment::Udp,
        flags: Offload::PARTIAL,
        segment_bytes: 40,
        checksum_start: 34,
        checksum_offset: 6,
        transport_len: 8,
    };
    let meta = Meta { offload: left, ..pool.meta(&batch.frames[0]) };
    pool.set_meta(&mut batch.frames[0], meta);
    a.work(&mut batch, &pool, 0);
    assert_eq!(results(&mut batch, &mut pool), [Err(DropReason::Malformed)]);
    assert_eq!(one.sas().iter().map(|sa| sa.counts.read().packets).sum::<u64>(), 1);
}

/// Packets in transit to a port of NAT traversal, and shorter than ESP, are not those of this gateway.
#[test]
fn short_datagrams_in_transit_pass() {
    let one = hub(true, "", 0);
    let (mut a, mut pool) = (gateway(&one), Pool::new(64, 2048));
    for payload in [0, 4, 7] {
        let mut transit = frame([8, 8, 8, 8], 4500, payload);
        transit[42..].fill(b'x');
        let mut here = transit.clone();
        here[30..34].copy_from_slice(&[192, 0, 2, 1]);
        crate::ip::write_sum(&mut here[14..], 20);
        let got = worked(&mut a, &mut pool, &[transit, here]);
        assert_eq!((got[0].is_ok(), &got[1]), (true, &Err(DropReason::Malformed)), "{payload}");
    }
}

/// In transport mode, the SA is that of the addresses which the packet has now.
#[test]
fn an_sa_of_transport_mode_is_chosen_by_the_addresses_of_the_packet() {
    let states = [sa(true, 2, "transport", ""), sa(true, 3, "transport", "")].concat();
    let policies = "src 192.0.2.1/32 dst 192.0.2.0/24\n dir out priority 10\n tmpl src 0.0.0.0 dst 0.0.0.0\n proto esp mode transport\n";
    let one = of(&states, policies).unwrap();
    let (mut a, mut pool) = (gateway(&one), Pool::new(64, 2048));
    let packet = |src: [u8; 4], dst: u8| {
        let mut bytes = frame([192, 0, 2, dst], 53, 40);
        bytes[26..30].copy_from_slice(&src);
        crate::ip::write_sum(&mut bytes[14..], 20);
        bytes
    };
    for (src, dst) in [([192, 0, 2, 1], 2), ([10, 0, 0, 1], 3)] {
        let mut batch = batch(&mut pool, &[packet(src, dst)]);
        let bytes = packet([192, 0, 2, 1], 3);
        pool.bytes_mut(&mut batch.frames[0]).copy_from_slice(&bytes);
        a.work(&mut batch, &pool, 0);
        let got = results(&mut batch, &mut pool).remove(0).unwrap();
        assert_eq!((got[23], &got[34..38]), (50, &0x3001_u32.to_be_bytes()[..]));
    }
}

#[test]
fn an_sa_of_transport_mode_has_the_direction_of_its_policies() {
    let states = [sa(false, 2, "transport", ""), sa(true, 2, "transport", "")].concat();
    let policy = |dir: &str, src: &str, dst: &str| {
        format!(
            "src {src} dst {dst}\n dir {dir} priority 10\n tmpl src 0.0.0.0 dst 0.0.0.0\n proto esp reqid 2 mode transport\n"
        )
    };
    let (here, there) = ("192.0.2.1/32", "192.0.2.2/32");
    let both = [policy("out", here, there), policy("in", there, here)].concat();
    let one = of(&states, &both).unwrap();
    assert_eq!((one.is_inbound(0), one.is_inbound(1)), (true, false));
    let (all, none) = ("0.0.0.0/0", "0.0.0.0/0");
    let unclear = [policy("out", all, none), policy("in", all, none)].concat();
    assert_eq!(of(&states, &unclear).err(), Some(SaError::Ambiguous));
}

#[test]
fn extended_numbers_need_a_window() {
    let policies = policy("fwd", ["10.1.0.0/16", "10.2.0.0/16"], 2);
    for (more, wanted) in [
        (" replay-window 0 flag esn\n", Some(SaError::NoWindow)),
        (" replay-window 32 flag esn\n", None),
        (" replay-window 0\n", None),
    ] {
        let states = sa(false, 2, "tunnel", "").replace(" aead", &format!("{more} aead"));
        assert_eq!(of(&states, &policies).err(), wanted, "{more}");
    }
}
