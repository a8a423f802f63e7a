use proptest::prelude::*;

use super::*;

/// A query for `a.example` in type AAAA, as other programs write it.
const QUERY: [u8; 27] = *b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x1c\0\x01";

/// A response to the query with this second word, number of answers, and records.
fn answer(flags: u16, answers: u16, records: &[u8]) -> Vec<u8> {
    let mut message = QUERY.to_vec();
    message[2..4].copy_from_slice(&flags.to_be_bytes());
    message[6..8].copy_from_slice(&answers.to_be_bytes());
    message.extend(records);
    message
}

/// The records of a response with these bytes in the answer section.
fn records(answers: u16, bytes: &[u8]) -> Option<Vec<Record>> {
    Reply::to(&QUERY, &answer(0x8180, answers, bytes)).unwrap().records()
}

/// A record with this owner, type, TTL and data.
fn bytes(owner: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let fixed = [&kind.to_be_bytes()[..], &[0, 1], &ttl.to_be_bytes()].concat();
    [owner, &fixed, &(data.len() as u16).to_be_bytes(), data].concat()
}

/// A pointer to the name of the question.
const ASKED: [u8; 2] = [0xc0, 12];
/// A pointer to its second label.
const EXAMPLE: [u8; 2] = [0xc0, 14];

#[test]
fn a_query_is_that_of_the_rfc() {
    assert_eq!(query(0x1234, "a.example", 28), QUERY);
    assert_eq!(query(0x1234, "a.example.", 28), QUERY);
    assert_eq!(query(7, ".", 2), b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\0\0\x02\0\x01");
}

#[test]
fn records_are_those_of_the_rfcs() {
    let web = [&b"\x03Web"[..], &EXAMPLE].concat();
    let srv = [&[0, 1, 0, 10, 0x1f, 0x90], &web[..]].concat();
    let all = [
        bytes(&ASKED, kind::SRV, 60, &srv),
        bytes(b"\x03web\x07example\0", kind::CNAME, 5, &[&b"\x01b"[..], &EXAMPLE].concat()),
        bytes(&web, kind::A, 0x8000_0001, &[10, 0, 0, 1]),
        bytes(&[0], kind::AAAA, 7, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        bytes(&ASKED, 16, 9, b"\x02hi"),
    ];
    let one = |owner: &str, ttl, data| Record { owner: owner.into(), ttl, data };
    let target = "web.example".into();
    assert_eq!(
        records(5, &all.concat()).unwrap(),
        [
            one("a.example", 60, Data::Service { priority: 1, weight: 10, port: 8080, target }),
            one("web.example", 5, Data::Alias("b.example".into())),
            one("web.example", 0, Data::Address([10, 0, 0, 1].into())),
            one("", 7, Data::Address("2001:db8::1".parse().unwrap())),
            one("a.example", 9, Data::Other),
        ]
    );
    assert_eq!(records(4, &all.concat()).unwrap().len(), 4, "what follows is another section");
    assert_eq!(records(6, &all.concat()), None, "one is missing");
}

#[test]
fn malformed_records_are_none() {
    let good = bytes(&ASKED, kind::A, 60, &[10, 0, 0, 1]);
    assert!(records(1, &good).is_some());
    for end in 0..good.len() {
        assert_eq!(records(1, &good[..end]), None, "{end}");
    }
    // A pointer to itself, to a later byte, two that point to each other, and a label of a kind that does not exist.
    for owner in [[0xc0, 27], [0xc0, 40], [0xff, 0xff], [0x40, 1], [0x80, 1]] {
        assert_eq!(records(1, &bytes(&owner, kind::A, 60, &[10, 0, 0, 1])), None, "{owner:?}");
    }
    let two = [[0xc0, 29], [0xc0, 27]].concat();
    assert_eq!(records(1, &bytes(&two, kind::A, 60, &[10, 0, 0, 1])), None);
    for (kind, data) in [
        (kind::A, &[1, 2, 3][..]),
        (kind::AAAA, &[1, 2, 3, 4]),
        (kind::SRV, &[0, 1, 0, 1, 0]),
        (kind::SRV, &[0, 1, 0, 1, 0, 80]),
        (kind::CNAME, b"\x01b\0more"),
        (kind::CNAME, b"\x03b\nc\0"),
        (kind::CNAME, b"\x03b.c\0"),
    ] {
        assert_eq!(records(1, &bytes(&ASKED, kind, 60, data)), None, "{kind} {data:?}");
    }
    let long = [&[63; 64 * 4][..], &[0]].concat();
    assert_eq!(records(1, &bytes(&ASKED, kind::CNAME, 60, &long)), None);
}

#[test]
fn a_response_belongs_to_its_query() {
    let of = |message: &[u8]| {
        let reply = Reply::to(&QUERY, message)?;
        Some((reply.code, reply.answers, reply.is_truncated))
    };
    assert_eq!(of(&answer(0x8180, 1, &[])), Some((0, 1, false)));
    assert_eq!(of(&answer(0x8380, 0, &[])), Some((0, 0, true)));
    assert_eq!(of(&answer(0x8183, 0, &[])), Some((3, 0, false)));
    let short = [&QUERY[..2], &[0x81, 0x85], &[0; 8]].concat();
    assert_eq!(of(&short), Some((5, 0, false)));
    // Another ID, a query, another question, and a response that is cut.
    let mut other = answer(0x8180, 1, &[]);
    other[0] ^= 1;
    assert_eq!(of(&other), None);
    assert_eq!(of(&answer(0x0100, 1, &[])), None);
    let mut other = answer(0x8180, 1, &[]);
    other[15] ^= 1;
    assert_eq!(of(&other), None);
    assert_eq!(of(&answer(0x8180, 1, &[])[..26]), None);
    let mut upper = answer(0x8180, 1, &[]);
    upper[13] = b'A';
    assert_eq!(of(&upper), Some((0, 1, false)), "names have no case");
    assert_eq!(error(3), "NXDOMAIN");
}

proptest! {
    #[test]
    fn any_message_has_an_outcome(
        mut tail in prop::collection::vec(any::<u8>(), 0..120), answers in 0u16..9, like: bool,
        changes in prop::collection::vec((0usize..120, any::<u8>()), 0..4), points in prop::collection::vec(0usize..120, 0..4),
    ) {
        if like {
            let web = [&b"\x03web"[..], &EXAMPLE].concat();
            let srv = [&[0, 1, 0, 10, 0x1f, 0x90], &web[..]].concat();
            tail = [bytes(&ASKED, kind::SRV, 60, &srv), bytes(&web, kind::A, 5, &[10, 0, 0, 1])].concat();
        }
        for (at, byte) in changes {
            if let Some(there) = tail.get_mut(at) { *there = byte; }
        }
        // Pointers are where malformed names hide.
        for at in points {
            if let Some(there) = tail.get_mut(at) { *there = 0xc0; }
        }
        let message = answer(0x8180, answers, &tail);
        if let Some(all) = Reply::to(&QUERY, &message).unwrap().records() {
            prop_assert_eq!(all.len(), usize::from(answers));
            prop_assert!(all.iter().all(|record| record.owner.len() <= NAME));
        }
        for end in 0..message.len().min(40) {
            let _ = Reply::to(&QUERY, &message[..end]);
        }
    }
}
