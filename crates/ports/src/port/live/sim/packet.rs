//! Packet sockets of the simulated kernel.
//!
//! Thread-safety: as [`super`].

use std::collections::VecDeque;
use std::io;

use super::{Interface, Offered, OpenError, Settings, State, World, hash};
use crate::af_packet::{Seen, Sender};
use crate::port::live::calls::{self, Silencer};

/// A ring.
pub(super) struct RingState {
    pub(super) on: Option<u64>,
    pub(super) is_silent: bool,
    /// Rings opened together share the frames.
    group: u64,
    frames: VecDeque<Waiting>,
    room: usize,
    dropped: u32,
}

/// A received frame, and its tag if that is stored separately.
struct Waiting {
    bytes: Vec<u8>,
    tag: Option<[u8; 4]>,
}

pub(in crate::port::live) struct WorldRing {
    world: World,
    number: u64,
    first: Option<Waiting>,
}

pub(in crate::port::live) struct WorldSender {
    world: World,
    number: u64,
}

impl State {
    /// A frame for the rings on `device`. Each group receives it: a frame that arrives twice shows that
    /// two groups receive at the same time.
    pub(super) fn offer_rings(&mut self, device: u64, frame: &[u8]) -> Offered {
        let mut groups: Vec<u64> = Vec::new();
        for ring in self.rings.values() {
            if ring.on == Some(device) && !ring.is_silent && !groups.contains(&ring.group) {
                groups.push(ring.group);
            }
        }
        let strips = self.devices[&device].strips_tags;
        let tag = frame.get(12..16).filter(|tag| strips && tag[..2] == [0x81, 0]);
        let tag: Option<[u8; 4]> = tag.and_then(|tag| tag.try_into().ok());
        let mut offered = Offered::Nobody;
        for group in groups {
            let members: Vec<u64> = self
                .rings
                .iter()
                .filter(|(_, ring)| ring.group == group)
                .map(|(number, _)| *number)
                .collect();
            let at = members[hash(frame) as usize % members.len()];
            let Some(ring) = self.rings.get_mut(&at) else { continue };
            if ring.frames.len() >= ring.room {
                ring.dropped += 1;
                offered = Offered::Overrun;
                continue;
            }
            let bytes = match tag {
                Some(_) => [&frame[..12], &frame[16..]].concat(),
                None => frame.to_vec(),
            };
            ring.frames.push_back(Waiting { bytes, tag });
            offered = Offered::Waits;
        }
        offered
    }
}

pub(super) fn rings(
    world: &World,
    on: &Interface,
    count: usize,
    how: Settings,
) -> Result<Vec<WorldRing>, OpenError> {
    let mut state = world.state();
    let group = state.number();
    let mut numbers = Vec::new();
    for _ in 0..count {
        let opened = state.open("af_packet").and_then(|()| state.device(on));
        let device = match opened {
            Ok(device) => device,
            Err(error) => {
                // What was opened before the error is closed.
                numbers.iter().for_each(|number| drop(state.rings.remove(number)));
                return Err(error);
            }
        };
        let (room, number) = (how.frames as usize, state.number());
        let ring = RingState {
            on: Some(device),
            is_silent: false,
            group,
            frames: VecDeque::new(),
            room,
            dropped: 0,
        };
        state.rings.insert(number, ring);
        numbers.push(number);
    }
    let ring = |number| WorldRing { world: world.clone(), number, first: None };
    Ok(numbers.into_iter().map(ring).collect())
}

pub(super) fn sender(world: &World, on: &Interface) -> Result<WorldSender, OpenError> {
    let mut state = world.state();
    state.open("af_packet")?;
    let (device, number) = (state.device(on)?, state.number());
    state.senders.insert(number, Some(device));
    Ok(WorldSender { world: world.clone(), number })
}

fn is_bound(state: &State, on: Option<u64>, index: u32) -> bool {
    on.and_then(|on| state.devices.get(&on)).is_some_and(|device| device.index == index)
}

impl calls::Ring for WorldRing {
    fn is_bound(&self, index: u32) -> bool {
        let mut state = self.world.state();
        state.call().is_err() || is_bound(&state, state.rings[&self.number].on, index)
    }

    fn peek(&mut self) -> Option<Seen<'_>> {
        if self.first.is_none() {
            let mut state = self.world.state();
            self.first = state.rings.get_mut(&self.number)?.frames.pop_front();
        }
        self.first.as_ref().map(|first| Seen::whole(&first.bytes, first.tag))
    }

    fn advance(&mut self) {
        self.first = None;
    }

    fn drops(&mut self) -> io::Result<u32> {
        let mut state = self.world.state();
        state.call()?;
        let ring = state.rings.get_mut(&self.number);
        Ok(ring.map_or(0, |ring| std::mem::take(&mut ring.dropped)))
    }

    fn clear(&mut self) {}

    fn silencer(&self) -> Option<Silencer> {
        let (world, number) = (self.world.clone(), self.number);
        Some(Box::new(move || {
            if let Some(ring) = world.state().rings.get_mut(&number) {
                ring.is_silent = true;
            }
        }))
    }
}

impl Drop for WorldRing {
    fn drop(&mut self) {
        let mut state = self.world.state();
        let left = state.rings.remove(&self.number).map_or(0, |ring| ring.frames.len());
        state.abandoned += left as u64 + u64::from(self.first.is_some());
    }
}

impl calls::Sender for WorldSender {
    fn is_bound(&self, index: u32) -> bool {
        let mut state = self.world.state();
        state.call().is_err() || is_bound(&state, state.senders[&self.number], index)
    }

    fn send<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>) -> (usize, Option<io::Error>) {
        let mut state = self.world.state();
        let on = state.senders[&self.number];
        let mut sent = 0;
        for frame in frames.take(Sender::MOST) {
            let error = match on.and_then(|on| state.devices.get(&on)) {
                None => Some(io::Error::from_raw_os_error(libc::ENXIO)),
                Some(device) if !device.is_up => Some(io::Error::from_raw_os_error(libc::ENETDOWN)),
                Some(device) if frame.len() > device.mtu as usize + 18 => {
                    Some(io::Error::from_raw_os_error(libc::EMSGSIZE))
                }
                Some(_) => state.call().err(),
            };
            match error {
                // The kernel reports an error only for the first frame of a call.
                Some(error) => return (sent, Some(error).filter(|_| sent == 0)),
                None => {
                    let name = on.map_or(String::new(), |on| state.devices[&on].name.clone());
                    state.sent.push((name, frame.to_vec()));
                    sent += 1;
                }
            }
        }
        (sent, None)
    }

    fn clear(&mut self) {}
}

impl Drop for WorldSender {
    fn drop(&mut self) {
        self.world.state().senders.remove(&self.number);
    }
}
