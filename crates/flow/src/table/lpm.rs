//! Longest-prefix match: IPv4 and IPv6 routes to actions, by destination address.
//!
//! ```text
//!  address   13 bits       6       6       6      ...
//!  root     [8192]  ──> node ──> node ──> node              IPv4: at most four nodes,
//!            best so    inner: which prefixes end here      /24 in the second; IPv6: /48 in the
//!            far        outer: which children exist         sixth
//! ```
//!
//! A tree bitmap (Eatherton, Varghese, Dittia, "Tree Bitmap: Hardware/Software IP Lookups with
//! Incremental Updates", CCR 2004) with a wide root. A node has 24 bytes: 63 bits for the prefixes
//! of 0 to 5 more bits that end in it, 64 for its children, and the indexes where its results and its
//! children start. Results and children of a node are contiguous, and are found by counting bits. A
//! table indexed by 24 bits at once (DIR-24-8) would take 64 MB where 100,000 routes here take a few,
//! and would not help with IPv6. A hash table for each length would need 20 to 40 probes for a miss,
//! each a cache miss. An edit changes one path.
//!
//! A batch is looked up level by level, so that the cache misses of its lanes overlap.
//!
//! Invariants: a child exists only if a prefix ends in it or below it; `results[0]` and `nodes[0]` are
//! not used. Only edits allocate.

use std::net::IpAddr;

use flowyard_frame::{Action, Batch, LANES, Lanes};
use ipnet::IpNet;

use super::{Reason, Table};

mod arena;

use arena::Arena;

/// Bits of an address that the root resolves. With 13, IPv4's /24 and IPv6's /48 end at a node.
const ROOT: u8 = 13;
/// Bits that a node resolves.
const STRIDE: u8 = 6;
/// Nodes on the longest path.
const LEVELS: usize = (128 - ROOT as usize) / STRIDE as usize + 1;

/// For each chunk of an address, the bits in `inner` of its prefixes. Bit 1 is the empty prefix; bits
/// `2 p` and `2 p + 1` are the prefixes one bit longer than that of bit `p`.
const ENDS: [u64; 64] = {
    let mut ends = [0; 64];
    let mut chunk = 0;
    while chunk < 64 {
        let mut len = 0;
        while len < STRIDE {
            ends[chunk] |= 1 << (1 << len | chunk >> (STRIDE - len));
            len += 1;
        }
        chunk += 1;
    }
    ends
};

/// Six bits of the tree.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Prefixes that end here; see [`ENDS`].
    inner: u64,
    /// Children, by chunk.
    outer: u64,
    /// Index of the first result.
    results: u32,
    /// Index of the first child.
    children: u32,
}

/// An entry of the root.
#[derive(Clone, Copy, Debug, Default)]
struct Root {
    /// The node below, 0 for none.
    node: u32,
    /// The result of the longest prefix shorter than 13 bits, 0 for none.
    best: u32,
}

/// The root of one address family.
#[derive(Clone, Debug)]
struct Family {
    root: Box<[Root]>,
    /// Results of the prefixes shorter than 13 bits, numbered as in a node.
    short: Box<[u32]>,
}

impl Family {
    fn new() -> Self {
        let size = 1 << ROOT;
        Self { root: vec![Root::default(); size].into(), short: vec![0; size].into() }
    }

    /// Finds the best short prefix again for the root's entries below `place`.
    fn refresh(&mut self, place: usize) {
        let level = ROOT - place.ilog2() as u8;
        let first = (place << level) - (1 << ROOT);
        for at in first..first + (1 << level) {
            let mut place = (at + (1 << ROOT)) >> 1;
            while place > 1 && self.short[place] == 0 {
                place >>= 1;
            }
            self.root[at].best = self.short[place];
        }
    }
}

/// A routing table.
#[derive(Clone, Debug)]
pub struct Lpm {
    /// IPv4, then IPv6.
    families: [Family; 2],
    nodes: Arena<Node>,
    results: Arena<Action>,
    capacity: usize,
    len: usize,
}

/// A prefix in the tree.
#[derive(Clone, Copy)]
struct Path {
    family: usize,
    /// Left-aligned, zero after the prefix.
    bits: u128,
    len: u8,
}

impl Path {
    fn new(net: &IpNet) -> Self {
        let (family, bits) = left(net.network());
        Self { family, bits, len: net.prefix_len() }
    }

