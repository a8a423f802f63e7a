//! A cycle of the fast engine: due requests are presented, and each bank and port performs one.
//!
//! The order is that of `reference.rs`, phases B and C. Requests are bits in a mask for each bank, so the order
//! in which they were set does not matter.

use super::core::Wait;
use super::{AHEAD, ASSIST, CORES, EARLY, Fast, WHEEL};
use crate::device::ASSISTS;
use crate::engine::Fault;
use crate::isa::Op;
use crate::memory::SDRAM_BASE;
use crate::reference::round_robin;

impl Fast {
    /// Handles the entries of this cycle in the wheel: cores, assists, and stores issued in advance.
    #[inline(always)]
    pub(super) fn present(&mut self, due: u64, boundary: u64) {
        let mut cores = due as u32 & 0xffff;
        while cores != 0 {
            let who = cores.trailing_zeros() as usize;
            cores &= cores - 1;
            match self.cores[who & (CORES - 1)].wait {
                Wait::Access => self.access(who, boundary),
                _ => self.wake(who, boundary),
            }
        }
        if due >> ASSIST == 0 {
            return;
        }
        let mut early = (due >> EARLY) as u32;
        while early != 0 {
            let who = early.trailing_zeros() as usize;
            early &= early - 1;
            let core = &mut self.cores[who & (CORES - 1)];
            core.early_at = u64::MAX;
            let addr = core.store.addr;
            self.stores |= 1 << who;
            self.ask_bank(addr, who);
        }
        let mut assists = (due >> ASSIST) as u32 & 0xf;
        while assists != 0 {
            let assist = assists.trailing_zeros() as usize;
            assists &= assists - 1;
            if let Some(request) = self.devices.request(assist) {
                self.requests[assist & (ASSISTS - 1)] = request;
                self.ask_bank(request.addr, ASSIST + assist);
            }
        }
    }

    #[inline(always)]
    fn ask_bank(&mut self, addr: u32, who: usize) {
        let bank = addr >> self.bank_shift & self.bank_mask;
        self.banks[bank as usize & 31] |= 1 << who;
        self.busy_banks |= 1 << bank;
    }

    #[inline(always)]
    pub(super) fn enter_wheel(&mut self, who: usize, cycle: u64, wait: Wait) {
        self.cores[who & (CORES - 1)].wait = wait;
        self.wheel[cycle as usize & (WHEEL - 1)] |= 1 << who;
    }

    /// Runs a core ahead from its next issue and puts it into the wheel.
    #[inline(always)]
    fn run_ahead(&mut self, who: usize, boundary: u64) {
        let limit = boundary.min(self.now + AHEAD);
        let core = &mut self.cores[who & (CORES - 1)];
        let may_post = self.stores >> who & 1 == 0 && core.early_at == u64::MAX;
        let (cycle, wait) = core.run(&self.code, &mut self.heat, limit, &self.chip, may_post);
        core.wait = wait;
        if may_post && core.early_at != u64::MAX {
            self.wheel[core.early_at as usize & (WHEEL - 1)] |= 1 << (who + EARLY);
        }
        self.wheel[cycle as usize & (WHEEL - 1)] |= 1 << who;
    }

    /// Handles a core whose cycle has come and which does not present an access.
    #[cold]
    fn wake(&mut self, who: usize, boundary: u64) {
        let limit = boundary.min(self.now + AHEAD);
        let core = &mut self.cores[who & (CORES - 1)];
        if core.wait == Wait::Resume {
            let (cycle, wait) = core.run(&self.code, &mut self.heat, limit, &self.chip, false);
            core.wait = wait;
            if cycle > self.now {
                self.enter_wheel(who, cycle, wait);
                return;
            }
        }
        match self.cores[who & (CORES - 1)].wait {
            Wait::Access => self.access(who, boundary),
            Wait::Miss => {
                let core = &mut self.cores[who & (CORES - 1)];
                (core.wait, core.since) = (Wait::Fill, self.now);
                self.port_mask |= 1 << who;
            }
            Wait::Fault => self.core_fault(who),
            _ => self.enter_wheel(who, self.now + 1, Wait::Resume),
        }
    }

