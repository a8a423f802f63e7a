//! Fronted: entries of the port mapping that are answered in front of the yard, by the kernel or an adapter.
//!
//! ```text
//!  frame that the mapping answers ──put──> front ──> further frames leave by their port without the yard
//!  each tick: some entries ──> their frames are counted in flows, tables and ports, at the time of the last
//!  changes ──> entries whose path has ended are removed, and counted when nothing is answered by them any more
//! ```
//!
//! The key in front has the 5-tuple, the MAC addresses and the port of receipt ([`MASK`]). If rules examine more than that,
//! nothing is put, because frames of one 5-tuple could differ in whether they are answered, and overtake each other.
//!
//! A front may mark frames instead of answering them (rules in adapters). The mark is the number of the flow, which names
//! the entry here, so the port mapping is not looked up. The frame's key is compared with the entry's all the same.
//!
//! Invariants: every answered frame is counted once, in the flow entries that its path had when it was put, also if these
//! were removed meanwhile. Before changes are reported as being in force, what they affect is removed and counted.
//! Thread-safety: owned by one core.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use flowyard_flow::table::marked;
use flowyard_frame::{Action, Batch, FlowKey, LANES, Lanes, To};
use flowyard_openflow::change::Entry as Flow;
use flowyard_yard::front::{AFTER, Change, Entry, Front, Seen};

use super::{Datapath, walk};
use crate::key::Key;
use crate::mapping::Mapped;

/// What distinguishes flows in front.
pub const MASK: FlowKey =
    FlowKey { in_port: 0xffff, eth_dst: [0xff; 6], eth_src: [0xff; 6], ..FlowKey::FLOW };

/// All entries are looked at in this time, unless that would be too many in one tick.
const SWEEP: u64 = 100_000_000;
/// The least and the greatest number of entries that are looked at in a tick.
const BUDGET: (u64, u64) = (64, 4096);
/// An entry that answered nothing for this time makes room for others; the next frame of its flow may enter it again.
const IDLE: u64 = 30_000_000_000;
/// The greatest number of refused keys that are kept.
const REFUSED: usize = 4096;

/// What a core has in front of it.
#[derive(Debug)]
pub(super) struct Fronted {
    front: Arc<dyn Front>,
    flows: BTreeMap<u32, One>,
    /// Their keys, and those that the front has refused.
    keys: HashSet<FlowKey>,
    /// The next entry to look at, and the time of the last look.
    next: u32,
    looked: u64,
    /// Changes since the last removal: their time, and whether they end all entries.
    changed: Option<(u64, bool)>,
    /// Removed entries, whose numbers are not free yet, and when they were removed.
    leaving: VecDeque<(u64, u32, One)>,
    /// Frames that are not counted at their ports yet.
    moved: Vec<Moved>,
    /// By number, if the front marks frames: the entries that marks name.
    marks: Vec<Mark>,
}

/// An entry that a mark names.
#[derive(Clone, Copy, Debug)]
struct Mark {
    key: FlowKey,
    /// The answer of the port mapping; a drop if there is no entry.
    action: Action,
    /// When it was named last.
    used: u64,
}

/// An entry. It is small, because all entries are looked at again and again.
#[derive(Debug)]
struct One {
    /// When it was put, or last counted.
    used: u64,
    counted: Seen,
    of: Box<Of>,
}

/// What an entry is of.
#[derive(Debug)]
struct Of {
    key: FlowKey,
    path: u32,
    half: u16,
    to: u16,
    /// The flow entries of the path.
    flows: Box<[Arc<Flow>]>,
}

impl Mark {
    /// No entry.
    const NONE: Self =
        Self { key: FlowKey::ZERO, action: Action { to: To::DROP, counter: 0, mark: 0 }, used: 0 };
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

impl Fronted {
    /// Marks with this number name `mark` from here on, if the front marks frames.
    fn name(&mut self, number: u32, mark: Mark) {
        if self.front.answers() {
            return;
        }
        let at = number as usize;
        if at >= self.marks.len() {
            self.marks.resize(at + 1, Mark::NONE);
        }
        self.marks[at] = mark;
    }

    /// Removes an entry from the front.
    fn unname(&mut self, number: u32) {
        if let Some(mark) = self.marks.get_mut(number as usize) {
            *mark = Mark::NONE;
        }
        self.front.remove(number);
    }
}

impl Datapath {
    /// Lets `front` answer what the port mapping answers.
    pub fn set_front(&mut self, front: Arc<dyn Front>) {
        self.fronted = Some(Box::new(Fronted {
            front,
            flows: BTreeMap::new(),
            keys: HashSet::new(),
            next: 0,
            looked: 0,
            changed: None,
            leaving: VecDeque::new(),
            moved: Vec::new(),
            marks: Vec::new(),
        }));
    }