    fn root(self) -> usize {
        (self.bits >> (128 - ROOT)) as usize
    }

    /// The index in `short` of a prefix shorter than 13 bits.
    fn short(self) -> usize {
        1 << self.len | self.root() >> (ROOT - self.len)
    }

    /// The chunk that a node at `depth` bits resolves.
    fn chunk(self, depth: u8) -> usize {
        (self.bits << depth >> 122) as usize
    }

    /// The bit of this prefix in the node at `depth`, where it ends.
    fn place(self, depth: u8) -> usize {
        let len = self.len - depth;
        1 << len | self.chunk(depth) >> (STRIDE - len)
    }
}

impl Lpm {
    /// A table for `capacity` prefixes, at most 2^24.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            families: [Family::new(), Family::new()],
            nodes: Arena::new(),
            results: Arena::new(),
            capacity: capacity.min(1 << 24),
            len: 0,
        }
    }

    /// Number of prefixes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no prefix.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory of the table, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let root = size_of::<Root>() + size_of::<u32>();
        2 * (root << ROOT) + self.nodes.bytes() + self.results.bytes()
    }

    /// The action of the longest prefix that contains `addr`.
    #[must_use]
    pub fn get(&self, addr: IpAddr) -> Option<&Action> {
        let (family, mut bits) = left(addr);
        let root = self.families[family].root[(bits >> (128 - ROOT)) as usize];
        let (mut at, mut best) = (root.node, root.best);
        bits <<= ROOT;
        while at != 0 {
            at = self.step(at, bits, &mut best);
            bits <<= STRIDE;
        }
        (best != 0).then(|| &self.results.items[best as usize])
    }

    /// Adds the prefix, or replaces the action of an equal one and returns the old action. Bits after
    /// the prefix's length are ignored.
    pub fn put(&mut self, net: &IpNet, action: Action) -> Result<Option<Action>, Reason> {
        let path = Path::new(net);
        if let Some(at) = self.find(path) {
            let action = std::mem::replace(&mut self.results.items[at], action);
            return Ok(Some(action));
        }
        if self.len == self.capacity {
            return Err(Reason::Full { capacity: self.capacity });
        }
        self.len += 1;
        if path.len < ROOT {
            let family = &mut self.families[path.family];
            family.short[path.short()] = self.results.insert(0, 0, 0, action);
            family.refresh(path.short());
            return Ok(None);
        }
        let root = &mut self.families[path.family].root[path.root()];
        if root.node == 0 {
            root.node = self.nodes.insert(0, 0, 0, Node::default());
        }
        let (mut at, mut depth) = (root.node as usize, ROOT);
        while path.len >= depth + STRIDE {
            let Node { outer, children, .. } = self.nodes.items[at];
            let chunk = path.chunk(depth);
            if outer >> chunk & 1 == 0 {
                let count = outer.count_ones() as usize;
                let children =
                    self.nodes.insert(children, count, below(outer, chunk), Node::default());
                self.nodes.items[at].children = children;
                self.nodes.items[at].outer |= 1 << chunk;
            }
            at = self.child(at, chunk);
            depth += STRIDE;
        }
        let node = &mut self.nodes.items[at];
        let (place, count) = (path.place(depth), node.inner.count_ones() as usize);
        node.results = self.results.insert(node.results, count, below(node.inner, place), action);
        node.inner |= 1 << place;
        Ok(None)
    }

    /// Removes the prefix; returns its action, if it was there.
    pub fn del(&mut self, net: &IpNet) -> Option<Action> {
        let path = Path::new(net);
        let action = self.results.items[self.find(path)?];
        self.len -= 1;
        let family = &mut self.families[path.family];
        if path.len < ROOT {
            let result = std::mem::take(&mut family.short[path.short()]);
            self.results.remove(result, 1, 0);
            family.refresh(path.short());
            return Some(action);
        }
        let mut nodes = [0; LEVELS];
        let (mut at, mut depth, mut level) = (family.root[path.root()].node as usize, ROOT, 0);
        while path.len >= depth + STRIDE {
            nodes[level] = at;
            at = self.child(at, path.chunk(depth));
            (depth, level) = (depth + STRIDE, level + 1);
        }
        let node = &mut self.nodes.items[at];
        let (place, count) = (path.place(depth), node.inner.count_ones() as usize);
        node.results = self.results.remove(node.results, count, below(node.inner, place));
        node.inner &= !(1 << place);
        // Remove nodes that are empty now, from the bottom up.
        while self.nodes.items[at].inner == 0 && self.nodes.items[at].outer == 0 {
            if level == 0 {
                let node = std::mem::take(&mut self.families[path.family].root[path.root()].node);
                self.nodes.remove(node, 1, 0);
                break;
            }
            (depth, level) = (depth - STRIDE, level - 1);
            at = nodes[level];
            let Node { outer, children, .. } = self.nodes.items[at];
            let (chunk, count) = (path.chunk(depth), outer.count_ones() as usize);
            let children = self.nodes.remove(children, count, below(outer, chunk));
            self.nodes.items[at].children = children;
            self.nodes.items[at].outer &= !(1 << chunk);
        }
        Some(action)
    }

    /// The index of the result of exactly this prefix.
    fn find(&self, path: Path) -> Option<usize> {
        let family = &self.families[path.family];
        if path.len < ROOT {
            return Some(family.short[path.short()] as usize).filter(|&at| at != 0);
        }
        let (mut at, mut depth) = (family.root[path.root()].node as usize, ROOT);
        if at == 0 {
            return None;
        }
        while path.len >= depth + STRIDE {
            if self.nodes.items[at].outer >> path.chunk(depth) & 1 == 0 {
                return None;
            }
            at = self.child(at, path.chunk(depth));
            depth += STRIDE;
        }
        let (node, place) = (&self.nodes.items[at], path.place(depth));
        let there = node.inner >> place & 1 == 1;
        there.then(|| node.results as usize + below(node.inner, place))
    }

    fn child(&self, at: usize, chunk: usize) -> usize {
        let node = &self.nodes.items[at];
        node.children as usize + below(node.outer, chunk)
    }

    /// Goes one level down from node `at` by the first bits of `bits`; returns the next node, or 0.
    #[inline]
    fn step(&self, at: u32, bits: u128, best: &mut u32) -> u32 {
        let node = &self.nodes.items[at as usize];
        let chunk = (bits >> 122) as usize;
        let ends = node.inner & ENDS[chunk];
        if ends != 0 {
            *best = node.results + below(node.inner, ends.ilog2() as usize) as u32;
        }
        let there = node.outer >> chunk & 1 == 1;
        if there { node.children + below(node.outer, chunk) as u32 } else { 0 }
    }
}