    /// Presents a core's access that is due, unless its store buffer is still full.
    #[inline(always)]
    fn access(&mut self, who: usize, boundary: u64) {
        let core = &mut self.cores[who & (CORES - 1)];
        core.since = self.now;
        if self.stores >> who & 1 == 1 {
            core.wait = Wait::Buffer;
            return;
        }
        let addr = core.access.addr;
        let posted = core.present(self.now, &mut self.heat);
        let external = addr >= SDRAM_BASE;
        core.wait = if external { Wait::Port } else { Wait::Bank };
        if external {
            self.external_mask |= 1 << who;
        } else {
            self.ask_bank(addr, who);
        }
        if posted {
            self.stores |= 1 << who;
            self.run_ahead(who, boundary);
        }
    }

    /// Lets a bank perform one of the requests that wait for it. If others remain, it is busy in the next
    /// cycle too.
    #[inline(always)]
    pub(super) fn grant(&mut self, bank: usize, boundary: u64) {
        let bank = bank & 31;
        let mask = self.banks[bank];
        let who = round_robin(mask, self.bank_last[bank].into());
        self.bank_last[bank] = who as u8;
        let left = mask & !(1 << who);
        self.banks[bank] = left;
        self.busy_banks |= u32::from(left != 0) << bank;
        if who >= ASSIST {
            self.grant_assist(who - ASSIST);
            return;
        }
        let now = self.now;
        let core = &mut self.cores[who & (CORES - 1)];
        if self.stores >> who & 1 == 1 {
            self.stores &= !(1 << who);
            let done = self.pad.perform(who, core.store);
            if core.wait == Wait::Buffer {
                // The core's access waited for the buffer and is presented in the next cycle.
                core.waited_since = core.since;
                self.enter_wheel(who, now + 1, Wait::Access);
            }
            if let Some((word, value)) = done.hw {
                self.devices.register(word, value, now);
            }
            return;
        }
        // Most requests are loads of words, which affect only the core.
        let value = if core.access.op == Op::Lw {
            self.pad.load(core.access.addr)
        } else {
            let done = self.pad.perform(who, core.access);
            if let Some((word, value)) = done.hw {
                self.devices.register(word, value, now);
            }
            done.value
        };
        core.loaded(now, value, &mut self.heat);
        self.run_ahead(who, boundary);
    }

    #[inline(never)]
    fn grant_assist(&mut self, assist: usize) {
        let request = self.requests[assist & (ASSISTS - 1)];
        if !self.pad.holds(request.addr, 4) {
            let what =
                format!("assist {assist}: address {:#x} is outside the scratchpad", request.addr);
            self.fault.get_or_insert(Fault::Device { cycle: self.now, what });
            return;
        }
        let done = self.pad.perform(ASSIST + assist, request);
        if let Some((word, value)) = done.hw {
            self.devices.register(word, value, self.now);
        }
        self.devices.granted(assist, self.now, done.value);
    }

    #[inline(never)]
    pub(super) fn grant_external(&mut self) {
        let who = round_robin(self.external_mask, self.external_last);
        self.external_last = who;
        self.external_mask &= !(1 << who);
        let core = &mut self.cores[who & (CORES - 1)];
        let is_load = self.stores >> who & 1 == 0;
        let request = if is_load { core.access } else { core.store };
        self.devices.core_request(who, request, self.now);
        if is_load {
            core.external_granted(self.now, &mut self.heat);
            (core.wait, core.since) = (Wait::External, self.now);
        } else {
            self.stores &= !(1 << who);
            if core.wait == Wait::Buffer {
                core.waited_since = core.since;
                self.enter_wheel(who, self.now + 1, Wait::Access);
            }
        }
        self.external = Some((who, is_load));
        self.set_device_cycle(self.devices.next().0);
    }

    #[inline(never)]
    pub(super) fn grant_fill(&mut self, boundary: u64) {
        let who = round_robin(self.port_mask, self.port_last);
        self.port_last = who;
        self.port_mask &= !(1 << who);
        let beats = u64::from(self.chip.icache_line_bytes.div_ceil(self.chip.imem_bytes_per_cycle));
        self.port_free = self.now + beats;
        let until = self.now + beats + u64::from(self.chip.imem_overhead_cycles);
        self.cores[who & (CORES - 1)].filled(until, &mut self.heat);
        self.run_ahead(who, boundary);
    }
}
