//! The network: frames that arrive at link speed, and the check of every frame that leaves.
//!
//! Frames have Ethernet, IPv4 and UDP headers, an IPv4 checksum, and a serial number at both ends of the
//! payload; or they are the frames of a capture, at its times. Every accepted frame must reach the host, and
//! every frame that the host posted must reach the link, unchanged, once, and in order (of its flow, if
//! several return rings are in use). Thread-safety: values only; no clock, no randomness.

use std::collections::VecDeque;

use flowyard_wire::checksum::checksum;

use super::histogram::Histogram;
use crate::config::Config;
use crate::time::Base;

/// Bytes of Ethernet, IPv4 and UDP headers: the first region of a sent frame (paper, section 4).
pub const HEADER_BYTES: u32 = 42;
/// Bytes of a VLAN tag.
pub const TAG_BYTES: u32 = 4;
/// Bytes of the frame check sequence, whose value is not computed.
pub const FCS_BYTES: u32 = 4;

/// The receive flags of the MAC, which the firmware reads.
pub(crate) mod flag {
    pub(crate) const CRC: u32 = 1;
    pub(crate) const OVERSIZE: u32 = 2;
    pub(crate) const RUNT: u32 = 4;
    pub(crate) const MULTICAST: u32 = 8;
    pub(crate) const BROADCAST: u32 = 16;
    pub(crate) const VLAN: u32 = 32;
    pub(crate) const IP_CHECKSUM_GOOD: u32 = 64;
    pub(crate) const IPV4: u32 = 128;
    /// A frame with one of these is delivered with the mark of an error.
    pub(crate) const DAMAGED: u32 = CRC | OVERSIZE | RUNT;
}

/// A frame in a receive buffer.
#[derive(Clone, Debug)]
pub(crate) struct RxFrame {
    pub(crate) buffer: Vec<u8>,
    pub(crate) len: u32,
    pub(crate) flags: u32,
    pub(crate) vlan: u32,
    pub(crate) stamp: u32,
}

/// A pool of buffers, so that no frame allocates memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames(Vec<Vec<u8>>);

impl Frames {
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| Vec::with_capacity(2048))
    }

    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.0.push(buffer);
    }
}

/// The identity of a frame on its way: length, bytes, flow, and the time when it entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passport {
    len: u32,
    digest: u64,
    flow: u32,
    /// Its number in its direction, from 0.
    number: u64,
    since: u64,
    damaged: bool,
}

/// A digest of all bytes, in two lanes, because each multiplication waits for the one before.
fn digest(bytes: &[u8]) -> u64 {
    let mix =
        |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let (pairs, single) = words.as_chunks::<2>();
    let (mut even, mut odd) = (0xcbf2_9ce4_8422_2325u64, 0x8422_2325_cbf2_9ce4u64);
    for &[first, second] in pairs {
        even = mix(even, u64::from_le_bytes(first));
        odd = mix(odd, u64::from_le_bytes(second));
    }
    for &word in single {
        even = mix(even, u64::from_le_bytes(word));
    }
    for &byte in rest {
        odd = mix(odd, byte.into());
    }
    mix(even, odd)
}

/// Bytes of the VLAN tag of a frame: 4, or 0 without one.
fn tag_bytes(frame: &[u8]) -> u32 {
    if frame.get(12..14) == Some(&[0x81, 0x00]) { TAG_BYTES } else { 0 }
}