    /// The number of entries in front.
    #[must_use]
    pub fn in_front(&self) -> usize {
        self.fronted.as_ref().map_or(0, |it| it.flows.len())
    }

    /// Offers the flows of `lanes` to the front. `places` are their entries of the port mapping, which are alive.
    #[inline]
    pub(super) fn offer(
        &mut self,
        batch: &Batch,
        (lanes, places): (Lanes, &[u32; LANES]),
        now: u64,
    ) {
        if self.fronted.is_some() {
            self.offer_all(batch, (lanes, places), now);
        }
    }

    fn offer_all(&mut self, batch: &Batch, (lanes, places): (Lanes, &[u32; LANES]), now: u64) {
        let Some(it) = &mut self.fronted else { return };
        if !self.mapping.mask().is_within(&MASK) {
            return;
        }
        // All lanes came by the same port. Without an adapter that marks, frames cost nothing more here.
        let came_by = { lanes }.next().map(|lane| batch.keys[lane].in_port);
        if !it.front.answers() && !came_by.is_some_and(|port| it.front.takes(port, port)) {
            return;
        }
        for lane in lanes {
            let key = batch.keys[lane].masked(&MASK);
            let Some(Mapped { port: to, path, half }) = self.mapping.mapped(places[lane]) else {
                return;
            };
            if it.keys.contains(&key) || !it.front.takes(key.in_port, to) {
                continue;
            }
            it.keys.insert(key);
            let (macs, change) = (None, Change::None);
            let entry = Entry { key, port: to, macs, hop: false, change, mtu: 0 };
            let entries = &self.flows;
            let flow =
                |number: &u32| Some(Arc::clone(&entries.get(*number as usize)?.as_ref()?.entry));
            let flows = self.cache.path(path).flows.iter().filter_map(flow).collect();
            if let Some(number) = it.front.put(&[entry], now) {
                let action = Action { to: To::Port(to), counter: half, mark: path };
                it.name(number, Mark { key, action, used: now });
                let of = Box::new(Of { key, path, half, to, flows });
                it.flows.insert(number, One { used: now, counted: Seen::default(), of });
            } else if it.keys.len() > it.flows.len() + REFUSED {
                it.keys = it.flows.values().map(|one| one.of.key).collect();
            }
        }
    }

    /// Answers the frames of `lanes` whose mark names an entry; returns these lanes.
    #[inline]
    pub(super) fn by_mark(&mut self, batch: &mut Batch, lanes: Lanes, now: u64) -> Lanes {
        let Some(it) = &mut self.fronted else { return Lanes::NONE };
        if it.marks.is_empty() || !self.mapping.mask().is_within(&MASK) {
            return Lanes::NONE;
        }
        let mut found = Lanes::NONE;
        for lane in lanes {
            let Some(number) = marked::flow(batch.frames[lane].mark) else { continue };
            let Some(entry) = it.marks.get_mut(number as usize) else { continue };
            let Action { to, counter, mark } = entry.action;
            if !to.is_drop()
                && entry.key == batch.keys[lane].masked(&MASK)
                && self.cache.is_alive(mark, counter)
            {
                batch.actions[lane] = entry.action;
                entry.used = now;
                found = found.with(lane);
            }
        }
        self.totals.marked += u64::from(found.count());
        found
    }

    /// What the front does for flows with these fields, in words for the user; empty if there is no front.
    pub(super) fn ahead(&self, key: &Key) -> Vec<String> {
        let Some(it) = &self.fronted else { return Vec::new() };
        let is_same = |flow: &FlowKey| {
            let mut other = Key::default();
            other.add_plain(flow);
            other.is_same_flow(key)
        };
        let put = it.flows.iter().filter(|(_, one)| is_same(&one.of.key));
        let mut all: Vec<String> = put.map(|(number, _)| it.front.state(*number)).collect();
        if all.is_empty() {
            let entry = |key: &FlowKey| {
                let (macs, change) = (None, Change::None);
                Entry { key: *key, port: 0, macs, hop: false, change, mtu: 0 }
            };
            let refused = it.keys.iter().filter(|flow| is_same(flow));
            let why = refused.filter_map(|flow| it.front.why_not(&entry(flow)));
            all.extend(why.take(1).map(|why| format!("it is not in the adapter: {why}")));
        }
        if all.is_empty() {
            let why = "it was not offered: the port mapping of this core has sent no frame of it lately, or its port \
                       has no adapter that marks frames";
            all.push(why.into());
        }
        all
    }

