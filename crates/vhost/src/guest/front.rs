//! A front end with the adapter of a guest: its queues, buffers and messages.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use vhost::vhost_user::message::VhostUserHeaderFlag;
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::{Agreed, Buffer, DriverRing, Ram};
use crate::device::{
    EVENT_INDEX, IN_ORDER, INDIRECT, MERGEABLE, MODERN, MULTI_QUEUE, PACKED, PROTOCOL,
};

/// What an adapter is to be like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Queue pairs.
    pub pairs: usize,
    /// Entries of each ring.
    pub size: u16,
    /// Bytes of a buffer to receive into, with the header.
    pub buffer: usize,
    /// Features.
    pub agreed: Agreed,
}

impl Wish {
    /// An adapter with everything that the device offers with split rings.
    #[must_use]
    pub const fn new(pairs: usize, size: u16) -> Self {
        Self { pairs, size, buffer: 256, agreed: Agreed::ALL }
    }
}

/// A ring with buffers of one length.
#[derive(Debug)]
struct Lane {
    ring: DriverRing,
    /// Position of the buffers, by descriptor.
    buffers: usize,
    /// By head: the buffer's number.
    owner: Vec<u16>,
    /// Free buffers of a ring to transmit.
    free: Vec<u16>,
    call: EventFd,
    kick: EventFd,
}

/// The adapter of a guest.
pub struct Adapter {
    front: Frontend,
    wish: Wish,
    ram: Ram,
    /// Ring 0 receives, ring 1 transmits, and so on.
    lanes: Vec<Lane>,
    /// Of each pair: parts of a frame whose other parts have not come.
    parts: Vec<(usize, Vec<u8>)>,
}

/// Bytes of a buffer to transmit.
const TRANSMIT: usize = 2048;

