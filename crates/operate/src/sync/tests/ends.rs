//! Ends of connections that another node has seen.
#![allow(clippy::disallowed_methods, reason = "tests of real sockets wait by the clock")]

use super::*;

/// Nodes of which the first has reported connections that the tables do not explain, with one of their clients and its backend.
fn with_a_report<const N: usize>() -> ([Node; N], u16, To) {
    let mut nodes = nodes::<N>();
    let clients = nodes[0].open(0..300);
    nodes.iter().for_each(Node::drain);
    nodes.iter_mut().for_each(|node| node.start(SECRET));
    until("a report", || {
        let reported = nodes[0].shared.reported();
        reported > 50 && nodes[1..].iter().all(|node| node.stored() == reported)
    });
    let (client, to) = clients.into_iter().find(|(_, to)| *to == To::Port(1)).unwrap();
    (nodes, client, to)
}

const FIN: u8 = FlowKey::FIN | FlowKey::ACK;

#[test]
fn nodes_learn_the_end_of_a_connection() {
    let ([mut had, mut sees, mut other], client, to) = with_a_report();
    assert_eq!(sees.send_at(client, FIN, 1000), to);
    until("the end", || had.hub.closed_by_others() == 1);
    assert_eq!(had.send_at(client, FlowKey::ACK, 1001), to);
    let ends = |node: &Node, of: fn(&Peer) -> &AtomicU64| -> u64 {
        node.shared.peers.iter().map(|peer| of(peer).load(Relaxed)).sum()
    };
    until("both messages", || ends(&sees, |peer| &peer.sent_ends) == 2);
    until("the other node", || ends(&other, |peer| &peer.received_ends) == 1);
    assert_eq!((other.hub.closed_by_others(), sees.hub.dropped_ends()), (0, 0));
    // Another end after the first one is no news.
    assert_eq!(sees.send_at(client, FlowKey::RST, 1001), to);
    // The node that has seen the end reports its own entry for some time; that is what the third one follows.
    until("the report of that node", || sees.shared.reported() > 0);
    assert_eq!(other.send_at(client, FlowKey::ACK, 1001), to);
}

#[test]
fn a_node_that_was_not_there_learns_the_ends_when_its_session_begins() {
    let ([mut had, mut sees], client, to) = with_a_report();
    let listen = had.shared.settings.listen;
    had.threads = None;
    until("the end of the session", || !sees.shared.peers[0].sends.load(Relaxed));
    assert_eq!(sees.send_at(client, FIN, 1000), to);
    thread::sleep(Duration::from_millis(300)); // so that the message finds no session
    assert_eq!(sees.shared.peers[0].sent_ends.load(Relaxed), 0);
    let peers = had.shared.settings.peers.clone();
    let settings = SyncSettings { peers, ..had.shared.settings.clone() };
    had.shared = Arc::new(Synchronization::new(settings));
    had.bound = Some(Bound::bind(listen).unwrap());
    had.start(SECRET);
    until("the end", || had.hub.closed_by_others() == 1);
    assert_eq!(sees.shared.peers[0].sent_ends.load(Relaxed), 1);
}

/// A node of an older version, which ends the session at a message that it does not know.
#[test]
fn a_node_of_an_older_version_gets_no_ends() {
    use std::io::{Read, Write};
    let [mut node] = nodes();
    let old = TcpListener::bind("127.0.0.1:0").unwrap();
    let peers = vec![old.local_addr().unwrap()];
    let settings = SyncSettings { peers, ..node.shared.settings.clone() };
    node.shared = Arc::new(Synchronization::new(settings));
    let kinds = thread::spawn(move || {
        let (mut stream, _) = old.accept().unwrap();
        let (mut hello, nonce) = ([0; 48], [7; 32]);
        stream.read_exact(&mut hello).unwrap();
        let key = Key::new(HMAC_SHA256, SECRET);
        let proof = hmac::sign(&key, &[&b"accepts"[..], &hello[16..], &nonce].concat());
        let answer = [&hello[..16], &nonce, proof.as_ref()].concat();
        stream.write_all(&answer).unwrap();
        let mut kinds = Vec::new();
        while kinds.iter().filter(|kind| **kind == 4).count() < 12 {
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut message = vec![0; u32::from_le_bytes(length) as usize + 32];
            stream.read_exact(&mut message).unwrap();
            kinds.push(message[0]);
        }
        kinds
    });
    node.start(SECRET);
    until("a session", || node.shared.peers[0].sends.load(Relaxed));
    // The first packet is not the SYN, so another node may have an entry.
    node.send_at(1, FIN, 1000);
    let kinds = kinds.join().unwrap();
    assert!(kinds.iter().all(|kind| matches!(kind, 1..=5)), "{kinds:?}");
    assert_eq!(node.shared.peers[0].sent_ends.load(Relaxed), 0);
    assert!(node.hub.take_ends().is_empty(), "the end was taken from the queue");
}
