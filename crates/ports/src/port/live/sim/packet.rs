//! Packet sockets of the simulated kernel.
//!
//! Thread-safety: as [`super`].

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use flowyard_frame::proto;
use flowyard_wire::checksum::Sum;
use flowyard_wire::{Offload, Segment};

use super::{Interface, Offered, Offloads, OpenError, State, World, hash};
use crate::af_packet::{Seen, Sender, Settings};
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

/// A received frame, or several that were coalesced.
pub(super) struct Waiting {
    pub(super) bytes: Vec<u8>,
    /// The tag, if it is stored separately.
    tag: Option<[u8; 4]>,
    pub(super) offload: Offload,
    /// Number of frames on the wire.
    pub(super) frames: u64,
}

/// Where UDP and its payload begin in an untagged frame of IPv4 without options.
const UDP: usize = 34;
const PAYLOAD: usize = 42;
/// The bytes of a slot: what is longer waits, as in the socket of the real kernel.
const SLOT: usize = 300;
/// The longest frame that frames are coalesced to.
const LONGEST: usize = 4000;

impl Waiting {
    pub(super) fn new(frame: &[u8], offloads: Offloads) -> Self {
        let is_tagged = frame.get(12..14) == Some(&[0x81, 0]);
        let tag = frame.get(12..16).filter(|_| offloads.strips_tags && is_tagged);
        let tag: Option<[u8; 4]> = tag.and_then(|tag| tag.try_into().ok());
        let mut bytes = match tag {
            Some(_) => [&frame[..12], &frame[16..]].concat(),
            None => frame.to_vec(),
        };
        let mut offload = Offload::NONE;
        if offloads.leaves_checksums && (tag.is_some() || !is_tagged) && bytes.len() > PAYLOAD {
            offload = leave_checksum(&mut bytes);
        }
        Self { bytes, tag, offload, frames: 1 }
    }

    /// Appends `next` as a further segment of the same flow; returns whether this is possible.
    pub(super) fn coalesce(&mut self, next: &Self) -> bool {
        let is_plain = |bytes: &[u8]| {
            bytes.len() > PAYLOAD && bytes[12..14] == [8, 0] && bytes[23] == proto::UDP
        };
        if !is_plain(&self.bytes) || !is_plain(&next.bytes) || self.tag != next.tag {
            return false;
        }
        let (mine, more) = (self.bytes.len() - PAYLOAD, next.bytes.len() - PAYLOAD);
        let size = match self.offload.segment {
            Segment::None => mine,
            _ => self.offload.segment_bytes.into(),
        };
        // All segments have the same size; only the last one may be shorter.
        let fits = mine.is_multiple_of(size) && more <= size && self.bytes.len() + more <= LONGEST;
        if !fits || self.bytes[26..UDP + 4] != next.bytes[26..UDP + 4] {
            return false;
        }
        self.bytes.extend_from_slice(&next.bytes[PAYLOAD..]);
        let lengths = [(16, self.bytes.len() - 14), (UDP + 4, self.bytes.len() - UDP)];
        for (at, length) in lengths {
            self.bytes[at..at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        }
        // As in Linux, what was coalesced has a checksum that is to be completed when it is cut.
        self.offload = Offload {
            segment: Segment::Udp,
            segment_bytes: size as u16,
            transport_len: (PAYLOAD - UDP) as u8,
            ..leave_checksum(&mut self.bytes)
        };
        self.frames += next.frames;
        true
    }
}

/// Replaces the checksum of UDP by the sum of the pseudo header, which the adapter completes; or removes the CRC of SCTP, which
/// covers no pseudo header.
fn leave_checksum(bytes: &mut [u8]) -> Offload {
    if bytes[23] == proto::SCTP {
        bytes[UDP + 8..UDP + 12].fill(0);
        let (checksum_start, flags) = (UDP as u16, Offload::PARTIAL);
        return Offload { checksum_start, checksum_offset: 8, flags, ..Offload::NONE };
    }
    let length = (bytes.len() - UDP) as u64;
    let pseudo = Sum::ZERO.bytes(&bytes[26..UDP]).word(17).word(length).finish();
    bytes[UDP + 6..UDP + 8].copy_from_slice(&(!pseudo).to_be_bytes());
    let (checksum_start, flags) = (UDP as u16, Offload::PARTIAL);
    Offload { checksum_start, checksum_offset: 6, flags, ..Offload::NONE }
}

/// The frames that the kernel makes of one that was sent with an offload. None for a partial checksum of SCTP, which Linux does
/// not complete as a CRC.
pub(super) fn finished(offload: Offload, frame: &[u8]) -> Vec<Vec<u8>> {
    if offload.has_crc() {
        return Vec::new();
    }
    let header = offload.to_virtio();
    let Ok(offload) = Offload::from_virtio(&header, frame) else { return Vec::new() };
    let whole = Seen::whole(frame, None, offload);
    let Some(cut) = whole.cut() else { return Vec::new() };
    let count = cut.as_ref().map_or(1, flowyard_wire::segment::Cut::count);
    let segment = |n| {
        let mut bytes = vec![0; whole.len(cut.as_ref(), n)];
        whole.write(cut.as_ref(), n, &mut bytes);
        bytes
    };
    (0..count).map(segment).collect()
}

pub(in crate::port::live) struct WorldRing {
    world: World,
    number: u64,
    first: Option<Waiting>,
    /// Whether all of a long first frame can be seen.
    is_gathered: bool,
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
        let offloads = self.devices[&device].offloads;
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
            let next = Waiting::new(frame, offloads);
            if offloads.coalesces
                && let Some(last) = ring.frames.back_mut()
                && last.coalesce(&next)
            {
                offered = Offered::Waits;
                continue;
            }
            if ring.frames.len() >= ring.room {
                ring.dropped += 1;
                offered = Offered::Overrun;
                continue;
            }
            ring.frames.push_back(next);
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
        let opened = state.open_for("af_packet").and_then(|()| state.device(on));
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
    let ring = |number| WorldRing { world: world.clone(), number, first: None, is_gathered: false };
    Ok(numbers.into_iter().map(ring).collect())
}

pub(super) fn sender(world: &World, on: &Interface) -> Result<WorldSender, OpenError> {
    let mut state = world.state();
    state.open_for("af_packet")?;
    let (device, number) = (state.device(on)?, state.number());
    state.senders.insert(number, Some(device));
    Ok(WorldSender { world: world.clone(), number })
}

fn is_bound(state: &State, on: Option<u64>, index: u32) -> bool {
    on.and_then(|on| state.devices.get(&on)).is_some_and(|device| device.index == index)
}

impl calls::Ring for WorldRing {
    fn duplicate(&self) -> io::Result<(OwnedFd, [usize; 2])> {
        Err(io::ErrorKind::Unsupported.into()) // the simulation has one process
    }

