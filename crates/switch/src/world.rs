//! World: what actions use besides the frame: ports, groups, meters, stations.
//!
//! Invariants: a group that is being applied is not entered again; a frame meets at most as many buckets as its
//! budget covers (see `effects`); a frame is sent to the port where it was received only if the action says
//! `IN_PORT`.
//! Thread-safety: owned by one core.

mod explain;
mod live;

pub(crate) use explain::Told;

use std::sync::Arc;

use flowyard_flow::table::l2::{Announced, L2};
use flowyard_flow::table::tuples::{Words, seeds};
use flowyard_openflow::Field;
use flowyard_openflow::act::Action;
use flowyard_openflow::change::{Group, Punt};
use flowyard_openflow::flow::InReason;
use flowyard_openflow::group::{Bucket, GroupType, METER_CONTROLLER};
use flowyard_openflow::port::{Port, reserved};
use flowyard_wire::edit::tags;

use crate::effects::{Effects, Reason, Seen};
use crate::key::{Key, WORDS};
use crate::meter::{Metering, Shared, Verdict};
use crate::packet::{Fault, Packet};
use crate::set::ActionSet;

/// `OFPPC_*` and `OFPPS_*`.
const DOWN: u32 = 1;
const NO_RECV: u32 = 4;
const NO_FLOOD: u32 = 0x10;
const NO_FWD: u32 = 0x20;
const NO_PACKET_IN: u32 = 0x40;
const LINK_DOWN: u32 = 1;
const BLOCKED: u32 = 2;

/// The most stations that wait to be announced to the other cores.
const SEEN: usize = 256;

/// Where actions come from, for messages to controllers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) reason: InReason,
    pub(crate) table: u8,
    pub(crate) cookie: u64,
    pub(crate) now: u64,
    /// Set-queue.
    pub(crate) queue: u32,
    /// The bytes are not those of a received frame, but a controller's or a copy.
    pub(crate) owned: bool,
}

#[derive(Debug)]
pub(crate) struct Grouping {
    group: Arc<Group>,
    sets: Vec<ActionSet>,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) core: usize,
    ports: Vec<Arc<Port>>,
    /// The ports of `FLOOD` and of `ALL`.
    floods: Vec<u32>,
    all: Vec<u32>,
    /// Sorted by number.
    groups: Vec<live::Slot>,
    /// The number of groups with a bucket that watches a group.
    watching: usize,
    /// The number of groups with actions before which a long frame must be cut.
    pub(crate) needing_finished: usize,
    /// Whether the liveness of groups has to be found out again.
    is_stale: bool,
    meters: Vec<(u32, Metering)>,
    shared: Shared,
    stations: L2,
    announced: Announced,
    hashed: Words<WORDS>,
    seeds: [u64; WORDS],
    /// Buffers for copies of packets.
    buffers: Vec<Vec<u8>>,
}

impl World {
    pub(crate) fn new(
        core: usize,
        (stations, announced): (L2, Announced),
        shared: Shared,
        seed: u64,
    ) -> Self {
        Self {
            core,
            ports: Vec::new(),
            floods: Vec::new(),
            all: Vec::new(),
            groups: Vec::new(),
            watching: 0,
            needing_finished: 0,
            is_stale: false,
            meters: Vec::new(),
            shared,
            stations,
            announced,
            hashed: Words::new(&HASHED),
            seeds: seeds(seed),
            buffers: Vec::new(),
        }
    }

