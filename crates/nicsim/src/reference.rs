//! The reference engine, which simulates every block at every clock edge. It is simple, and the fast engine
//! must equal it.
//!
//! ```text
//!  one cycle:  A  device edges up to now, by time, then PCI, MAC, SDRAM
//!              B  cores in order: count the cycle, issue, present requests; assists present theirs
//!              C  each bank in order performs one request, round-robin; then the external memory
//!                 port; then the instruction memory port
//!              D  assists in order choose their next access
//! ```
//!
//! If an ordinary instruction issues in cycle c, the next one issues in c+1. A load that issues in c is
//! presented in c; if it is granted in g, the next instruction issues in g+2, or in g+3 if it uses the value. A
//! store waits in its buffer and delays only the next access. A branch is decided in the decode stage if its
//! operands were ready a cycle before it issues. Otherwise it is predicted (backward taken), and if the
//! prediction is wrong, one instruction after the delay slot is annulled. Source: HPCA 2005, sections 4 and
//! 6.1.

mod core;

use self::core::{Core, State};
use crate::counters::{CoreCounters, Cycle, Heat, Snapshot};
use crate::device::{ASSISTS, Departure, Devices, Domain};
use crate::elf::Image;
use crate::engine::{Access, BuildError, Engine, Fault, Parts, in_function};
use crate::icache::Icache;
use crate::memory::{Request, SCRATCHPAD_BASE, SDRAM_BASE, Scratchpad, hw};
use crate::timeline::{Switch, Timeline};

/// The reference engine.
#[derive(Clone, Debug)]
pub struct Reference {
    parts: Parts,
    cores: Vec<Core>,
    pad: Scratchpad,
    devices: Devices,
    heat: Vec<Heat>,
    now: u64,
    /// The next edge of PCI, MAC and SDRAM.
    edges: [u64; 3],
    /// The cycle from which each assist presents its request.
    assist_at: [Option<u64>; ASSISTS],
    bank_last: Vec<usize>,
    external_last: usize,
    /// The core whose access the external port performs, and whether it is a load.
    external: Option<(usize, bool)>,
    port_last: usize,
    port_free: u64,
    /// The accesses to the scratchpad, if they are traced.
    pub accesses: Option<Vec<Access>>,
    /// The addresses of issued instructions by core, if they are traced.
    pub issued: Option<Vec<Vec<u32>>>,
    /// The changes of function, if they are recorded, and the function of each core.
    switches: Option<Vec<Switch>>,
    function: Vec<(u32, u32)>,
}

impl Engine for Reference {
    fn build(parts: Parts) -> Result<Self, BuildError> {
        parts.config.check()?;
        let config = &parts.config;
        let chip = &config.chip;
        let devices = Devices::new(config, parts.arrivals.clone(), parts.keep_departures)
            .map_err(crate::config::ConfigError::from)?;
        let pad = load(&parts, &devices);
        let core = Core {
            pc: parts.image.entry,
            next_pc: parts.image.entry.wrapping_add(4),
            in_slot: false,
            regs: [0; 32],
            hi_lo: (0, 0),
            ready: [0; 32],
            hi_lo_ready: 0,
            annul: None,
            state: State::Ready,
            stall_pc: 0,
            load: None,
            store: None,
            icache: Icache::new(chip),
            counters: CoreCounters::default(),
        };
        Ok(Self {
            cores: vec![core; chip.cores as usize],
            pad,
            heat: vec![Heat::default(); parts.image.text.len()],
            now: 0,
            edges: [0; 3],
            assist_at: [None; ASSISTS],
            bank_last: vec![31; chip.banks as usize],
            external_last: 31,
            external: None,
            port_last: 31,
            port_free: 0,
            devices,
            accesses: None,
            issued: None,
            switches: None,
            function: Vec::new(),
            parts,
        })
    }

