//! Fronted: entries of the port mapping that are answered in front of the yard, by the kernel or an adapter.
//!
//! ```text
//!  frame that the mapping answers ──put──> front ──> further frames leave by their port without the yard
//!  each tick: some entries ──> their frames are counted in flows, tables and ports, at the time of the last
//!  change ──> all are counted; those whose path ended are removed in the same call
//! ```
//!
//! The key in front has the 5-tuple, the MAC addresses and the port of receipt ([`MASK`]). If rules examine more than that,
//! nothing is put, because frames of one 5-tuple could differ in whether they are answered, and overtake each other.
//!
//! Thread-safety: owned by one core.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use flowyard_frame::{Batch, FlowKey, Lanes, To};
use flowyard_yard::front::{AFTER, Change, Entry, Front, Seen};

use super::Datapath;

/// What distinguishes flows in front.
pub const MASK: FlowKey =
    FlowKey { in_port: 0xffff, eth_dst: [0xff; 6], eth_src: [0xff; 6], ..FlowKey::FLOW };

/// Entries that are looked at in a tick.
const BUDGET: usize = 64;

/// What a core has in front of it.
#[derive(Debug)]
pub(super) struct Fronted {
    front: Arc<dyn Front>,
    flows: BTreeMap<u32, One>,
    /// Their keys, and those that the front has refused.
    keys: HashSet<FlowKey>,
    /// The next entry to look at.
    next: u32,
    /// Numbers of removed entries, and when they were removed.
    leaving: VecDeque<(u64, u32)>,
    /// Frames that are not counted at their ports yet.
    moved: Vec<Moved>,
}

#[derive(Clone, Copy, Debug)]
struct One {
    key: FlowKey,
    path: u32,
    half: u16,
    to: u16,
    counted: Seen,
}

/// Frames that were answered in front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The port by which they came.
    pub from: u16,
    /// The port by which they left.
    pub to: u16,
    /// Their number, their bytes, and when the last of them came.
    pub seen: Seen,
}

impl Datapath {
    /// Lets `front` answer what the port mapping answers.
    pub fn set_front(&mut self, front: Arc<dyn Front>) {
        self.fronted = Some(Box::new(Fronted {
            front,
            flows: BTreeMap::new(),
            keys: HashSet::new(),
            next: 0,
            leaving: VecDeque::new(),
            moved: Vec::new(),
        }));
    }

    /// The number of entries in front.
    #[must_use]
    pub fn in_front(&self) -> usize {
        self.fronted.as_ref().map_or(0, |it| it.flows.len())
    }

    /// Offers the flows of `lanes`, whose entries are alive, to the front.
    pub(super) fn offer(&mut self, batch: &Batch, lanes: Lanes, now: u64) {
        let Some(it) = &mut self.fronted else { return };
        if !self.mapping.mask().is_within(&MASK) {
            return;
        }
        for lane in lanes {
            let (key, action) = (batch.keys[lane].masked(&MASK), batch.actions[lane]);
            let To::Port(to) = action.to else { continue };
            if it.keys.contains(&key) || !it.front.reaches(to) || !it.front.reaches(key.in_port) {
                continue;
            }
            it.keys.insert(key);
            let (macs, change) = (None, Change::None);
            let entry = Entry { key, port: to, macs, hop: false, change, mtu: 0 };
            if let Some(flow) = it.front.put(&[entry], now) {
                let (path, half) = (action.mark, action.counter);
                it.flows.insert(flow, One { key, path, half, to, counted: Seen::default() });
            }
        }
    }

    /// Counts frames of some entries.
    pub fn look_ahead(&mut self, now: u64) {
        let Some(mut it) = self.fronted.take() else { return };
        while it.leaving.front().is_some_and(|(since, _)| now.saturating_sub(*since) > AFTER)
            && let Some((_, flow)) = it.leaving.pop_front()
        {
            it.front.free(flow);
        }
        let next = std::mem::take(&mut it.next);
        let mut last = None;
        for (flow, one) in it.flows.range_mut(next..).take(BUDGET) {
            self.count_fronted(&*it.front, *flow, one, &mut it.moved);
            last = Some(*flow);
        }
        if it.flows.len() > BUDGET {
            it.next = last.map_or(0, |last| last + 1);
        }
        self.fronted = Some(it);
    }

    /// Counts the frames of all entries, before a change.
    pub(super) fn count_all_fronted(&mut self) {
        let Some(mut it) = self.fronted.take() else { return };
        for (flow, one) in &mut it.flows {
            self.count_fronted(&*it.front, *flow, one, &mut it.moved);
        }
        self.fronted = Some(it);
    }

    fn count_fronted(
        &mut self,
        front: &dyn Front,
        flow: u32,
        one: &mut One,
        moved: &mut Vec<Moved>,
    ) {
        let all = front.seen(flow, 0);
        let packets = all.packets.wrapping_sub(one.counted.packets);
        if packets == 0 {
            return;
        }
        let bytes = all.bytes.wrapping_sub(one.counted.bytes);
        one.counted = all;
        if self.cache.alive(one.path, one.half).is_some() {
            self.count_path(one.path, packets, bytes, all.last);
        }
        self.totals.frames += packets;
        self.totals.cached += packets;
        self.totals.mapped += packets;
        self.totals.front += packets;
        moved.push(Moved {
            from: one.key.in_port,
            to: one.to,
            seen: Seen { packets, bytes, last: all.last },
        });
    }

    /// Removes the entries whose path has ended, or all of them.
    pub(super) fn end_fronted(&mut self, all: bool, now: u64) {
        let Some(mut it) = self.fronted.take() else { return };
        let is_over = |one: &One| all || self.cache.alive(one.path, one.half).is_none();
        let over: Vec<u32> =
            it.flows.iter().filter(|(_, one)| is_over(one)).map(|(flow, _)| *flow).collect();
        for flow in over {
            it.front.remove(flow);
            it.leaving.push_back((now, flow));
            if let Some(mut one) = it.flows.remove(&flow) {
                // What was answered since the change began.
                self.count_fronted(&*it.front, flow, &mut one, &mut it.moved);
            }
        }
        // Those that the front refused get another chance.
        it.keys = it.flows.values().map(|one| one.key).collect();
        self.fronted = Some(it);
    }

    /// Frames that were answered in front, to be counted at their ports.
    pub fn moved(&mut self) -> Vec<Moved> {
        self.fronted.as_mut().map(|it| std::mem::take(&mut it.moved)).unwrap_or_default()
    }
}
