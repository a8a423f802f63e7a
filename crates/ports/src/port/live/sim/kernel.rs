//! What opens descriptors of the simulated kernel, and looks at its interfaces.
//!
//! Thread-safety: as [`super`].

use std::io;
use std::os::fd::OwnedFd;

use flowyard_pool::Umem;

use super::{Device, World, packet, tun, xdp};
use crate::af_packet::Settings;
use crate::af_xdp::{self, Ahead, Attached, Rules};
use crate::live::{Carries, Counts, Interface, OpenError, State as LinkState};
use crate::port::live::calls::{Link, System};
use crate::tap::{self, HostQueue, Programs};

/// Looks at an interface.
pub(in crate::port::live) struct WorldLink(World, String);

impl Link for WorldLink {
    fn look(&mut self) -> io::Result<Option<LinkState>> {
        let mut state = self.0.state();
        state.call()?;
        Ok(state.here(&self.1).map(|number| {
            let Device { index, mtu, is_up, .. } = state.devices[&number];
            LinkState { index, mtu, is_up }
        }))
    }

    fn counts(&mut self) -> Option<Counts> {
        let mut state = self.0.state();
        state.call().ok()?;
        Some(state.devices[&state.here(&self.1)?].counts)
    }
}

impl Drop for WorldLink {
    fn drop(&mut self) {
        self.0.state().links -= 1;
    }
}

impl System for World {
    type Link = WorldLink;
    type Ring = packet::WorldRing;
    type Sender = packet::WorldSender;
    type Queue = tun::WorldQueue;
    type Socket = xdp::WorldSocket;
    type Program = xdp::WorldProgram;

    fn link(&self, name: &str) -> io::Result<WorldLink> {
        let mut state = self.state();
        state.open()?;
        state.links += 1;
        Ok(WorldLink(self.clone(), name.into()))
    }

    fn find(&self, name: &str) -> Result<Interface, OpenError> {
        let mut state = self.state();
        state.open_for("looking up an interface")?;
        let gone = || OpenError::new(format!("there is no interface '{name}'"), "create it");
        let Device { index, mtu, is_up, .. } = state.devices[&state.here(name).ok_or_else(gone)?];
        Ok(Interface { name: name.into(), index, mtu, is_up })
    }

    fn rings(
        &self,
        on: &Interface,
        count: usize,
        how: Settings,
    ) -> Result<Vec<Self::Ring>, OpenError> {
        packet::rings(self, on, count, how)
    }

    fn sender(
        &self,
        on: &Interface,
        _bypass: bool,
        _carries: Carries,
    ) -> Result<Self::Sender, OpenError> {
        packet::sender(self, on)
    }

    fn queues(
        &self,
        name: &str,
        count: usize,
        _programs: &Programs,
        carries: Carries,
    ) -> io::Result<(Vec<Self::Queue>, u32)> {
        tun::queues(self, name, count, carries)
    }

    fn programs(&self, _count: usize, _by: &HostQueue) -> Result<Programs, OpenError> {
        self.state().open_for("loading the program that chooses a TAP queue")?;
        Ok(Programs::default())
    }

    fn set_up(&self, name: &str, _how: tap::Settings) -> Result<Interface, OpenError> {
        self.state().open_for("setting up a TAP interface")?;
        Self::set_up(self, name, true);
        self.find(name)
    }

    fn program(
        &self,
        on: &Interface,
        _rules: &Rules,
        _multi_buffer: bool,
        _ahead: Option<&dyn Ahead>,
    ) -> Result<Self::Program, OpenError> {
        xdp::program(self, on)
    }

    fn adopt_ring(&self, _fd: OwnedFd, _geometry: [usize; 2]) -> io::Result<Self::Ring> {
        Err(io::ErrorKind::Unsupported.into()) // the simulation has one process
    }

    fn adopt_sender(
        &self,
        _fd: OwnedFd,
        _bypass: bool,
        _carries: Carries,
    ) -> io::Result<Self::Sender> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt_queue(&self, _fd: OwnedFd, _carries: Carries) -> io::Result<Self::Queue> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt_socket(&self, _fd: OwnedFd, _umem: &Umem, _frames: u32) -> io::Result<Self::Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn adopt_program(&self, _fds: [OwnedFd; 2], _attached: Attached) -> io::Result<Self::Program> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn socket(
        &self,
        on: &Interface,
        queue: u32,
        umem: &Umem,
        how: af_xdp::Settings,
    ) -> Result<Self::Socket, OpenError> {
        xdp::socket(self, on, queue, umem, how)
    }
}
