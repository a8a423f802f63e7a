//! The fast engine: the same machine, simulated from one shared access to the next.
//!
//! What a core does between two accesses affects no other part of the machine. So it runs ahead to its next
//! access or cache miss and waits there, in a wheel of future cycles. The work for a cycle then depends only
//! on the events in it. Devices are simulated at the edges that `next` returns.
//!
//! ```text
//!   wheel[cycle] ─> present ─> bank masks ─> grant ─> run ahead ─> wheel[later]
//!                                  reference.rs: phases B and C, in the same order
//! ```
//!
//! Invariants: a core never runs past the next snapshot or more than `AHEAD` cycles; every counter equals that
//! of `reference.rs` at every snapshot (`tests/main/engines.rs` compares them on random machines). A stall whose
//! end is known is counted at once; a snapshot subtracts the part of it after the snapshot.

mod code;
mod core;
mod crossbar;
mod heat;
mod issue;

use self::code::Instructions;
use self::core::{Core, Wait};
use self::heat::HeatMap;
use crate::config::Chip;
use crate::counters::{CoreCounters, Snapshot};
use crate::device::{ASSISTS, Departure, Devices, Domain};
use crate::elf::Image;
use crate::engine::{BuildError, Engine, Fault, Parts, in_function, not_decoded};
use crate::memory::{Request, SCRATCHPAD_BASE, Scratchpad};
use crate::reference::load;

/// The number of cycles in the wheel.
const WHEEL: usize = 1024;
/// The largest number of cores.
const CORES: usize = 16;
/// The largest number of cycles that a core runs ahead. The rest of the wheel is for stalls that begin
/// before.
const AHEAD: u64 = 512;

/// The bits of the wheel and of the banks: cores from 0, and assists from here.
const ASSIST: usize = 16;
/// The bits of the wheel from here are stores that cores issued in advance.
const EARLY: usize = 32;

/// The fast engine.
#[derive(Debug)]
pub struct Fast {
    /// Always 16, so that `who & 15` is a valid index; only the first `chip.cores` run.
    cores: Box<[Core; CORES]>,
    code: Instructions,
    pad: Scratchpad,
    devices: Devices,
    heat: HeatMap,
    image: Image,
    chip: Chip,
    now: u64,
    wheel: Box<[u64; WHEEL]>,
    /// The first cycle in which a device edge must be simulated.
    device_cycle: u64,
    /// The pending request of each assist.
    requests: [Request; ASSISTS],
    /// The requesters that wait for each bank, and the banks that have any.
    banks: [u32; 32],
    busy_banks: u32,
    bank_last: [u8; 32],
    bank_shift: u32,
    bank_mask: u32,
    /// The cores whose pending request is a posted store.
    stores: u32,
    fault: Option<Fault>,
    external_mask: u32,
    external_last: usize,
    external: Option<(usize, bool)>,
    port_mask: u32,
    port_last: usize,
    port_free: u64,
}

impl Engine for Fast {
    fn build(parts: Parts) -> Result<Self, BuildError> {
        parts.config.check()?;
        let config = &parts.config;
        let chip = config.chip.clone();
        let devices = Devices::new(config, parts.arrivals.clone(), parts.keep_departures)
            .map_err(crate::config::ConfigError::from)?;
        let pad = load(&parts, &devices);
        let end = parts.image.text.len();
        let core = |who| Core::new(who, parts.image.entry, end, &chip);
        let mut engine = Self {
            cores: Box::new(std::array::from_fn(core)),
            code: Instructions::new(&parts.image, &chip),
            pad,
            devices,
            heat: HeatMap::new(end),
            now: 0,
            wheel: Box::new([0; WHEEL]),
            device_cycle: 0,
            requests: [Request::load(0); ASSISTS],
            banks: [0; 32],
            busy_banks: 0,
            bank_last: [31; 32],
            bank_shift: chip.interleave_bytes.trailing_zeros(),
            bank_mask: chip.banks - 1,
            stores: 0,
            fault: None,
            external_mask: 0,
            external_last: 31,
            external: None,
            port_mask: 0,
            port_last: 31,
            port_free: 0,
            image: parts.image,
            chip,
        };
        engine.wheel[0] = (1 << engine.chip.cores) - 1;
        Ok(engine)
    }

