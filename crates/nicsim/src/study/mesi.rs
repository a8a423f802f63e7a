//! Would coherent caches do instead of a scratchpad: HPCA 2005, section 2.3, Figure 3.
//!
//! Eight caches, fully associative, least recently used, 16-byte lines, write-allocate, MESI: six
//! cores, the two DMA assists together, the two MAC assists together (the paper's simulator held no
//! more). The trace has the accesses in the order in which the banks performed them. A hit is a line that is
//! present; a store to a shared line is a hit and an upgrade.

use crate::elf::Image;
use crate::engine::Access;
use crate::isa::Op;
use crate::memory::{SCRATCHPAD_BASE, hw};

/// Bytes of a line.
pub const LINE_BYTES: u32 = 16;

/// Which accesses count as frame metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Descriptors, per-frame state and status bits.
    Metadata,
    /// These, and the progress pointers and claim counters.
    Pointers,
    /// Everything: locks, statistics and stacks too.
    All,
}

impl Filter {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::Metadata, Self::Pointers, Self::All];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "frame metadata",
            Self::Pointers => "metadata and pointers",
            Self::All => "all accesses",
        }
    }

    /// The accesses of `trace` that it keeps, as cache, line, and whether it writes.
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
                    16 | 17 => 6,
                    18.. => 7,
                    core => core % 6,
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

/// What the caches did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Result {
    /// Accesses.
    pub accesses: u64,
    /// Lines found.
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

/// Runs the accesses through eight caches of `bytes` each.
pub fn simulate(accesses: &[(usize, u32, bool)], bytes: u32) -> Result {
    let lines = (bytes / LINE_BYTES).max(1) as usize;
    // Most recently used first.
    let mut caches: [Vec<(u32, State)>; 8] = Default::default();
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

    #[test]
    fn a_line_moves_between_two_writers() {
        // 0 writes, 1 reads, 0 writes again: its copy is a hit, 1's is taken away.
        let result = simulate(&[(0, 5, true), (1, 5, false), (0, 5, true), (1, 5, false)], 64);
        assert_eq!(result, Result { accesses: 4, hits: 1, writes: 2, invalidating: 1 });
    }

    #[test]
    fn the_least_recently_used_goes() {
        let reads = [1, 2, 1, 3, 1, 2].map(|line| (0, line, false));
        assert_eq!(simulate(&reads, 32).hits, 2);
        assert_eq!(simulate(&reads, 16).hits, 0);
        assert_eq!(simulate(&reads, 64).hits, 3);
    }
}
