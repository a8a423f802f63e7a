//! A DMA assist: it reads the descriptors that the firmware has prepared, moves the data, and reports the
//! number of descriptors that are done.
//!
//! ```text
//!             fetch 4 words      host, latency       SDRAM burst or scratchpad words
//!  read:   ring ──────────> out ─────────────> arrived ──────────────> moved ──> done, in order
//!             fetch 4 words     SDRAM burst or words     host, latency
//!  write:  ring ──────────> out ────────────────────> moved ──────────────────> done, in order
//! ```
//!
//! Descriptor: host address, adapter address, length, cookie (for the firmware's use). Bursts and words are
//! moved independently of each other, so a descriptor fetch into the scratchpad does not delay frames; the
//! progress pointer is nevertheless in order (HPCA 2005, Figure 5). Invariants: done <= arrived, moved <=
//! fetched <= prod; at most `limit` DMAs are outstanding.

use std::collections::VecDeque;

use super::port::{Port, Purpose, Ring};
use crate::memory::{Request, SCRATCHPAD_BASE, SDRAM_BASE, SDRAM_BYTES, hw};

/// One outstanding DMA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) host: u32,
    pub(crate) nic: u32,
    pub(crate) len: u32,
    /// The time at which its data arrives (read) or the host acknowledges it (write).
    pub(crate) due: u64,
    /// The time at which its descriptor was complete.
    since: u64,
    moved: bool,
}

impl Move {
    fn is_scratch(&self) -> bool {
        self.nic < SDRAM_BASE
    }
}

/// A DMA assist of either direction.
#[derive(Clone, Debug)]
pub(crate) struct Dma {
    reads: bool,
    limit: usize,
    pub(crate) ring: Ring,
    pub(crate) prod: u32,
    fetched: u32,
    pub(crate) done: u32,
    reported: u32,
    arrived: u32,
    burst_at: u32,
    word_at: u32,
    word: u32,
    fetch: [u32; 4],
    fetch_words: usize,
    out: VecDeque<Move>,
    /// Words that write DMAs read from the scratchpad for the host, in order.
    pub(crate) words: VecDeque<u32>,
    /// Mailbox writes of the host: hardware word and value (only for the read assist).
    pub(crate) mail: VecDeque<(u32, u32)>,
    events: u32,
    news: bool,
    pub(crate) port: Port,
    /// For a timeline: the times of completed DMAs, and their bytes.
    pub(crate) log: Option<Vec<(u64, u64, u32)>>,
}

impl Dma {
    pub(crate) fn new(reads: bool, limit: u32) -> Self {
        Self {
            reads,
            limit: limit as usize,
            ring: Ring::default(),
            prod: 0,
            fetched: 0,
            done: 0,
            reported: 0,
            arrived: 0,
            burst_at: 0,
            word_at: 0,
            word: 0,
            fetch: [0; 4],
            fetch_words: 0,
            out: VecDeque::with_capacity(limit as usize),
            words: VecDeque::new(),
            mail: VecDeque::new(),
            events: 0,
            news: false,
            port: Port::default(),
            log: None,
        }
    }

    /// Sets a bit of the event register with a later access.
    pub(crate) fn raise(&mut self, bit: u32) {
        self.events |= 1 << bit;
    }

    fn done_word(&self) -> u32 {
        if self.reads { hw::DRD_DONE } else { hw::DWR_DONE }
    }

    /// Chooses the next request of the port, if there is one; `now` is the cycle.
    pub(crate) fn choose(&mut self, now: u64) -> Option<u64> {
        let word = |index: u32| SCRATCHPAD_BASE + 4 * index;
        if let Some(&(index, value)) = self.mail.front() {
            return Some(self.port.ask(Request::store(word(index), value), Purpose::Mail, now));
        }
        if self.reported != self.done {
            let request = Request::store(word(self.done_word()), self.done);
            return Some(self.port.ask(request, Purpose::Progress, now));
        }
        if self.events != 0 {
            let request = Request {
                op: crate::isa::Op::Set,
                addr: word(hw::EVENTS),
                value: self.events.trailing_zeros(),
            };
            return Some(self.port.ask(request, Purpose::Event, now));
        }
        let may_fetch = self.ring.is_set() && self.prod != self.fetched;
        if self.fetch_words > 0 || (may_fetch && self.out.len() < self.limit) {
            let addr = self.ring.addr(self.fetched, 16, self.fetch_words);
            return Some(self.port.ask(Request::load(addr), Purpose::Descriptor, now));
        }
        let (host_word, at) = self.next_word()?;
        let addr = at.nic + 4 * self.word;
        let request = match host_word {
            true => Request::store(addr, 0), // the value is filled in by `data_source`
            false => Request::load(addr),
        };
        Some(self.port.ask(request, Purpose::Data, now))
    }

    /// The next DMA from or to the scratchpad, and whether it stores into the scratchpad.
    fn next_word(&mut self) -> Option<(bool, Move)> {
        let end = if self.reads { self.arrived } else { self.fetched };
        self.word_at = self.word_at.max(self.done);
        while self.word_at < end {
            let at = self.out[(self.word_at - self.done) as usize];
            if at.is_scratch() {
                return Some((self.reads, at));
            }
            self.word_at += 1;
        }
        None
    }

    /// The host address of the word that the port stores next.
    pub(crate) fn data_source(&self) -> Option<u32> {
        let at = self.out.get((self.word_at.wrapping_sub(self.done)) as usize)?;
        (self.reads && at.is_scratch()).then(|| at.host + 4 * self.word)
    }

