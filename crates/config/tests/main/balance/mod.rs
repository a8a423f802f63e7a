//! The balancer in a complete engine: several cores, several machines, captures, under seeds and a
//! virtual clock.

mod captures;
mod ecmp;
mod flood;
mod heavy;
mod marks;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_frame::{Batch, FlowKey, LANES, Nanos};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::LinkType;
use flowyard_yard::port::{Received, Rx};

flowyard_testkit::tests! {
    mod captures,
    mod ecmp,
    mod flood,
    mod heavy,
    mod marks,
}

/// A port that receives frames from a test.
#[derive(Clone, Default)]
struct Fed(Arc<Mutex<VecDeque<Vec<u8>>>>);

impl Fed {
    fn give(&self, frame: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(frame);
    }
}

impl Rx for Fed {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let mut frames = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while into.len() < LANES
            && let Some(data) = frames.front()
        {
            let meta = Meta {
                time: now,
                wire_len: data.len() as u32,
                link: LinkType::Ethernet,
                ..Meta::default()
            };
            let Ok(frame) = pool.copy(data, meta) else { break };
            into.push(frame, FlowKey::ZERO).unwrap();
            frames.pop_front();
        }
        Received::default()
    }
}
