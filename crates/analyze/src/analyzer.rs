//! The pass over the captures, from bursts of frames to an [`Analysis`].

use std::collections::BTreeMap;

use flowyard_adapter::Rss;
use flowyard_adapter::linux::is_l4_hash;
use flowyard_adapter::profile::{FdirKind, Tunnels};
use flowyard_frame::{FlowKey, LANES};
use flowyard_ports::{Burst, Damage, Record, Source};
use flowyard_wire::{Fault, Headers, Net, fc, ncsi};

use crate::checksums::Checksums;
use crate::clock::Clock;
use crate::explain::PacketOf;
use crate::flows::{FlowLoad, Flows, Role};
use crate::hashed::Hashed;
use crate::host::{Local, Threads};
use crate::packet::Packet;
use crate::policy::Running;
use crate::setup::{BadSetup, Setup};
use crate::storage::{Special, describe};
use crate::summary::{Analysis, Capture, Elephant, Traffic};
use crate::tenants::Sorting;
use crate::trails::Trails;

/// A pass over one or more captures.
pub struct Analyzer {
    pub(crate) setup: Setup,
    /// `None` for an adapter without a hash, where all frames arrive at queue 0.
    pub(crate) rss: Option<Rss>,
    pub(crate) flows: Flows,
    threads: Threads,
    pub(crate) policies: Vec<Running>,
    trails: Trails,
    /// Received packets by entry of the indirection table.
    pub(crate) entries: Vec<u64>,
    /// The offset of the flexible word, if a rule matches one.
    flex: Option<u16>,
    clock: Clock,
    counts: Counts,
    /// The pools and virtual functions, if there are tenants.
    pub(crate) sorting: Option<Sorting>,
    captures: Vec<Capture>,
    /// The current burst; its memory is reused.
    burst: Vec<Packet>,
}

/// The role of the host in a connection whose first frame has this key and direction.
fn role(key: &FlowKey, direction: u8, local: &Local, threads: &mut Threads) -> Role {
    let receives = local.receives(key);
    let inward = if receives == Some(false) { key.reversed() } else { *key };
    let received = match receives {
        Some(true) => direction,
        Some(false) => 1 - direction,
        None => Role::BOTH,
    };
    Role { received, thread: threads.accept(&inward) }
}

/// The subject of an explanation: a flow, or a packet of a capture.
#[derive(Clone, Debug)]
pub struct Target {
    pub(crate) packet: Packet,
    /// What is hashed of the packet in place of what its key has.
    pub(crate) hashed: Option<Hashed>,
    pub(crate) of: Option<PacketOf>,
    /// What the packet is, if it is for storage or management, in sentences.
    pub(crate) kind: Vec<String>,
}

/// The reason for which a packet of a capture is not available.
#[derive(Debug, thiserror::Error)]
pub enum NoPacket {
    /// The capture cannot be read.
    #[error(transparent)]
    Unreadable(#[from] flowyard_ports::Error),
    /// The capture could be read only in part, and has fewer packets up to there.
    #[error("there is no packet {number} before the damage of the capture: {damage}")]
    Damaged {
        /// The number requested.
        number: u64,
        /// Where and why reading stopped, with the name of the capture.
        damage: Box<Damage>,
    },
    /// The capture has fewer packets.
    #[error("{file}: there is no packet {number}; {}", numbers(*number, *packets))]
    Missing {
        /// The name of the capture.
        file: String,
        /// The number requested.
        number: u64,
        /// Number of packets in the capture.
        packets: u64,
    },
}

/// The valid numbers, for the message of [`NoPacket::Missing`].
fn numbers(number: u64, packets: u64) -> String {
    match (number, packets) {
        (0, _) => "packets are numbered from 1".to_owned(),
        (_, 0) => "the capture is empty".to_owned(),
        _ => format!("the capture has packets 1 to {packets}"),
    }
}

/// Counters that do not depend on the policy.
struct Counts {
    traffic: Traffic,
    faults: [u64; Fault::COUNT],
    special: Special,
    checksums: Checksums,
}

impl Analyzer {
    /// A pass with this setup.
    ///
    /// # Errors
    /// If the setup is not possible.
    pub fn new(setup: Setup) -> Result<Self, BadSetup> {
        setup.check()?;
        let hashes = setup.adapter.rss.is_some();
        let rss = if hashes {
            Some(Rss::new(setup.adapter, setup.queues, setup.rss.clone())?)
        } else {
            None
        };
        let threads =
            Threads::new(setup.consumers.clone(), setup.cores, setup.migrate_every, setup.seed);
        let policies = (0..setup.policies.len())
            .map(|number| Running::new(number, &setup, rss.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            entries: vec![0; rss.as_ref().map_or(0, |rss| rss.reta().len())],
            rss,
            threads,
            flex: policies.iter().find_map(|running| running.policy.flex_offset()),
            trails: Trails::new(policies.len()),
            policies,
            flows: Flows::default(),
            clock: Clock::default(),
            counts: Counts {
                traffic: Traffic::default(),
                faults: [0; Fault::COUNT],
                special: Special::new(setup.adapter.capabilities().fcoe),
                checksums: Checksums::default(),
            },
            sorting: Sorting::new(&setup)?,
            captures: Vec::new(),
            burst: Vec::with_capacity(LANES),
            setup,
        })
    }

