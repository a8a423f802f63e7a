//! The MAC assists, which move frames between the frame memory and the link.
//!
//! ```text
//!  transmit: ring ─ 2 words ─> queue ─ SDRAM burst ─> buffer (2 frames) ─ link ─> done
//!  receive:  link ─> buffer (2 frames, else overrun) ─ SDRAM burst ─> 4 words ─> ring, done
//! ```
//!
//! Transmit descriptor: SDRAM address; length in bits 0..11, flags in 11..16, VLAN tag in 16..32.
//! Receive descriptor: SDRAM address; length, flags in 16..32; VLAN tag; time of arrival in ns.
//! Invariants: a frame is sent when all of it is in the buffer, and after preamble and gap; frames never
//! overtake each other; a frame that finds the buffer full is counted.

use std::collections::VecDeque;

use super::net::{FCS_BYTES, Frames, RxFrame, TAG_BYTES};
use super::port::{Port, Purpose, Ring};
use crate::memory::{Request, SCRATCHPAD_BASE, SDRAM_BASE, SDRAM_BYTES, hw};

/// The offset of a frame in its slot, which aligns the IP header to a word and the payload to 8 bytes.
pub(crate) const SLOT_OFFSET: u32 = 6;
/// The transmit flag that inserts the VLAN tag.
pub(crate) const TX_VLAN: u32 = 1;

/// A frame to transmit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxFrame {
    pub(crate) addr: u32,
    pub(crate) len: u32,
    pub(crate) flags: u32,
    pub(crate) vlan: u32,
}

