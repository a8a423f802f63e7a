//! Fragments of clients: they follow the first one of their packet, and are not mixed with those of others.

use super::*;

/// The backend reassembles packets by the local address and the identification, which clients may have in common.
#[test]
fn fragments_of_clients_behind_one_address_have_identifications_of_their_own() {
    for (mode, is_own) in [(Mode::Dnat, true), (Mode::FullNat, false)] {
        let vip = ip("192.0.2.1");
        let mut service = service("s", vip, proto::UDP, 53..=53, mode);
        service.backends = vec![backend(1, ip("10.0.1.1"), None)];
        let mut work = one(service);
        let frames = |client: u8, offset: u16, more: bool| {
            let client = IpAddr::from([203, 0, 113, client]);
            let key = FlowKey::five_tuple(proto::UDP, client, 999, vip, 53);
            Build::new(&key).payload(&[7; 64]).fragment(offset, more).bytes()
        };
        let id = |frame: &[u8]| u16::from_be_bytes([frame[18], frame[19]]);
        let mut send = |frame: &[u8]| {
            let (action, got) = balance(&mut work, frame);
            assert_eq!(action.to, To::Port(1));
            let headers = Headers::parse(LinkType::Ethernet, &got);
            assert_eq!(headers.ipv4_checksum(&got), Verdict::Good);
            assert_eq!(headers.src_ip(&got) == headers.src_ip(frame), is_own, "{mode:?}");
            id(&got)
        };
        let sent: Vec<_> = (1..=3).map(|n| frames(n, 0, true)).collect();
        assert_eq!((id(&sent[0]), id(&sent[1])), (id(&sent[2]), id(&sent[2])));
        let first: Vec<_> = sent.iter().map(|frame| send(frame)).collect();
        for (n, id) in (1..=3).zip(&first) {
            assert_eq!(
                [(9, true), (17, false)].map(|(at, more)| send(&frames(n, at, more))),
                [*id; 2]
            );
        }
        let all: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(all.len(), if is_own { 1 } else { 3 });
    }
}
