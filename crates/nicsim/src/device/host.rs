//! The host: its memory, and a driver that keeps both rings full (paper, section 5: "emulates the real
//! device driver").
//!
//! ```text
//!  0x0000 status block: word 0 send descriptors consumed, 1.. return descriptors produced, per ring
//!  0x1000 send ring (16 B each), receive ring (32 B), return rings (32 B), sent frames, receive buffers
//! ```
//!
//! The driver acts when the adapter has written the status block. A sent frame has two regions: 42 bytes of
//! headers, and the payload. Descriptors: docs/nic.md. Invariants: a buffer belongs to the host or to the
//! adapter, never to both; every frame is checked against the frames that entered in its direction.

use std::collections::VecDeque;

use super::net::{FCS_BYTES, HEADER_BYTES, Journey, write_frame};
use crate::config::Config;
use crate::memory::hw;

const STATUS: u32 = 0;
const RINGS: u32 = 0x1000;
const BUFFER_BYTES: u32 = 2048;
/// Send descriptor flags: last of its frame, insert a VLAN tag, checksums wanted.
const BD_END: u32 = 1;
const BD_VLAN: u32 = 2;
const BD_CHECKSUM: u32 = 4;
/// Return descriptor flags: the frame has an error, its buffer was refused.
const RETURN_ERROR: u32 = 0x8000;
const RETURN_REFUSED: u32 = 0x0400;
/// The length of a buffer that the firmware must refuse.
const SHORT_BYTES: u32 = 64;

/// The host and its driver.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) memory: Vec<u8>,
    send_ring: u32,
    send_mask: u32,
    recv_ring: u32,
    recv_mask: u32,
    return_ring: u32,
    return_mask: u32,
    queues: u32,
    send_buffers: u32,
    recv_buffers: u32,
    sizes: Vec<u32>,
    flows: u32,
    vlan: u32,
    sends: bool,
    posted_bds: u32,
    posted_frames: u64,
    posted_recv: u32,
    returned: [u32; 8],
    scratch: Vec<u8>,
    /// Frames on their way to the link.
    pub(crate) sent: Journey,
    pub(crate) interrupts: u64,
    started: bool,
    /// Frames returned by each return ring.
    pub(crate) per_queue: [u64; 8],
    /// Every buffer whose number is one less than a multiple of this is posted too short; 0 is none.
    short_every: u32,
    ring: VecDeque<u32>,
}

impl Host {
    pub(crate) fn new(config: &Config) -> Self {
        let h = &config.host;
        let send_ring = RINGS;
        let recv_ring = send_ring + h.send_ring * 16;
        let return_ring = recv_ring + h.recv_ring * 32;
        let send_buffers = (return_ring + h.queues * h.return_ring * 32).next_multiple_of(4096);
        let recv_buffers = send_buffers + h.send_ring / 2 * BUFFER_BYTES;
        let end = recv_buffers + h.recv_ring * BUFFER_BYTES;
        Self {
            memory: vec![0; end as usize],
            send_ring,
            send_mask: h.send_ring - 1,
            recv_ring,
            recv_mask: h.recv_ring - 1,
            return_ring,
            return_mask: h.return_ring - 1,
            queues: h.queues,
            send_buffers,
            recv_buffers,
            sizes: config.load.udp_bytes.clone(),
            flows: config.load.flows,
            vlan: config.load.vlan,
            sends: config.load.send,
            posted_bds: 0,
            posted_frames: 0,
            posted_recv: 0,
            returned: [0; 8],
            scratch: Vec::with_capacity(2048),
            sent: Journey::default(),
            interrupts: 0,
            started: false,
            per_queue: [0; 8],
            short_every: h.short_buffer_every,
            ring: VecDeque::new(),
        }
    }

    /// The parameters of the firmware: the words from [`hw::BOOT`] on.
    pub(crate) fn boot(&self, config: &Config) -> [u32; 16] {
        let f = &config.firmware;
        let per_us = config.chip.mhz.hz() / 1e6;
        [
            config.chip.cores,
            f.bundle,
            self.send_ring,
            self.send_mask,
            self.recv_ring,
            self.recv_mask,
            self.return_ring,
            self.return_mask,
            STATUS,
            f.send_coalesce,
            (f64::from(f.interrupt_us) * per_us).round() as u32,
            self.queues,
            f.steer,
            f.filters,
            0x0200,
            0x0000_0001,
        ]
    }