impl Adapter {
    /// Connects to a device that listens.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn connect(path: &Path, wish: Wish) -> Self {
        Self::new(Frontend::connect(path, 2 * wish.pairs as u64).unwrap(), wish)
    }

    /// Waits for a device that connects.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn accept(listener: &UnixListener, wish: Wish) -> Self {
        let (stream, _) = listener.accept().unwrap();
        Self::new(Frontend::from_stream(stream, 2 * wish.pairs as u64), wish)
    }

    /// The messages about features.
    fn greet(front: &mut Frontend, wish: Wish) {
        let agreed = wish.agreed;
        front.set_owner().unwrap();
        let offered = front.get_features().unwrap();
        let bits = [
            (MERGEABLE, agreed.mergeable),
            (MODERN, agreed.modern),
            (INDIRECT, agreed.indirect),
            (EVENT_INDEX, agreed.event_index),
            (PACKED, agreed.packed),
            (MULTI_QUEUE, wish.pairs > 1),
            (PROTOCOL, true),
            (IN_ORDER, true),
        ];
        let wanted =
            bits.iter().filter(|(_, is_wanted)| *is_wanted).fold(0, |all, (bit, _)| all | bit);
        assert_eq!(offered & wanted, wanted, "the device does not offer all features");
        let protocol = front.get_protocol_features().unwrap();
        front
            .set_protocol_features(
                protocol & (VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK),
            )
            .unwrap();
        front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert!(front.get_queue_num().unwrap() >= wish.pairs as u64);
        front.set_features(wanted).unwrap();
    }

    fn new(mut front: Frontend, wish: Wish) -> Self {
        let agreed = wish.agreed;
        Self::greet(&mut front, wish);
        let count = usize::from(wish.size);
        let lane = 64 * count + count * (wish.buffer.max(TRANSMIT) + 64) + 4096;
        let len = (2 * wish.pairs * lane).next_multiple_of(8192);
        let mut ram = Ram::new(len, 2);
        let lanes = (0..2 * wish.pairs)
            .map(|at| Lane {
                ring: DriverRing::new(&mut ram, wish.size, agreed),
                buffers: ram.take(count * if at % 2 == 0 { wish.buffer } else { TRANSMIT }, 64),
                owner: vec![0; count],
                free: Vec::new(),
                call: EventFd::new(EFD_NONBLOCK).unwrap(),
                kick: EventFd::new(EFD_NONBLOCK).unwrap(),
            })
            .collect();
        let parts = vec![(0, Vec::new()); wish.pairs];
        let mut adapter = Self { front, wish, ram, lanes, parts };
        adapter.start();
        adapter
    }

    /// The guest's memory.
    #[must_use]
    pub const fn ram(&self) -> &Ram {
        &self.ram
    }

    /// The ring with this number: 0 receives, 1 transmits, and so on.
    #[must_use]
    pub fn ring(&self, at: usize) -> &DriverRing {
        &self.lanes[at].ring
    }

    /// Empties all rings, fills those that receive, and starts the device, as a driver does.
    ///
    /// # Panics
    /// When a message is refused.
    pub fn start(&mut self) {
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            lane.ring.reset(&self.ram);
            lane.free = (0..self.wish.size).collect();
            if at % 2 == 0 {
                for buffer in lane.free.drain(..) {
                    refill(
                        &self.ram,
                        &mut lane.ring,
                        &mut lane.owner,
                        lane.buffers,
                        self.wish,
                        buffer,
                    );
                }
            }
        }
        self.parts.iter_mut().for_each(|part| *part = (0, Vec::new()));
        let bases: Vec<_> = self.lanes.iter().map(|lane| lane.ring.base().into()).collect();
        self.resume(&bases);
    }

    /// Connects again to a device that was killed and has been started again. The rings are as they were, and
    /// the front end knows only where they began.
    ///
    /// # Panics
    /// When a message is refused.
    pub fn reconnect(&mut self, path: &Path) {
        self.front = Frontend::connect(path, 2 * self.wish.pairs as u64).unwrap();
        Self::greet(&mut self.front, self.wish);
        let bases: Vec<_> = self.lanes.iter().map(|lane| lane.ring.base().into()).collect();
        self.resume(&bases);
    }

    /// Starts the device with the rings as they are, which it continues at `bases`, of which the library sends
    /// the lower halves, as DPDK does.
    ///
    /// # Panics
    /// When a message is refused.
    pub fn resume(&mut self, bases: &[u32]) {
        let region = |place: crate::memory::RegionPlace| VhostUserMemoryRegionInfo {
            guest_phys_addr: place.guest,
            memory_size: place.len,
            userspace_addr: place.user,
            mmap_offset: place.offset,
            mmap_handle: self.ram.fd().as_raw_fd(),
        };
        let regions: Vec<_> = self.ram.places().into_iter().map(region).collect();
        self.front.set_mem_table(&regions).unwrap();
        for (at, (lane, base)) in self.lanes.iter().zip(bases).enumerate() {
            let [descriptors, available, used] = lane.ring.parts().map(|part| self.ram.user(part));
            let config = VringConfigData {
                queue_max_size: self.wish.size,
                queue_size: self.wish.size,
                flags: 0,
                desc_table_addr: descriptors,
                used_ring_addr: used,
                avail_ring_addr: available,
                log_addr: None,
            };
            self.front.set_vring_num(at, self.wish.size).unwrap();
            self.front.set_vring_addr(at, &config).unwrap();
            self.front.set_vring_base(at, *base as u16).unwrap();
            self.front.set_vring_call(at, &lane.call).unwrap();
            self.front.set_vring_kick(at, &lane.kick).unwrap();
            self.front.set_vring_enable(at, true).unwrap();
        }
    }

    /// Stops all rings, as a front end does when the driver resets its device. Returns where they stopped.
    ///
    /// # Panics
    /// When a message is refused.
    pub fn stop(&mut self) -> Vec<u32> {
        (0..self.lanes.len()).map(|at| self.front.get_vring_base(at).unwrap()).collect()
    }

    /// Enables or disables a pair.
    ///
    /// # Panics
    /// When the message is refused.
    pub fn enable(&mut self, pair: usize, enable: bool) {
        for at in [2 * pair, 2 * pair + 1] {
            self.front.set_vring_enable(at, enable).unwrap();
        }
    }

    /// How often the device has called about a ring since the last question.
    #[must_use]
    pub fn calls(&self, at: usize) -> u64 {
        self.lanes[at].call.read().unwrap_or(0)
    }

    /// Transmits a frame, in two buffers if it is long, and sometimes in an indirect table. `false`: the ring
    /// is full.
    ///
    /// # Panics
    /// When the frame is longer than a buffer.
    pub fn transmit(&mut self, pair: usize, frame: &[u8]) -> bool {
        let lane = &mut self.lanes[2 * pair + 1];
        while let Some((head, _)) = lane.ring.used(&self.ram) {
            lane.free.push(lane.owner[usize::from(head)]);
        }
        let header = self.wish.agreed.header();
        assert!(header + frame.len() + 64 <= TRANSMIT);
        let split = if frame.len() > 200 { 100 } else { frame.len() };
        let Some(buffer) = lane.free.pop() else { return false };
        let at = lane.buffers + usize::from(buffer) * TRANSMIT;
        let is_indirect = self.wish.agreed.indirect && frame.len().is_multiple_of(3);
        self.ram.write(at, &[0; 12][..header]);
        self.ram.write(at + header, frame);
        let part = |at, len| Buffer { at, len, is_for_writing: false };
        let all = [part(at, header + split), part(at + header + split, frame.len() - split)];
        let used = if split < frame.len() { &all[..] } else { &all[..1] };
        let table = (at + TRANSMIT - 64).next_multiple_of(16);
        match lane.ring.add(&self.ram, used, is_indirect.then_some(table)) {
            Some(head) => {
                lane.owner[usize::from(head)] = buffer;
                true
            }
            None => {
                lane.free.push(buffer);
                false
            }
        }
    }

    /// Whether the device wanted to be kicked about transmitted frames since the last call.
    pub fn wants_kick(&mut self, pair: usize) -> bool {
        self.lanes[2 * pair + 1].ring.wants_kick(&self.ram)
    }

    /// Receives a frame.
    ///
    /// # Panics
    /// When the device has written something else than a frame.
    pub fn receive(&mut self, pair: usize) -> Option<Vec<u8>> {
        let lane = &mut self.lanes[2 * pair];
        let header = self.wish.agreed.header();
        loop {
            let (head, len) = lane.ring.used(&self.ram)?;
            let buffer = lane.owner[usize::from(head)];
            let mut bytes = vec![0; len];
            self.ram.read(lane.buffers + usize::from(buffer) * self.wish.buffer, &mut bytes);
            refill(&self.ram, &mut lane.ring, &mut lane.owner, lane.buffers, self.wish, buffer);
            let (missing, frame) = &mut self.parts[pair];
            if *missing == 0 {
                assert!(bytes.len() >= header, "a frame without a header");
                assert_eq!(bytes[..10], [0; 10], "offloads in a header");
                let count = bytes.get(10..12).filter(|_| header == 12);
                *missing =
                    count.map_or(1, |count| usize::from(u16::from_le_bytes([count[0], count[1]])));
                assert!(*missing >= 1, "a frame in no buffer");
                bytes.drain(..header);
            }
            *missing -= 1;
            frame.extend(bytes);
            if *missing == 0 {
                return Some(std::mem::take(frame));
            }
        }
    }
}

/// Makes a buffer available to receive into.
fn refill(
    ram: &Ram,
    ring: &mut DriverRing,
    owner: &mut [u16],
    buffers: usize,
    wish: Wish,
    buffer: u16,
) {
    let at = buffers + usize::from(buffer) * wish.buffer;
    let head = ring.add(ram, &[Buffer { at, len: wish.buffer, is_for_writing: true }], None);
    owner[usize::from(head.expect("a descriptor for each buffer"))] = buffer;
}
