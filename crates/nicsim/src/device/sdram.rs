//! Frame memory: GDDR SDRAM behind its own bus, one burst at a time, round-robin.
//!
//! A burst costs its overhead, one cycle for every `bytes_per_cycle` of whole 8-byte words, and for each
//! row it opens a miss or, in the bank that was used last, a conflict. Source: HPCA 2005, sections
//! 4 and 6.2, and the defaults of `config::Sdram`.

use crate::config;
use crate::memory::SDRAM_BYTES;

/// Who asks for bursts: the four assists, then the cores.
pub(crate) const REQUESTERS: usize = 5;

#[derive(Clone, Debug)]
pub(crate) struct Sdram {
    config: config::Sdram,
    rows: [u32; 16],
    last_bank: usize,
    last: usize,
    /// The burst being transferred: who, and until when.
    pub(crate) busy: Option<(usize, u64)>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) counters: SdramCounters,
}

/// What the frame memory did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SdramCounters {
    /// Bursts.
    pub bursts: u64,
    /// Bytes that were wanted.
    pub bytes: u64,
    /// Bytes of the 8-byte words that were transferred.
    pub bytes_moved: u64,
    /// Cycles in which a burst was under way.
    pub busy_cycles: u64,
    /// Rows opened in another bank than the last.
    pub row_misses: u64,
    /// Rows opened in the same bank as the last.
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

    /// Picks the requester after the last one served, of those in `mask`.
    pub(crate) fn pick(&mut self, mask: u32) -> Option<usize> {
        let who = (1..=REQUESTERS).map(|n| (self.last + n) % REQUESTERS);
        let who = who.into_iter().find(|&who| mask >> who & 1 == 1)?;
        self.last = who;
        Some(who)
    }

    /// Cycles of a burst, which is now begun.
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
