//! The frame memory: GDDR SDRAM on its own bus, which serves one burst at a time, round-robin.
//!
//! A burst takes its overhead, one cycle for every `bytes_per_cycle` of whole 8-byte words, and for each
//! row that it opens the cycles of a row miss or, in the bank that was used last, of a bank conflict. Source:
//! HPCA 2005, sections 4 and 6.2, and the defaults of `config::Sdram`.

use crate::config;
use crate::memory::SDRAM_BYTES;

/// The number of requesters: the four assists, then the cores.
pub(crate) const REQUESTERS: usize = 5;

#[derive(Clone, Debug)]
pub(crate) struct Sdram {
    config: config::Sdram,
    rows: [u32; 16],
    last_bank: usize,
    last: usize,
    /// The burst being transferred: its requester, and the time of its end.
    pub(crate) busy: Option<(usize, u64)>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) counters: SdramCounters,
}

/// The counters of the frame memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct SdramCounters {
    /// Number of bursts.
    pub bursts: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Bytes transferred, in whole 8-byte words.
    pub bytes_moved: u64,
    /// Cycles in which a burst was being transferred.
    pub busy_cycles: u64,
    /// Rows opened in another bank than that of the last burst.
    pub row_misses: u64,
    /// Rows opened in the same bank as that of the last burst.
    pub bank_conflicts: u64,
}

impl Sdram {
    pub(crate) fn new(config: &config::Sdram) -> Self {
        Self {
            config: config.clone(),
            rows: [u32::MAX; 16],
            last_bank: usize::MAX,
            last: REQUESTERS - 1,
            busy: None,
            bytes: vec![0; SDRAM_BYTES as usize],
            counters: SdramCounters::default(),
        }
    }

    /// Picks the next requester in `mask`, round-robin.
    pub(crate) fn pick(&mut self, mask: u32) -> Option<usize> {
        let who = (1..=REQUESTERS).map(|n| (self.last + n) % REQUESTERS);
        let who = who.into_iter().find(|&who| mask >> who & 1 == 1)?;
        self.last = who;
        Some(who)
    }

    /// Begins a burst and returns its cycles.
    pub(crate) fn begin(&mut self, addr: u32, len: u32) -> u64 {
        let end = addr + len.max(1);
        let words = end.div_ceil(8) - addr / 8;
        let per_cycle = (self.config.bytes_per_cycle / 8).max(1);
        let mut cycles = self.config.burst_overhead_cycles + words.div_ceil(per_cycle);
        for page in addr / self.config.row_bytes..=(end - 1) / self.config.row_bytes {
            let bank = (page % self.config.banks) as usize & 15;
            let row = page / self.config.banks;
            if self.rows[bank] != row {
                if self.last_bank == bank {
                    cycles += self.config.bank_conflict_cycles;
                    self.counters.bank_conflicts += 1;
                } else {
                    cycles += self.config.row_miss_cycles;
                    self.counters.row_misses += 1;
                }
                self.rows[bank] = row;
            }
            self.last_bank = bank;
        }
        self.counters.bursts += 1;
        self.counters.bytes += u64::from(len);
        self.counters.bytes_moved += u64::from(words) * 8;
        self.counters.busy_cycles += u64::from(cycles);
        u64::from(cycles)
    }
}
