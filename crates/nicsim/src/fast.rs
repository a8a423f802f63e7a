//! The fast engine: the same machine, simulated from one shared access to the next.
//!
//! What a core does between two accesses concerns nobody else, so it runs ahead to its next access or
//! cache miss and waits there, in a wheel of coming cycles. A cycle then costs only what happens in
//! it. Devices are woken at the edges that `next` names.
//!
//! ```text
//!   wheel[cycle] ─> present ─> bank masks ─> grant ─> run ahead ─> wheel[later]
//!                                  reference.rs: phases B and C, in the same order
//! ```
//!
//! Invariants: a core never runs past the next snapshot or `AHEAD` cycles; every counter equals
//! `reference.rs` at every snapshot (`tests/engines.rs` compares them on random machines). A stall
//! whose end is known is counted at once; a snapshot takes back what lies beyond it.

mod core;
mod heat;

use self::core::{Action, Core, Instructions, Lump};
use self::heat::HeatMap;
use crate::config::Chip;
use crate::counters::{CoreCounters, Snapshot};
use crate::device::{ASSISTS, Departure, Devices, Domain};
use crate::elf::Image;
use crate::engine::{BuildError, Engine, Fault, Parts, in_function};
use crate::isa::Op;
use crate::memory::{Request, SCRATCHPAD_BASE, SDRAM_BASE, Scratchpad};
use crate::reference::{load, round_robin};

/// Cycles that the wheel holds.
const WHEEL: usize = 1024;
/// How far a core runs ahead at most; the rest of the wheel is for stalls that begin before.
const AHEAD: u64 = 512;

/// What a core is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// For a cycle in the wheel, to do this.
    Wheel(Action),
    /// For the store buffer, since a cycle; its access is still to be presented.
    Buffer(u64),
    /// For its bank; presented in a cycle.
    Bank(u64),
    /// For the external memory port; presented in a cycle.
    Port(u64),
    /// For the SDRAM; granted in a cycle.
    External(u64),
    /// For the instruction memory; since a cycle.
    Fill(u64),
}