/// A hash of addresses and ports, which identifies the flow for the check of its order.
fn flow_of(bytes: &[u8]) -> u32 {
    let tuple = bytes.get(26..38).unwrap_or_default();
    tuple.iter().fold(0x811c_9dc5u32, |sum, &b| (sum ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

/// The frames on their way in one direction, and their counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journey {
    held: VecDeque<Passport>,
    pub(crate) counters: FrameCounters,
    pub(crate) latency: Histogram,
    /// For a timeline: the frames that arrived last, by number, and when they entered and arrived.
    pub(crate) log: Option<Vec<(u64, u64, u64)>>,
}

/// The counters of the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct FrameCounters {
    /// Frames that entered: offered by the network, or posted by the host.
    pub entered: u64,
    /// Frames dropped because there was no buffer, or because the firmware refused the host's buffer.
    pub dropped: u64,
    /// Frames that arrived.
    pub delivered: u64,
    /// Bytes of the frames that arrived, without frame check sequence.
    pub bytes: u64,
    /// UDP payload bytes of the frames that arrived.
    pub payload_bytes: u64,
    /// Of the frames that arrived, those that were damaged on the link and marked as such.
    pub damaged: u64,
    /// Frames that arrived out of order, changed, unknown, or with the wrong mark of damage.
    pub errors: u64,
    /// The sum of the times from entry to arrival, in time units.
    pub latency_sum: u64,
    /// The longest of these times.
    pub latency_max: u64,
}

impl Journey {
    pub(crate) fn enter(&mut self, bytes: &[u8], since: u64, damaged: bool) {
        let (digest, flow) = (digest(bytes), flow_of(bytes));
        let (len, number) = (bytes.len() as u32, self.counters.entered);
        self.held.push_back(Passport { len, digest, flow, number, since, damaged });
        self.counters.entered += 1;
    }

    pub(crate) fn drop_one(&mut self) {
        self.counters.entered += 1;
        self.counters.dropped += 1;
    }

    /// Removes the next frame, which the firmware dropped because it refused the host's buffer.
    pub(crate) fn refuse(&mut self) {
        match self.held.pop_front() {
            Some(_) => self.counters.dropped += 1,
            None => self.counters.errors += 1,
        }
    }

    /// Checks a frame that has arrived, `marked` as damaged or not. With `per_flow`, frames of different flows may
    /// overtake each other.
    pub(crate) fn arrive(&mut self, bytes: &[u8], now: u64, per_flow: bool, marked: bool) {
        self.counters.delivered += 1;
        self.counters.bytes += bytes.len() as u64;
        if marked {
            self.counters.damaged += 1;
        } else {
            let headers = HEADER_BYTES + tag_bytes(bytes);
            self.counters.payload_bytes += (bytes.len() as u64).saturating_sub(headers.into());
        }
        let (digest, len) = (digest(bytes), bytes.len() as u32);
        let same = |passport: &Passport| passport.digest == digest && passport.len == len;
        let at = self.held.iter().take(if per_flow { 4096 } else { 1 }).position(same);
        let Some(at) = at else {
            self.counters.errors += 1;
            // Remove the frame if it is known, so that one error does not make every later frame an error.
            let found = self.held.iter().take(4096).position(same);
            if let Some(at) = found {
                self.held.remove(at);
            }
            return;
        };
        let flow = self.held[at].flow;
        if self.held.iter().take(at).any(|earlier| earlier.flow == flow) {
            self.counters.errors += 1;
        }
        if let Some(passport) = self.held.remove(at) {
            self.counters.errors += u64::from(passport.damaged != marked);
            let latency = now.saturating_sub(passport.since);
            self.latency.add(latency);
            if let Some(log) = &mut self.log {
                log.push((passport.number, passport.since, now));
            }
            self.counters.latency_sum += latency;
            self.counters.latency_max = self.counters.latency_max.max(latency);
        }
    }

    /// The number of frames that entered and have neither arrived nor been dropped.
    pub(crate) fn held(&self) -> u64 {
        self.held.len() as u64
    }
}

/// A frame that will arrive: the time of its first bit in ns, and its bytes without frame check sequence.
pub type Arrival = (u64, Vec<u8>);

/// The source of the frames that arrive from the network.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    sizes: Vec<u32>,
    flows: u32,
    vlan: u32,
    share: f64,
    byte: u64,
    overhead: u32,
    preamble: u32,
    capture: Option<(Vec<Arrival>, u64)>,
    number: u64,
    start: u64,
    end: u64,
    running: bool,
    receives: bool,
    ns: u64,
    /// Every frame whose number is a multiple of this is damaged; 0 is none.
    damage_every: u64,
}

