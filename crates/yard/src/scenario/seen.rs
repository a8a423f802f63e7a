//! What can be seen of one simulated run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_frame::{Batch, Nanos};

use super::frames::Planned;
use crate::build::{self, Parts, Yard};
use crate::config::Config;
use crate::counters::Counters;
use crate::mail::Message;
use crate::pool::Pool;
use crate::port::Collect;
use crate::sim::{Faults, Sim};
use crate::{Reload, Work};

/// What one seed came to.
pub(super) struct Seen {
    /// By port: frames out in order, by their number in the plan, and when.
    pub(super) sent: Vec<Vec<(usize, Nanos)>>,
    /// By port: the bytes of those frames.
    pub(super) bytes: Vec<Vec<Vec<u8>>>,
    /// In the order the work began.
    pub(super) worked: Vec<Worked>,
    /// By core.
    pub(super) cores: Vec<Counters>,
    /// By queue: frames that entered.
    pub(super) entered: Vec<u64>,
}

/// One frame's work.
#[derive(Clone, Copy)]
pub(super) struct Worked {
    pub(super) core: u16,
    /// The frame's number in the plan.
    pub(super) frame: usize,
    pub(super) begin: Nanos,
    /// The earliest time at which it is completed.
    pub(super) done: Nanos,
}

/// Frames by port and time.
type Numbers = Arc<HashMap<(u16, Nanos), usize>>;

/// Does what the configuration says, and notes who did it when.
struct Noted {
    core: u16,
    work: Box<dyn Work>,
    numbers: Numbers,
    notes: Arc<Mutex<Vec<Worked>>>,
}

impl Work for Noted {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        let done = self.work.work(batch, pool, now);
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in batch.lanes() {
            let meta = pool.meta(&batch.frames[lane]);
            if let Some(&frame) = self.numbers.get(&(meta.in_port, meta.time)) {
                notes.push(Worked { core: self.core, frame, begin: now, done });
            }
        }
        done
    }
}

/// Simulates `config` with `seed`.
///
/// # Errors
/// When it stands still, or a frame is lost, made up or doubled.
pub(super) fn watch(
    config: &Config,
    plan: &[Planned],
    reloads: &[(Nanos, Arc<Reload>)],
    seed: u64,
) -> Result<Seen, String> {
    let numbers = plan.iter().enumerate().map(|(at, frame)| ((frame.port, frame.time), at));
    let numbers: Numbers = Arc::new(numbers.collect());
    let notes = Arc::<Mutex<Vec<Worked>>>::default();
    let ports: Vec<_> = config.ports().map(|_| Collect::default()).collect();
    let mut parts = Parts::default();
    for (number, port) in (0..).zip(&ports) {
        parts.tx.insert(number, Box::new(port.clone()));
    }
    let cores = *config.yard.cores.get_ref();
    for core in 0..cores {
        let (numbers, notes) = (Arc::clone(&numbers), Arc::clone(&notes));
        let work = build::work(config, None);
        parts.work.insert(core, Box::new(Noted { core, work, numbers, notes }));
    }
    let yard = Yard::build(config, parts).map_err(|error| error.to_string())?;
    let asked = &config.sim;
    let faults = Faults {
        stall_every: asked.stall_every,
        stall_ns: asked.stall.0,
        death_every: asked.death_every,
        found_after_ns: 50_000,
    };
    let mut sim = Sim::new(yard, seed, faults);
    for (at, reload) in reloads {
        while sim.now < *at {
            sim.step();
        }
        for core in 0..cores {
            while !sim.yard.mail.offer(core, Message::Reload(Arc::clone(reload))) {
                sim.step(); // its mailbox is full: it has to read some first
            }
        }
    }
    let total = sim.run().map_err(|error| error.to_string())?;
    let counters: Vec<_> = sim.yard.cores.iter().map(crate::Core::counters).collect();
    let entered = sim.yard.places.queues.iter().map(|place| place.queue.tail()).collect();
    let pool = sim.yard.pool.share();
    drop(sim);

    let mut left = vec![0; plan.len()];
    let (mut sent, mut bytes) = (Vec::new(), Vec::new());
    for (port, collected) in config.ports().zip(&ports) {
        let (mut mine, mut data) = (Vec::new(), Vec::new());
        for (one, frame) in collected.take().iter() {
            let Some(&number) = numbers.get(&(one.meta.in_port, one.meta.time)) else {
                return Err(format!("port {} sent a frame that nobody gave", port.name.get_ref()));
            };
            left[number] += 1;
            mine.push((number, one.at));
            data.push(frame.to_vec());
        }
        sent.push(mine);
        bytes.push(data);
    }
    if let Some(number) = left.iter().position(|&times| times > 1) {
        return Err(format!("frame {number} ({}) was sent twice", plan[number].said));
    }
    let (out, dropped) = (left.iter().sum::<u64>(), total.drops.total());
    let given = plan.len() as u64;
    if given != out + dropped || total.rx_frames != given || pool.held() != 0 {
        return Err(format!(
            "frames are not conserved: {given} given, {} received, {out} sent, {dropped} dropped, {} held",
            total.rx_frames,
            pool.held()
        ));
    }
    let worked = std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Seen { sent, bytes, worked, cores: counters, entered })
}
