//! Everything that is not a core: assists, SDRAM, host and network, in their clock domains.
//!
//! ```text
//!   at one instant:   PCI edge, then MAC edge, then SDRAM edge, then the cycle of the cores
//! ```
//!
//! A device acts only at edges of its domain (`tick`) and at cycles of the cores, through its port
//! (`choose`, `granted`). `next` says when a tick can do something at
//! the earliest: the reference engine ticks every edge and ignores it, the fast one trusts it, and a
//! property test compares the two. Thread-safety: values only.

mod bursts;
mod dma;
mod front;
mod host;
mod mac;
mod net;
mod port;
mod sdram;

use std::collections::VecDeque;

use dma::Dma;
use host::Host;
use mac::{MacRx, MacTx, TX_VLAN};
pub use net::{Arrival, Books, FCS_BYTES, HEADER_BYTES};
use net::{Frames, Journey, RxFrame, Source};
use sdram::Sdram;
pub use sdram::SdramCounters;

use crate::config::Config;
use crate::memory::Request;
use crate::time::{Clock, FreqError};

/// Clock domains, in the order in which they act at one instant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Domain {
    /// Nothing has acted yet.
    Nobody,
    Pci,
    Mac,
    Sdram,
    Cores,
}

/// The assists, in the order of their crossbar ports.
pub(crate) const DMA_READ: usize = 0;
pub(crate) const DMA_WRITE: usize = 1;
pub(crate) const MAC_TX: usize = 2;
pub(crate) const MAC_RX: usize = 3;
/// How many.
pub(crate) const ASSISTS: usize = 4;

/// An access of a core to the SDRAM.
#[derive(Clone, Copy, Debug)]
struct CoreAccess {
    core: usize,
    request: Request,
}

/// What the devices counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeviceCounters {
    /// Host to link.
    pub sent: Books,
    /// Link to host.
    pub received: Books,
    /// Scratchpad accesses of DMA read, DMA write, MAC transmit, MAC receive.
    pub assist_accesses: [u64; ASSISTS],
    /// Frame memory.
    pub sdram: SdramCounters,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Frames that found the receive buffer full.
    pub overruns: u64,
    /// Frames per return ring.
    pub per_queue: [u64; 8],
}

/// A frame that left: when its last bit did, in time units, and its bytes without check sequence.
pub type Departure = (u64, Vec<u8>);

#[derive(Clone, Debug)]
pub(crate) struct Devices {
    drd: Dma,
    dwr: Dma,
    mtx: MacTx,
    mrx: MacRx,
    sdram: Sdram,
    host: Host,
    source: Source,
    received: Journey,
    pool: Frames,
    transmitted: VecDeque<Vec<u8>>,
    core_access: Option<CoreAccess>,
    /// A core's SDRAM access that is done: core and value.
    pub(crate) core_done: Option<(usize, u32)>,
    /// Assists whose port may have something to ask: one bit each.
    pub(crate) dirty: u32,
    /// Whether `next` may give another answer than before the last cycle.
    pub(crate) wake: bool,
    /// Why the run must stop.
    pub(crate) fault: Option<String>,
    /// The last instant at which something acted.
    at: (u64, Domain),
    cpu: Clock,
    pci: Clock,
    mac: Clock,
    memory: Clock,
    byte: u64,
    latency: u64,
    gap: u64,
    preamble: u32,
    gap_bytes: u32,
    scratchpad: u32,
    link_up: u64,
    /// Frames that left, when asked for.
    pub(crate) departures: Option<Vec<Departure>>,
}

impl Devices {
    pub(crate) fn new(
        config: &Config,
        arrivals: Option<Vec<Arrival>>,
        keep_departures: bool,
    ) -> Result<Self, FreqError> {
        let base = config.base()?;
        let a = &config.assist;
        Ok(Self {
            drd: Dma::new(true, a.dma_outstanding),
            dwr: Dma::new(false, a.dma_outstanding),
            mtx: MacTx::new(a.mac_buffer_bytes),
            mrx: MacRx::new(a.mac_buffer_bytes),
            sdram: Sdram::new(&config.sdram),
            host: Host::new(config),
            source: Source::new(config, base, arrivals),
            received: Journey::default(),
            pool: Frames::default(),
            transmitted: VecDeque::new(),
            core_access: None,
            core_done: None,
            dirty: 0,
            wake: true,
            fault: None,
            at: (0, Domain::Nobody),
            cpu: base.clock(config.chip.mhz),
            pci: base.clock(config.pci.mhz),
            mac: base.clock(config.mac.mhz),
            memory: base.clock(config.sdram.mhz),
            byte: base.clock(config.byte_rate()).period,
            latency: base.ns(a.dma_latency_ns),
            gap: a.gap_cycles.into(),
            preamble: config.mac.preamble_bytes,
            gap_bytes: config.mac.gap_bytes,
            scratchpad: config.chip.scratchpad_kb * 1024,
            link_up: 0,
            departures: keep_departures.then(Vec::new),
        })
    }

    /// What the firmware is told, as words from [`hw::BOOT`] on.
    pub(crate) fn boot(&self, config: &Config) -> [u32; 16] {
        self.host.boot(config)
    }

    /// The clock of the three device domains.
    pub(crate) fn clock(&self, domain: Domain) -> Clock {
        match domain {
            Domain::Pci => self.pci,
            Domain::Mac => self.mac,
            Domain::Sdram => self.memory,
            Domain::Cores | Domain::Nobody => self.cpu,
        }
    }

