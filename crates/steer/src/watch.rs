//! What an operator sees of a program beside the counters of queues: what learners and `settle` did,
//! the frames of one flow, and where a flow is.

use aya::maps::{Array, HashMap, MapError, PerCpuArray, RingBuf};
use flowyard_frame::{FlowKey, Nanos};
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layout::{self, Flow, IS_ON, Key, MAP_ID, Watched};
use crate::model::Reason;
use crate::program::{Error, Program, refused};

/// What learners and `settle` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Happened {
    /// Flows that were learned and were not known before.
    pub learned: u64,
    /// Moves of flows to another CPU.
    pub moved: u64,
}

/// Where a flow is that may move. Both are queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// Where its consumer was last seen; `None`: nowhere, or the flow has ended.
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

impl Program {
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

    /// Where a flow is that may move; `None` if nothing is remembered of it.
    ///
    /// # Errors
    /// When the kernel does not give the flow.
    pub fn followed(&mut self, flow: &FlowKey) -> Result<Option<Followed>, Error> {
        let fail = |error: MapError| refused("reading a flow", &error);
        let map = HashMap::<_, Key, Flow>::try_from(&*self.map("flows")?).map_err(fail)?;
        match map.get(&layout::key(&flow.flow()), 0) {
            Ok(flow) => {
                let wanted = layout::learned(&flow, now());
                Ok(Some(Followed { wanted, home: layout::home(&flow) }))
            }
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
            watched[..IS_ON].copy_from_slice(&layout::key(&flow.flow()));
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

    pub(crate) fn watched(&mut self) -> Result<Watched, Error> {
        let map = Array::<_, Watched>::try_from(&*self.map("watched")?);
        let watched = map.and_then(|map| map.get(&0, 0));
        watched.map_err(|error| refused("watched", &error))
    }
}

/// The clock of the programs.
fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
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
    use zerocopy::IntoBytes;

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
