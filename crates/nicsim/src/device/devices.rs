//! The state of all devices, and the edges of the PCI bus and of the MACs.

use std::collections::VecDeque;

use super::dma::Dma;
use super::histogram::Histogram;
use super::host::Host;
use super::mac::{MacRx, MacTx, TX_VLAN};
use super::net::{Arrival, FCS_BYTES, FrameCounters, Frames, Journey, RxFrame, Source};
use super::sdram::{Sdram, SdramCounters};
use super::timeline::{Happened, What};
use crate::config::Config;
use crate::memory::Request;
use crate::time::{Clock, FreqError};

/// Clock domains, in the order in which they act at one instant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Domain {
    /// No device has acted yet.
    Nobody,
    Pci,
    Mac,
    Sdram,
    Cores,
}

/// The numbers of the assists, in the order of their crossbar ports.
pub(crate) const DMA_READ: usize = 0;
pub(crate) const DMA_WRITE: usize = 1;
pub(crate) const MAC_TX: usize = 2;
pub(crate) const MAC_RX: usize = 3;
/// The number of assists.
pub(crate) const ASSISTS: usize = 4;

/// An access of a core to the SDRAM.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreAccess {
    pub(super) core: usize,
    pub(super) request: Request,
}

/// The counters of the devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct DeviceCounters {
    /// Frames from the host to the link.
    pub sent: FrameCounters,
    /// Frames from the link to the host.
    pub received: FrameCounters,
    /// Scratchpad accesses of the assists: DMA read, DMA write, MAC transmit, MAC receive.
    pub assist_accesses: [u64; ASSISTS],
    /// The frame memory.
    pub sdram: SdramCounters,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Frames that were dropped because the receive buffer was full.
    pub overruns: u64,
    /// Frames returned to the host, by return ring.
    pub per_queue: [u64; 8],
    /// Times of sent frames from the host's descriptor to the last bit on the link, in time units.
    #[serde(skip)]
    pub sent_latency: Histogram,
    /// Times of received frames from the last bit on the link to the host, in time units.
    #[serde(skip)]
    pub received_latency: Histogram,
}

/// A transmitted frame: the time of its last bit in time units, and its bytes without check sequence.
pub type Departure = (u64, Vec<u8>);

