//! A randomised TCP connection through the translation: loss, duplication, reordering, retransmission in
//! other segments, SACK and D-SACK. The backend must receive the header and the client's bytes, and the
//! client must receive correct acknowledgements of its bytes.

use crate::{Mode, Service, Stage};
use flowyard_flow::parse;
use flowyard_frame::{To, proto};
use flowyard_testkit::{Build, Rng};
use flowyard_wire::checksum::transport_checksum;
use flowyard_wire::{Headers, LinkType};

use hosts::{ACK, Receiver, SYN, Segment, Sender, client_receives, server_receives};

use super::super::tests::{addrs, backend, balance, ip, one, right, service};
use super::*;

mod hosts;

/// The header according to the specification.
fn expected(key: &FlowKey) -> Vec<u8> {
    let mut bytes = vec![0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21];
    match (key.src_ip().unwrap(), key.dst_ip().unwrap()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes.extend([0x11, 0, 12]);
            bytes.extend(src.octets().into_iter().chain(dst.octets()));
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            bytes.extend([0x21, 0, 36]);
            bytes.extend(src.octets().into_iter().chain(dst.octets()));
        }
        _ => unreachable!(),
    }
    bytes.extend(key.sport.to_be_bytes().into_iter().chain(key.dport.to_be_bytes()));
    bytes
}

fn proxied(v6: bool) -> (Balance, FlowKey) {
    let [vip, to, client] = addrs(v6);
    let mut one_service: Service = service("s", vip, proto::TCP, 80..=80, Mode::FullNat);
    one_service.proxy = true;
    one_service.backends = vec![backend(1, to, Some(8080))];
    (one(one_service), FlowKey::five_tuple(proto::TCP, client, 4000, vip, 80))
}

/// A connection between two hosts through the balancer.
struct Path {
    seed: u64,
    rng: Rng,
    work: Balance,
    /// From the client to the VIP.
    key: FlowKey,
    /// From the backend to the balancer, once known.
    back: Option<FlowKey>,
    client: Sender,
    server: Sender,
    at_client: Receiver,
    at_server: Receiver,
    /// Whether the server has the SYN.
    synced: bool,
    /// Whether the client has the SYN and ACK.
    answered: bool,
    /// Whether the server has the ACK of its SYN.
    opened: bool,
    server_mss: u16,
    /// The MSS that the client was offered.
    mss: usize,
    /// Percentage of frames that are lost.
    loss: u64,
    /// Percentage of frames that are duplicated.
    double: u64,
    /// Frames in flight; true if they go to the server.
    wire: Vec<(bool, Vec<u8>)>,
    /// The number of segments that began with a header.
    inserted: usize,
}

