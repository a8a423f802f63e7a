//! The state that the front end sets up by messages, and the rings that run because of it.
//!
//! Messages change numbers here; rings are built from the numbers by [`Device::resume`], when no message is
//! left to be read, and taken back from the cores by [`Device::pause`], before anything that they depend on
//! changes.
//!
//! Invariants: while a core has a ring, the memory, the features and the ring's place are those that the ring
//! was built with. A ring that broke the rules does not run until the guest has reset it.
//! Thread-safety: belongs to the control thread, which locks it for the library only.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

use crate::handover::Seat;
use crate::memory::{Memory, Region, RegionPlace};
use crate::receive::Receiver;
use crate::ring::{RingPlace, Rules, stop};
use crate::send::Sender;
use crate::shared::{Incoming, Outgoing, Way};
use crate::violation::Violation;
use crate::{Log, PAIRS};

/// Virtio features, by bit.
pub(crate) const MERGEABLE: u64 = 1 << 15;
pub(crate) const CONTROL_QUEUE: u64 = 1 << 17;
pub(crate) const MULTI_QUEUE: u64 = 1 << 22;
pub(crate) const INDIRECT: u64 = 1 << 28;
pub(crate) const EVENT_INDEX: u64 = 1 << 29;
/// Of vhost-user: there are protocol features.
pub(crate) const PROTOCOL: u64 = 1 << 30;
pub(crate) const MODERN: u64 = 1 << 32;
pub(crate) const PACKED: u64 = 1 << 34;
/// The device uses buffers in the order in which they were made available, so the driver need not read which ones it gets back.
pub(crate) const IN_ORDER: u64 = 1 << 35;

/// What is offered. The control queue is the front end's own, which must be allowed to offer it. Not offered:
/// checksums and segmentation, and the log of written pages, so that a front end refuses live migration.
pub(crate) const OFFERED: u64 = MERGEABLE
    | CONTROL_QUEUE
    | MULTI_QUEUE
    | INDIRECT
    | EVENT_INDEX
    | PROTOCOL
    | MODERN
    | PACKED
    | IN_ORDER;

/// A ring, as messages describe it.
#[derive(Debug, Default)]
struct Vring {
    place: RingPlace,
    /// Whether the driver may have begun to use it: the front end has sent its kick.
    is_started: bool,
    is_enabled: bool,
    /// Why it does not run.
    broken: Option<Violation>,
    call: Option<File>,
    error: Option<File>,
    /// Kept so that the other end stays valid; this side polls and does not read it.
    kick: Option<File>,
}

/// What the log said last about the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Down,
    Up { receivers: usize, senders: usize },
}

/// The places of both halves of a core's queue.
pub(crate) struct Seats {
    pub(crate) rx: Seat<Incoming>,
    pub(crate) tx: Seat<Outgoing>,
}

pub(crate) struct Device {
    seats: Vec<Seats>,
    log: Log,
    features: u64,
    /// VHOST_USER_PROTOCOL_F_REPLY_ACK was negotiated.
    pub(crate) replies: bool,
    regions: Vec<Region>,
    rings: Vec<Vring>,
    is_running: bool,
    /// Numbers have changed since the rings were built.
    is_stale: bool,
    told: Told,
    /// How often the guest broke the rules, without what a core has taken to count.
    violations: u32,
    /// Why the last message was refused.
    pub(crate) refused: Option<String>,
}

impl Device {
    pub(crate) fn new(seats: Vec<Seats>, log: Log) -> Self {
        Self {
            seats,
            log,
            features: 0,
            replies: false,
            regions: Vec::new(),
            rings: (0..2 * PAIRS).map(|_| Vring::default()).collect(),
            is_running: false,
            is_stale: false,
            told: Told::Down,
            violations: 0,
            refused: None,
        }
    }

    /// Forgets a connection.
    pub(crate) fn reset(&mut self) {
        self.pause();
        self.features = 0;
        self.replies = false;
        self.regions.clear();
        self.rings.iter_mut().for_each(|ring| *ring = Vring::default());
        self.is_stale = false;
        self.tell(Told::Down);
    }

    /// Whether the front end has set the features.
    pub(crate) const fn has_features(&self) -> bool {
        self.features != 0
    }

    fn rules(&self) -> Rules {
        Rules {
            mergeable: self.features & MERGEABLE != 0,
            modern: self.features & MODERN != 0,
            indirect: self.features & INDIRECT != 0,
            event_index: self.features & EVENT_INDEX != 0,
            packed: self.features & PACKED != 0,
        }
    }

