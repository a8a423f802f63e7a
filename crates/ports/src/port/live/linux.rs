//! The system calls of Linux.
//!
//! Evidence that a descriptor is bound to the interface, by kind:
//!
//! | kind | question | answer when the interface was deleted or moved |
//! |---|---|---|
//! | AF_PACKET | getsockname(2) | the index -1 |
//! | AF_XDP | an empty recvfrom(2), and bpf(2) about the link of the program | ENXIO; index 0 |
//! | TAP | TUNGETIFF, TUNGETDEVNETNS | EBADFD if deleted; another namespace if moved |
//!
//! All of these, and the ioctls that look at the link, answer without the lock of the kernel's
//! network configuration (RTNL), for which a core would wait while another process holds it. This
//! is why rtnetlink is not used. A TAP that is moved away and back stays attached, also if it comes
//! back with another index.
//!
//! Thread-safety: as [`super::calls`].

use std::io;
use std::os::fd::OwnedFd;

use flowyard_pool::Umem;

use super::calls::{self, Silencer, System};
use crate::af_packet::{self, Seen};
use crate::af_xdp::{self, Ahead, Attached, Desc, Rules};
use flowyard_wire::Offload;

use crate::live::{Carries, Counts, Interface, Looker, OpenError, State};
use crate::tap::{self, Got, HostQueue, Programs};

/// The kernel that this program runs on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linux;

impl System for Linux {
    type Link = Looker;
    type Ring = af_packet::Ring;
    type Sender = af_packet::Sender;
    type Queue = tap::Queue;
    type Socket = af_xdp::Socket;
    type Program = af_xdp::Program;

    fn link(&self, name: &str) -> io::Result<Looker> {
        Looker::new(name)
    }

    fn find(&self, name: &str) -> Result<Interface, OpenError> {
        Interface::find(name)
    }

    fn rings(
        &self,
        on: &Interface,
        count: usize,
        how: af_packet::Settings,
    ) -> Result<Vec<Self::Ring>, OpenError> {
        af_packet::Ring::open(on, count, how)
    }

    fn sender(
        &self,
        on: &Interface,
        bypass: bool,
        carries: Carries,
    ) -> Result<Self::Sender, OpenError> {
        af_packet::Sender::open_for(on, bypass, carries)
    }

    fn queues(
        &self,
        name: &str,
        count: usize,
        programs: &Programs,
        carries: Carries,
    ) -> io::Result<(Vec<Self::Queue>, u32)> {
        tap::Queue::attach_for(name, count, programs, carries)
    }

    fn programs(&self, count: usize, by: &HostQueue) -> Result<Programs, OpenError> {
        Programs::new(count, by)
    }

    fn set_up(&self, name: &str, how: tap::Settings) -> Result<Interface, OpenError> {
        tap::set_up(name, how)
    }

    fn program(
        &self,
        on: &Interface,
        rules: &Rules,
        multi_buffer: bool,
        ahead: Option<&dyn Ahead>,
    ) -> Result<Self::Program, OpenError> {
        af_xdp::Program::attach(on, rules, multi_buffer, ahead)
    }

    fn adopt_ring(&self, fd: OwnedFd, geometry: [usize; 2]) -> io::Result<Self::Ring> {
        af_packet::Ring::adopt(fd, geometry)
    }

    fn adopt_sender(
        &self,
        fd: OwnedFd,
        bypass: bool,
        carries: Carries,
    ) -> io::Result<Self::Sender> {
        af_packet::Sender::adopt(fd, bypass, carries)
    }

    fn adopt_queue(&self, fd: OwnedFd, carries: Carries) -> io::Result<Self::Queue> {
        Ok(tap::Queue::adopt(fd, carries))
    }

    fn adopt_socket(&self, fd: OwnedFd, umem: &Umem, frames: u32) -> io::Result<Self::Socket> {
        af_xdp::Socket::adopt(fd, umem, frames)
    }

    fn adopt_program(
        &self,
        [link, map]: [OwnedFd; 2],
        attached: Attached,
    ) -> io::Result<Self::Program> {
        Ok(af_xdp::Program::adopt(link, map, attached))
    }

    fn socket(
        &self,
        on: &Interface,
        queue: u32,
        umem: &Umem,
        how: af_xdp::Settings,
    ) -> Result<Self::Socket, OpenError> {
        af_xdp::Socket::open(on, queue, umem, how)
    }
}

impl calls::Link for Looker {
    fn look(&mut self) -> io::Result<Option<State>> {
        Self::look(self)
    }