#[derive(Clone, Debug)]
pub(crate) struct Devices {
    pub(super) drd: Dma,
    pub(super) dwr: Dma,
    pub(super) mtx: MacTx,
    pub(super) mrx: MacRx,
    pub(super) sdram: Sdram,
    pub(super) host: Host,
    pub(super) source: Source,
    pub(super) received: Journey,
    pub(super) pool: Frames,
    pub(super) transmitted: VecDeque<Vec<u8>>,
    pub(super) core_access: Option<CoreAccess>,
    /// A completed SDRAM access of a core: the core and the value.
    pub(crate) core_done: Option<(usize, u32)>,
    /// Assists whose port may have a request, one bit each.
    pub(crate) dirty: u32,
    /// Whether the result of `next` may have changed in the last cycle.
    pub(crate) wake: bool,
    /// The reason why the run must stop.
    pub(crate) fault: Option<String>,
    /// The time and domain that acted last.
    pub(super) at: (u64, Domain),
    pub(super) cpu: Clock,
    pub(super) pci: Clock,
    pub(super) mac: Clock,
    pub(super) memory: Clock,
    pub(super) byte: u64,
    pub(super) latency: u64,
    pub(super) gap: u64,
    pub(super) preamble: u32,
    pub(super) gap_bytes: u32,
    pub(super) scratchpad: u32,
    pub(super) link_up: u64,
    /// The transmitted frames, if they are to be kept.
    pub(crate) departures: Option<Vec<Departure>>,
    /// What happened, if it is recorded.
    pub(super) timeline: Option<Vec<Happened>>,
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
            timeline: None,
        })
    }

    /// Begins to record a timeline.
    pub(crate) fn record(&mut self) {
        self.timeline = Some(Vec::new());
        self.received.log = Some(Vec::new());
        self.host.sent.log = Some(Vec::new());
        self.drd.log = Some(Vec::new());
        self.dwr.log = Some(Vec::new());
    }

    /// The recorded timeline; recording ends.
    pub(crate) fn recorded(&mut self) -> Vec<Happened> {
        let mut all = self.timeline.take().unwrap_or_default();
        let frames = [(What::Received, &mut self.received), (What::Sent, &mut self.host.sent)];
        for (what, journey) in frames {
            for (number, from, until) in journey.log.take().into_iter().flatten() {
                all.push(Happened { from, until, what, number, bytes: 0 });
            }
        }
        for (what, dma) in [(What::DmaRead, &mut self.drd), (What::DmaWrite, &mut self.dwr)] {
            let log = dma.log.take().unwrap_or_default();
            // The DMAs of the log are the last ones that are done.
            let first = u64::from(dma.done).saturating_sub(log.len() as u64);
            for (number, (from, until, bytes)) in (first..).zip(log) {
                all.push(Happened { from, until, what, number, bytes });
            }
        }
        all
    }

    pub(super) fn happened(&mut self, from: u64, until: u64, what: What, number: u64, bytes: u32) {
        if let Some(timeline) = &mut self.timeline {
            timeline.push(Happened { from, until, what, number, bytes });
        }
    }

    /// The parameters of the firmware, as words from [`crate::memory::hw::BOOT`] on.
    pub(crate) fn boot(&self, config: &Config) -> [u32; 16] {
        self.host.boot(config)
    }

    /// The clock of a domain.
    pub(crate) fn clock(&self, domain: Domain) -> Clock {
        match domain {
            Domain::Pci => self.pci,
            Domain::Mac => self.mac,
            Domain::Sdram => self.memory,
            Domain::Cores | Domain::Nobody => self.cpu,
        }
    }

    /// The earliest time at which a tick can have an effect, and its domain. The result is valid until a device
    /// or a core acts.
    pub(crate) fn next(&self) -> (u64, Domain) {
        let mut first = (u64::MAX, Domain::Cores);
        for (domain, due) in [
            (Domain::Pci, self.pci_due()),
            (Domain::Mac, self.mac_due()),
            (Domain::Sdram, self.sdram_due()),
        ] {
            let due = due.max(self.at.0 + u64::from(domain <= self.at.1));
            // An edge is never before the due time; at the same time the earlier domain is first.
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

    /// Whether any requester may have a burst; changes nothing.
    fn may_burst(&self) -> bool {
        self.core_access.is_some()
            || self.mtx.burst().is_some()
            || self.mrx.burst().is_some()
            || self.drd.may_burst()
            || self.dwr.may_burst()
    }

    /// Performs the edge of `domain` at `time`.
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
            self.dwr.note(&done, time);
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
            let end = start + u64::from(self.preamble + frame.wire_len()) * self.byte;
            self.mtx.sending = Some(end);
            self.mtx.link_free = end + u64::from(self.gap_bytes) * self.byte;
            if end > time {
                break;
            }
        }
    }

    fn take_arrival(&mut self, frame: RxFrame, ended: u64) {
        let body = (frame.len - FCS_BYTES) as usize;
        if self.timeline.is_some() {
            let number = self.received.counters.entered;
            let began = ended.saturating_sub(u64::from(self.preamble + frame.len) * self.byte);
            let what = if self.mrx.fits(frame.len) { What::LinkIn } else { What::Overrun };
            self.happened(began, ended, what, number, frame.len);
        }
        if self.mrx.fits(frame.len) {
            let damaged = frame.flags & super::net::flag::DAMAGED != 0;
            self.received.enter(&frame.buffer[..body], ended, damaged);
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
            let number = self.host.sent.counters.delivered;
            let began = end.saturating_sub(u64::from(self.preamble + frame.wire_len()) * self.byte);
            self.happened(began, end, What::LinkOut, number, frame.wire_len());
            self.host.sent.arrive(&bytes, end, false, false);
            if let Some(kept) = &mut self.departures {
                kept.push((end, bytes.clone()));
            }
            self.pool.give(bytes);
        }
    }

    /// Takes a core's request that has passed the crossbar to the external memory port.
    pub(crate) fn core_request(&mut self, core: usize, request: Request, now: u64) {
        self.at = (now * self.cpu.period, Domain::Cores);
        self.wake = true;
        self.core_access = Some(CoreAccess { core, request });
    }

    /// The counters since time 0.
    pub(crate) fn counters(&self) -> DeviceCounters {
        DeviceCounters {
            sent: self.host.sent.counters,
            received: self.received.counters,
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
            sent_latency: self.host.sent.latency.clone(),
            received_latency: self.received.latency.clone(),
        }
    }

    /// Frames held on their way to the link and to the host.
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.host.sent.held(), self.received.held())
    }

    /// Whether the network sends frames and the firmware has started the receiver.
    pub(crate) fn is_receiving(&self) -> bool {
        self.source.is_running() && self.mrx.is_started()
    }
}