    /// A buffer for a packet; see [`World::give_back`].
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        self.buffers.push(buffer);
    }

    fn port(&self, number: u32) -> Option<&Port> {
        let at = self.ports.binary_search_by_key(&number, |port| port.number).ok()?;
        Some(&self.ports[at])
    }

    /// Whether frames may be received from a port. Reserved ports are never down.
    pub(crate) fn receives(&self, number: u32) -> bool {
        let takes = |port: &Port| port.config & (DOWN | NO_RECV) == 0;
        self.port(number).map_or(number >= reserved::MAX, takes)
    }

    /// Whether frames may be sent to a port.
    pub(crate) fn sends(&self, number: u32) -> bool {
        self.port(number).is_some_and(Self::is_open)
    }

    fn is_open(port: &Port) -> bool {
        port.config & (DOWN | NO_FWD) == 0 && port.state & LINK_DOWN == 0
    }

    pub(crate) fn set_port(&mut self, port: &Arc<Port>) {
        match self.ports.binary_search_by_key(&port.number, |port| port.number) {
            Ok(at) => self.ports[at] = Arc::clone(port),
            Err(at) => self.ports.insert(at, Arc::clone(port)),
        }
        self.ports_changed();
    }

    pub(crate) fn drop_port(&mut self, number: u32) {
        self.ports.retain(|port| port.number != number);
        self.stations.forget_port(number as u16);
        self.ports_changed();
    }

    fn ports_changed(&mut self) {
        self.is_stale = true;
        let open = self.ports.iter().filter(|port| Self::is_open(port));
        let open = open.filter(|port| port.number < reserved::MAX);
        self.all.clear();
        self.all.extend(open.clone().map(|port| port.number));
        let floods = open.filter(|port| port.config & NO_FLOOD == 0 && port.state & BLOCKED == 0);
        self.floods.clear();
        self.floods.extend(floods.map(|port| port.number));
        for port in self.ports.iter().filter(|port| !Self::is_open(port)) {
            self.stations.forget_port(port.number as u16);
        }
    }

    pub(crate) fn set_group(&mut self, group: &Arc<Group>) {
        let set = |bucket: &Bucket| {
            let mut set = ActionSet::default();
            bucket.actions.iter().for_each(|action| set.write(action));
            set
        };
        let number = group.desc.group;
        let sets = group.desc.buckets.iter().map(set).collect();
        let new = live::Slot::new(number, Grouping { group: Arc::clone(group), sets });
        self.watching += usize::from(new.watches);
        self.needing_finished += usize::from(new.needs_finished);
        match self.place(number) {
            Ok(at) => {
                let old = std::mem::replace(&mut self.groups[at], new);
                self.watching -= usize::from(old.watches);
                self.needing_finished -= usize::from(old.needs_finished);
            }
            Err(at) => self.groups.insert(at, new),
        }
        self.is_stale = true;
    }

    pub(crate) fn drop_group(&mut self, number: u32) {
        if let Ok(at) = self.place(number) {
            let old = self.groups.remove(at);
            self.watching -= usize::from(old.watches);
            self.needing_finished -= usize::from(old.needs_finished);
        }
        self.is_stale = true;
    }

    pub(crate) fn set_meter(&mut self, meter: &Arc<flowyard_openflow::change::Meter>, change: u64) {
        let (number, new) = (meter.config.meter, Metering::new(meter, change, &self.shared));
        match self.meters.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => self.meters[at].1 = new,
            Err(at) => self.meters.insert(at, (number, new)),
        }
    }

    pub(crate) fn drop_meter(&mut self, number: u32) {
        if let Ok(at) = self.meters.binary_search_by_key(&number, |(number, _)| *number) {
            self.meters.remove(at).1.leave(&self.shared);
        }
    }

    /// Whether a meter may change fields.
    pub(crate) fn remarks(&self, number: u32) -> bool {
        let band = |band: &_| matches!(band, flowyard_openflow::group::Band::DscpRemark { .. });
        self.meter(number).is_some_and(|meter| meter.meter.config.bands.iter().any(band))
    }

    fn meter(&self, number: u32) -> Option<&Metering> {
        let at = self.meters.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.meters[at].1)
    }

    /// Whether a frame passes a meter.
    pub(crate) fn passes(&self, number: u32, packet: &mut Packet<'_>, now: u64) -> bool {
        let Some(meter) = self.meter(number) else { return true };
        let len = packet.bytes().len();
        match meter.apply(len, packet.left.segments(len), self.core, now) {
            Verdict::Pass => true,
            Verdict::Drop => false,
            Verdict::Remark(levels) => {
                packet.remark(levels);
                true
            }
        }
    }

    /// Learns a station that another core has seen.
    pub(crate) fn hear(&mut self, seen: &Seen) {
        self.stations.hear(&seen.mac, seen.vlan, seen.port as u16, seen.at);
    }

    /// See [`crate::Datapath::not_heard`].
    pub(crate) fn not_heard(&mut self, seen: &Seen) {
        self.announced.sent(&seen.mac, seen.vlan, false, seen.at);
    }

    /// Applies one action.
    pub(crate) fn act(
        &mut self,
        action: &Action,
        packet: &mut Packet<'_>,
        from: &mut Origin,
        out: &mut Effects,
    ) -> Result<(), Fault> {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len, packet, from, out),
            Action::Enqueue { port, queue } => {
                let from = Origin { queue: *queue, ..*from };
                self.output(*port, 0xffff, packet, &from, out);
            }
            Action::Group(number) => self.group(*number, packet, from, out),
            Action::SetQueue(queue) => from.queue = *queue,
            change => return packet.change(change),
        }
        Ok(())
    }

    /// Handles a fault: the reason for dropping the frame, and a message to the controller if its TTL expired.
    pub(crate) fn fault(
        &self,
        fault: Fault,
        packet: &Packet<'_>,
        from: &Origin,
        out: &mut Effects,
    ) {
        if fault == Fault::Ttl {
            self.punt(0xffff, packet, &Origin { reason: InReason::InvalidTtl, ..*from }, out);
        }
        out.because(match fault {
            Fault::Ttl => Reason::Ttl,
            Fault::Incomplete => Reason::Incomplete,
            Fault::TooLong => Reason::TooLong,
        });
    }

    /// Applies the actions of a set.
    pub(crate) fn act_set(
        &mut self,
        set: &ActionSet,
        packet: &mut Packet<'_>,
        from: &Origin,
        out: &mut Effects,
    ) {
        let mut from = *from;
        for action in set.actions() {
            if out.is_over() {
                return;
            }
            if let Err(fault) = self.act(action, packet, &mut from, out) {
                return self.fault(fault, packet, &from, out);
            }
        }
    }

    fn output(
        &mut self,
        port: u32,
        max_len: u16,
        packet: &mut Packet<'_>,
        from: &Origin,
        out: &mut Effects,
    ) {
        let in_port = packet.key.bits(Field::InPort) as u32;
        match port {
            reserved::IN_PORT => self.send(in_port, packet, from, out),
            reserved::NORMAL => self.normal(in_port, packet, from, out),
            reserved::FLOOD => spread(&self.floods, in_port, packet, from, out),
            reserved::ALL => spread(&self.all, in_port, packet, from, out),
            reserved::CONTROLLER => {
                self.punt(max_len, packet, from, out);
                out.because(Reason::Controller);
            }
            // `TABLE` is valid only for a controller's frame, see `Datapath::send`.
            reserved::TABLE | reserved::ANY => {}
            port if port == in_port => out.because(Reason::Filtered),
            port => self.send(port, packet, from, out),
        }
    }

    pub(crate) fn send(
        &self,
        port: u32,
        packet: &mut Packet<'_>,
        from: &Origin,
        out: &mut Effects,
    ) {
        if self.sends(port) {
            out.send(port, from.queue, packet, from.owned);
        } else {
            out.because(Reason::Filtered);
        }
    }

    /// `NORMAL`: a learning bridge.
    fn normal(&mut self, in_port: u32, packet: &mut Packet<'_>, from: &Origin, out: &mut Effects) {
        let bytes = packet.bytes();
        let Some(head) = bytes.first_chunk::<12>() else { return };
        let mac = |at: usize| -> [u8; 6] { std::array::from_fn(|i| head[at + i]) };
        let (dst, src, vlan) =
            (mac(0), mac(6), tags::outermost(bytes).map_or(0, |tci| tci & 0xfff));
        // Frames to 01:80:C2:00:00:00 to :0F must not be forwarded (802.1Q, 8.6.3).
        if matches!(dst, [1, 0x80, 0xc2, 0, 0, 0..=15]) {
            return out.because(Reason::Filtered);
        }
        // A controller may name a port that does not exist.
        if let Ok(port) = u16::try_from(in_port)
            && self.port(in_port).is_some()
        {
            let learnt = self.stations.learn(&src, vlan, port, from.now);
            if self.announced.is_due(&src, vlan, learnt, from.now) {
                let has_room = out.seen.len() < SEEN;
                if has_room {
                    out.seen.push(Seen { mac: src, vlan, port: in_port, at: from.now });
                }
                self.announced.sent(&src, vlan, has_room, from.now);
            }
        }
        match self.stations.get(&dst, vlan).map(u32::from) {
            Some(port) if port == in_port => out.because(Reason::Filtered),
            Some(port) => self.send(port, packet, from, out),
            None => spread(&self.floods, in_port, packet, from, out),
        }
    }

    pub(crate) fn punt(&self, max_len: u16, packet: &Packet<'_>, from: &Origin, out: &mut Effects) {
        let in_port = packet.key.bits(Field::InPort) as u32;
        let mute = |port: &Port| port.config & NO_PACKET_IN != 0;
        if from.reason == InReason::NoMatch && self.port(in_port).is_some_and(mute) {
            return;
        }
        // Controllers get what a wire would carry.
        let wired = packet.wired();
        out.punts_lost += u64::from(wired.count() == 0);
        for n in 0..wired.count() {
            if n > 0 && out.punts.len() >= out.punts_max {
                out.punts_lost += (wired.count() - n) as u64;
                return;
            }
            if let Some(meter) = self.meter(METER_CONTROLLER)
                && meter.apply(wired.len(n), 1, self.core, from.now) == Verdict::Drop
            {
                out.punts_lost += 1;
                continue;
            }
            out.punt(|| Punt {
                reason: from.reason,
                table: from.table,
                cookie: from.cookie,
                in_port,
                metadata: packet.key.bits(Field::Metadata) as u64,
                max_len,
                frame: wired.frame(n),
            });
        }
    }

    fn group(&mut self, number: u32, packet: &Packet<'_>, from: &Origin, out: &mut Effects) {
        if out.is_over() {
            return;
        }
        let at = self.place(number);
        // If a group leads to itself, it is absent the second time.
        let taken = at.ok().and_then(|at| self.groups[at].grouping.take());
        let Some(grouping) = taken else { return out.because(Reason::NoOutput) };
        let group = &grouping.group;
        let len = packet.bytes().len() as u64;
        if let Some(counts) = group.counts.get(self.core) {
            counts.add(1, len, from.now);
        }
        let buckets = &group.desc.buckets;
        let chosen = match group.desc.kind {
            GroupType::All => 0..buckets.len(),
            GroupType::Indirect => 0..buckets.len().min(1),
            GroupType::Select => one(self.select(buckets, &packet.key)),
            GroupType::FastFailover => one(buckets.iter().position(|bucket| self.is_live(bucket))),
        };
        if chosen.is_empty() {
            out.because(Reason::NoOutput);
        }
        let from = Origin { reason: InReason::Group, ..*from };
        for at in chosen {
            if !out.meet() {
                break;
            }
            let counts = group.buckets.get(at * group.counts.len() + self.core);
            if let Some(counts) = counts {
                counts.add(1, len, from.now);
            }
            let mut branch = packet.branch(self.buffer());
            // A copy of bytes that are not the received frame's is not the received frame either.
            let from = Origin { owned: from.owned || !packet.is_same(), ..from };
            self.act_set(&grouping.sets[at], &mut branch, &from, out);
            let buffer = branch.into_buffer();
            self.give_back(buffer);
        }
        // Only a change could have removed it, and changes are applied between frames.
        if let Ok(at) = at {
            self.groups[at].grouping = Some(grouping);
        }
    }

    /// The bucket of a select group, chosen by weight and by a hash of the headers. A flow keeps its bucket
    /// as long as the same buckets are live.
    fn select(&self, buckets: &[Bucket], key: &Key) -> Option<usize> {
        let live = || {
            let weights = buckets.iter().map(|bucket| u64::from(bucket.weight));
            let weights = weights.enumerate().filter(|(_, weight)| *weight > 0);
            weights.filter(|(at, _)| self.is_live(&buckets[*at]))
        };
        let total: u64 = live().map(|(_, weight)| weight).sum();
        // The flow label of IPv6 has the same place, and Linux changes it when a segment was lost.
        let has_label = key.has(Field::MplsLabel);
        let mut key = key.0;
        if !has_label {
            key[0] = 0;
        }
        let hash = self.hashed.hash(&key, &self.seeds);
        let mut left = ((u128::from(hash) * u128::from(total)) >> 64) as u64;
        live().find_map(|(at, weight)| {
            let here = left < weight;
            left = left.wrapping_sub(weight);
            here.then_some(at)
        })
    }
}

/// MPLS labels, Ethernet, addresses and ports. Fields that may change within a flow (priority, DSCP, ECN, TCP flags)
/// are not included.
const HASHED: [u64; WORDS] =
    [!0 << 44, 0, 0, 0, !0, !0xe000, !0, !0xffff, !0, !0, !0, !0, !0, !0, 0xffff_ffff_ffff, 0];

fn one(at: Option<usize>) -> std::ops::Range<usize> {
    at.map_or(0..0, |at| at..at + 1)
}

/// Sends a packet to all of these ports, which are open, except the one where it was received.
fn spread(ports: &[u32], in_port: u32, packet: &mut Packet<'_>, from: &Origin, out: &mut Effects) {
    let before = out.sent.len();
    for &port in ports.iter().filter(|port| **port != in_port) {
        out.send(port, from.queue, packet, from.owned);
    }
    if out.sent.len() == before {
        out.because(Reason::Filtered);
    }
}