    fn run_to(&mut self, cycle: u64) -> Result<(), Fault> {
        while self.now < cycle {
            self.device_edges();
            for core in 0..self.cores.len() {
                self.issue(core)?;
            }
            self.banks()?;
            self.external_port();
            self.instruction_port();
            for assist in 0..ASSISTS {
                if self.assist_at[assist].is_none() {
                    self.assist_at[assist] = self.devices.choose(assist, self.now);
                }
            }
            if let Some(what) = self.devices.fault.take() {
                return Err(Fault::Device { cycle: self.now, what });
            }
            self.now += 1;
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            cycle: self.now,
            cores: self.cores.iter().map(|core| core.counters).collect(),
            heat: self.heat.clone(),
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

    fn begin_timeline(&mut self) {
        self.record();
    }

    fn timeline(&mut self) -> Option<Timeline> {
        self.switches.is_some().then(|| self.recorded())
    }
}

/// The scratchpad with the image, the parameters of the firmware, and the preloaded words.
pub(crate) fn load(parts: &Parts, devices: &Devices) -> Scratchpad {
    let mut pad = Scratchpad::new(parts.config.chip.scratchpad_kb * 1024);
    for (offset, words) in &parts.image.data {
        for (n, word) in words.iter().enumerate() {
            pad.poke(offset / 4 + n as u32, *word);
        }
    }
    for (n, word) in devices.boot(&parts.config).into_iter().enumerate() {
        pad.poke(hw::BOOT + n as u32, word);
    }
    for (addr, words) in &parts.preload {
        for (n, word) in words.iter().enumerate() {
            pad.poke(addr.wrapping_sub(SCRATCHPAD_BASE) / 4 + n as u32, *word);
        }
    }
    pad
}

/// The next requester after `last` in `mask`, round-robin.
pub(crate) fn round_robin(mask: u32, last: usize) -> usize {
    // For a `last` of 31, no requester is after it.
    let after = mask & !(2u32 << (last & 31)).wrapping_sub(1);
    (if after != 0 { after } else { mask }).trailing_zeros() as usize
}

impl Reference {
    fn record(&mut self) {
        self.accesses = Some(Vec::new());
        self.switches = Some(Vec::new());
        self.function = vec![(0, 0); self.cores.len()];
        self.devices.record();
    }

    /// What was recorded since `record`; recording ends.
    fn recorded(&mut self) -> Timeline {
        let cycles_per_us = self.parts.config.chip.mhz.hz() / 1e6;
        let period = self.devices.clock(Domain::Cores).period;
        Timeline {
            switches: self.switches.take().unwrap_or_default(),
            accesses: self.accesses.take().unwrap_or_default(),
            devices: self.devices.recorded(),
            image: self.parts.image.clone(),
            end: self.now,
            cycles_per_us,
            units_per_us: period as f64 * cycles_per_us,
        }
    }

    /// Records that core `who` issued the instruction at `pc`, if that is in another function than before.
    fn note_function(&mut self, who: usize, pc: u32) {
        let Some(switches) = &mut self.switches else { return };
        let (from, until) = self.function[who];
        if !(from..until).contains(&pc) {
            let symbol = self.parts.image.function(pc);
            self.function[who] = symbol.map_or((pc, pc + 4), |s| (s.addr, s.addr + s.size.max(4)));
            switches.push(Switch { cycle: self.now, core: who, pc });
        }
    }

    fn image(&self) -> &Image {
        &self.parts.image
    }

    fn device_edges(&mut self) {
        let time = self.now * self.devices.clock(Domain::Cores).period;
        let domains = [Domain::Pci, Domain::Mac, Domain::Sdram];
        loop {
            let first = (0..3).min_by_key(|&n| (self.edges[n], n)).unwrap_or(0);
            if self.edges[first] > time {
                break;
            }
            self.devices.tick(domains[first], self.edges[first]);
            self.edges[first] += self.devices.clock(domains[first]).period;
        }
        if let Some((who, value)) = self.devices.core_done.take() {
            if let Some((_, true)) = self.external {
                self.loaded(who, value, self.now + 1);
            }
            self.external = None;
        }
    }

    /// Completes a load with `value`; the core issues again in cycle `until`.
    fn loaded(&mut self, who: usize, value: u32, until: u64) {
        let core = &mut self.cores[who];
        if let Some((_, register)) = core.load.take()
            && register != 0
        {
            core.regs[usize::from(register)] = value;
            core.ready[usize::from(register)] = until + 1;
        }
        core.state = State::Stall(until, Cycle::Load);
    }

    fn bank_of(&self, addr: u32) -> usize {
        let chip = &self.parts.config.chip;
        ((addr / chip.interleave_bytes) & (chip.banks - 1)) as usize
    }

    /// The request that `who` presents in this cycle, if any.
    fn presented(&self, who: usize) -> Option<Request> {
        if who >= 16 {
            let since = self.assist_at[who - 16]?;
            return (since <= self.now).then(|| self.devices.request(who - 16)).flatten();
        }
        let core = self.cores.get(who)?;
        core.store.or_else(|| match core.state {
            State::Bank => core.load.map(|(request, _)| request),
            _ => None,
        })
    }

    fn banks(&mut self) -> Result<(), Fault> {
        // All requests are presented before the first is performed.
        let presented: Vec<_> = (0..16 + ASSISTS).map(|who| self.presented(who)).collect();
        for bank in 0..self.bank_last.len() {
            let mut mask = 0u32;
            for (who, request) in presented.iter().enumerate() {
                let here = request.is_some_and(|r| {
                    (who >= 16 || r.addr < SDRAM_BASE) && self.bank_of(r.addr) == bank
                });
                mask |= u32::from(here) << who;
            }
            if mask == 0 {
                continue;
            }
            let who = round_robin(mask, self.bank_last[bank]);
            self.bank_last[bank] = who;
            if let Some(request) = presented[who] {
                self.perform(who, request)?;
            }
        }
        Ok(())
    }

    fn perform(&mut self, who: usize, request: Request) -> Result<(), Fault> {
        let now = self.now;
        if who >= 16 && !self.pad.holds(request.addr, 4) {
            let what = format!(
                "assist {}: address {:#x} is outside the scratchpad",
                who - 16,
                request.addr
            );
            return Err(Fault::Device { cycle: now, what });
        }
        let done = self.pad.perform(who, request);
        if let Some(accesses) = &mut self.accesses {
            accesses.push(Access { cycle: now, who, request, result: done.value });
        }
        if let Some((word, value)) = done.hw {
            self.devices.register(word, value, now);
        }
        if who >= 16 {
            self.assist_at[who - 16] = None;
            self.devices.granted(who - 16, now, done.value);
        } else if self.cores[who].store.take().is_none() {
            self.loaded(who, done.value, now + 2);
        }
        Ok(())
    }

    fn external_port(&mut self) {
        if self.external.is_some() {
            return;
        }
        let mask = (0..self.cores.len()).fold(0u32, |mask, who| {
            let wants = self.presented(who).is_some_and(|r| r.addr >= SDRAM_BASE);
            mask | u32::from(wants) << who
        });
        if mask == 0 {
            return;
        }
        let who = round_robin(mask, self.external_last);
        self.external_last = who;
        let Some(request) = self.presented(who) else { return };
        self.devices.core_request(who, request, self.now);
        let is_load = self.cores[who].store.take().is_none();
        if is_load {
            self.cores[who].state = State::External;
        }
        self.external = Some((who, is_load));
    }

    fn instruction_port(&mut self) {
        if self.now < self.port_free {
            return;
        }
        let mask = self
            .cores
            .iter()
            .enumerate()
            .fold(0u32, |mask, (who, core)| mask | u32::from(core.state == State::Port) << who);
        if mask == 0 {
            return;
        }
        let who = round_robin(mask, self.port_last);
        self.port_last = who;
        let chip = &self.parts.config.chip;
        let beats = u64::from(chip.icache_line_bytes.div_ceil(chip.imem_bytes_per_cycle));
        self.port_free = self.now + beats;
        let until = self.now + beats + u64::from(chip.imem_overhead_cycles);
        let core = &mut self.cores[who];
        core.icache.fill(core.pc / chip.icache_line_bytes);
        core.counters.fills += 1;
        core.state = State::Stall(until, Cycle::Fetch);
    }

    fn fault(&self, core: usize, what: String) -> Result<(), Fault> {
        let pc = self.cores[core].pc;
        let function = in_function(self.image(), pc);
        Err(Fault::Core { core, cycle: self.now, pc, function, what })
    }
}

/// Reads coprocessor 0: register 9 counts cycles, register 15 is the number of the core.
pub(crate) fn coprocessor(register: u32, now: u64, who: usize) -> u32 {
    match register {
        9 => now as u32,
        15 => who as u32,
        _ => 0,
    }
}