/// The fast engine.
#[derive(Debug)]
pub struct Fast {
    cores: Vec<Core>,
    waits: Vec<Wait>,
    code: Instructions,
    pad: Scratchpad,
    devices: Devices,
    heat: HeatMap,
    image: Image,
    chip: Chip,
    now: u64,
    wheel: Box<[u32; WHEEL]>,
    /// The first cycle at which a device edge must be run.
    device_cycle: u64,
    /// By requester: its pending request; a core's store buffer and load share the core's entry.
    requests: [Request; 32],
    /// Requesters that wait, by bank, and banks for which any does.
    banks: [u32; 32],
    busy_banks: u32,
    bank_last: [u8; 32],
    bank_shift: u32,
    bank_mask: u32,
    /// Cores whose pending request is a posted store.
    stores: u32,
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
        let cores = 0..chip.cores as usize;
        let cores = cores.map(|who| Core::new(who, parts.image.entry, end, &chip));
        let mut engine = Self {
            cores: cores.collect(),
            waits: vec![Wait::Wheel(Action::Resume); chip.cores as usize],
            code: Instructions::new(&parts.image),
            pad,
            devices,
            heat: HeatMap::new(end),
            now: 0,
            wheel: Box::new([0; WHEEL]),
            device_cycle: 0,
            requests: [Request::load(0); 32],
            banks: [0; 32],
            busy_banks: 0,
            bank_last: [31; 32],
            bank_shift: chip.interleave_bytes.trailing_zeros(),
            bank_mask: chip.banks - 1,
            stores: 0,
            external_mask: 0,
            external_last: 31,
            external: None,
            port_mask: 0,
            port_last: 31,
            port_free: 0,
            image: parts.image,
            chip,
        };
        engine.wheel[0] = (1 << engine.cores.len()) - 1;
        Ok(engine)
    }

    fn run_to(&mut self, cycle: u64) -> Result<(), Fault> {
        while self.now < cycle {
            if self.now >= self.device_cycle {
                self.device_edges();
            }
            let slot = self.now as usize & (WHEEL - 1);
            let mut due = std::mem::take(&mut self.wheel[slot]);
            while due != 0 {
                let who = due.trailing_zeros() as usize;
                due &= due - 1;
                if who < 16 {
                    self.wake(who, cycle)?;
                } else {
                    self.present_assist(who);
                }
            }
            let mut busy = self.busy_banks;
            while busy != 0 {
                let bank = busy.trailing_zeros() as usize;
                busy &= busy - 1;
                self.grant(bank, cycle)?;
            }
            if self.external_mask != 0 && self.external.is_none() {
                self.grant_external(cycle);
            }
            if self.port_mask != 0 && self.now >= self.port_free {
                self.grant_fill(cycle);
            }
            if self.devices.dirty != 0 {
                self.choose();
            }
            if self.devices.fault.is_some() {
                let what = self.devices.fault.take().unwrap_or_default();
                return Err(Fault::Device { cycle: self.now, what });
            }
            self.now += 1;
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let mut heat = self.heat.clone();
        let cores = (0..self.cores.len()).map(|who| self.settled(who, &mut heat)).collect();
        Snapshot {
            cycle: self.now,
            cores,
            heat: heat.counts(),
            devices: self.devices.counters(),
            held: self.devices.held(),
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
        // Time that has passed in a wait whose end is not known, and is not counted yet.
        let mut add = |counter: &mut u64, from: u64, pc: u32| {
            let cycles = now.saturating_sub(from);
            *counter += cycles;
            heat.stalled(pc, cycles);
        };
        match self.waits[who] {
            Wait::Buffer(since) => add(&mut c.conflict, since, core.access_pc),
            Wait::Bank(since) | Wait::Port(since) => {
                add(&mut c.conflict, since + 1, core.access_pc);
            }
            Wait::External(since) => add(&mut c.load, since + 1, core.access_pc),
            Wait::Fill(since) => add(&mut c.fetch, since, core.pc),
            Wait::Wheel(Action::Access) if core.waited_since != u64::MAX => {
                add(&mut c.conflict, core.waited_since, core.access_pc);
            }
            Wait::Wheel(_) => {}
        }
        // Time that was counted ahead.
        let mut take = |counter: &mut u64, lump: &Lump| {
            let cycles = lump.end.saturating_sub(lump.start.max(now));
            *counter -= cycles;
            heat.take_back(lump.pc, cycles);
        };
        take(&mut c.load, &core.load_lump);
        take(&mut c.pipeline, &core.pipeline_lump);
        take(&mut c.fetch, &core.fetch_lump);
        c
    }

    fn device_edges(&mut self) {
        let time = self.now * self.devices.clock(Domain::Cores).period;
        loop {
            let (at, domain) = self.devices.next();
            if at > time {
                break;
            }
            self.devices.tick(domain, at);
        }
        if let Some((who, value)) = self.devices.core_done.take() {
            if let Some((_, true)) = self.external
                && let Wait::External(since) = self.waits[who]
            {
                self.cores[who].external_done(since, self.now, value, &mut self.heat);
                self.enter_wheel(who, self.now + 1, Action::Resume);
            }
            self.external = None;
        }
        self.set_device_cycle();
    }

    fn set_device_cycle(&mut self) {
        let (at, _) = self.devices.next();
        let period = self.devices.clock(Domain::Cores).period;
        self.device_cycle = if at == u64::MAX { u64::MAX } else { at.div_ceil(period) };
    }

    #[inline(always)]
    fn enter_wheel(&mut self, who: usize, cycle: u64, action: Action) {
        self.waits[who] = Wait::Wheel(action);
        self.wheel[cycle as usize & (WHEEL - 1)] |= 1 << who;
    }

    /// Runs a core ahead from its next issue and puts it into the wheel.
    #[inline(always)]
    fn run_ahead(&mut self, who: usize, boundary: u64) {
        let limit = boundary.min(self.now + AHEAD);
        let (cycle, action) = self.cores[who].run(&self.code, &mut self.heat, limit, &self.chip);
        self.enter_wheel(who, cycle, action);
    }

    /// What a core wanted to do in this cycle.
    fn wake(&mut self, who: usize, boundary: u64) -> Result<(), Fault> {
        let Wait::Wheel(mut action) = self.waits[who] else { return Ok(()) };
        if action == Action::Resume {
            let limit = boundary.min(self.now + AHEAD);
            let (cycle, next) = self.cores[who].run(&self.code, &mut self.heat, limit, &self.chip);
            if cycle > self.now {
                self.enter_wheel(who, cycle, next);
                return Ok(());
            }
            action = next;
        }
        match action {
            Action::Resume => self.enter_wheel(who, self.now + 1, Action::Resume),
            Action::Access => self.access(who, boundary),
            Action::Miss => {
                self.waits[who] = Wait::Fill(self.now);
                self.port_mask |= 1 << who;
            }
            Action::Fault => {
                let core = &self.cores[who];
                let mut what = core.fault.clone().unwrap_or_default();
                if what.is_empty() {
                    let word = self.image.text.get((core.pc / 4) as usize).copied().unwrap_or(0);
                    what = format!("word {word:#010x} is no instruction of the subset");
                }
                let function = in_function(&self.image, core.pc);
                return Err(Fault::Core {
                    core: who,
                    cycle: self.now,
                    pc: core.pc,
                    function,
                    what,
                });
            }
        }
        Ok(())
    }

    /// A core's access is due: presents it, unless its store buffer is still full.
    #[inline(always)]
    fn access(&mut self, who: usize, boundary: u64) {
        let bit = 1u32 << who;
        if self.stores & bit != 0 {
            self.waits[who] = Wait::Buffer(self.now);
            return;
        }
        let now = self.now;
        let (request, posted) = self.cores[who].present(now, &mut self.heat, &self.chip);
        self.requests[who] = request;
        let external = request.addr >= SDRAM_BASE;
        if external {
            self.external_mask |= bit;
        } else {
            let bank = request.addr >> self.bank_shift & self.bank_mask;
            self.banks[bank as usize] |= bit;
            self.busy_banks |= 1 << bank;
        }
        if posted {
            self.stores |= bit;
            self.run_ahead(who, boundary);
        } else {
            self.waits[who] = if external { Wait::Port(now) } else { Wait::Bank(now) };
        }
    }

    fn present_assist(&mut self, who: usize) {
        let Some(request) = self.devices.request(who - 16) else { return };
        self.requests[who] = request;
        let bank = request.addr >> self.bank_shift & self.bank_mask;
        self.banks[bank as usize] |= 1 << who;
        self.busy_banks |= 1 << bank;
    }

    #[inline(always)]
    fn grant(&mut self, bank: usize, boundary: u64) -> Result<(), Fault> {
        let mask = self.banks[bank];
        let who = round_robin(mask, self.bank_last[bank].into());
        self.bank_last[bank] = who as u8;
        let left = mask & !(1 << who);
        self.banks[bank] = left;
        if left == 0 {
            self.busy_banks &= !(1 << bank);
        }
        let now = self.now;
        let request = self.requests[who];
        // Most are loads of a core: nothing but the core hears of it.
        if request.op == Op::Lw && who < 16 {
            if let Wait::Bank(since) = self.waits[who] {
                let value = self.pad.load(request.addr);
                self.cores[who].loaded(since, now, value, &mut self.heat);
                self.run_ahead(who, boundary);
            }
            return Ok(());
        }
        if who >= 16 && !self.pad.holds(request.addr, 4) {
            let what = format!(
                "assist {}: address {:#x} is outside the scratchpad",
                who - 16,
                request.addr
            );
            return Err(Fault::Device { cycle: now, what });
        }
        let done = self.pad.perform(who, request);
        if let Some((word, value)) = done.hw {
            self.devices.register(word, value, now);
        }
        if who >= 16 {
            self.devices.granted(who - 16, now, done.value);
        } else if self.stores >> who & 1 == 1 {
            self.stores &= !(1 << who);
            self.buffer_free(who);
        } else if let Wait::Bank(since) = self.waits[who] {
            self.cores[who].loaded(since, now, done.value, &mut self.heat);
            self.run_ahead(who, boundary);
        }
        Ok(())
    }

    /// A core's store was performed: its next access, if it waits for that, is presented next cycle.
    #[inline(always)]
    fn buffer_free(&mut self, who: usize) {
        if let Wait::Buffer(since) = self.waits[who] {
            self.cores[who].waited_since = since;
            self.enter_wheel(who, self.now + 1, Action::Access);
        }
    }

    fn grant_external(&mut self, _boundary: u64) {
        let who = round_robin(self.external_mask, self.external_last);
        self.external_last = who;
        self.external_mask &= !(1 << who);
        self.devices.core_request(who, self.requests[who], self.now);
        let is_load = self.stores >> who & 1 == 0;
        if is_load {
            if let Wait::Port(since) = self.waits[who] {
                self.cores[who].external_granted(since, self.now, &mut self.heat);
            }
            self.waits[who] = Wait::External(self.now);
        } else {
            self.stores &= !(1 << who);
            self.buffer_free(who);
        }
        self.external = Some((who, is_load));
        self.set_device_cycle();
    }

    fn grant_fill(&mut self, boundary: u64) {
        let who = round_robin(self.port_mask, self.port_last);
        self.port_last = who;
        self.port_mask &= !(1 << who);
        let beats = u64::from(self.chip.icache_line_bytes.div_ceil(self.chip.imem_bytes_per_cycle));
        self.port_free = self.now + beats;
        let until = self.now + beats + u64::from(self.chip.imem_overhead_cycles);
        if let Wait::Fill(since) = self.waits[who] {
            self.cores[who].filled(since, until, &mut self.heat);
        }
        self.run_ahead(who, boundary);
    }

    /// Assists whose port may have something to ask decide what.
    fn choose(&mut self) {
        let mut dirty = std::mem::take(&mut self.devices.dirty);
        while dirty != 0 {
            let assist = dirty.trailing_zeros() as usize;
            dirty &= dirty - 1;
            if assist < ASSISTS
                && let Some(cycle) = self.devices.choose(assist, self.now)
            {
                self.wheel[cycle as usize & (WHEEL - 1)] |= 1 << (16 + assist);
            }
        }
        if std::mem::take(&mut self.devices.wake) {
            self.set_device_cycle();
        }
    }
}
