//! The descriptors with which a port goes on that another process has opened.
//!
//! ```text
//!  old process: Device::descriptors ──SCM_RIGHTS──> Inherited ──> rings, queues of the new process
//! ```
//!
//! Both processes have the same sockets and rings until the old one ends. Which of them receives is agreed elsewhere
//! (`flowyard_yard::handover`); here nothing is received.
//!
//! Thread-safety: used by one thread, before any core runs.

use std::io;

use flowyard_pool::Umem;
use flowyard_yard::port::Descriptors;

use super::calls::System;
use super::plan::LivePort;
use crate::af_xdp::Attached;
use crate::live::{Carries, OpenError};

/// The descriptors of a port, by core.
pub(super) struct Inherited {
    name: String,
    all: Vec<Descriptors>,
}

/// The rings and senders of an AF_PACKET port, by core.
pub(super) type Packets<S> = (Vec<<S as System>::Ring>, Vec<<S as System>::Sender>);

/// A socket of an AF_XDP port, its queue, and its program.
pub(super) type Taken<S> = (<S as System>::Socket, u32, <S as System>::Program);

impl Inherited {
    pub(super) fn of(port: &LivePort, all: Vec<Descriptors>) -> Result<Self, OpenError> {
        let inherited = Self { name: port.name.clone(), all };
        if inherited.all.len() != port.cores {
            return Err(inherited.unfit(&format!(
                "has {} cores in the running process and {} in the configuration",
                inherited.all.len(),
                port.cores
            )));
        }
        Ok(inherited)
    }

    fn unfit(&self, what: &str) -> OpenError {
        OpenError {
            what: format!("port '{}' {what}", self.name),
            fix: "stop the running process and start this configuration instead of taking over"
                .into(),
        }
    }

    fn refused(&self, error: &io::Error) -> OpenError {
        self.unfit(&format!("cannot be taken over: {error}"))
    }

    /// The rings and senders of an AF_PACKET port.
    pub(super) fn rings<S: System>(
        mut self,
        system: &S,
        (bypass, carries): (bool, Carries),
    ) -> Result<Packets<S>, OpenError> {
        let (mut rings, mut senders) = (Vec::new(), Vec::new());
        for Descriptors { fds, numbers } in std::mem::take(&mut self.all) {
            let (Ok([ring, sender]), [size, slot, carried]) =
                (<[_; 2]>::try_from(fds), &numbers[..])
            else {
                return Err(self.unfit("is of another kind in the running process"));
            };
            self.same(carries, *carried)?;
            let ring = system.adopt_ring(ring, [*size as usize, *slot as usize]);
            rings.push(ring.map_err(|error| self.refused(&error))?);
            let sender = system.adopt_sender(sender, bypass, carries);
            senders.push(sender.map_err(|error| self.refused(&error))?);
        }
        Ok((rings, senders))
    }

    /// The queues of a TAP.
    pub(super) fn queues<S: System>(
        mut self,
        system: &S,
        carries: Carries,
    ) -> Result<Vec<S::Queue>, OpenError> {
        let mut queues = Vec::new();
        for Descriptors { fds, numbers } in std::mem::take(&mut self.all) {
            let (Ok([queue]), [carried]) = (<[_; 1]>::try_from(fds), &numbers[..]) else {
                return Err(self.unfit("is of another kind in the running process"));
            };
            let carried = Carries::of_bits(*carried);
            // The kernel may know less than is configured.
            if carried.csum() != carries.csum() || carries.or(carried) != carries {
                return Err(self.unfit("has another 'offload' in the running process"));
            }
            let queue = system.adopt_queue(queue, carried);
            queues.push(queue.map_err(|error| self.refused(&error))?);
        }
        Ok(queues)
    }

    /// The sockets of an AF_XDP port, their queues, and the programs, of which all but the first are the same.
    pub(super) fn sockets<S: System>(
        mut self,
        system: &S,
        umem: &Umem,
    ) -> Result<Vec<Taken<S>>, OpenError> {
        let mut sockets = Vec::new();
        for Descriptors { fds, numbers } in std::mem::take(&mut self.all) {
            let (Ok([socket, link, map]), [frames, queue, attached]) =
                (<[_; 3]>::try_from(fds), &numbers[..])
            else {
                return Err(self.unfit("is of another kind in the running process"));
            };
            let attached = if *attached == 0 { Attached::Driver } else { Attached::Generic };
            let program = system.adopt_program([link, map], attached);
            let program = program.map_err(|error| self.refused(&error))?;
            let socket = system.adopt_socket(socket, umem, *frames as u32).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EBUSY | libc::EINVAL) => {
                        self.unfit("cannot be taken over: AF_XDP sockets need Linux 6.4 for that")
                    }
                    _ => self.refused(&error),
                }
            })?;
            sockets.push((socket, *queue as u32, program));
        }
        Ok(sockets)
    }

    fn same(&self, carries: Carries, carried: u64) -> Result<(), OpenError> {
        if carries.bits() == carried {
            return Ok(());
        }
        Err(self.unfit("has another 'offload' in the running process"))
    }
}
