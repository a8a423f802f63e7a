//! What an operator sees of a program beside the counters of queues: what the rings of CPUs lost, what learners and `settle`
//! did, the frames of one flow, and where a flow is.

use aya::maps::{Array, HashMap, Map, MapError, PerCpuArray, RingBuf};
use aya::programs::RawTracePoint;
use flowyard_frame::FlowKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use crate::layout::{self, Flow, Key, STAY, Watched};
use crate::model::Reason;
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

/// What learners and `settle` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Happened {
    /// Flows that were learned and were not known before.
    pub learned: u64,
    /// Moves of flows to another CPU.
    pub moved: u64,
}

/// Where a flow is that follows its consumer. Both are queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// Where its consumer was last seen; `None`: nowhere.
    pub wanted: Option<u16>,
    /// Where its frames go; `None`: no frame came since it was learned.
    pub home: Option<u16>,
}

/// A frame of the traced flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The kernel's clock, in nanoseconds since the machine was started.
    pub at: u64,
    /// The CPU that received it.
    pub cpu: u32,
    /// The queue that it got.
    pub queue: u16,
    /// The stage that decided.
    pub reason: Reason,
    /// The hash, if the decision needed it.
    pub hash: Option<u32>,
    /// Its length in bytes.
    pub length: u32,
}

/// The traced flow in a value of the map `watched`, whether it is on, and the identifier of the map of CPUs.
const IS_ON: usize = 64;
const MAP_ID: usize = 68;

impl Program {
    /// Counts what the rings of CPUs lose, until the process ends.
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
        let fail = |error: MapError| refused("reading the counters of rings", &error);
        let map = PerCpuArray::<_, layout::Ring>::try_from(&*self.map("rings")?).map_err(fail)?;
        let ring = |cpu| {
            let all = map.get(&cpu, 0).map_err(fail)?;
            let sum = |at: usize| all.iter().map(|one: &layout::Ring| one[at]).sum();
            Ok(Ring { cpu, frames: sum(0), dropped: sum(1) })
        };
        cpus.into_iter().map(ring).collect()
    }

    /// What learners and `settle` did.
    ///
    /// # Errors
    /// When the kernel does not give the counters.
    pub fn happened(&mut self) -> Result<Happened, Error> {
        let fail = |error: MapError| refused("reading the counters of events", &error);
        let map = PerCpuArray::<_, u64>::try_from(&*self.map("events")?).map_err(fail)?;
        let sum = |event: u32| Ok::<u64, Error>(map.get(&event, 0).map_err(fail)?.iter().sum());
        Ok(Happened { learned: sum(0)?, moved: sum(1)? })
    }

    /// Where a flow is that follows its consumer; `None` if nothing was learned of it.
    ///
    /// # Errors
    /// When the kernel does not give the flow.
    pub fn followed(&mut self, flow: &FlowKey) -> Result<Option<Followed>, Error> {
        let fail = |error: MapError| refused("reading a flow", &error);
        let map = HashMap::<_, Key, Flow>::try_from(&*self.map("flows")?).map_err(fail)?;
        let queue = |queue: u32| (queue != STAY).then_some(queue as u16);
        match map.get(&layout::key(&tuple(flow)), 0) {
            Ok(flow) => Ok(Some(Followed { wanted: queue(flow[0]), home: queue(flow[1]) })),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(fail(error)),
        }
    }

    /// Reports the frames of `flow` from now on, or of none.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn trace(&mut self, flow: Option<&FlowKey>) -> Result<(), Error> {
        let mut watched = self.watched()?;
        // The program must not meet one half of the old flow and the other of the new one.
        watched[IS_ON..MAP_ID].fill(0);
        self.set::<Watched>("watched", 0, &watched)?;
        if let Some(flow) = flow {
            while !self.seen()?.is_empty() {}
            watched[..IS_ON].copy_from_slice(&layout::key(&tuple(flow)));
            self.set::<Watched>("watched", 0, &watched)?;
            watched[IS_ON] = 1;
            self.set::<Watched>("watched", 0, &watched)?;
        }
        Ok(())
    }

    /// The frames of the traced flow that were not returned yet, at most 1,000.
    ///
    /// # Errors
    /// When the kernel does not give them.
    pub fn seen(&mut self) -> Result<Vec<Seen>, Error> {
        let map = RingBuf::try_from(self.map("seen")?);
        let mut ring = map.map_err(|error| refused("reading traced frames", &error))?;
        let mut all = Vec::new();
        while all.len() < 1000 {
            let Some(bytes) = ring.next() else { break };
            all.extend(seen(&bytes));
        }
        Ok(all)
    }

    fn watched(&mut self) -> Result<Watched, Error> {
        let map = Array::<_, Watched>::try_from(&*self.map("watched")?);
        let watched = map.and_then(|map| map.get(&0, 0));
        watched.map_err(|error| refused("watched", &error))
    }
}

/// The fields of a flow by which it is known.
fn tuple(flow: &FlowKey) -> FlowKey {
    let FlowKey { src, dst, sport, dport, proto, eth_type, .. } = *flow;
    FlowKey { src, dst, sport, dport, proto, eth_type, ..FlowKey::ZERO }
}

/// `struct seen`.
fn seen(bytes: &[u8]) -> Option<Seen> {
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    Some(Seen {
        at: u64::from_ne_bytes(*bytes.first_chunk()?),
        cpu: word(8)?,
        queue: word(12)? as u16,
        reason: *Reason::ALL.get(word(16)? as usize)?,
        hash: (word(24)? != 0).then_some(word(20)?),
        length: word(28)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_the_program_writes_them() {
        let words = [7_u32, 0, 1, 3, 4, 0xabcd, 1, 98];
        let frame = seen(words.as_bytes()).unwrap();
        assert_eq!((frame.at, frame.cpu, frame.queue, frame.length), (7, 1, 3, 98));
        assert_eq!((frame.reason, frame.hash), (Reason::Filter, Some(0xabcd)));
        assert_eq!(seen(&words.as_bytes()[..31]), None);
    }
}
