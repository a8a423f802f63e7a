//! The rings of the CPUs: what was handed to them, what was dropped because one was full, and what waits there.

use aya::Pod;
use aya::maps::{Array, Map, MapError, PerCpuArray};
use aya::programs::RawTracePoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use crate::layout::{self, Left, MAP_ID, Sent, Watched};
use crate::policy::CPUS_MOST;
use crate::program::{Error, Program, refused};

/// The ring of a CPU, since the process was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Ring {
    /// The CPU.
    pub cpu: u32,
    /// Frames that were handed to it.
    pub frames: u64,
    /// Those of them that were dropped because the ring was full.
    pub dropped: u64,
}

impl Program {
    /// Counts what the rings of CPUs get and drop, until the process ends.
    ///
    /// # Errors
    /// When the kernel does not let programs see that.
    pub fn watch_rings(&mut self) -> Result<(), Error> {
        let what = "attaching the program that sees drops";
        let Map::CpuMap(data) = self.map("cpus")? else { return Ok(()) };
        let id = data.info().map_err(|error| refused(what, &error))?.id();
        let mut watched = self.watched()?;
        watched[MAP_ID..].copy_from_slice(id.as_bytes());
        self.set::<Watched>("watched", 0, &watched)?;
        let program = self.ebpf.program_mut("enqueued").and_then(|one| one.try_into().ok());
        let program: &mut RawTracePoint =
            program.ok_or(Error::Kernel { what, error: "no program".into() })?;
        program.load().map_err(|error| refused(what, &error))?;
        program.attach("xdp_cpumap_enqueue").map_err(|error| refused(what, &error))?;
        Ok(())
    }

    /// The ring of each CPU that has a queue; all zero without [`Self::watch_rings`].
    ///
    /// # Errors
    /// When the kernel does not give the counters.
    pub fn rings(&mut self) -> Result<Vec<Ring>, Error> {
        let mut cpus: Vec<u32> = self.queue_cpus().flatten().collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus.into_iter().map(|cpu| self.ring(cpu)).collect()
    }

    /// The ring of `cpu`.
    pub(crate) fn ring(&mut self, cpu: u32) -> Result<Ring, Error> {
        let fail = |error: MapError| refused("reading the counters of rings", &error);
        let map = PerCpuArray::<_, layout::Ring>::try_from(&*self.map("rings")?).map_err(fail)?;
        let all = map.get(&cpu, 0).map_err(fail)?;
        let sum = |at: usize| all.iter().map(|one: &layout::Ring| one[at]).sum();
        Ok(Ring { cpu, frames: sum(0), dropped: sum(1) })
    }

    /// Frames that were sent to `cpu` and have not left its ring, if flows move: an upper bound, since dropped frames
    /// count until later ones leave the ring.
    pub(crate) fn waiting(&mut self, cpu: u32) -> Result<u64, Error> {
        let mut all = 0;
        for producer in 0..self.possible().min(CPUS_MOST) {
            let pair = producer * CPUS_MOST + cpu;
            let [done, ..] = self.get::<Left>("done", pair)?;
            let [sent, _] = self.get::<Sent>("sent", pair)?;
            all += sent.saturating_sub(done);
        }
        Ok(all)
    }

    fn get<V: Pod>(&mut self, name: &'static str, index: u32) -> Result<V, Error> {
        let map = Array::<_, V>::try_from(&*self.map(name)?);
        map.and_then(|map| map.get(&index, 0)).map_err(|error| refused(name, &error))
    }
}