impl Path {
    fn new(seed: u64, v6: bool) -> Self {
        let mut rng = Rng::new(seed);
        let (work, key) = proxied(v6);
        let bytes = |rng: &mut Rng, most: u64| {
            let len = rng.below(most);
            (0..len).map(|_| rng.bits() as u8).collect::<Vec<u8>>()
        };
        let isn = [rng.bits() as u32, u32::MAX - rng.below(100) as u32][rng.below(2) as usize];
        let client = Sender::new(isn, bytes(&mut rng, 6000));
        let server = Sender::new(rng.bits() as u32, bytes(&mut rng, 3000));
        let server_mss = 100 + rng.below(1300) as u16;
        let (loss, double) = (rng.below(40), rng.below(20));
        let (at_client, at_server) = (Receiver::default(), Receiver::default());
        Self {
            seed,
            rng,
            work,
            key,
            back: None,
            client,
            server,
            at_client,
            at_server,
            synced: false,
            answered: false,
            opened: false,
            server_mss,
            mss: 0,
            loss,
            double,
            wire: Vec::new(),
            inserted: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.client.is_done() && self.server.is_done()
    }

    fn send_to_server(&mut self, segment: &Segment) {
        self.wire.push((true, segment.bytes(&self.key)));
    }

    fn send_to_client(&mut self, segment: &Segment) {
        if let Some(back) = &self.back {
            self.wire.push((false, segment.bytes(back)));
        }
    }

    /// One random action of a host, or the arrival of a frame.
    fn step(&mut self) {
        match self.rng.below(6) {
            0 if !self.answered => {
                let syn = Segment {
                    seq: self.client.isn,
                    flags: SYN,
                    mss: Some(1400),
                    ..Segment::default()
                };
                // Fast Open: data in a SYN is removed, and the client sends it again.
                let payload = match self.seed.is_multiple_of(3) {
                    true => self.client.data[..self.client.data.len().min(50)].to_vec(),
                    false => vec![],
                };
                self.send_to_server(&Segment { payload, ..syn });
            }
            0 if !self.client.is_done() || !self.opened => {
                let ack = self.at_client.answer(&mut self.rng);
                let segment = self.client.segment(&mut self.rng, self.mss);
                self.send_to_server(&Segment { ack: ack.ack, sack: ack.sack, ..segment });
            }
            1 if self.answered => {
                let ack = self.at_client.answer(&mut self.rng);
                // Occasionally a keepalive probe, one byte before the next (RFC 9293 section 3.8.4).
                let probe = usize::from(self.rng.below(8) == 0);
                let seq = self.client.number(self.client.sent).wrapping_sub(probe as u32);
                self.send_to_server(&Segment { seq, ..ack });
            }
            2 if self.synced && !self.opened => {
                let (seq, ack) = (self.server.isn, self.at_server.irs.wrapping_add(1));
                let mss = Some(self.server_mss);
                let flags = SYN | ACK;
                self.send_to_client(&Segment { seq, ack, flags, mss, ..Segment::default() });
            }
            2 | 3 if self.opened => {
                let ack = self.at_server.answer(&mut self.rng);
                let segment = match self.rng.below(2) {
                    0 => Segment { seq: self.server.number(self.server.sent), ..ack },
                    _ => {
                        let segment = self.server.segment(&mut self.rng, 500);
                        Segment { ack: ack.ack, sack: ack.sack, ..segment }
                    }
                };
                self.send_to_client(&segment);
            }
            _ if !self.wire.is_empty() => self.arrive(),
            _ => {}
        }
    }

    /// A frame in flight is duplicated, lost or delivered, in any order.
    fn arrive(&mut self) {
        let at = self.rng.below(self.wire.len() as u64) as usize;
        let (to_server, frame) = self.wire.swap_remove(at);
        if self.rng.below(100) < self.double {
            self.wire.push((to_server, frame.clone()));
        }
        let lost = self.rng.below(100) < self.loss;
        // Loss, on either side of the balancer.
        if lost && self.rng.below(2) == 0 {
            return;
        }
        let (action, got) = balance(&mut self.work, &frame);
        assert_eq!(action.to, To::Port(if to_server { 1 } else { 40 }), "seed {}", self.seed);
        if lost {
            return;
        }
        let (seen, segment) = Segment::read(&got);
        if to_server {
            self.back = Some(seen.flow().reversed());
            self.server_takes(&segment);
        } else {
            assert_eq!(seen.flow(), self.key.flow().reversed());
            self.client_takes(&segment);
        }
    }

    fn server_takes(&mut self, segment: &Segment) {
        if segment.flags & SYN != 0 {
            assert_eq!((segment.payload.len(), segment.seq), (0, self.client.isn));
            (self.synced, self.at_server.irs) = (true, segment.seq);
            return;
        }
        if self.synced && !self.opened && segment.ack == self.server.number(0) {
            self.opened = true;
        }
        if !self.opened {
            return;
        }
        assert!(segment.payload.len() <= self.server_mss.into(), "seed {}", self.seed);
        let begins = segment.payload.starts_with(&expected(&self.key));
        self.inserted += usize::from(begins);
        self.at_server.take(segment);
        server_receives(&mut self.server, segment);
    }

    fn client_takes(&mut self, segment: &Segment) {
        let n = len(self.key.is_ipv6());
        if segment.flags & SYN != 0 {
            assert_eq!(segment.ack, self.client.number(0));
            (self.answered, self.at_client.irs) = (true, segment.seq);
            self.mss = usize::from(segment.mss.unwrap());
            assert_eq!(self.mss + n, self.server_mss.into());
            return;
        }
        self.at_client.take(segment);
        client_receives(&mut self.client, segment, &self.at_server, n);
    }
}

/// Runs a connection between two hosts with a random seed. Returns the number of segments with a header, and
/// of steps.
fn connection(seed: u64, v6: bool) -> (usize, usize) {
    let mut path = Path::new(seed, v6);
    let mut steps = 0;
    while !path.is_done() {
        steps += 1;
        let (client, server) = (path.client.acked, path.server.acked);
        assert!(steps < 60_000, "seed {seed}: {client} {server}");
        path.step();
    }
    let received = |receiver: &Receiver| -> Vec<u8> {
        receiver.got[..receiver.next - 1].iter().map(|byte| byte.unwrap()).collect()
    };
    let wanted = [expected(&path.key), path.client.data].concat();
    assert!(received(&path.at_server) == wanted, "seed {seed}");
    assert!(received(&path.at_client) == path.server.data, "seed {seed}");
    (path.inserted, steps)
}

#[test]
fn the_backend_gets_the_header_and_the_clients_bytes() {
    let (mut inserted, mut steps) = (0, 0);
    for seed in 0..200 {
        let (times, more) = connection(seed, seed % 2 == 1);
        assert!(times > 0);
        (inserted, steps) = (inserted + times, steps + more);
    }
    assert!(inserted > 250, "{inserted}: the header was sent again in some");
    println!("{inserted} headers in 200 connections of {steps} steps");
}

#[test]
fn the_header_goes_with_the_first_ack_and_not_twice() {
    let (mut work, key) = proxied(false);
    let syn = Segment { seq: 999, flags: SYN, mss: Some(1460), ..Segment::default() };
    balance(&mut work, &syn.bytes(&key));
    let ack = Segment { seq: 1000, ack: 501, flags: ACK, ..Segment::default() };
    let (_, got) = balance(&mut work, &ack.bytes(&key));
    let (there, first) = Segment::read(&got);
    assert_eq!((first.seq, first.ack, &first.payload), (1000, 501, &expected(&key)));
    // Again with data until it is acknowledged; the urgent pointer is translated.
    let payload = b"hello".to_vec();
    let urgent = Segment { flags: ACK | URG, urgent: 2, payload, ..ack.clone() };
    let (_, got) = balance(&mut work, &urgent.bytes(&key));
    let (_, second) = Segment::read(&got);
    assert_eq!((second.seq, second.urgent, second.payload.len()), (1000, 30, 33));
    let back = there.flow().reversed();
    let heard =
        Segment { seq: 501, ack: 1028, flags: ACK, sack: vec![(1000, 1028)], ..Segment::default() };
    let (_, got) = balance(&mut work, &heard.bytes(&back));
    let (_, received) = Segment::read(&got);
    assert_eq!((received.ack, received.sack), (1000, vec![]), "the client did not send the header");
    let (_, got) = balance(&mut work, &urgent.bytes(&key));
    let (_, third) = Segment::read(&got);
    assert_eq!((third.seq, third.urgent, &third.payload[..]), (1028, 2, &b"hello"[..]));
    // A connection without an observed SYN has no header.
    let other = FlowKey { sport: 4001, ..key };
    let (_, got) = balance(&mut work, &ack.bytes(&other));
    assert_eq!(Segment::read(&got).1.payload, b"");
}

#[test]
fn every_sack_option_is_translated() {
    const L4: usize = 34;
    let (_, key) = proxied(false);
    let back = key.flow().reversed();
    let sack = vec![(2000, 2100)];
    let heard = Segment { seq: 501, ack: 1500, flags: ACK, sack, ..Segment::default() };
    // Timestamps and a second SACK option follow, which are payload until the length of the header is changed.
    let mut more = vec![1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
    more.extend_from_slice(&heard.bytes(&back)[L4 + 20..L4 + 32]);
    let mut frame = Segment { payload: more, ..heard }.bytes(&back);
    frame[L4 + 31] = 1; // no-operation
    frame[L4 + 12] = 56 << 2;
    let parsed = parse::key(&Headers::parse(LinkType::Ethernet, &frame), &frame, 0);
    let mut packet = Packet::new(&mut frame, &parsed).unwrap();
    let near = Proxied { first: 1000, stage: Stage::Near };
    assert_eq!(from_proxied(&mut packet, &parsed, near), near);
    for at in [L4 + 23, L4 + 47].map(|at| at - 14) {
        assert_eq!((packet.long(at), packet.long(at + 4)), (1972, 2072), "{at}");
    }
}

#[test]
fn an_error_about_a_shifted_segment_names_what_the_client_sent() {
    let (mut work, key) = proxied(false);
    balance(&mut work, &Segment { seq: 999, flags: SYN, ..Segment::default() }.bytes(&key));
    let data = Segment { seq: 1500, flags: ACK, payload: vec![7; 40], ..Segment::default() };
    let (_, sent) = balance(&mut work, &data.bytes(&key));
    let (there, segment) = Segment::read(&sent);
    assert_eq!(segment.seq, 1528);
    let error = super::super::tests::error_quoting(
        &sent,
        ip("10.0.1.254"),
        there.src_ip().unwrap(),
        (3, 4),
    );
    let (action, got) = balance(&mut work, &error);
    assert_eq!(action.to, To::Port(40));
    assert!(right(&got));
    let quoted = &got[14 + 20 + 8..];
    assert_eq!(quoted[24..28], 1500u32.to_be_bytes());
    assert_eq!(crate::icmp::quoted(&got[34..], false).unwrap().flow, key.flow());
}
