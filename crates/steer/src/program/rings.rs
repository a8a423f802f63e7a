//! The rings of the CPUs: what waits there, and what was dropped because one was full.

use aya::maps::Array;
use aya::programs::BtfTracePoint;
use aya::{Btf, Pod};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Error, Program, chain, refused};
use crate::policy::CPUS_MOST;

/// The ring of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Ring {
    /// The CPU.
    pub cpu: u32,
    /// Frames that found the ring full, and were dropped; `None` if the kernel has no type information (BTF), without
    /// which its tracepoint cannot be read.
    pub dropped: Option<u64>,
}

/// `struct sent`: the number of the last frame comes first.
type Sent = [u64; 2];
/// `struct left`: so it does here.
type Left = [u64; 4];

impl Program {
    /// Attaches the program that counts what rings drop. It counts for those who want to know; nothing depends on it.
    pub(super) fn attach_rings(&mut self) -> Result<(), Error> {
        let what = "counting what the rings of CPUs drop";
        let info = match self.map("cpus")? {
            aya::maps::Map::CpuMap(data) => data.info(),
            _ => return Ok(()),
        };
        let id = info.map_err(|error| refused(what, &error))?.id();
        self.set("rings", 0, &id)?;
        let program = self.ebpf.program_mut("enqueues").and_then(|one| one.try_into().ok());
        let program: &mut BtfTracePoint = program
            .ok_or(Error::Kernel { what, error: "the object file has no such program".into() })?;
        let attached = Btf::from_sys_fs().map_err(|error| chain(&error)).and_then(|btf| {
            program.load("xdp_cpumap_enqueue", &btf).map_err(|error| chain(&error))?;
            program.attach().map(drop).map_err(|error| chain(&error))
        });
        self.counts_drops = attached.is_ok();
        Ok(())
    }

    /// The rings of the CPUs that receive, in the order of the CPUs.
    ///
    /// # Errors
    /// When the kernel does not give the counters.
    pub fn rings(&mut self) -> Result<Vec<Ring>, Error> {
        let mut cpus: Vec<u32> = self.cpus.iter().copied().flatten().collect();
        cpus.sort_unstable();
        cpus.dedup();
        let one = |cpu| Ok(Ring { cpu, dropped: self.dropped(cpu)? });
        cpus.into_iter().map(one).collect()
    }

    /// Frames that the ring of `cpu` dropped, if they are counted.
    pub(super) fn dropped(&mut self, cpu: u32) -> Result<Option<u64>, Error> {
        if !self.counts_drops {
            return Ok(None);
        }
        self.get::<u64>("overflows", cpu).map(Some)
    }

    /// Frames that were sent to `cpu` and have not left its ring, if flows move: an upper bound, since dropped frames
    /// count until later ones leave the ring.
    pub(super) fn waiting(&mut self, cpu: u32) -> Result<u64, Error> {
        let mut all = 0;
        for producer in 0..self.possible.min(CPUS_MOST) {
            let pair = producer * CPUS_MOST + cpu;
            let [done, ..] = self.get::<Left>("done", pair)?;
            let [sent, _] = self.get::<Sent>("sent", pair)?;
            all += sent.saturating_sub(done);
        }
        Ok(all)
    }

    pub(super) fn get<V: Pod>(&mut self, name: &'static str, index: u32) -> Result<V, Error> {
        let map = Array::<_, V>::try_from(&*self.map(name)?);
        map.and_then(|map| map.get(&index, 0)).map_err(|error| refused(name, &error))
    }
}