    fn position(&self) -> Option<u64> {
        None
    }

    fn go_on(&mut self, _slot: u64) -> bool {
        false
    }

    fn is_bound(&self, index: u32) -> bool {
        let mut state = self.world.state();
        state.call().is_err() || is_bound(&state, state.rings[&self.number].on, index)
    }

    fn peek_start(&mut self) -> Option<Seen<'_>> {
        if self.first.is_none() {
            let mut state = self.world.state();
            self.first = state.rings.get_mut(&self.number)?.frames.pop_front();
        }
        let first = self.first.as_ref()?;
        let seen = Seen::whole(&first.bytes, first.tag, first.offload);
        Some(if self.is_gathered { seen } else { seen.shortened(SLOT) })
    }

    fn write_whole(&mut self, out: &mut [u8]) -> bool {
        let Some(first) = &self.first else { return false };
        Seen::whole(&first.bytes, first.tag, first.offload).write_whole(out);
        true
    }

    fn gather(&mut self) {
        self.is_gathered = true;
    }

    fn advance(&mut self) {
        (self.first, self.is_gathered) = (None, false);
    }

    fn drops(&mut self) -> io::Result<u32> {
        let mut state = self.world.state();
        state.call()?;
        let ring = state.rings.get_mut(&self.number);
        Ok(ring.map_or(0, |ring| std::mem::take(&mut ring.dropped)))
    }

    fn clear(&mut self) {}

    fn silencer(&self) -> Silencer {
        let (world, number) = (self.world.clone(), self.number);
        Box::new(move || {
            if let Some(ring) = world.state().rings.get_mut(&number) {
                ring.is_silent = true;
            }
            0
        })
    }
}

impl Drop for WorldRing {
    fn drop(&mut self) {
        let mut state = self.world.state();
        let Some(ring) = state.rings.remove(&self.number) else { return };
        let left = ring.frames.iter().chain(&self.first).map(|waiting| waiting.frames);
        state.abandoned += left.sum::<u64>();
        state.uncounted += u64::from(ring.dropped);
    }
}

impl calls::Sender for WorldSender {
    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_bound(&self, index: u32) -> bool {
        let mut state = self.world.state();
        state.call().is_err() || is_bound(&state, state.senders[&self.number], index)
    }

    fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = (Offload, &'a [u8])>,
    ) -> (usize, Option<io::Error>) {
        let mut state = self.world.state();
        let on = state.senders[&self.number];
        let mut sent = 0;
        for (offload, frame) in frames.take(Sender::MOST) {
            let error = match on.and_then(|on| state.devices.get(&on)) {
                None => Some(io::Error::from_raw_os_error(libc::ENXIO)),
                Some(device) if !device.is_up => Some(io::Error::from_raw_os_error(libc::ENETDOWN)),
                Some(device)
                    if frame.len() > device.mtu as usize + 18
                        && offload.segment == Segment::None =>
                {
                    Some(io::Error::from_raw_os_error(libc::EMSGSIZE))
                }
                Some(_) => state.call().err(),
            };
            match error {
                // The kernel reports an error only for the first frame of a call.
                Some(error) => return (sent, Some(error).filter(|_| sent == 0)),
                None => {
                    let name = on.map_or(String::new(), |on| state.devices[&on].name.clone());
                    let all = finished(offload, frame).into_iter();
                    state.sent.extend(all.map(|frame| (name.clone(), frame)));
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