impl TxFrame {
    /// Bytes of the frame on the link: with its tag and padding, and its check sequence.
    pub(crate) fn wire_len(&self) -> u32 {
        let tag = if self.flags & TX_VLAN != 0 { TAG_BYTES } else { 0 };
        (self.len + tag).max(60) + FCS_BYTES
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MacTx {
    pub(crate) ring: Ring,
    pub(crate) prod: u32,
    fetched: u32,
    pub(crate) done: u32,
    reported: u32,
    fetch: [u32; 2],
    fetch_words: usize,
    queue: VecDeque<TxFrame>,
    /// Frames in the buffer, with the time at which each was complete.
    pub(crate) ready: VecDeque<(TxFrame, u64)>,
    pub(crate) buffered: u32,
    capacity: u32,
    /// The time at which the frame on the link ends.
    pub(crate) sending: Option<u64>,
    /// The time at which the link can carry the next frame.
    pub(crate) link_free: u64,
    events: bool,
    pub(crate) event_wanted: bool,
    pub(crate) port: Port,
}

impl MacTx {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub(crate) fn choose(&mut self, now: u64) -> Option<u64> {
        if self.reported != self.done {
            let request = Request::store(SCRATCHPAD_BASE + 4 * hw::MTX_DONE, self.done);
            return Some(self.port.ask(request, Purpose::Progress, now));
        }
        if self.events {
            return Some(self.port.ask(event(hw::MTX_DONE), Purpose::Event, now));
        }
        let may_fetch = self.ring.is_set() && self.prod != self.fetched && self.queue.len() < 4;
        if self.fetch_words > 0 || may_fetch {
            let addr = self.ring.addr(self.fetched, 8, self.fetch_words);
            return Some(self.port.ask(Request::load(addr), Purpose::Descriptor, now));
        }
        None
    }

    /// Takes the result of a scratchpad access.
    ///
    /// # Errors
    /// When a descriptor is invalid: its number and the reason.
    pub(crate) fn granted(&mut self, now: u64, gap: u64, value: u32) -> Result<(), String> {
        let Some((request, purpose)) = self.port.granted(now, gap) else { return Ok(()) };
        match purpose {
            Purpose::Progress => {
                self.reported = request.value;
                self.events = self.event_wanted;
            }
            Purpose::Event => self.events = false,
            _ => {
                self.fetch[self.fetch_words] = value;
                self.fetch_words += 1;
                if self.fetch_words == 2 {
                    self.fetch_words = 0;
                    self.accept()?;
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<(), String> {
        let [addr, word] = self.fetch;
        let len = word & 0x7ff;
        let number = self.fetched;
        let inside = addr >= SDRAM_BASE
            && u64::from(addr) + u64::from(len) <= u64::from(SDRAM_BASE) + u64::from(SDRAM_BYTES);
        if !(14..=1522).contains(&len) || !inside {
            return Err(format!(
                "MAC transmit assist: descriptor {number} has address {addr:#x} and length {len}; \
                 it must have 14 to 1522 bytes of SDRAM"
            ));
        }
        self.fetched += 1;
        let (flags, vlan) = (word >> 11 & 31, word >> 16);
        self.queue.push_back(TxFrame { addr, len, flags, vlan });
        Ok(())
    }

    /// The next frame to be read from the SDRAM, if it fits the buffer.
    pub(crate) fn burst(&self) -> Option<TxFrame> {
        self.queue.front().copied().filter(|frame| self.buffered + frame.len <= self.capacity)
    }

    pub(crate) fn burst_done(&mut self, time: u64) {
        if let Some(frame) = self.queue.pop_front() {
            self.buffered += frame.len;
            self.ready.push_back((frame, time));
        }
    }
}

fn event(word: u32) -> Request {
    Request { op: crate::isa::Op::Set, addr: SCRATCHPAD_BASE + 4 * hw::EVENTS, value: word }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MacRx {
    pub(crate) ring: Ring,
    slots_base: u32,
    slot_bytes: u32,
    slots: u32,
    /// Slots that the firmware has freed.
    pub(crate) cons: u32,
    /// Frames written to slots.
    pub(crate) stored: u32,
    described: u32,
    reported: u32,
    pub(crate) waiting: VecDeque<RxFrame>,
    pub(crate) buffered: u32,
    capacity: u32,
    descriptors: VecDeque<[u32; 4]>,
    word: usize,
    events: bool,
    pub(crate) event_wanted: bool,
    pub(crate) port: Port,
    /// Frames that did not fit the buffer.
    pub(crate) overruns: u64,
}

impl MacRx {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Takes a register write of the firmware: base, bytes of a slot, or number of slots.
    pub(crate) fn slots(&mut self, which: u32, value: u32) -> Result<(), String> {
        // A new base or slot size stops the receiver until the number of slots is written and checked.
        self.slots = 0;
        match which {
            hw::RX_BASE => self.slots_base = value,
            hw::RX_SLOT_BYTES => self.slot_bytes = value,
            _ => {
                let end =
                    u64::from(self.slots_base) + u64::from(value) * u64::from(self.slot_bytes);
                if !value.is_power_of_two()
                    || self.slot_bytes < 1536
                    || self.slots_base < SDRAM_BASE
                    || end > u64::from(SDRAM_BASE) + u64::from(SDRAM_BYTES)
                {
                    return Err(format!(
                        "MAC receive assist: {value} slots of {} bytes at {:#x}; the number must be a power \
                         of two, and slots of at least 1536 bytes must be inside the SDRAM",
                        self.slot_bytes, self.slots_base
                    ));
                }
                self.slots = value;
            }
        }
        Ok(())
    }

    pub(crate) fn is_started(&self) -> bool {
        self.slots != 0 && self.ring.is_set()
    }

    /// Whether a frame of `len` bytes fits the buffer.
    pub(crate) fn fits(&self, len: u32) -> bool {
        self.buffered + len <= self.capacity
    }

    /// Takes a frame from the link: into the buffer, or counted as an overrun and returned to `pool`.
    pub(crate) fn take(&mut self, frame: RxFrame, pool: &mut Frames) {
        if self.fits(frame.len) {
            self.buffered += frame.len;
            self.waiting.push_back(frame);
        } else {
            self.overruns += 1;
            pool.give(frame.buffer);
        }
    }

    /// The SDRAM address and the length of the next frame, if there is a slot for it.
    pub(crate) fn burst(&self) -> Option<(u32, u32)> {
        let frame = self.waiting.front()?;
        let free = self.stored.wrapping_sub(self.cons) < self.slots && self.descriptors.len() < 4;
        let slot = self.stored & self.slots.wrapping_sub(1);
        free.then_some((self.slots_base + slot * self.slot_bytes + SLOT_OFFSET, frame.len))
    }

    /// Removes the frame that was written to the SDRAM and returns it.
    pub(crate) fn burst_done(&mut self) -> Option<RxFrame> {
        let (addr, _) = self.burst()?;
        let frame = self.waiting.pop_front()?;
        self.buffered -= frame.len;
        self.stored = self.stored.wrapping_add(1);
        let word = frame.len | frame.flags << 16;
        self.descriptors.push_back([addr, word, frame.vlan, frame.stamp]);
        Some(frame)
    }

    pub(crate) fn choose(&mut self, now: u64) -> Option<u64> {
        if self.reported != self.described {
            let request = Request::store(SCRATCHPAD_BASE + 4 * hw::MRX_PROD, self.described);
            return Some(self.port.ask(request, Purpose::Progress, now));
        }
        if self.events {
            return Some(self.port.ask(event(hw::MRX_PROD), Purpose::Event, now));
        }
        let descriptor = self.descriptors.front()?;
        let addr = self.ring.addr(self.described, 16, self.word);
        let request = Request::store(addr, descriptor[self.word]);
        Some(self.port.ask(request, Purpose::Descriptor, now))
    }

    pub(crate) fn granted(&mut self, now: u64, gap: u64) {
        let Some((request, purpose)) = self.port.granted(now, gap) else { return };
        match purpose {
            Purpose::Progress => {
                self.reported = request.value;
                self.events = self.event_wanted;
            }
            Purpose::Event => self.events = false,
            _ => {
                self.word += 1;
                if self.word == 4 {
                    self.word = 0;
                    self.descriptors.pop_front();
                    self.described = self.described.wrapping_add(1);
                }
            }
        }
    }
}