    /// Reads `source` to its end, and calls `each` after every burst to show progress.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn read(
        &mut self,
        file: &str,
        source: &mut dyn Source,
        mut each: impl FnMut(&dyn Source),
    ) -> Result<(), flowyard_ports::Error> {
        self.clock.next_capture();
        let mut packets = 0;
        loop {
            let burst = source.read()?;
            if burst.is_empty() {
                break;
            }
            packets += burst.len() as u64;
            self.feed(&burst, burst.len());
            each(source);
        }
        self.steer();
        self.captures.push(Capture {
            file: file.into(),
            packets,
            skipped: source.skipped().into_iter().map(|left| (left.reason, left.packets)).collect(),
            damage: source.damage().map(ToString::to_string),
        });
        Ok(())
    }

    /// Reads `source` up to packet `number` (from 1). The policies process all packets before it but
    /// not this one, so their tables are in the state in which it arrives.
    ///
    /// # Errors
    /// If the source cannot be read, or has no such packet.
    pub fn read_to(
        &mut self,
        file: &str,
        source: &mut dyn Source,
        number: u64,
    ) -> Result<Target, NoPacket> {
        self.clock.next_capture();
        let mut packets = 0;
        loop {
            let burst = source.read()?;
            let before = number.saturating_sub(packets + 1);
            if burst.is_empty() || number == 0 {
                let damage = source.damage().filter(|_| number > 0).cloned();
                return Err(match damage {
                    Some(damage) => NoPacket::Damaged { number, damage: damage.into() },
                    None => NoPacket::Missing { file: file.into(), number, packets },
                });
            }
            if before < burst.len() as u64 {
                self.feed(&burst, before as usize);
                self.steer();
                let (record, bytes) =
                    (&burst.records()[before as usize], burst.data(before as usize));
                let (packet, hashed) = self.parse(record, bytes);
                let mut packet = [packet];
                self.place(&mut packet);
                let [packet] = packet;
                let of = PacketOf { capture: file.into(), number, received: packet.received };
                let outer = Headers::parse(record.link, bytes);
                let rest = bytes.get(outer.l3 as usize..).unwrap_or_default();
                let sizes = self.setup.adapter.capabilities().fcoe;
                let kind = describe(outer.eth_type, rest, sizes);
                return Ok(Target { packet, hashed, of: Some(of), kind });
            }
            packets += burst.len() as u64;
            self.feed(&burst, burst.len());
        }
    }

    /// Processes the first `take` frames of a burst.
    ///
    /// The length of a burst can depend on how many bytes a pipe had. The policies get full bursts, so
    /// that the result depends only on the frames.
    fn feed(&mut self, burst: &Burst<'_>, take: usize) {
        let mut frames = burst.iter().take(take);
        loop {
            let mut packets = std::mem::take(&mut self.burst);
            let free = LANES - packets.len();
            let parsed = frames.by_ref().take(free);
            packets.extend(parsed.map(|(record, bytes)| self.parse(record, bytes).0));
            self.burst = packets;
            if self.burst.len() < LANES {
                break;
            }
            self.steer();
        }
    }

    /// Runs the current burst through every policy.
    fn steer(&mut self) {
        let mut packets = std::mem::take(&mut self.burst);
        self.place(&mut packets);
        let flows = packets.iter().filter_map(|packet| Some(packet.flow?.0));
        self.trails.warm(self.flows.connections() * 2, flows);
        for policy in &mut self.policies {
            policy.burst(&packets, &mut self.trails);
        }
        if let Some(sorting) = &mut self.sorting {
            packets.iter().for_each(|packet| sorting.count(packet));
        }
        packets.clear();
        self.burst = packets;
    }

    /// The part of a [`Packet`] that follows from the frame's bytes: also the hash of what is not in the key.
    #[inline]
    fn parse(&mut self, record: &Record, bytes: &[u8]) -> (Packet, Option<Hashed>) {
        let (key, icmp_type, hashed) = self.counts.parse(record, bytes, &self.setup, self.flex);
        let now = self.clock.at(record.time);
        let hash = hashed.zip(self.rss.as_ref()).and_then(|(hashed, rss)| hashed.hash(rss, &key));
        let l4_hash = hashed.is_some_and(|hashed| hashed.is_id());
        (Packet { icmp_type, hash, l4_hash, ..Packet::new(key, now, record.wire_len) }, hashed)
    }