    /// Takes all rings back from the cores.
    pub(crate) fn pause(&mut self) {
        self.is_stale = true;
        if !std::mem::take(&mut self.is_running) {
            return;
        }
        for seat in &self.seats {
            seat.rx.ask();
            seat.tx.ask();
        }
        let mut calls = 0;
        for seat in &self.seats {
            if let Some(mut share) = seat.rx.recall() {
                self.violations += share.violations;
                calls |= share.uncalled();
            }
            calls |= seat.tx.recall().map_or(0, |mut share| share.uncalled());
        }
        self.call(calls);
    }

    /// Gives the cores the rings that can run.
    pub(crate) fn resume(&mut self) {
        if self.is_running || !std::mem::take(&mut self.is_stale) {
            return;
        }
        let Ok(memory) = Memory::new(self.regions.clone()).map(Arc::new) else { return };
        let rules = self.rules();
        let (mut receivers, mut senders) = (Vec::new(), Vec::new());
        // Receivers whose frames are not dropped; only these are logged as ready.
        let mut enabled = 0;
        let mut broken = Vec::new();
        for (at, vring) in self.rings.iter().enumerate() {
            // Frames of a disabled ring are dropped by the ring's core; a disabled ring for the guest gets
            // none.
            let transmits = at % 2 == 1;
            if !vring.is_started || !(vring.is_enabled || transmits) {
                continue;
            }
            let number = at as u16;
            if vring.broken.is_some() {
                continue;
            }
            let place = vring.place;
            let built = if transmits {
                let built = Receiver::new(&memory, place, rules, number, !vring.is_enabled);
                enabled += usize::from(vring.is_enabled);
                built.map(|receiver| receivers.push(receiver))
            } else {
                Sender::new(&memory, place, rules, number).map(|sender| senders.push(sender))
            };
            if let Err(violation) = built {
                broken.push((number, violation));
            }
        }
        for (ring, violation) in broken {
            self.break_ring(ring, violation);
        }
        // One broken ring takes the port down: the guest's driver is not to be trusted with the others.
        if self.rings.iter().any(|ring| ring.is_started && ring.broken.is_some()) {
            self.tell(Told::Down);
            return self.place(Vec::new(), Vec::new());
        }
        let told = Told::Up { receivers: enabled, senders: senders.len() };
        let told = if senders.is_empty() { Told::Down } else { told };
        self.place(receivers, senders);
        // Who reads that the driver is ready may send frames to it.
        self.tell(told);
    }

    fn place(&mut self, receivers: Vec<Receiver>, senders: Vec<Sender>) {
        let (cores, pairs) = (self.seats.len(), senders.len());
        let is_up = pairs > 0;
        let incoming = || Incoming { is_up, ..Incoming::default() };
        let mut all: Vec<_> = (0..cores).map(|_| (incoming(), Outgoing::default())).collect();
        all[0].0.violations = std::mem::take(&mut self.violations);
        for receiver in receivers {
            // The guest answers on the queue of the core that received, as far as there are as many cores.
            all[usize::from(receiver.number() / 2) % cores].0.receivers.push(receiver);
        }
        if pairs >= cores {
            for ((_, out), sender) in all.iter_mut().zip(senders) {
                out.way = Some(Way::Own(Box::new(sender)));
            }
        } else {
            let senders: Vec<_> =
                senders.into_iter().map(|sender| Arc::new(Mutex::new(sender))).collect();
            for (at, (_, out)) in all.iter_mut().enumerate() {
                let sender = senders.get(at % pairs.max(1));
                out.way = sender.map(|sender| Way::Shared(Arc::clone(sender)));
            }
        }
        for (seat, (incoming, outgoing)) in self.seats.iter().zip(all) {
            seat.rx.place(incoming);
            seat.tx.place(outgoing);
        }
        self.is_running = true;
    }

    /// Takes the port down, until the guest resets the ring.
    pub(crate) fn break_ring(&mut self, ring: u16, violation: Violation) {
        self.pause();
        let Some(vring) = self.rings.get_mut(usize::from(ring)) else { return };
        if vring.broken.is_some() {
            return;
        }
        vring.broken = Some(violation);
        self.violations += 1;
        (self.log)(&format!(
            "ring {ring}: {violation}; the port is down until the guest's driver resets its device"
        ));
        if let Some(error) = &vring.error {
            let _full = rustix::io::write(error, &1_u64.to_ne_bytes());
        }
    }