    /// Counts frames of some entries.
    pub fn look_ahead(&mut self, now: u64) {
        self.end_fronted();
        let Some(mut it) = self.fronted.take() else { return };
        while it.leaving.front().is_some_and(|(since, ..)| now.saturating_sub(*since) > AFTER)
            && let Some((_, number, mut one)) = it.leaving.pop_front()
        {
            self.count_fronted(&*it.front, number, &mut one, &mut it.moved);
            it.front.free(number);
        }
        let since = now.saturating_sub(std::mem::replace(&mut it.looked, now)).min(SWEEP);
        let most = (it.flows.len() as u64 * since / SWEEP).clamp(BUDGET.0, BUDGET.1) as usize;
        let next = std::mem::take(&mut it.next);
        let (mut last, mut idle) = (None, Vec::new());
        for (number, one) in it.flows.range_mut(next..).take(most) {
            if self.count_fronted(&*it.front, *number, one, &mut it.moved) {
                one.used = now;
            } else if now.saturating_sub(
                one.used.max(it.marks.get(*number as usize).map_or(0, |mark| mark.used)),
            ) > IDLE
            {
                idle.push(*number);
            }
            last = Some(*number);
        }
        if it.flows.len() > most {
            it.next = last.map_or(0, |last| last + 1);
        }
        for number in idle {
            it.unname(number);
            if let Some(one) = it.flows.remove(&number) {
                it.keys.remove(&one.of.key);
                it.leaving.push_back((now, number, one));
            }
        }
        self.fronted = Some(it);
    }

    /// Counts what was answered by an entry since the last call. Returns whether anything was.
    fn count_fronted(
        &mut self,
        front: &dyn Front,
        number: u32,
        one: &mut One,
        moved: &mut Vec<Moved>,
    ) -> bool {
        let all = front.seen(number, 0);
        let packets = all.packets.wrapping_sub(one.counted.packets);
        if packets == 0 {
            return false;
        }
        let bytes = all.bytes.wrapping_sub(one.counted.bytes);
        one.counted = all;
        if self.cache.is_alive(one.of.path, one.of.half) {
            self.count_path(one.of.path, packets, bytes, all.last);
        } else {
            for flow in &one.of.flows {
                if let Some(counts) = flow.counts.get(self.core) {
                    counts.add(packets, bytes, all.last);
                }
                let both = (packets, packets);
                walk::count(&self.lookups, flow.table, self.core, both, all.last);
            }
        }
        self.totals.frames += packets;
        self.totals.cached += packets;
        self.totals.mapped += packets;
        self.totals.front += packets;
        moved.push(Moved {
            from: one.of.key.in_port,
            to: one.of.to,
            seen: Seen { packets, bytes, last: all.last },
        });
        true
    }

    /// Notes that changes were applied; `all`: they end every entry.
    pub(super) fn fronted_changed(&mut self, all: bool, now: u64) {
        if let Some(it) = &mut self.fronted {
            let before = it.changed.is_some_and(|(_, all)| all);
            it.changed = Some((now, all || before));
        }
    }

    /// Removes the entries whose path has ended by the changes since the last call, and counts their frames.
    pub(super) fn end_fronted(&mut self) {
        let Some((now, all)) = self.fronted.as_mut().and_then(|it| it.changed.take()) else {
            return;
        };
        let Some(mut it) = self.fronted.take() else { return };
        let is_over = |one: &One| all || !self.cache.is_alive(one.of.path, one.of.half);
        let over: Vec<u32> =
            it.flows.iter().filter(|(_, one)| is_over(one)).map(|(number, _)| *number).collect();
        over.iter().for_each(|number| it.unname(*number));
        if !over.is_empty() {
            it.front.settle();
        }
        for number in over {
            if let Some(mut one) = it.flows.remove(&number) {
                self.count_fronted(&*it.front, number, &mut one, &mut it.moved);
                it.leaving.push_back((now, number, one));
            }
        }
        // Those that the front refused get another chance.
        it.keys = it.flows.values().map(|one| one.of.key).collect();
        self.fronted = Some(it);
    }

    /// Frames that were answered in front, to be counted at their ports.
    pub fn moved(&mut self) -> Vec<Moved> {
        self.fronted.as_mut().map(|it| std::mem::take(&mut it.moved)).unwrap_or_default()
    }
}
