use std::net::IpAddr;

use proptest::prelude::*;

use super::message::{Heard, Mac, QUESTION, answer, question, read};
use super::*;
use flowyard_pool::{Meta, Pool};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const OURS: Mac = [2, 0, 0, 0, 0, 1];
const THEIRS: Mac = [2, 0, 0, 0, 1, 1];
const SECOND: Nanos = 1_000_000_000;

fn table() -> Neighbours {
    let addrs = vec![ip("10.0.1.254"), ip("2001:db8:1::fe")];
    Neighbours::new(vec![Place { mac: OURS, addrs, answers: true }], 30 * SECOND)
}

fn asked(table: &Neighbours, now: Nanos) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    table.ask(now, &mut |port, frame| {
        assert_eq!(port, 0);
        frames.push(frame.to_vec());
        true
    });
    frames
}

/// The reply of `mac` to `question`.
fn answered(question: &[u8], mac: Mac) -> Vec<u8> {
    let mut pool = Pool::new(8, 2048);
    let mut frame = pool.copy(question, Meta::default()).unwrap();
    let Some(Heard::Asks { target, .. }) = read(question) else { panic!("it asks nothing") };
    assert!(answer(&mut frame, &pool, target, mac));
    pool.bytes(&frame).to_vec()
}

#[test]
fn a_request_is_answered_and_the_reply_is_recorded() {
    for addr in ["10.0.1.1", "2001:db8:1::1", "fe80::1"].map(ip) {
        let table = table();
        let one = table.entry(0, addr);
        assert_eq!(one.mac(), None);
        let frames = asked(&table, 0);
        let [frame] = &frames[..] else { panic!("{frames:?}") };
        let own = if addr.is_ipv4() { ip("10.0.1.254") } else { ip("2001:db8:1::fe") };
        assert_eq!(read(frame), Some(Heard::Asks { target: addr, from: Some((own, OURS)) }));
        let said = answered(frame, THEIRS);
        assert_eq!((&said[..6], &said[6..12]), (&OURS[..], &THEIRS[..]));
        assert_eq!(read(&said), Some(Heard::Says { who: (addr, THEIRS), replaces: true }));
        assert!(table.heard(0, (addr, THEIRS), true, 5));
        assert_eq!(one.mac(), Some(THEIRS));
        assert!(!table.heard(1, (addr, OURS), true, 5), "it is at another port");
        assert!(!table.heard(0, (addr, [1; 6]), true, 5), "a group is no station");
        assert!(!table.heard(0, (ip("10.0.1.9"), OURS), true, 5), "no entry has this address");
        // Without the override flag, another address does not replace the known one.
        assert!(table.heard(0, (addr, [2; 6]), false, 5));
        assert_eq!(one.mac(), Some(THEIRS));
    }
}

#[test]
fn known_neighbours_are_requested_by_unicast_before_they_are_forgotten() {
    let table = table();
    let one = table.entry(0, ip("10.0.1.1"));
    assert_eq!((asked(&table, 0).len(), asked(&table, 1).len()), (1, 0));
    assert_eq!(asked(&table, SECOND / 2).len(), 0, "the interval is not over");
    assert_eq!(asked(&table, SECOND)[0][..6], [0xff; 6]);
    table.heard(0, (ip("10.0.1.1"), THEIRS), true, SECOND);
    assert_eq!(asked(&table, 30 * SECOND).len(), 0, "it is fresh");
    for second in 31..34 {
        assert_eq!(asked(&table, second * SECOND)[0][..6], THEIRS, "{second}");
        assert_eq!(one.mac(), Some(THEIRS), "and used");
    }
    assert_eq!(asked(&table, 34 * SECOND)[0][..6], [0xff; 6]);
    assert_eq!(one.mac(), None);
    table.heard(0, (ip("10.0.1.1"), THEIRS), true, 35 * SECOND);
    asked(&table, 65 * SECOND);
    table.heard(0, (ip("10.0.1.1"), THEIRS), true, 65 * SECOND);
    assert_eq!(asked(&table, 94 * SECOND).len(), 0, "it answered");
    drop(one);
    assert_eq!(asked(&table, 200 * SECOND).len(), 0, "no caller has the entry any more");
}

#[test]
fn a_probe_for_a_free_address_is_answered() {
    // RFC 5227 section 2.1.1, RFC 4862 section 5.4.3: no address of its own yet.
    let mut frame = [0; QUESTION];
    let len = question(&mut frame, (ip("0.0.0.0"), THEIRS), ip("192.0.2.1"), None);
    assert_eq!(read(&frame[..len]), Some(Heard::Asks { target: ip("192.0.2.1"), from: None }));
    assert_eq!(answered(&frame[..len], OURS)[..6], THEIRS);
    let mut frame = [0; QUESTION];
    question(&mut frame, (ip("::"), THEIRS), ip("2001:db8::1"), None);
    assert_eq!(read(&frame), None, "it may not name a MAC address");
    let mut packet = frame[..78].to_vec();
    packet[19] = 24;
    packet[56..58].fill(0);
    let group = ip("ff02::1:ff00:1");
    let sum = flowyard_wire::checksum::transport_checksum(ip("::"), group, 58, &packet[54..]);
    packet[56..58].copy_from_slice(&sum.to_be_bytes());
    let target = ip("2001:db8::1");
    assert_eq!(read(&packet), Some(Heard::Asks { target, from: None }));
    let said = answered(&packet, OURS);
    assert_eq!(
        (&said[..6], &said[38..54]),
        (
            &[0x33, 0x33, 0, 0, 0, 1][..],
            &{
                let mut all = [0; 16];
                (all[0], all[1], all[15]) = (0xff, 2, 1);
                all
            }[..]
        )
    );
    assert_eq!(read(&said), Some(Heard::Says { who: (target, OURS), replaces: true }));
}

#[test]
fn forwarded_and_damaged_messages_are_ignored() {
    let mut frame = [0; QUESTION];
    question(&mut frame, (ip("2001:db8::2"), THEIRS), ip("2001:db8::1"), None);
    assert!(read(&frame).is_some());
    let mut hops = frame;
    hops[21] = 254;
    let mut spoiled = frame;
    spoiled[80] ^= 1;
    assert_eq!((read(&hops), read(&spoiled)), (None, None));
    for end in 0..QUESTION {
        assert_eq!(read(&frame[..end]), None, "{end}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read(mut data in prop::collection::vec(any::<u8>(), 0..120), kind in 0usize..3, byte in 0usize..86, value: u8) {
        let _ = read(&data);
        let mut frame = [0; QUESTION];
        let (src, target) = if kind == 0 { ("10.0.0.1", "10.0.0.2") } else { ("fe80::1", "fe80::2") };
        let len = question(&mut frame, (ip(src), THEIRS), ip(target), None);
        frame[byte] = value;
        data.splice(..0, frame[..len].iter().copied());
        for data in [&data[..], &frame[..len]] {
            if let Some(Heard::Asks { target, .. }) = read(data) {
                let mut pool = Pool::new(8, 2048);
                let mut frame = pool.copy(data, Meta::default()).unwrap();
                prop_assert!(answer(&mut frame, &pool, target, OURS));
            }
        }
    }
}