impl Lpm {
    /// As [`Table::lookup`], of a table that several cores share.
    #[inline]
    #[must_use]
    pub fn look_up(&self, batch: &mut Batch, want: Lanes) -> Lanes {
        let mut bits = [0; LANES];
        let (mut at, mut best) = ([0; LANES], [0; LANES]);
        let mut ip = Lanes::NONE;
        for lane in want {
            let key = &batch.keys[lane];
            if key.is_ip() {
                // An IPv4 address is left-aligned in its slot, like an IPv6 address.
                let addr = u128::from_be_bytes(key.dst);
                let family = &self.families[usize::from(key.is_ipv6())];
                let root = family.root[(addr >> (128 - ROOT)) as usize];
                (at[lane], best[lane], bits[lane]) = (root.node, root.best, addr << ROOT);
                ip = ip.with(lane);
            }
        }
        let mut left = ip;
        while !left.is_empty() {
            for lane in left {
                if at[lane] == 0 {
                    left = left.without(Lanes(1 << lane));
                    continue;
                }
                at[lane] = self.step(at[lane], bits[lane], &mut best[lane]);
                bits[lane] <<= STRIDE;
            }
        }
        let mut missed = want;
        for lane in ip {
            if best[lane] != 0 {
                batch.actions[lane] = self.results.items[best[lane] as usize];
                missed = missed.without(Lanes(1 << lane));
            }
        }
        missed
    }
}

impl Table for Lpm {
    #[inline]
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes {
        self.look_up(batch, want)
    }
}

/// The family, and the left-aligned address.
fn left(addr: IpAddr) -> (usize, u128) {
    match addr {
        IpAddr::V4(v4) => (0, u128::from(v4.to_bits()) << 96),
        IpAddr::V6(v6) => (1, v6.to_bits()),
    }
}

/// How many bits of `word` are set below bit `bit`.
#[inline]
const fn below(word: u64, bit: usize) -> usize {
    (word & ((1 << bit) - 1)).count_ones() as usize
}

#[cfg(test)]
mod tests;
