//! A port with an adapter that takes rules, in memory: the stand-in applies its rules to each frame that the test feeds.
//!
//! It is a partial one, as adapters are: rules without a VLAN may match only frames without a tag. Now and then it marks a
//! frame with a number that no rule has, or had before the tables changed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use flowyard_dpdk::rules::{Limits, Place, Protocol, Seen, SharedStandIn, StandIn};
use flowyard_flow::parse;
use flowyard_frame::{Batch, FlowKey, Lanes, Nanos, proto};
use flowyard_pool::{Meta, Pool};
use flowyard_ports::port::Collect;
use flowyard_testkit::Rng;
use flowyard_wire::{Headers, LinkType};
use flowyard_yard::Tx;
use flowyard_yard::port::{Received, Rx};

/// The adapter of a port.
#[derive(Clone)]
pub(crate) struct Nic {
    pub(crate) device: SharedStandIn,
    state: Arc<Mutex<State>>,
}

struct State {
    port: u16,
    rng: Rng,
    /// Whether rules without a VLAN match no tagged frame.
    hides_tags: bool,
    /// By queue: frames with their marks.
    rings: Vec<VecDeque<(Vec<u8>, u32)>>,
    marked: u64,
    moved: u64,
    dropped: u64,
    forwarded: u64,
    /// Where frames go that a rule sends out, by the number of the port in the embedded switch.
    outs: Vec<Collect>,
}

/// One receive queue.
pub(crate) struct NicRx {
    nic: Nic,
    queue: usize,
}

/// Random limits.
pub(crate) fn limits(rng: &mut Rng, queues: u16) -> Limits {
    let mut mostly = || rng.below(5) > 0;
    let (vlans, ipv6, prefixes, marks, counts) = (mostly(), mostly(), mostly(), mostly(), mostly());
    Limits {
        rules: [1, 8, 64][rng.below(3) as usize],
        queues,
        vlans,
        ipv6,
        prefixes,
        marks,
        counts,
        switch: None,
    }
}

impl Nic {
    pub(crate) fn new(port: u16, limits: Limits, mut rng: Rng) -> Self {
        let rings = (0..limits.queues).map(|_| VecDeque::new()).collect();
        let hides_tags = rng.below(2) == 0;
        let device = SharedStandIn::new(StandIn::new(limits));
        let (marked, moved, dropped, forwarded, outs) = (0, 0, 0, 0, Vec::new());
        let state = State { port, rng, hides_tags, rings, marked, moved, dropped, forwarded, outs };
        Self { device, state: Arc::new(Mutex::new(state)) }
    }

    /// Connects the adapter with the ports of its embedded switch.
    pub(crate) fn connect(&self, outs: Vec<Collect>) {
        self.state.lock().unwrap().outs = outs;
    }

    pub(crate) fn rx(&self, queue: usize) -> NicRx {
        NicRx { nic: self.clone(), queue }
    }

    /// Frames that were marked, given to another queue, and dropped by rules.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let state = self.state.lock().unwrap();
        (state.marked, state.moved, state.dropped)
    }

    /// Frames that rules sent out by another port.
    pub(crate) fn forwarded(&self) -> u64 {
        self.state.lock().unwrap().forwarded
    }

    /// Whether rules without a VLAN match no tagged frame.
    pub(crate) fn hides_tags(&self) -> bool {
        self.state.lock().unwrap().hides_tags
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().unwrap().rings.iter().all(VecDeque::is_empty)
    }

    /// A frame arrives.
    pub(crate) fn feed(&self, bytes: Vec<u8>) {
        let mut state = self.state.lock().unwrap();
        let key = parse::key(&Headers::parse(LinkType::Ethernet, &bytes), &bytes, state.port);
        let seen = seen(&key, bytes.len());
        let found = seen.as_ref().and_then(|seen| self.device.with(|device| device.receive(seen)));
        let hides = state.hides_tags && key.vlan_tci != 0;
        let found = found.filter(|(_, rule)| rule.vlan.is_some() || !hides);
        let queues = state.rings.len();
        // As RSS does, each flow has one queue.
        let mut queue = (key.src[3] ^ key.dst[3] ^ key.sport as u8) as usize % queues;
        let mut mark = 0;
        if let Some((_, rule)) = found {
            match rule.offer.place {
                Place::Drop => {
                    state.dropped += 1;
                    return;
                }
                Place::Queue(to) => {
                    state.moved += u64::from(queue != usize::from(to));
                    queue = to.into();
                }
                Place::Port(to) => {
                    state.forwarded += 1;
                    send_out(&mut state.outs[usize::from(to.number)], &bytes);
                    return;
                }
                Place::Usual => {}
            }
            mark = rule.offer.mark.unwrap_or_default();
            state.marked += u64::from(mark != 0);
        }
        if state.rng.below(16) == 0 {
            // Of an earlier generation, or of an index or a flow that is used for others.
            let generation = state.rng.below(4) as u32;
            let index = state.rng.below(12) as u32;
            mark = [generation << 16 | index, 1 << 23 | index][state.rng.below(2) as usize];
        }
        state.rings[queue].push_back((bytes, mark));
    }
}

/// Transmits a frame that the yard does not see.
fn send_out(by: &mut Collect, bytes: &[u8]) {
    let (mut pool, mut batch) = (Pool::new(1, 2048), Batch::default());
    let frame = pool.copy(bytes, Meta::default()).unwrap();
    batch.push(frame, FlowKey::ZERO).unwrap();
    let left = by.tx(&mut batch, Lanes::first(1), &pool, 0);
    assert!(left.is_empty());
}

fn seen(key: &FlowKey, bytes: usize) -> Option<Seen> {
    let (from, to) = (key.src_ip()?, key.dst_ip()?);
    let protocol = match key.proto {
        proto::TCP => Some(Protocol::Tcp),
        proto::UDP => Some(Protocol::Udp),
        _ => None,
    };
    let transport = protocol.filter(|_| key.frag != 2).map(|of| (of, key.sport, key.dport));
    let vlan = Some(key.vlan_tci & 0xfff).filter(|_| key.vlan_tci != 0);
    Some(Seen { vlan, from, to, transport, bytes: bytes as u64 })
}

impl Rx for NicRx {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let mut state = self.nic.state.lock().unwrap();
        let in_port = state.port;
        while into.len() < 32
            && let Some((bytes, mark)) = state.rings[self.queue].pop_front()
        {
            let (wire_len, link) = (bytes.len() as u32, LinkType::Ethernet);
            let meta = Meta { time: now, wire_len, in_port, link, ..Meta::default() };
            let mut frame = pool.copy(&bytes, meta).unwrap();
            frame.mark = mark;
            into.push(frame, FlowKey::ZERO).unwrap();
        }
        Received::default()
    }
}