impl Source {
    pub(crate) fn new(config: &Config, base: Base, capture: Option<Vec<Arrival>>) -> Self {
        let byte = base.clock(config.byte_rate()).period;
        Self {
            sizes: config.load.udp_bytes.clone(),
            flows: config.load.flows,
            vlan: config.load.vlan,
            share: config.load.receive_share,
            byte,
            overhead: config.mac.preamble_bytes + config.mac.gap_bytes,
            preamble: config.mac.preamble_bytes,
            capture: capture.map(|frames| (frames, base.ns(1))),
            number: 0,
            start: 0,
            end: u64::MAX,
            running: false,
            receives: config.load.receive,
            ns: base.ns(1),
            damage_every: config.load.damage_every.into(),
        }
    }

    /// Starts the source: the link is up, and the first frame begins now.
    pub(crate) fn start(&mut self, now: u64) {
        if self.receives && !self.running {
            self.running = true;
            self.start = now;
            self.prepare(now);
        }
    }

    /// Whether the source was started.
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    /// The time at which the last bit of the next frame arrives; `u64::MAX` is never.
    pub(crate) fn due(&self) -> u64 {
        self.end
    }

    fn wire_len(&self) -> Option<u32> {
        match &self.capture {
            Some((frames, _)) => frames
                .get(self.number as usize)
                .map(|(_, bytes)| (bytes.len() as u32).max(60) + FCS_BYTES),
            None => {
                let size = self.sizes[(self.number % self.sizes.len() as u64) as usize];
                let tag = if self.vlan == 0 { 0 } else { TAG_BYTES };
                Some(HEADER_BYTES + size + FCS_BYTES + tag)
            }
        }
    }

    fn prepare(&mut self, began: u64) {
        let Some(len) = self.wire_len() else {
            self.end = u64::MAX;
            return;
        };
        if let Some((frames, ns)) = &self.capture {
            // At the time in the capture, or as soon as the link is free.
            let at = frames[self.number as usize].0.saturating_mul(*ns).saturating_add(began);
            self.start = self.start.max(at);
        }
        self.end = self.start + u64::from(self.preamble + len) * self.byte;
    }

    /// Writes the frame that has arrived into `buffer` and prepares the next one. The MAC sets the flags and
    /// removes a VLAN tag.
    pub(crate) fn next(&mut self, mut buffer: Vec<u8>, up_since: u64) -> RxFrame {
        let len = self.wire_len().unwrap_or(64);
        match &self.capture {
            Some((frames, _)) => {
                buffer.extend_from_slice(&frames[self.number as usize].1);
                buffer.resize(buffer.len().max(60), 0);
            }
            None => {
                let size = self.sizes[(self.number % self.sizes.len() as u64) as usize];
                let flow = (self.number % u64::from(self.flows)) as u32;
                write_frame(&mut buffer, size, flow, self.number, 0xc0);
                if self.vlan != 0 {
                    let [high, low] = (self.vlan as u16).to_be_bytes();
                    buffer.splice(12..12, [0x81, 0x00, high, low]);
                }
            }
        }
        buffer.extend_from_slice(&[0; FCS_BYTES as usize]);
        let stamp = (self.end / self.ns) as u32;
        let damaged =
            self.damage_every > 0 && self.number % self.damage_every == self.damage_every - 1;
        let (mut flags, vlan) = inspect(&mut buffer);
        if damaged {
            // One bit of the first payload byte of a generated frame, which no header check can find.
            let at = (HEADER_BYTES as usize).min(buffer.len() - 1);
            buffer[at] ^= 1;
            flags |= flag::CRC; // the check sequence itself is not computed
        }
        let total = u64::from(self.overhead + len) * self.byte;
        let share = if self.capture.is_some() { 1.0 } else { self.share };
        self.start += (total as f64 / share) as u64;
        self.number += 1;
        self.prepare(up_since);
        let len = buffer.len() as u32;
        RxFrame { buffer, len, flags, vlan, stamp }
    }
}