    fn counts(&mut self) -> Option<Counts> {
        Self::counts(self)
    }
}

impl calls::Ring for af_packet::Ring {
    fn is_bound(&self, index: u32) -> bool {
        Self::is_bound(self, index)
    }

    #[inline]
    fn peek_start(&mut self) -> Option<Seen<'_>> {
        Self::peek_start(self)
    }

    #[inline]
    fn write_whole(&mut self, out: &mut [u8]) -> bool {
        Self::write_whole(self, out)
    }

    fn gather(&mut self) {
        Self::gather(self);
    }

    #[inline]
    fn advance(&mut self) {
        Self::advance(self);
    }

    fn drops(&mut self) -> io::Result<u32> {
        Self::drops(self)
    }

    fn clear(&mut self) {
        Self::clear(self);
    }

    fn silencer(&self) -> Silencer {
        let silence = Self::silencer(self);
        Box::new(move || {
            silence();
            0
        })
    }

    fn duplicate(&self) -> io::Result<(OwnedFd, [usize; 2])> {
        Ok((Self::duplicate(self)?, self.geometry()))
    }

    fn position(&self) -> Option<u64> {
        Self::position(self)
    }

    fn go_on(&mut self, slot: u64) -> bool {
        Self::go_on(self, slot)
    }
}

impl calls::Sender for af_packet::Sender {
    fn is_bound(&self, index: u32) -> bool {
        Self::is_bound(self, index)
    }

    #[inline]
    fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = (Offload, &'a [u8])>,
    ) -> (usize, Option<io::Error>) {
        Self::send_unfinished(self, frames)
    }

    fn clear(&mut self) {
        Self::clear(self);
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Self::duplicate(self)
    }
}

impl calls::Queue for tap::Queue {
    fn is_attached(&self, name: &str) -> bool {
        Self::is_attached(self, name)
    }

    fn is_of(&self, name: &str) -> bool {
        Self::is_of(self, name)
    }

    #[inline]
    fn carries(&self) -> Carries {
        Self::carries(self)
    }

    #[inline]
    fn read(&mut self, parts: [&mut [u8]; 3]) -> io::Result<(Got, [u8; Offload::VIRTIO_LEN])> {
        Self::read_parts(self, parts)
    }

    #[inline]
    fn write(&mut self, offload: Offload, frame: &[u8]) -> io::Result<()> {
        Self::write_unfinished(self, offload, frame)
    }

    fn silencer(&self) -> Silencer {
        Box::new(self.detacher())
    }

    fn unfilter(&mut self) {
        Self::unfilter(self);
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Self::duplicate(self)
    }
}

impl calls::Socket for af_xdp::Socket {
    fn is_bound(&self) -> bool {
        Self::is_bound(self)
    }

    fn is_zero_copy(&self) -> bool {
        Self::is_zero_copy(self)
    }

    #[inline]
    fn fill_room(&mut self) -> usize {
        Self::fill_room(self)
    }

    #[inline]
    fn fill(&mut self, addrs: &[u64]) {
        Self::fill(self, addrs);
    }

    fn has_received(&mut self) -> bool {
        Self::has_received(self)
    }

    #[inline]
    fn receive(&mut self, into: &mut [Desc]) -> usize {
        Self::receive(self, into)
    }

    #[inline]
    fn tx_room(&mut self) -> usize {
        Self::tx_room(self)
    }

    #[inline]
    fn transmit(&mut self, frames: &[Desc]) {
        Self::transmit(self, frames);
    }

    #[inline]
    fn wake(&mut self) -> io::Result<u32> {
        Self::wake(self)
    }

    #[inline]
    fn complete(&mut self, into: &mut [u64]) -> usize {
        Self::complete(self, into)
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Self::duplicate(self)
    }

    fn go_on(&mut self) {
        Self::go_on(self);
    }

    fn drops(&mut self) -> io::Result<u32> {
        Self::drops(self)
    }
}

impl calls::Program<af_xdp::Socket> for af_xdp::Program {
    fn attached(&self) -> Attached {
        Self::attached(self)
    }

    fn is_on(&self, index: u32) -> bool {
        Self::is_on(self, index)
    }

    fn detach(&self) {
        Self::detach(self);
    }

    fn set(&self, queue: u32, socket: &af_xdp::Socket) -> io::Result<()> {
        Self::set(self, queue, socket)
    }

    fn duplicate(&self) -> io::Result<[OwnedFd; 2]> {
        Self::duplicate(self)
    }

    fn clear(&self, queue: u32) {
        Self::clear(self, queue);
    }
}