    /// Calls the guest about the rings whose bits are set.
    pub(crate) fn call(&self, bits: u64) {
        for (at, ring) in self.rings.iter().enumerate().filter(|(at, _)| bits >> at & 1 != 0) {
            debug_assert!(at < 64);
            if let Some(call) = &ring.call {
                let _full = rustix::io::write(call, &1_u64.to_ne_bytes());
            }
        }
    }

    fn tell(&mut self, told: Told) {
        if self.told == told {
            return;
        }
        self.told = told;
        let Told::Up { receivers, senders } = told else {
            return (self.log)("the guest's driver is not ready; frames for it are dropped");
        };
        let rules = self.rules();
        let layout = if rules.packed { "packed" } else { "split" };
        let merge = if rules.mergeable { "mergeable" } else { "single" };
        (self.log)(&format!(
            "the guest's driver is ready: {senders} queues to transmit ({merge} buffers), {receivers} to receive, \
             {layout} rings"
        ));
    }

    fn ring(&mut self, index: u32) -> Result<&mut Vring, String> {
        let ring = usize::try_from(index).ok().and_then(|at| self.rings.get_mut(at));
        ring.ok_or_else(|| format!("ring {index} does not exist; there are {}", 2 * PAIRS))
    }

    // What the messages do. Errors end the connection.

    pub(crate) fn agree(&mut self, features: u64) -> Result<(), String> {
        if features & !OFFERED != 0 {
            return Err(format!("features {:#x} were not offered", features & !OFFERED));
        }
        self.pause();
        self.features = features;
        // Without protocol features there is no message that enables a ring.
        if features & PROTOCOL == 0 {
            self.rings.iter_mut().for_each(|ring| ring.is_enabled = true);
        }
        Ok(())
    }

    pub(crate) fn set_memory(&mut self, all: &[(RegionPlace, File)]) -> io::Result<()> {
        self.pause();
        self.regions.clear();
        let map = |(place, file): &(RegionPlace, File)| Region::map(*place, file);
        let regions = all.iter().map(map).collect::<io::Result<Vec<_>>>()?;
        Memory::new(regions.clone())?;
        self.regions = regions;
        Ok(())
    }

    pub(crate) fn set_size(&mut self, index: u32, size: u32) -> Result<(), String> {
        self.pause();
        self.ring(index)?.place.size = size;
        Ok(())
    }

    pub(crate) fn set_place(&mut self, index: u32, place: RingPlace) -> Result<(), String> {
        self.pause();
        let ring = self.ring(index)?;
        ring.place = RingPlace { size: ring.place.size, base: ring.place.base, ..place };
        Ok(())
    }

    /// The base is where a ring begins of which nothing else is known.
    pub(crate) fn set_base(&mut self, index: u32, base: u32) -> Result<(), String> {
        self.pause();
        let ring = self.ring(index)?;
        ring.place.base = Some(base);
        ring.broken = None;
        Ok(())
    }

    /// Stops the ring. Returns the entry at which it goes on.
    pub(crate) fn base(&mut self, index: u32) -> Result<u32, String> {
        self.pause();
        let memory = Memory::new(self.regions.clone()).map(Arc::new).map_err(|e| e.to_string())?;
        let rules = self.rules();
        let ring = self.ring(index)?;
        let at = stop(&memory, ring.place, rules);
        ring.place.base = None;
        ring.is_started = false;
        ring.broken = None;
        ring.kick = None;
        ring.call = None;
        Ok(at)
    }

    pub(crate) fn set_kick(&mut self, index: u32, file: Option<File>) -> Result<(), String> {
        self.pause();
        let ring = self.ring(index)?;
        ring.is_started = true;
        ring.kick = file;
        Ok(())
    }

    pub(crate) fn set_call(&mut self, index: u32, file: Option<File>) -> Result<(), String> {
        let ring = self.ring(index)?;
        ring.call = file;
        // The guest may have waited for a call while there was no descriptor.
        if let Some(call) = &ring.call {
            let _full = rustix::io::write(call, &1_u64.to_ne_bytes());
        }
        Ok(())
    }

    pub(crate) fn set_error(&mut self, index: u32, file: Option<File>) -> Result<(), String> {
        self.ring(index)?.error = file;
        Ok(())
    }

    pub(crate) fn enable(&mut self, index: u32, enable: bool) -> Result<(), String> {
        if self.ring(index)?.is_enabled != enable {
            self.pause();
            self.ring(index)?.is_enabled = enable;
        }
        Ok(())
    }
}
