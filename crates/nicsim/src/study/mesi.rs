//! Coherent caches instead of a scratchpad: HPCA 2005, section 2.3, Figure 3.
//!
//! The caches are fully associative, with least-recently-used replacement, 16-byte lines, write-allocate, and
//! MESI: one for each core, one for both DMA assists, one for both MAC assists (eight for the six cores of the
//! paper, whose simulator supported no more). The trace has the accesses in the order in which the banks performed
//! them. An access to a line that is present is a hit; a store to a shared line is a hit and an upgrade.

use crate::elf::Image;
use crate::engine::Access;
use crate::isa::Op;
use crate::memory::{SCRATCHPAD_BASE, hw};

/// The caches of sixteen cores, of the DMA assists, and of the MAC assists. Those of absent cores stay empty.
const CACHES: usize = 18;
/// Bytes of a line.
pub const LINE_BYTES: u32 = 16;

/// A selection of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Descriptors, per-frame state and status bits.
    Metadata,
    /// The same, and the progress pointers and claim counters.
    Pointers,
    /// All accesses, including locks, statistics and stacks.
    All,
}

impl Filter {
    /// All selections.
    pub const ALL: [Self; 3] = [Self::Metadata, Self::Pointers, Self::All];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "frame metadata",
            Self::Pointers => "metadata and pointers",
            Self::All => "all accesses",
        }
    }

    /// The selected accesses of `trace`: the cache, the line, and whether the access writes.
    pub fn keep(self, image: &Image, trace: &[Access]) -> Vec<(usize, u32, bool)> {
        let metadata = [
            "sbd",
            "rbd",
            "returns",
            "drd",
            "dwr",
            "mtx",
            "mrx",
            "txf",
            "rxf",
            "drd_marks",
            "dwr_marks",
            "mtx_marks",
            "sent_marks",
            "received_marks",
            "status",
            "tells",
        ];
        let ranges = |names: &[&str]| -> Vec<(u32, u32)> {
            let symbols = image.symbols.iter().filter(|s| names.contains(&s.name.as_str()));
            symbols.map(|symbol| (symbol.addr, symbol.addr + symbol.size)).collect()
        };
        let mut wanted = ranges(&metadata);
        match self {
            Self::Metadata => {}
            Self::Pointers => {
                wanted.extend(ranges(&["S", "R", "Q"]));
                wanted.push((SCRATCHPAD_BASE, SCRATCHPAD_BASE + 4 * hw::WORDS));
            }
            Self::All => wanted.push((0, u32::MAX)),
        }
        trace
            .iter()
            .filter(|access| {
                let addr = access.request.addr;
                wanted.iter().any(|&(from, to)| (from..to).contains(&addr))
            })
            .map(|access| {
                let cache = match access.who {
                    16 | 17 => 16,
                    18.. => 17,
                    core => core,
                };
                let reads = matches!(
                    access.request.op,
                    Op::Lw | Op::Lb | Op::Lbu | Op::Lh | Op::Lhu | Op::Ll
                );
                (cache, access.request.addr / LINE_BYTES, !reads)
            })
            .collect()
    }
}

/// The counters of all caches together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Result {
    /// Number of accesses.
    pub accesses: u64,
    /// Accesses to lines that were present.
    pub hits: u64,
    /// Writes.
    pub writes: u64,
    /// Writes that invalidated a line of at least one other cache.
    pub invalidating: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Modified,
    Exclusive,
    Shared,
}

/// Simulates the accesses with caches of `bytes` each.
pub fn simulate(accesses: &[(usize, u32, bool)], bytes: u32) -> Result {
    let lines = (bytes / LINE_BYTES).max(1) as usize;
    // The most recently used line is first.
    let mut caches: [Vec<(u32, State)>; CACHES] = Default::default();
    let mut result = Result::default();
    for &(who, line, writes) in accesses {
        result.accesses += 1;
        result.writes += u64::from(writes);
        let at = caches[who].iter().position(|&(l, _)| l == line);
        let mut state = at.map(|at| caches[who].remove(at).1);
        result.hits += u64::from(state.is_some());
        let (mut others, mut invalidated) = (false, false);
        if state.is_none() || (writes && state == Some(State::Shared)) {
            for (_, cache) in caches.iter_mut().enumerate().filter(|&(n, _)| n != who) {
                if let Some(at) = cache.iter().position(|&(l, _)| l == line) {
                    others = true;
                    if writes {
                        cache.remove(at);
                        invalidated = true;
                    } else {
                        cache[at].1 = State::Shared;
                    }
                }
            }
        }
        if writes {
            state = Some(State::Modified);
        }
        result.invalidating += u64::from(invalidated);
        let filled = if others { State::Shared } else { State::Exclusive };
        caches[who].insert(0, (line, state.unwrap_or(filled)));
        caches[who].truncate(lines);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Request;

    #[test]
    fn a_line_moves_between_two_writers() {
        // Cache 0 writes, 1 reads, 0 writes again: that is a hit in 0 and invalidates the line in 1.
        let result = simulate(&[(0, 5, true), (1, 5, false), (0, 5, true), (1, 5, false)], 64);
        assert_eq!(result, Result { accesses: 4, hits: 1, writes: 2, invalidating: 1 });
    }

    #[test]
    fn every_core_and_pair_of_assists_has_its_own_cache() {
        let request = Request { op: Op::Lw, addr: SCRATCHPAD_BASE, value: 0 };
        let access = |who| Access { cycle: 0, who, request, result: 0 };
        let trace: Vec<Access> = (0..20).map(access).collect();
        let kept = Filter::All.keep(&Image::default(), &trace);
        let caches: std::collections::BTreeSet<usize> =
            kept.iter().map(|&(cache, ..)| cache).collect();
        assert_eq!(caches.len(), CACHES);
        // Each of the first 18 requesters misses once; the second assist of each pair hits.
        assert_eq!(simulate(&kept, 64).hits, 2);
    }

    #[test]
    fn the_least_recently_used_line_is_replaced() {
        let reads = [1, 2, 1, 3, 1, 2].map(|line| (0, line, false));
        assert_eq!(simulate(&reads, 32).hits, 2);
        assert_eq!(simulate(&reads, 16).hits, 0);
        assert_eq!(simulate(&reads, 64).hits, 3);
    }
}