    /// Takes the result `value` of the port's request and returns the purpose of the request. `time` is the time
    /// of the cycle, `latency` that of the host.
    ///
    /// # Errors
    /// When a descriptor is invalid: its number and the reason.
    pub(crate) fn granted(
        &mut self,
        (now, gap): (u64, u64),
        value: u32,
        (time, latency): (u64, u64),
        (scratchpad, host): (u32, u32),
    ) -> Result<Option<Purpose>, String> {
        let Some((request, purpose)) = self.port.granted(now, gap) else { return Ok(None) };
        match purpose {
            Purpose::Mail => drop(self.mail.pop_front()),
            Purpose::Progress => self.reported = request.value,
            Purpose::Event => self.events &= !(1 << request.value),
            Purpose::Descriptor => {
                self.fetch[self.fetch_words] = value;
                self.fetch_words += 1;
                if self.fetch_words == 4 {
                    self.fetch_words = 0;
                    let due = if self.reads { time + latency } else { u64::MAX };
                    self.accept((time, due), scratchpad, host)?;
                }
            }
            Purpose::Data => {
                if !self.reads {
                    self.words.push_back(value);
                }
                self.word += 1;
                let at = (self.word_at - self.done) as usize;
                if self.word * 4 == self.out[at].len {
                    self.word = 0;
                    self.word_at += 1;
                    self.moved(at, time, time + latency);
                }
            }
        }
        Ok(Some(purpose))
    }

    /// Whether a grant since the last call has caused work for the host's bus or the SDRAM.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn accept(
        &mut self,
        (since, due): (u64, u64),
        scratchpad: u32,
        host_bytes: u32,
    ) -> Result<(), String> {
        let [host, nic, len, _] = self.fetch;
        let side = if self.reads { "read" } else { "write" };
        let number = self.fetched;
        let len = len & 0xffff;
        let within = |base: u32, size: u32| {
            nic >= base && u64::from(nic) + u64::from(len) <= u64::from(base) + u64::from(size)
        };
        let page = 4 * hw::WORDS; // the hardware page is not data
        let scratch = within(SCRATCHPAD_BASE + page, scratchpad - page);
        let wrong = if len == 0 {
            Some("a length of 0".to_owned())
        } else if !scratch && !within(SDRAM_BASE, SDRAM_BYTES) {
            Some(format!("adapter address {nic:#x} with length {len}, outside both memories"))
        } else if scratch && (nic | len) & 3 != 0 {
            Some(format!("scratchpad address {nic:#x} with length {len}, not whole words"))
        } else if u64::from(host) + u64::from(len) > u64::from(host_bytes) {
            Some(format!("host address {host:#x} with length {len}, outside host memory"))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Err(format!("DMA {side} assist: descriptor {number} has {wrong}"));
        }
        self.news = true;
        self.out.push_back(Move { host, nic, len, due, since, moved: false });
        self.fetched += 1;
        Ok(())
    }

    fn moved(&mut self, at: usize, now: u64, due: u64) {
        self.news = true;
        self.out[at].moved = true;
        if self.reads {
            while let Some(done) = self.out.pop_front_if(|front| front.moved) {
                self.done += 1;
                self.note(&done, now);
            }
        } else {
            self.out[at].due = due;
        }
    }

    /// The next burst for the SDRAM.
    pub(crate) fn burst(&mut self) -> Option<Move> {
        let end = if self.reads { self.arrived } else { self.fetched };
        self.burst_at = self.burst_at.max(self.done);
        while self.burst_at < end {
            let at = self.out[(self.burst_at - self.done) as usize];
            if !at.is_scratch() {
                return Some(at);
            }
            self.burst_at += 1;
        }
        None
    }

    /// Whether there is a next burst; changes nothing.
    pub(crate) fn may_burst(&self) -> bool {
        let end = if self.reads { self.arrived } else { self.fetched };
        (self.burst_at.max(self.done)..end)
            .any(|n| !self.out[(n - self.done) as usize].is_scratch())
    }

    /// Notes the completion of a DMA for a timeline.
    pub(crate) fn note(&mut self, done: &Move, now: u64) {
        if let Some(log) = &mut self.log {
            log.push((done.since, now, done.len));
        }
    }

    /// Marks the burst as transferred at the time `now`; the host acknowledges it at `due`.
    pub(crate) fn burst_done(&mut self, now: u64, due: u64) {
        let at = (self.burst_at - self.done) as usize;
        self.burst_at += 1;
        self.moved(at, now, due);
    }

    /// The time at which the host's bus has an effect on this assist.
    pub(crate) fn host_due(&self) -> Option<u64> {
        if self.reads {
            (self.arrived < self.fetched).then(|| self.out[(self.arrived - self.done) as usize].due)
        } else {
            self.out.front().filter(|front| front.moved).map(|front| front.due)
        }
    }

    /// Takes the read data that has arrived by `time`; returns whether there was any.
    pub(crate) fn arrive(&mut self, time: u64) -> bool {
        let before = self.arrived;
        while self.host_due().is_some_and(|due| due <= time) {
            self.arrived += 1;
        }
        before != self.arrived
    }

    /// Takes the next write DMA that the host has acknowledged by `time`.
    pub(crate) fn acknowledged(&mut self, time: u64) -> Option<Move> {
        self.host_due().filter(|&due| due <= time)?;
        self.done += 1;
        self.out.pop_front()
    }

    /// Whether a write DMA's data came from the scratchpad.
    pub(crate) fn came_by_words(at: &Move) -> bool {
        at.is_scratch()
    }
}
