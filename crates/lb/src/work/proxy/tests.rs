//! A randomised TCP connection through the translation: loss, duplication, reordering, retransmission in
//! other segments, SACK and D-SACK. The backend must receive the header and the client's bytes, and the
//! client must receive correct acknowledgements of its bytes.

use crate::{Mode, Service};
use flowyard_flow::parse;
use flowyard_frame::{To, proto};
use flowyard_testkit::{Build, Rng};
use flowyard_wire::checksum::transport_checksum;
use flowyard_wire::{Headers, LinkType};

use super::super::tests::{addrs, backend, balance, ip, one, right, service};
use super::*;

const FIN: u8 = FlowKey::FIN;
const SYN: u8 = FlowKey::SYN;
const ACK: u8 = FlowKey::ACK;

#[derive(Clone, PartialEq, Debug, Default)]
struct Segment {
    seq: u32,
    ack: u32,
    flags: u8,
    urgent: u16,
    mss: Option<u16>,
    sack: Vec<(u32, u32)>,
    payload: Vec<u8>,
}

impl Segment {
    fn bytes(&self, key: &FlowKey) -> Vec<u8> {
        let mut options = Vec::new();
        if let Some(mss) = self.mss {
            options.extend([1, 2, 4]); // at an odd offset
            options.extend(mss.to_be_bytes());
        }
        if !self.sack.is_empty() {
            options.extend([1, 5, 2 + 8 * self.sack.len() as u8]);
            for (left, right) in &self.sack {
                options.extend(left.to_be_bytes());
                options.extend(right.to_be_bytes());
            }
        }
        options.resize(options.len().next_multiple_of(4), 0);
        let all = [&options[..], &self.payload].concat();
        let mut frame = Build::new(key).flags(self.flags).payload(&all).pad(60).bytes();
        let l4 = if key.is_ipv6() { 54 } else { 34 };
        let end = l4 + 20 + all.len();
        frame[l4 + 4..l4 + 8].copy_from_slice(&self.seq.to_be_bytes());
        frame[l4 + 8..l4 + 12].copy_from_slice(&self.ack.to_be_bytes());
        frame[l4 + 12] = ((20 + options.len()) as u8) << 2;
        frame[l4 + 13] = self.flags;
        frame[l4 + 14..l4 + 16].copy_from_slice(&60_000u16.to_be_bytes());
        frame[l4 + 16..l4 + 18].fill(0);
        frame[l4 + 18..l4 + 20].copy_from_slice(&self.urgent.to_be_bytes());
        let (src, dst) = (key.src_ip().unwrap(), key.dst_ip().unwrap());
        let sum = transport_checksum(src, dst, proto::TCP, &frame[l4..end]);
        frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn read(frame: &[u8]) -> (FlowKey, Self) {
        assert!(right(frame));
        let headers = Headers::parse(LinkType::Ethernet, frame);
        let key = parse::key(&headers, frame, 0);
        let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        let len = if key.is_ipv6() { 40 + usize::from(word(l3 + 4)) } else { word(l3 + 2).into() };
        let start = l4 + usize::from(frame[l4 + 12] >> 4) * 4;
        let (mut at, mut mss, mut sack) = (l4 + 20, None, Vec::new());
        while at < start {
            match frame[at] {
                0 => break,
                1 => at += 1,
                kind => {
                    let len = usize::from(frame[at + 1]);
                    if kind == 2 {
                        mss = Some(word(at + 2));
                    } else {
                        sack = (at + 2..at + len)
                            .step_by(8)
                            .map(|at| (long(at), long(at + 4)))
                            .collect();
                    }
                    at += len;
                }
            }
        }
        let one = Self {
            seq: long(l4 + 4),
            ack: long(l4 + 8),
            flags: frame[l4 + 13],
            urgent: word(l4 + 18),
            mss,
            sack,
            payload: frame[start..l3 + len].to_vec(),
        };
        (key, one)
    }
}

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

/// A sender, with the acknowledgements that it received.
struct Sender {
    isn: u32,
    data: Vec<u8>,
    /// Offsets sent and acknowledged. The offset after the data is the FIN.
    sent: usize,
    acked: usize,
    sacked: Vec<bool>,
}

impl Sender {
    fn new(isn: u32, data: Vec<u8>) -> Self {
        let sacked = vec![false; data.len() + 1];
        Self { isn, data, sent: 0, acked: 0, sacked }
    }

    fn number(&self, offset: usize) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(offset as u32)
    }

    fn offset(&self, number: u32) -> i64 {
        i64::from(number.wrapping_sub(self.isn.wrapping_add(1)) as i32)
    }

    fn is_done(&self) -> bool {
        self.acked == self.data.len() + 1
    }