    /// Fills in what does not follow from the bytes: flow, direction, consumer, hash. There is one loop
    /// for each, so that the cache misses of the flow table overlap.
    fn place(&mut self, packets: &mut [Packet]) {
        let Self { flows, threads, setup, .. } = self;
        let is_foreign = |packet: &&Packet| packet.key.is_ip() && !setup.local.is_end(&packet.key);
        self.counts.traffic.foreign += packets.iter().filter(is_foreign).count() as u64;
        let mut keys = [None; LANES];
        for (packet, key) in packets.iter().zip(&mut keys) {
            *key = packet.key.is_ip().then_some(&packet.key);
        }
        let mut ids = [None; LANES];
        flows.see(&keys[..packets.len()], &mut ids, |key, direction| {
            role(key, direction, &setup.local, threads)
        });
        for (packet, id) in packets.iter_mut().zip(ids) {
            threads.tick(packet.now);
            // Frames that are not IP have no direction: the adapter receives them.
            if let Some(id) = id {
                flows.count(id, packet.wire_len);
                let (received, thread) = flows.role(id);
                packet.received = received;
                packet.flow = Some((id, threads.core(thread)));
            }
            self.counts.traffic.received += u64::from(packet.received);
            self.counts.traffic.transmitted += u64::from(!packet.received);
        }
        for packet in packets {
            let key = packet.key;
            if packet.received || self.sorting.is_some() {
                (packet.hash, packet.own_queue) = match (packet.hash, &self.rss) {
                    (Some(hash), Some(rss)) => (Some(hash), rss.queue(Some(hash))),
                    _ => self.hash(&key),
                };
                packet.rss_queue = packet.own_queue;
            }
            if !packet.received {
                // The opposite direction has other IDs and addresses, which are not known.
                (packet.hash, packet.rss_queue) = self.hash(&key.reversed());
            }
            packet.l4_hash = packet.received && packet.l4_hash || self.is_l4(&key, None);
            if let (true, Some(hash), Some(rss)) = (packet.received, packet.hash, &self.rss) {
                self.entries[usize::from(rss.index(hash))] += 1;
            }
        }
    }

    /// Whether the driver tells Linux that the hash of a frame covers the ports.
    #[inline]
    pub(crate) fn is_l4(&self, key: &FlowKey, hashed: Option<&Hashed>) -> bool {
        let is_l4 = |rss| is_l4_hash(self.setup.adapter.driver, rss, key);
        hashed.is_some_and(Hashed::is_id) || self.rss.as_ref().is_some_and(is_l4)
    }

    /// The adapter's hash of a frame, and the queue that RSS selects.
    #[inline]
    pub(crate) fn hash(&self, key: &FlowKey) -> (Option<u32>, u16) {
        let Some(rss) = &self.rss else { return (None, 0) };
        let hash = rss.hash(key);
        (hash, rss.queue(hash))
    }

    /// The result, after the last capture.
    #[must_use]
    pub fn finish(mut self) -> Analysis {
        self.steer(); // the frames that a source returned before it failed
        let traffic = self.traffic();
        let mut notes = self.setup.notes(&traffic);
        notes.extend(self.clock.note());
        notes.extend(self.policies.iter().flat_map(|running| running.policy.notes()));
        let elephants = self.elephants();
        let started = self.clock.started();
        let policies: Vec<_> =
            self.policies.iter_mut().map(|policy| policy.summary(started)).collect();
        let (storage, control) = self.counts.special.finish();
        Analysis {
            tenants: self.sorting.as_ref().map(Sorting::summary),
            storage,
            control,
            captures: std::mem::take(&mut self.captures),
            setup: self.setup.summary(self.rss.as_ref(), self.threads.migrations),
            verdict: self.verdict(&policies, &traffic),
            traffic,
            policies,
            elephants,
            notes,
        }
    }

    fn traffic(&mut self) -> Traffic {
        let mut traffic = std::mem::take(&mut self.counts.traffic);
        traffic.connections = self.flows.connections() as u64;
        traffic.checksums = self.counts.checksums.summary();
        traffic.duration_s = self.clock.elapsed() as f64 / 1e9;
        traffic.parse_errors = Fault::ALL
            .iter()
            .zip(self.counts.faults)
            .filter(|(_, count)| *count > 0)
            .map(|(fault, count)| (fault.name().to_owned(), count))
            .collect();
        let mut sizes: Vec<u64> = self.flows.received().map(|flow| flow.bytes).collect();
        sizes.sort_unstable();
        traffic.received_flows = sizes.len() as u64;
        traffic.flow_size_cdf = cdf(&sizes);
        traffic.state_bytes_per_connection =
            (Flows::BYTES_PER_CONNECTION + 2 * self.trails.bytes_per_flow()) as u64;
        traffic
    }

