//! The two hosts of a TCP connection: segments, a sender and a receiver.

use super::*;

pub(super) const FIN: u8 = FlowKey::FIN;
pub(super) const SYN: u8 = FlowKey::SYN;
pub(super) const ACK: u8 = FlowKey::ACK;

#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Segment {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) urgent: u16,
    pub(super) mss: Option<u16>,
    pub(super) sack: Vec<(u32, u32)>,
    pub(super) payload: Vec<u8>,
}

impl Segment {
    pub(super) fn bytes(&self, key: &FlowKey) -> Vec<u8> {
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

    pub(super) fn read(frame: &[u8]) -> (FlowKey, Self) {
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

/// A sender, with the acknowledgements that it received.
pub(super) struct Sender {
    pub(super) isn: u32,
    pub(super) data: Vec<u8>,
    /// Offsets sent and acknowledged. The offset after the data is the FIN.
    pub(super) sent: usize,
    pub(super) acked: usize,
    pub(super) sacked: Vec<bool>,
}

impl Sender {
    pub(super) fn new(isn: u32, data: Vec<u8>) -> Self {
        let sacked = vec![false; data.len() + 1];
        Self { isn, data, sent: 0, acked: 0, sacked }
    }

    pub(super) fn number(&self, offset: usize) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(offset as u32)
    }

    pub(super) fn offset(&self, number: u32) -> i64 {
        i64::from(number.wrapping_sub(self.isn.wrapping_add(1)) as i32)
    }

    pub(super) fn is_done(&self) -> bool {
        self.acked == self.data.len() + 1
    }

    /// A segment of bytes that are sent for the first time or again.
    pub(super) fn segment(&mut self, rng: &mut Rng, mss: usize) -> Segment {
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
pub(super) struct Receiver {
    pub(super) irs: u32,
    /// By offset; the FIN is a 0 after the data.
    pub(super) got: Vec<Option<u8>>,
    pub(super) next: usize,
    pub(super) fin: Option<usize>,
    /// A duplicate segment to report (RFC 2883).
    pub(super) twice: Option<(usize, usize)>,
}

impl Receiver {
    pub(super) fn take(&mut self, segment: &Segment) {
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

    pub(super) fn answer(&mut self, rng: &mut Rng) -> Segment {
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

pub(super) fn server_receives(server: &mut Sender, segment: &Segment) {
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
pub(super) fn client_receives(
    client: &mut Sender,
    segment: &Segment,
    at_server: &Receiver,
    n: usize,
) {
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