    /// A segment of bytes that are sent for the first time or again.
    fn segment(&mut self, rng: &mut Rng, mss: usize) -> Segment {
        let end = self.data.len() + 1;
        let mut from = if rng.below(3) == 0 { self.acked } else { self.sent.min(end) };
        if rng.below(4) == 0 && self.sent > self.acked {
            from = self.acked + rng.below((self.sent - self.acked) as u64) as usize;
        }
        // Bytes in SACK blocks are usually not sent again.
        while from < self.sent && self.sacked[from] && rng.below(8) != 0 {
            from += 1;
        }
        let len = (1 + rng.below(mss as u64) as usize).min(end - from.min(end));
        let to = (from + len).min(self.acked + 4000).max(from);
        self.sent = self.sent.max(to);
        let fin = to == end && from < end;
        let payload = self.data[from.min(end - 1)..to.min(end - 1)].to_vec();
        let flags = ACK | if fin { FIN } else { 0 };
        Segment { seq: self.number(from), flags, payload, ..Segment::default() }
    }
}

/// A receiver.
#[derive(Default)]
struct Receiver {
    irs: u32,
    /// By offset; the FIN is a 0 after the data.
    got: Vec<Option<u8>>,
    next: usize,
    fin: Option<usize>,
    /// A duplicate segment to report (RFC 2883).
    twice: Option<(usize, usize)>,
}

impl Receiver {
    fn take(&mut self, segment: &Segment) {
        let from = segment.seq.wrapping_sub(self.irs.wrapping_add(1)) as i32;
        let fin = segment.flags & FIN != 0;
        let mut bytes = segment.payload.clone();
        if fin {
            self.fin = Some((from + bytes.len() as i32) as usize);
            bytes.push(0);
        }
        for (at, byte) in (from..).zip(&bytes) {
            let Ok(at) = usize::try_from(at) else { continue };
            if self.got.len() <= at {
                self.got.resize(at + 1, None);
            }
            assert!(self.got[at].is_none_or(|old| old == *byte), "byte {at} was another one");
            if self.got[at].is_some() {
                self.twice = Some((from.max(0) as usize, (from + bytes.len() as i32) as usize));
            }
            self.got[at] = Some(*byte);
        }
        while self.got.get(self.next).is_some_and(Option::is_some) {
            self.next += 1;
        }
    }

    fn answer(&mut self, rng: &mut Rng) -> Segment {
        let number = |offset: usize| self.irs.wrapping_add(1).wrapping_add(offset as u32);
        let mut sack = Vec::new();
        if let Some((from, to)) = self.twice.take() {
            sack.push((number(from), number(to)));
        }
        let mut at = self.next;
        while at < self.got.len() && sack.len() < 3 {
            let Some(from) = (at..self.got.len()).find(|&at| self.got[at].is_some()) else { break };
            let to =
                (from..self.got.len()).find(|&at| self.got[at].is_none()).unwrap_or(self.got.len());
            sack.push((number(from), number(to)));
            at = to;
        }
        if rng.below(4) == 0 {
            sack.clear();
        }
        Segment { ack: number(self.next), flags: ACK, sack, ..Segment::default() }
    }
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

    fn to_server(&mut self, segment: &Segment) {
        self.wire.push((true, segment.bytes(&self.key)));
    }

    fn to_client(&mut self, segment: &Segment) {
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
                self.to_server(&Segment { payload, ..syn });
            }
            0 if !self.client.is_done() || !self.opened => {
                let ack = self.at_client.answer(&mut self.rng);
                let segment = self.client.segment(&mut self.rng, self.mss);
                self.to_server(&Segment { ack: ack.ack, sack: ack.sack, ..segment });
            }
            1 if self.answered => {
                let ack = self.at_client.answer(&mut self.rng);
                // Occasionally a keepalive probe, one byte before the next (RFC 9293 section 3.8.4).
                let probe = usize::from(self.rng.below(8) == 0);
                let seq = self.client.number(self.client.sent).wrapping_sub(probe as u32);
                self.to_server(&Segment { seq, ..ack });
            }
            2 if self.synced && !self.opened => {
                let (seq, ack) = (self.server.isn, self.at_server.irs.wrapping_add(1));
                let mss = Some(self.server_mss);
                let flags = SYN | ACK;
                self.to_client(&Segment { seq, ack, flags, mss, ..Segment::default() });
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
                self.to_client(&segment);
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

fn server_receives(server: &mut Sender, segment: &Segment) {
    let acked = server.offset(segment.ack);
    assert!(acked <= server.sent as i64);
    server.acked = server.acked.max(acked.max(0) as usize);
    for &(left, right) in &segment.sack {
        let (from, to) = (server.offset(left), server.offset(right));
        assert!(0 <= from && from < to && to <= server.sent as i64);
        server.sacked[from as usize..to as usize].fill(true);
    }
}

/// Checks that the acknowledgements which the client receives are correct.
fn client_receives(client: &mut Sender, segment: &Segment, at_server: &Receiver, n: usize) {
    let acked = client.offset(segment.ack);
    assert!(acked <= client.sent as i64, "what was never sent is acknowledged");
    assert!(at_server.next as i64 >= acked + if acked > 0 { n as i64 } else { 0 });
    client.acked = client.acked.max(acked.max(0) as usize);
    for &(left, right) in &segment.sack {
        let (from, to) = (client.offset(left), client.offset(right));
        assert!(from < to && 0 <= from && to <= client.sent as i64, "{from} {to}");
        for at in from as usize..to as usize {
            assert!(at_server.got[at + n].is_some(), "what is not there is acknowledged");
            client.sacked[at] = true;
        }
    }
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