    fn elephants(&self) -> Vec<Elephant> {
        let total: u64 = self.flows.received().map(|flow| flow.bytes).sum();
        let mut large: Vec<_> = self
            .flows
            .received()
            .filter(|flow| flow.bytes as f64 > self.setup.elephant_share * total as f64)
            .collect();
        large.sort_unstable_by_key(|flow| (std::cmp::Reverse(flow.bytes), flow.id));
        large.truncate(self.setup.elephants_most);
        large
            .into_iter()
            .map(|FlowLoad { id, bytes, packets }| Elephant {
                flow: self.flows.key(id).to_string(),
                bytes,
                packets,
                share: bytes as f64 / total as f64,
                policies: self
                    .policies
                    .iter()
                    .filter_map(|policy| {
                        Some((policy.name().to_owned(), policy.elephant(id, &self.trails)?))
                    })
                    .collect::<BTreeMap<_, _>>(),
            })
            .collect()
    }
}

impl Counts {
    /// Parses a frame to the key that the adapter uses, the type of its ICMP message and what is hashed of it beside the
    /// key, and counts its properties.
    #[inline]
    fn parse(
        &mut self,
        record: &Record,
        bytes: &[u8],
        setup: &Setup,
        flex: Option<u16>,
    ) -> (FlowKey, Option<u8>, Option<Hashed>) {
        let tunnels = setup.adapter.tunnels;
        let outer = Headers::parse(record.link, bytes);
        let traffic = &mut self.traffic;
        traffic.packets += 1;
        traffic.bytes += u64::from(record.wire_len);
        traffic.truncated += u64::from(record.wire_len as usize > bytes.len());
        traffic.vlan += u64::from(outer.tags.count > 0);
        traffic.mpls += u64::from(outer.labels.count > 0);
        let deep = outer.labels.count > 0 || outer.pppoe.is_some() || outer.tags.count > 2;
        traffic.deep_ip_header += u64::from(deep && matches!(outer.net, Net::Ipv4 | Net::Ipv6));
        traffic.not_ip += u64::from(!matches!(outer.net, Net::Ipv4 | Net::Ipv6));
        if let Some(fault) = outer.fault {
            self.faults[fault.index()] += 1;
        }
        match outer.eth_type {
            fc::ETHER_TYPE => {
                self.special.storage(bytes.get(outer.l3 as usize..).unwrap_or_default());
            }
            ncsi::ETHER_TYPE => {
                self.special.control(bytes.get(outer.l3 as usize..).unwrap_or_default());
            }
            _ => {}
        }
        self.checksums.see(&outer, bytes);
        let mut seen = outer;
        if let Some(inner) = outer.inner(bytes) {
            traffic.tunnelled += 1;
            if tunnels == Tunnels::Inner && matches!(inner.net, Net::Ipv4 | Net::Ipv6) {
                seen = inner;
            }
        }
        let mut key = flowyard_flow::parse::key(&seen, bytes, record.interface as u16);
        if let Some(offset) = flex {
            key.flex = flex_word(bytes, &seen, setup.adapter.fdir, offset);
        }
        if key.is_ip() && !matches!(seen.net, Net::Ipv4 | Net::Ipv6) {
            // The header contradicts the EtherType, so there is no address, no flow and no hash input.
            key.eth_type = 0;
        }
        self.traffic.fragments += u64::from(key.frag != 0);
        let hashed = Hashed::of(setup.quic.as_ref(), &key, &seen, bytes);
        (key, seen.icmp(bytes).map(|icmp| icmp.kind), hashed)
    }
}

/// The two bytes at `offset`. The 500 series counts it from the start of the frame, the 800 series from the start of the
/// frame whose headers it matches (the inner one of a tunnel), and the 700 series from the start of the payload. Zero if the
/// frame is too short.
fn flex_word(bytes: &[u8], headers: &Headers, fdir: FdirKind, offset: u16) -> u16 {
    let base = match fdir {
        FdirKind::I40e { .. } => headers.payload,
        FdirKind::Ice { .. } => headers.eth.unwrap_or(headers.l3),
        _ => 0,
    };
    let word = bytes.get(base as usize + usize::from(offset)..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u16::from_be_bytes(*word))
}

/// The distribution of sorted sizes: at most 200 points `(size, fraction of flows of at most this
/// size)`.
fn cdf(sorted: &[u64]) -> Vec<(u64, f64)> {
    let total = sorted.len();
    let mut points: Vec<(u64, f64)> = Vec::new();
    for step in 1..=total.min(200) {
        let upto = total * step / total.min(200);
        let size = sorted[upto - 1];
        let share = upto as f64 / total as f64;
        match points.last_mut() {
            Some(last) if last.0 == size => last.1 = share,
            _ => points.push((size, share)),
        }
    }
    points
}
