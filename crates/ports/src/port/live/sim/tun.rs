//! TAP queues of the simulated kernel.
//!
//! Thread-safety: as [`super`].

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use flowyard_wire::Offload;

use super::packet::{Waiting, finished};
use super::{Device, Offered, Offloads, State, World, hash};
use crate::live::Carries;
use crate::port::live::calls::{self, Silencer};
use crate::tap::Got;

/// Frames that a queue holds.
const ROOM: usize = 50;

/// A queue.
pub(super) struct QueueState {
    pub(super) on: Option<u64>,
    /// Whether it receives nothing from its interface any more (IFF_DETACH_QUEUE).
    is_detached: bool,
    /// Whether the interface was opened with several queues; another one's queue cannot be detached.
    is_multi: bool,
    pub(super) frames: VecDeque<Waiting>,
    /// The unfinished frames that the port accepts.
    carries: Carries,
}

pub(in crate::port::live) struct WorldQueue {
    world: World,
    number: u64,
    carries: Carries,
}

impl State {
    /// The host sends a frame by the TAP `device`.
    pub(super) fn offer_tap(&mut self, device: u64, frame: &[u8]) -> Offered {
        let attached: Vec<u64> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.on == Some(device) && !queue.is_detached)
            .map(|(number, _)| *number)
            .collect();
        let Device { is_stalled, offloads, .. } = self.devices[&device];
        let at = attached.get(hash(frame) as usize % attached.len().max(1));
        let queue = at.filter(|_| !is_stalled).and_then(|at| self.queues.get_mut(at));
        match queue.filter(|queue| queue.frames.len() < ROOM) {
            Some(queue) => {
                let offloads = Offloads {
                    strips_tags: false,
                    leaves_checksums: offloads.leaves_checksums && queue.carries.csum(),
                    coalesces: offloads.coalesces && queue.carries.uso(),
                };
                let next = Waiting::new(frame, offloads);
                let last = queue.frames.back_mut().filter(|_| offloads.coalesces);
                if !last.is_some_and(|last| last.coalesce(&next)) {
                    queue.frames.push_back(next);
                }
                Offered::Waits
            }
            None => {
                if let Some(device) = self.devices.get_mut(&device) {
                    device.counts.unsent += 1;
                }
                Offered::Overrun
            }
        }
    }

    /// Whether the queue is attached to the interface that has this name here.
    fn is_attached(&self, queue: u64, name: &str) -> bool {
        let Some(queue) = self.queues.get(&queue) else { return false };
        let device = queue.on.and_then(|on| self.devices.get(&on));
        !queue.is_detached && device.is_some_and(|device| device.is_here && device.name == name)
    }

    /// Closes a queue. An interface that a port created ends with its last one.
    fn close(&mut self, queue: u64) {
        let Some(queue) = self.queues.remove(&queue) else { return };
        self.abandoned += queue.frames.iter().map(|waiting| waiting.frames).sum::<u64>();
        if let Some(on) = queue.on
            && !self.devices[&on].is_persistent
            && self.queues.values().all(|queue| queue.on != Some(on))
        {
            self.delete(on);
        }
    }
}

pub(super) fn queues(
    world: &World,
    name: &str,
    count: usize,
    carries: Carries,
) -> io::Result<(Vec<WorldQueue>, u32)> {
    let mut state = world.state();
    let refused = |number| io::Error::from_raw_os_error(number);
    let device = match state.here(name) {
        Some(device) if state.devices[&device].is_tap => device,
        Some(_) => return Err(refused(libc::EINVAL)),
        None => {
            state.open()?;
            let device = state.create(name, true, count, None);
            if let Some(device) = state.devices.get_mut(&device) {
                device.is_persistent = false;
            }
            device
        }
    };
    if count == 1 && state.queues.values().any(|queue| queue.on == Some(device)) {
        return Err(refused(libc::EBUSY));
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let number = state.number();
        let queue = QueueState {
            on: Some(device),
            is_detached: false,
            is_multi: count > 1,
            frames: VecDeque::new(),
            carries,
        };
        state.queues.insert(number, queue);
        all.push(number);
        if let Err(error) = state.open() {
            all.iter().for_each(|queue| state.close(*queue));
            return Err(error);
        }
    }
    let queue = |number| WorldQueue { world: world.clone(), number, carries };
    Ok((all.into_iter().map(queue).collect(), 0))
}

impl calls::Queue for WorldQueue {
    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into()) // the simulation has one process
    }

    fn is_attached(&self, name: &str) -> bool {
        let mut state = self.world.state();
        state.is_attached(self.number, name)
            || state.queues[&self.number].on.is_some() && state.call().is_err()
    }

    fn is_of(&self, name: &str) -> bool {
        let state = self.world.state();
        let device = state.queues[&self.number].on.and_then(|on| state.devices.get(&on));
        device.is_some_and(|device| device.is_here && device.name == name)
    }

    fn silencer(&self) -> Silencer {
        let (world, number) = (self.world.clone(), self.number);
        Box::new(move || {
            let mut state = world.state();
            let Some(queue) = state.queues.get_mut(&number) else { return 0 };
            queue.is_detached = queue.is_multi;
            let waited: u64 = queue.frames.drain(..).map(|waiting| waiting.frames).sum();
            state.lost += waited;
            waited as u32
        })
    }

    fn carries(&self) -> Carries {
        self.carries
    }

    fn read(&mut self, parts: [&mut [u8]; 3]) -> io::Result<(Got, [u8; Offload::VIRTIO_LEN])> {
        let none = [0; Offload::VIRTIO_LEN];
        let mut state = self.world.state();
        match state.call() {
            // The kernel answers EAGAIN only if nothing waits.
            Err(error) if error.raw_os_error() != Some(libc::EAGAIN) => return Err(error),
            _ => {}
        }
        let Some(queue) = state.queues.get_mut(&self.number).filter(|queue| queue.on.is_some())
        else {
            return Err(io::Error::from_raw_os_error(libc::EBADFD));
        };
        let Some(next) = queue.frames.pop_front() else { return Ok((Got::Nothing, none)) };
        let mut rest = &next.bytes[..];
        for part in parts {
            let (now, later) = rest.split_at(rest.len().min(part.len()));
            part[..now.len()].copy_from_slice(now);
            rest = later;
        }
        if rest.is_empty() {
            return Ok((Got::Frame(next.bytes.len()), next.offload.to_virtio()));
        }
        Ok((Got::TooLong, none))
    }

    fn write(&mut self, offload: Offload, frame: &[u8]) -> io::Result<()> {
        let mut state = self.world.state();
        state.call()?;
        let on = state.queues[&self.number].on;
        let Some(device) = on.and_then(|on| state.devices.get(&on)) else {
            return Err(io::Error::from_raw_os_error(libc::EBADFD));
        };
        if !device.is_up {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let name = device.name.clone();
        state.sent.extend(finished(offload, frame).into_iter().map(|frame| (name.clone(), frame)));
        Ok(())
    }

    fn unfilter(&mut self) {
        let mut state = self.world.state();
        let on = state.queues[&self.number].on;
        if let Some(device) = on.and_then(|on| state.devices.get_mut(&on)) {
            device.is_stalled = false;
        }
    }
}

impl Drop for WorldQueue {
    fn drop(&mut self) {
        self.world.state().close(self.number);
    }
}