    fn word(&self, addr: u32) -> u32 {
        let at = addr as usize;
        self.memory.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// The word at `addr`, read by a DMA.
    pub(crate) fn read(&self, addr: u32) -> u32 {
        self.word(addr)
    }

    /// Stores a word, written by a DMA.
    pub(crate) fn write(&mut self, addr: u32, value: u32) {
        let at = addr as usize;
        if let Some(place) = self.memory.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Whether the driver has not filled the rings for the first time.
    pub(crate) fn is_new(&self) -> bool {
        !self.started
    }

    /// Whether a DMA to `addr` wrote the status block.
    pub(crate) fn is_status(&self, addr: u32) -> bool {
        addr < RINGS
    }

    /// Runs the driver: it takes the descriptors that the adapter has finished, fills the rings, and notifies
    /// the adapter through `mail`.
    ///
    /// # Errors
    /// When the adapter returned a descriptor that the host did not post.
    pub(crate) fn drive(
        &mut self,
        now: u64,
        received: &mut Journey,
        mail: &mut VecDeque<(u32, u32)>,
    ) -> Result<(), String> {
        let before = (self.posted_bds, self.posted_recv);
        if !self.started {
            self.started = true;
            for buffer in 0..=self.recv_mask {
                self.post_buffer(buffer);
            }
        }
        for queue in 0..self.queues {
            self.take_returns(queue, now, received, mail)?;
        }
        let consumed = self.word(STATUS);
        let outstanding = self.posted_bds.wrapping_sub(consumed);
        if outstanding > self.send_mask + 1 {
            return Err(format!(
                "host: the adapter reports {consumed} send descriptors as consumed, but {} were posted",
                self.posted_bds
            ));
        }
        while self.sends && self.posted_bds.wrapping_sub(consumed) + 2 <= self.send_mask + 1 {
            self.post_frame(now);
        }
        if before.0 != self.posted_bds {
            mail.push_back((hw::SBD_PROD, self.posted_bds));
        }
        if before.1 != self.posted_recv {
            mail.push_back((hw::RBD_PROD, self.posted_recv));
        }
        Ok(())
    }

    /// Whether the driver posts `buffer` with a length that no frame may be written to.
    fn is_short(&self, buffer: u32) -> bool {
        self.short_every > 0 && buffer % self.short_every == self.short_every - 1
    }

    fn post_buffer(&mut self, buffer: u32) {
        let at = self.recv_ring + (self.posted_recv & self.recv_mask) * 32;
        let len = if self.is_short(buffer) { SHORT_BYTES } else { BUFFER_BYTES };
        let words = [0, self.recv_buffers + buffer * BUFFER_BYTES, len, 0, 0, 0, 0, buffer];
        for (n, word) in words.into_iter().enumerate() {
            self.write(at + 4 * n as u32, word);
        }
        self.posted_recv = self.posted_recv.wrapping_add(1);
    }

    fn post_frame(&mut self, now: u64) {
        let number = self.posted_frames;
        let size = self.sizes[(number % self.sizes.len() as u64) as usize];
        let mut frame = std::mem::take(&mut self.scratch);
        frame.clear();
        write_frame(&mut frame, size, (number % u64::from(self.flows)) as u32, number, 0x80);
        let slot = (self.posted_bds & self.send_mask) / 2;
        let header = self.send_buffers + slot * BUFFER_BYTES;
        let payload = header + 64;
        let split = HEADER_BYTES as usize;
        self.memory[header as usize..header as usize + split].copy_from_slice(&frame[..split]);
        self.memory[payload as usize..][..frame.len() - split].copy_from_slice(&frame[split..]);
        let mut flags = BD_CHECKSUM;
        if self.vlan != 0 {
            flags |= BD_VLAN;
            let [high, low] = (self.vlan as u16).to_be_bytes();
            frame.splice(12..12, [0x81, 0x00, high, low]);
        }
        self.sent.enter(&frame, now, false);
        self.scratch = frame;
        for (addr, len, flags) in [(header, HEADER_BYTES, flags), (payload, size, flags | BD_END)] {
            let at = self.send_ring + (self.posted_bds & self.send_mask) * 16;
            for (n, word) in [0, addr, len | flags << 16, self.vlan].into_iter().enumerate() {
                self.write(at + 4 * n as u32, word);
            }
            self.posted_bds = self.posted_bds.wrapping_add(1);
        }
        self.posted_frames += 1;
    }

    fn take_returns(
        &mut self,
        queue: u32,
        now: u64,
        received: &mut Journey,
        mail: &mut VecDeque<(u32, u32)>,
    ) -> Result<(), String> {
        let produced = self.word(STATUS + 4 + 4 * queue);
        let first = self.returned[queue as usize];
        if produced.wrapping_sub(first) > self.return_mask + 1 {
            return Err(format!(
                "host: return ring {queue} reports {produced} descriptors after {first}, which is more than its size"
            ));
        }
        let base = self.return_ring + queue * (self.return_mask + 1) * 32;
        for number in 0..produced.wrapping_sub(first) {
            let at = base + (first.wrapping_add(number) & self.return_mask) * 32;
            let (len, buffer) = (self.word(at + 8) & 0xffff, self.word(at + 28));
            if buffer > self.recv_mask || !(FCS_BYTES + 14..=BUFFER_BYTES).contains(&len) {
                return Err(format!(
                    "host: return descriptor {} of ring {queue} names buffer {buffer}, length {len}",
                    first.wrapping_add(number)
                ));
            }
            let flags = self.word(at + 12);
            let from = (self.recv_buffers + buffer * BUFFER_BYTES) as usize;
            if self.is_short(buffer) != (flags & RETURN_REFUSED != 0) {
                let what = if self.is_short(buffer) { "uses" } else { "refuses" };
                return Err(format!("host: the adapter {what} buffer {buffer}, which it must not"));
            }
            if flags & RETURN_REFUSED != 0 {
                if self.memory[from..from + BUFFER_BYTES as usize].iter().any(|&byte| byte != 0) {
                    return Err(format!(
                        "host: the adapter wrote to buffer {buffer}, which it refused"
                    ));
                }
                received.refuse();
            } else {
                let frame = &self.memory[from..from + (len - FCS_BYTES) as usize];
                let marked = flags & RETURN_ERROR != 0;
                received.arrive(frame, now, self.queues > 1, marked);
                self.per_queue[queue as usize] += 1;
            }
            self.ring.push_back(buffer);
        }
        while let Some(buffer) = self.ring.pop_front() {
            self.post_buffer(buffer);
        }
        if produced != first {
            self.returned[queue as usize] = produced;
            mail.push_back((hw::RET_CONS + queue, produced));
        }
        Ok(())
    }
}
