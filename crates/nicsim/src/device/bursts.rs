//! The edges of the SDRAM: one burst at a time, and the bytes that each burst moves.

use super::devices::{CoreAccess, DMA_READ, DMA_WRITE, Devices, MAC_RX, MAC_TX};
use super::timeline::What;
use crate::memory::{Request, SDRAM_BASE, Scratchpad};

impl Devices {
    pub(super) fn tick_sdram(&mut self, time: u64) {
        if let Some((who, until)) = self.sdram.busy {
            if until > time {
                return;
            }
            self.sdram.busy = None;
            self.burst_done(who, time);
        }
        let drd = self.drd.burst().map(|at| (at.nic - SDRAM_BASE, at.len));
        let dwr = self.dwr.burst().map(|at| (at.nic - SDRAM_BASE, at.len));
        let mtx = self.mtx.burst().map(|at| (at.addr - SDRAM_BASE, at.len));
        let mrx = self.mrx.burst().map(|(addr, len)| (addr - SDRAM_BASE, len));
        let core = self.core_access.map(|at| ((at.request.addr - SDRAM_BASE) & !3, 4));
        let wants = [drd, dwr, mtx, mrx, core];
        let mask = wants.iter().enumerate().fold(0, |m, (n, w)| m | u32::from(w.is_some()) << n);
        if let Some(who) = self.sdram.pick(mask)
            && let Some((addr, len)) = wants[who]
        {
            let cycles = self.sdram.begin(addr, len);
            let until = time + cycles * self.memory.period;
            self.sdram.busy = Some((who, until));
            let number = self.sdram.counters.bursts - 1;
            self.happened(time, until, What::Burst(who as u8), number, len);
        }
    }

    fn burst_done(&mut self, who: usize, time: u64) {
        match who {
            DMA_READ => {
                let Some(at) = self.drd.burst() else { return };
                let (from, to, len) = places(at.host, at.nic, at.len);
                self.sdram.bytes[to..to + len].copy_from_slice(&self.host.memory[from..from + len]);
                self.drd.burst_done(time, 0);
                self.dirty |= 1 << DMA_READ;
            }
            DMA_WRITE => {
                let Some(at) = self.dwr.burst() else { return };
                let (to, from, len) = places(at.host, at.nic, at.len);
                self.host.memory[to..to + len].copy_from_slice(&self.sdram.bytes[from..from + len]);
                self.dwr.burst_done(time, time + self.latency);
                self.dirty |= 1 << DMA_WRITE;
            }
            MAC_TX => {
                let Some(at) = self.mtx.burst() else { return };
                let (_, from, len) = places(0, at.addr, at.len);
                let mut bytes = self.pool.take();
                bytes.extend_from_slice(&self.sdram.bytes[from..from + len]);
                self.transmitted.push_back(bytes);
                self.mtx.burst_done(time);
                self.dirty |= 1 << MAC_TX;
            }
            MAC_RX => {
                let Some((addr, _)) = self.mrx.burst() else { return };
                if let Some(frame) = self.mrx.burst_done() {
                    let (_, to, len) = places(0, addr, frame.len);
                    self.sdram.bytes[to..to + len].copy_from_slice(&frame.buffer[..len]);
                    self.pool.give(frame.buffer);
                }
                self.dirty |= 1 << MAC_RX;
            }
            _ => self.core_burst(),
        }
    }

    /// Performs a core's access to a word as the scratchpad does, without reservations.
    fn core_burst(&mut self) {
        let Some(CoreAccess { core, request }) = self.core_access.take() else { return };
        let at = ((request.addr - SDRAM_BASE) & !3) as usize;
        let word = &mut self.sdram.bytes[at..at + 4];
        let mut pad = Scratchpad::new(4);
        pad.poke(0, u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let addr = crate::memory::SCRATCHPAD_BASE + (request.addr & 3);
        let done = pad.perform(0, Request { addr, ..request });
        word.copy_from_slice(&pad.peek(0).to_le_bytes());
        self.core_done = Some((core, done.value));
    }
}

fn places(host: u32, nic: u32, len: u32) -> (usize, usize, usize) {
    (host as usize, (nic - SDRAM_BASE) as usize, len as usize)
}
