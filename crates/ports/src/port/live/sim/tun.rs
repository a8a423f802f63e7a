//! TAP queues of the simulated kernel.
//!
//! Thread-safety: as [`super`].

use std::collections::VecDeque;
use std::io;

use super::{Offered, State, World, hash};
use crate::port::live::calls;
use crate::tap::Got;

/// Frames that a queue holds.
const ROOM: usize = 50;

/// A queue.
pub(super) struct QueueState {
    pub(super) on: Option<u64>,
    pub(super) frames: VecDeque<Vec<u8>>,
}

pub(in crate::port::live) struct WorldQueue {
    world: World,
    number: u64,
}

impl State {
    /// The host sends a frame by the TAP `device`.
    pub(super) fn offer_tap(&mut self, device: u64, frame: &[u8]) -> Offered {
        let attached: Vec<u64> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.on == Some(device))
            .map(|(number, _)| *number)
            .collect();
        let is_stalled = self.devices[&device].is_stalled;
        let at = attached.get(hash(frame) as usize % attached.len().max(1));
        let queue = at.filter(|_| !is_stalled).and_then(|at| self.queues.get_mut(at));
        match queue.filter(|queue| queue.frames.len() < ROOM) {
            Some(queue) => {
                queue.frames.push_back(frame.to_vec());
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
}

pub(super) fn queues(
    world: &World,
    name: &str,
    count: usize,
) -> io::Result<(Vec<WorldQueue>, u32)> {
    let mut state = world.state();
    state.call()?;
    let refused = |number| io::Error::from_raw_os_error(number);
    let device = state.here(name).filter(|number| state.devices[number].is_tap);
    let device = device.ok_or_else(|| refused(libc::EINVAL))?;
    if count == 1 && state.queues.values().any(|queue| queue.on == Some(device)) {
        return Err(refused(libc::EBUSY));
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let number = state.number();
        state.queues.insert(number, QueueState { on: Some(device), frames: VecDeque::new() });
        all.push(WorldQueue { world: world.clone(), number });
    }
    Ok((all, 0))
}

impl calls::Queue for WorldQueue {
    fn is_attached(&self, name: &str) -> bool {
        let mut state = self.world.state();
        let on = state.queues[&self.number].on;
        let found = on.and_then(|on| state.devices.get(&on));
        found.is_some_and(|device| device.is_here && device.name == name)
            || on.is_some() && state.call().is_err()
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
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
        let Some(frame) = queue.frames.pop_front() else { return Ok(Got::Nothing) };
        let Some(to) = buffer.get_mut(..frame.len()) else { return Ok(Got::TooLong) };
        to.copy_from_slice(&frame);
        Ok(Got::Frame(frame.len()))
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
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
        state.sent.push((name, frame.to_vec()));
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
        let mut state = self.world.state();
        let left = state.queues.remove(&self.number).map_or(0, |queue| queue.frames.len());
        state.abandoned += left as u64;
    }
}