    /// The earliest instant at which a tick can do something, and whose. Holds until something acts.
    pub(crate) fn next(&self) -> (u64, Domain) {
        let mut first = (u64::MAX, Domain::Cores);
        for (domain, due) in [
            (Domain::Pci, self.pci_due()),
            (Domain::Mac, self.mac_due()),
            (Domain::Sdram, self.sdram_due()),
        ] {
            let due = due.max(self.at.0 + u64::from(domain <= self.at.1));
            // An edge is never before what is due; at one instant the earlier domain is first.
            if due < first.0 {
                first = first.min((self.clock(domain).at_or_after(due), domain));
            }
        }
        first
    }

    fn pci_due(&self) -> u64 {
        if self.host.is_new() {
            return 0;
        }
        let due = |at: Option<u64>| at.unwrap_or(u64::MAX);
        due(self.drd.host_due()).min(due(self.dwr.host_due()))
    }

    fn mac_due(&self) -> u64 {
        let transmit = match self.mtx.sending {
            Some(end) => end,
            None if !self.mtx.ready.is_empty() => 0,
            None => u64::MAX,
        };
        let receive = if self.mrx.is_started() { self.source.due() } else { u64::MAX };
        transmit.min(receive)
    }

    fn sdram_due(&self) -> u64 {
        match self.sdram.busy {
            Some((_, until)) => until,
            None if self.may_burst() => 0,
            None => u64::MAX,
        }
    }

    /// Whether any requester may have a burst: looks without changing anything.
    fn may_burst(&self) -> bool {
        self.core_access.is_some()
            || self.mtx.burst().is_some()
            || self.mrx.burst().is_some()
            || self.drd.may_burst()
            || self.dwr.may_burst()
    }

    /// The edge of `domain` at `time`.
    pub(crate) fn tick(&mut self, domain: Domain, time: u64) {
        self.at = (time, domain);
        match domain {
            Domain::Pci => self.tick_pci(time),
            Domain::Mac => self.tick_mac(time),
            Domain::Sdram => self.tick_sdram(time),
            Domain::Cores | Domain::Nobody => {}
        }
    }

    fn tick_pci(&mut self, time: u64) {
        if self.drd.arrive(time) {
            self.dirty |= 1 << DMA_READ;
        }
        let mut drive = self.host.is_new();
        while let Some(done) = self.dwr.acknowledged(time) {
            self.dirty |= 1 << DMA_WRITE;
            if Dma::came_by_words(&done) {
                for n in 0..done.len / 4 {
                    let word = self.dwr.words.pop_front().unwrap_or(0);
                    self.host.write(done.host + 4 * n, word);
                }
            }
            drive |= self.host.is_status(done.host);
        }
        if drive {
            let driven = self.host.drive(time, &mut self.received, &mut self.drd.mail);
            self.stop_on(driven);
            self.dirty |= 1 << DMA_READ;
        }
    }

    fn tick_mac(&mut self, time: u64) {
        if self.mrx.is_started() {
            while self.source.due() <= time {
                let ended = self.source.due();
                let frame = self.source.next(self.pool.take(), self.link_up);
                self.take_arrival(frame, ended);
            }
        }
        loop {
            if self.mtx.sending.is_some_and(|end| end <= time) {
                self.frame_sent();
            }
            let Some(&(frame, since)) = self.mtx.ready.front() else { break };
            if self.mtx.sending.is_some() {
                break;
            }
            let start = self.mtx.link_free.max(since);
            let tag = if frame.flags & TX_VLAN != 0 { 4 } else { 0 };
            let bytes = self.preamble + (frame.len + tag).max(60) + FCS_BYTES;
            let end = start + u64::from(bytes) * self.byte;
            self.mtx.sending = Some(end);
            self.mtx.link_free = end + u64::from(self.gap_bytes) * self.byte;
            if end > time {
                break;
            }
        }
    }

    fn take_arrival(&mut self, frame: RxFrame, ended: u64) {
        let body = (frame.len - FCS_BYTES) as usize;
        if self.mrx.has_room(frame.len) {
            self.received.enter(&frame.buffer[..body], ended);
        } else {
            self.received.drop_one();
        }
        self.mrx.take(frame, &mut self.pool);
    }

    fn frame_sent(&mut self) {
        let (Some((frame, _)), Some(end)) = (self.mtx.ready.pop_front(), self.mtx.sending.take())
        else {
            return;
        };
        self.mtx.buffered -= frame.len;
        self.mtx.done = self.mtx.done.wrapping_add(1);
        self.dirty |= 1 << MAC_TX;
        if let Some(mut bytes) = self.transmitted.pop_front() {
            if frame.flags & TX_VLAN != 0 && bytes.len() >= 12 {
                let [high, low] = (frame.vlan as u16).to_be_bytes();
                bytes.splice(12..12, [0x81, 0x00, high, low]);
            }
            self.host.sent.arrive(&bytes, end, false);
            if let Some(kept) = &mut self.departures {
                kept.push((end, bytes.clone()));
            }
            self.pool.give(bytes);
        }
    }

    /// A core's request has crossed to the external memory port.
    pub(crate) fn core_request(&mut self, core: usize, request: Request, now: u64) {
        self.at = (now * self.cpu.period, Domain::Cores);
        self.wake = true;
        self.core_access = Some(CoreAccess { core, request });
    }

    /// What was counted so far.
    pub(crate) fn counters(&self) -> DeviceCounters {
        DeviceCounters {
            sent: self.host.sent.books,
            received: self.received.books,
            assist_accesses: [
                self.drd.port.accesses,
                self.dwr.port.accesses,
                self.mtx.port.accesses,
                self.mrx.port.accesses,
            ],
            sdram: self.sdram.counters,
            interrupts: self.host.interrupts,
            overruns: self.mrx.overruns,
            per_queue: self.host.per_queue,
        }
    }

    /// Frames under way to the link and to the host.
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.host.sent.held(), self.received.held())
    }
}