/// The receive flags of a frame (address class, length, IP checksum) and its VLAN tag, which is removed.
fn inspect(bytes: &mut Vec<u8>) -> (u32, u32) {
    let (mut flags, mut vlan) = (0, 0);
    if bytes.len() < 64 {
        flags |= flag::RUNT;
    }
    if bytes.len() > 1522 {
        flags |= flag::OVERSIZE;
        bytes.truncate(1522);
    }
    if bytes.starts_with(&[0xff; 6]) {
        flags |= flag::BROADCAST;
    } else if bytes[0] & 1 == 1 {
        flags |= flag::MULTICAST;
    }
    if bytes[12..14] == [0x81, 0x00] {
        flags |= flag::VLAN;
        vlan = u32::from(bytes[14]) << 8 | u32::from(bytes[15]);
        bytes.drain(12..16);
        bytes.resize(bytes.len().max(64), 0);
    }
    if bytes[12..14] == [0x08, 0x00] && bytes[14] == 0x45 {
        flags |= flag::IPV4;
        if checksum(&bytes[14..34]) == 0 {
            flags |= flag::IP_CHECKSUM_GOOD;
        }
    }
    (flags, vlan)
}

/// Appends an Ethernet, IPv4 and UDP frame of `size` payload bytes, without frame check sequence.
pub(crate) fn write_frame(into: &mut Vec<u8>, size: u32, flow: u32, number: u64, net: u8) {
    let begin = into.len();
    into.extend_from_slice(&[0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00]);
    let total = (28 + size) as u16;
    let [a, b] = (flow as u16).to_be_bytes();
    into.extend_from_slice(&[0x45, 0]);
    into.extend_from_slice(&total.to_be_bytes());
    into.extend_from_slice(&(number as u16).to_be_bytes());
    into.extend_from_slice(&[0x40, 0, 64, 17, 0, 0, 10, net, a, b, 10, 1, 0, 1]);
    let sum = checksum(&into[begin + 14..begin + 34]).to_be_bytes();
    into[begin + 24..begin + 26].copy_from_slice(&sum);
    let port = 1024u16.wrapping_add(flow as u16);
    into.extend_from_slice(&port.to_be_bytes());
    into.extend_from_slice(&4791u16.to_be_bytes());
    into.extend_from_slice(&((8 + size) as u16).to_be_bytes());
    into.extend_from_slice(&[0, 0]); // no UDP checksum: allowed in IPv4 (RFC 768)
    into.extend_from_slice(&number.to_le_bytes());
    into.resize(begin + (HEADER_BYTES + size) as usize - 8, number as u8);
    into.extend_from_slice(&(!number).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(vlan: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, 1472, 3, 77, 0xc0);
        if vlan {
            bytes.splice(12..12, [0x81, 0x00, 0, 5]);
        }
        bytes
    }

    #[test]
    fn a_change_of_any_byte_is_an_error() {
        let sent = frame(false);
        for at in 0..sent.len() {
            let mut arrived = sent.clone();
            arrived[at] ^= 1;
            assert_ne!(digest(&sent), digest(&arrived), "byte {at}");
        }
        let mut journey = Journey::default();
        journey.enter(&sent, 0, false);
        let mut arrived = sent.clone();
        arrived[700] ^= 0x10;
        journey.arrive(&arrived, 9, false, false);
        assert_eq!(journey.counters.errors, 1);
    }

    #[test]
    fn a_vlan_tag_is_not_payload() {
        for vlan in [false, true] {
            let mut journey = Journey::default();
            journey.enter(&frame(vlan), 0, false);
            journey.arrive(&frame(vlan), 9, false, false);
            assert_eq!((journey.counters.payload_bytes, journey.counters.errors), (1472, 0));
        }
    }

    /// The damage is in the first byte of the payload, with and without a tag.
    #[test]
    fn the_payload_of_a_damaged_frame_is_damaged() {
        for vlan in [0, 5] {
            let mut config = Config::default();
            (config.load.damage_every, config.load.vlan) = (1, vlan);
            let mut source = Source::new(&config, config.base().unwrap(), None);
            source.start(0);
            let damaged = source.next(Vec::new(), 0);
            config.load.damage_every = 0;
            let mut source = Source::new(&config, config.base().unwrap(), None);
            source.start(0);
            let whole = source.next(Vec::new(), 0);
            let changed = damaged.buffer.iter().zip(&whole.buffer).position(|(a, b)| a != b);
            assert_eq!(changed, Some(HEADER_BYTES as usize), "tag {vlan}");
        }
    }
}