    fn run_to(&mut self, cycle: u64) -> Result<(), Fault> {
        while self.now < cycle {
            if self.now >= self.device_cycle {
                self.device_edges();
            }
            let due = std::mem::take(&mut self.wheel[self.now as usize & (WHEEL - 1)]);
            if due != 0 {
                self.present(due, cycle);
            }
            let mut busy = std::mem::take(&mut self.busy_banks);
            while busy != 0 {
                let bank = busy.trailing_zeros() as usize;
                busy &= busy - 1;
                self.grant(bank, cycle);
            }
            if self.external_mask != 0 && self.external.is_none() {
                self.grant_external();
            }
            if self.port_mask != 0 && self.now >= self.port_free {
                self.grant_fill(cycle);
            }
            if self.devices.dirty != 0 {
                self.choose();
            }
            if self.fault.is_some() || self.devices.fault.is_some() {
                return Err(self.take_fault());
            }
            self.now += 1;
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let mut heat = self.heat.clone();
        let cores = (0..self.chip.cores as usize).map(|who| self.settled(who, &mut heat)).collect();
        Snapshot {
            cycle: self.now,
            cores,
            heat: heat.counts(),
            devices: self.devices.counters(),
            held: self.devices.held(),
            receiving: self.devices.is_receiving(),
        }
    }

    fn peek(&self, addr: u32) -> u32 {
        self.pad.peek(addr.wrapping_sub(SCRATCHPAD_BASE) / 4)
    }

    fn departures(&mut self) -> Vec<Departure> {
        self.devices.departures.take().unwrap_or_default()
    }
}

impl Fast {
    /// The counters of a core as they are at the beginning of cycle `now`.
    fn settled(&self, who: usize, heat: &mut HeatMap) -> CoreCounters {
        let core = &self.cores[who];
        let mut c = core.counters;
        core.settle(&mut c, heat);
        let now = self.now;
        // Cycles of a wait whose end is not known, which are not counted yet.
        let mut add = |counter: &mut u64, from: u64, pc: u32| {
            let cycles = now.saturating_sub(from);
            *counter += cycles;
            heat.stalled(pc, cycles);
        };
        let since = core.since;
        match core.wait {
            Wait::Buffer => add(&mut c.conflict, since, core.access_pc),
            Wait::Bank | Wait::Port => add(&mut c.conflict, since + 1, core.access_pc),
            Wait::External => add(&mut c.load, since + 1, core.access_pc),
            Wait::Fill => add(&mut c.fetch, since, core.pc),
            Wait::Access if core.waited_since != u64::MAX => {
                add(&mut c.conflict, core.waited_since, core.access_pc);
            }
            Wait::Resume | Wait::Access | Wait::Miss | Wait::Fault => {}
        }
        // Cycles that were counted in advance.
        let mut take = |counter: &mut u64, start: u64, end: u64, pc: u32| {
            let cycles = end.saturating_sub(start.max(now));
            *counter -= cycles;
            heat.take_back(pc, cycles);
        };
        // The second cycle of a load: if it is in the future, the core has no other access yet.
        take(&mut c.load, now, core.load_back(), core.access_pc);
        let lump = &core.pipeline_lump;
        take(&mut c.pipeline, lump.start, lump.end, lump.pc);
        let lump = &core.fetch_lump;
        take(&mut c.fetch, lump.start, lump.end, lump.pc);
        c
    }

    /// The fault that ends the run: that of a core is reported before that of a device.
    #[cold]
    fn take_fault(&mut self) -> Fault {
        self.fault.take().unwrap_or_else(|| Fault::Device {
            cycle: self.now,
            what: self.devices.fault.take().unwrap_or_default(),
        })
    }

    /// Records the fault of core `who`.
    #[cold]
    fn core_fault(&mut self, who: usize) {
        let core = &self.cores[who & (CORES - 1)];
        let mut what = core.fault.clone().unwrap_or_default();
        if what.is_empty() {
            let word = self.image.text.get((core.pc / 4) as usize).copied().unwrap_or(0);
            what = not_decoded(word);
        }
        let function = in_function(&self.image, core.pc);
        let fault = Fault::Core { core: who, cycle: self.now, pc: core.pc, function, what };
        self.fault.get_or_insert(fault);
    }

    #[inline(never)]
    fn device_edges(&mut self) {
        let time = self.now * self.devices.clock(Domain::Cores).period;
        let mut next = self.devices.next();
        while next.0 <= time {
            self.devices.tick(next.1, next.0);
            next = self.devices.next();
        }
        if let Some((who, value)) = self.devices.core_done.take() {
            let core = &mut self.cores[who & (CORES - 1)];
            if let Some((_, true)) = self.external
                && core.wait == Wait::External
            {
                core.external_done(self.now, value, &mut self.heat);
                self.enter_wheel(who, self.now + 1, Wait::Resume);
            }
            self.external = None;
        }
        self.set_device_cycle(next.0);
    }

    /// Sets the cycle of the next device edge, which is at the time `at`.
    fn set_device_cycle(&mut self, at: u64) {
        let period = self.devices.clock(Domain::Cores).period;
        self.device_cycle = if at == u64::MAX { u64::MAX } else { at.div_ceil(period) };
    }

    /// Lets the assists whose port may have a request choose it.
    #[inline(never)]
    fn choose(&mut self) {
        let mut dirty = std::mem::take(&mut self.devices.dirty);
        while dirty != 0 {
            let assist = dirty.trailing_zeros() as usize;
            dirty &= dirty - 1;
            if assist < ASSISTS
                && let Some(cycle) = self.devices.choose(assist, self.now)
            {
                self.wheel[cycle as usize & (WHEEL - 1)] |= 1 << (ASSIST + assist);
            }
        }
        if std::mem::take(&mut self.devices.wake) {
            self.set_device_cycle(self.devices.next().0);
        }
    }
}
