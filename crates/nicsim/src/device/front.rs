//! The side of the devices that faces the cores: the crossbar ports of the assists, and the registers that
//! they watch.

use super::devices::{DMA_READ, DMA_WRITE, Devices, Domain, MAC_RX, MAC_TX};
use super::port::Purpose;
use super::timeline::What;

use crate::isa::Op;
use crate::memory::{Request, hw};

impl Devices {
    /// Lets the port of `assist` choose its next request in cycle `now`; returns the cycle in which it presents
    /// the request. Returns `None` if the port is busy or has no request.
    pub(crate) fn choose(&mut self, assist: usize, now: u64) -> Option<u64> {
        self.at = (now * self.cpu.period, Domain::Cores);
        match assist {
            DMA_READ if self.drd.port.is_idle() => self.drd.choose(now),
            DMA_WRITE if self.dwr.port.is_idle() => self.dwr.choose(now),
            MAC_TX if self.mtx.port.is_idle() => self.mtx.choose(now),
            MAC_RX if self.mrx.port.is_idle() => self.mrx.choose(now),
            _ => None,
        }
    }

    /// The pending request of `assist`.
    pub(crate) fn request(&self, assist: usize) -> Option<Request> {
        match assist {
            DMA_READ => {
                let request = self.drd.port.request()?;
                let data = request.op == Op::Sw && request.addr >= self.first_data();
                match self.drd.data_source() {
                    Some(from) if data => Some(Request { value: self.host.read(from), ..request }),
                    _ => Some(request),
                }
            }
            DMA_WRITE => self.dwr.port.request(),
            MAC_TX => self.mtx.port.request(),
            _ => self.mrx.port.request(),
        }
    }

    /// The first scratchpad address that DMA may write, which is after the hardware page.
    fn first_data(&self) -> u32 {
        crate::memory::SCRATCHPAD_BASE + 4 * hw::WORDS
    }

    /// Notifies `assist` that its request was performed in cycle `now` with the result `value`.
    pub(crate) fn granted(&mut self, assist: usize, now: u64, value: u32) {
        let time = now * self.cpu.period;
        self.at = (time, Domain::Cores);
        self.dirty |= 1 << assist;
        let memories = (self.scratchpad, self.host.memory.len() as u32);
        let cycle = (now, self.gap);
        let clock = (time, self.latency);
        match assist {
            DMA_READ => {
                let word = self.drd.port.request().map_or(0, |r| r.addr & 0xff) / 4;
                match self.drd.granted(cycle, value, clock, memories) {
                    Ok(Some(Purpose::Mail)) if self.mtx.event_wanted && word <= hw::RBD_PROD => {
                        self.drd.raise(word);
                    }
                    Ok(Some(Purpose::Progress)) if self.mtx.event_wanted => {
                        self.drd.raise(hw::DRD_DONE);
                    }
                    Ok(_) => {}
                    Err(error) => self.stop_on(Err(error)),
                }
                self.wake |= self.drd.take_news();
            }
            DMA_WRITE => {
                match self.dwr.granted(cycle, value, clock, memories) {
                    Ok(Some(Purpose::Progress)) if self.mtx.event_wanted => {
                        self.dwr.raise(hw::DWR_DONE);
                    }
                    Ok(_) => {}
                    Err(error) => self.stop_on(Err(error)),
                }
                self.wake |= self.dwr.take_news();
            }
            MAC_TX => {
                let done = self.mtx.granted(now, self.gap, value);
                self.stop_on(done);
                self.wake = true;
            }
            _ => {
                self.mrx.granted(now, self.gap);
                self.wake = true;
            }
        }
    }

    pub(super) fn stop_on(&mut self, done: Result<(), String>) {
        if let Err(error) = done
            && self.fault.is_none()
        {
            self.fault = Some(error);
        }
    }

    /// Notifies the devices that word `word` of the hardware page was written in cycle `now`.
    pub(crate) fn register(&mut self, word: u32, value: u32, now: u64) {
        self.at = (now * self.cpu.period, Domain::Cores);
        match word {
            hw::DRD_PROD => self.drd.prod = value,
            hw::DWR_PROD => self.dwr.prod = value,
            hw::MTX_PROD => self.mtx.prod = value,
            hw::MRX_CONS => {
                self.mrx.cons = value;
                self.wake = true;
            }
            hw::INTERRUPT => {
                let number = self.host.interrupts;
                self.host.interrupts += 1;
                self.happened(self.at.0, self.at.0, What::Interrupt, number, 0);
            }
            hw::EVENT_ENABLE => {
                self.mtx.event_wanted = value != 0;
                self.mrx.event_wanted = value != 0;
            }
            hw::RX_BASE..=hw::RX_SLOTS => {
                let done = self.mrx.slots(word, value);
                self.stop_on(done);
                self.wake = true;
                if self.mrx.is_started() {
                    self.link_up = now * self.cpu.period;
                    self.source.start(self.link_up);
                }
            }
            _ if (hw::RINGS..hw::RINGS + 8).contains(&word) => self.set_ring(word, value),
            _ => return,
        }
        self.dirty |= 15;
    }

    fn set_ring(&mut self, word: u32, value: u32) {
        let which = (word - hw::RINGS) / 2;
        let is_base = (word - hw::RINGS).is_multiple_of(2);
        if !is_base && !value.is_power_of_two() {
            let names = ["DMA read", "DMA write", "MAC transmit", "MAC receive"];
            self.stop_on(Err(format!(
                "{} assist: a descriptor ring of {value} entries; the number must be a power of two",
                names[which as usize & 3]
            )));
            return;
        }
        let (base, entries) = if is_base { (Some(value), None) } else { (None, Some(value)) };
        match which {
            0 => self.drd.ring.set(base, entries),
            1 => self.dwr.ring.set(base, entries),
            2 => self.mtx.ring.set(base, entries),
            _ => self.mrx.ring.set(base, entries),
        }
    }
}
