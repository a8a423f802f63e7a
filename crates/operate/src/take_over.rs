//! Taking over from a running process, by the protocol of [`crate::handover`].
//!
//! Thread-safety: used by one thread.

use std::io::{self, BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flowyard_config::OpenedPort;
use flowyard_pool::PoolMemory;
use flowyard_yard::handover::{CoreState, YardState};
use flowyard_yard::port::Descriptors;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::client::{Client, ClientError, answer_of};
use crate::handover::{AT_ONCE, COMMITS, DRAINS, Offer, OfferedPort, Sizes, VERSION};
use crate::protocol::Request;

/// The most bytes of a state: no more than the connections of a large balancer need.
const LARGEST: u64 = 64 << 30;

/// Why a running process could not be taken over; it goes on.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// It cannot be reached, or has refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It has another version of the protocol.
    #[error(
        "the running process hands over by version {0} of the protocol and this program takes over by version {VERSION}; stop it and start this one"
    )]
    Version(u32),
    /// The connection failed.
    #[error("taking over from the running process: {0}; it goes on")]
    Io(#[from] io::Error),
    /// It did not say that it is gone.
    #[error("the running process did not confirm that it is gone ({0}); see its log")]
    Unconfirmed(String),
}

/// A running process that is to be taken over.
#[derive(Debug)]
pub struct Running {
    reader: BufReader<UnixStream>,
    secret: [u8; 16],
    named: Vec<(String, OwnedFd)>,
    pool: Option<PoolMemory>,
    /// The names of its ports, by number.
    names: Vec<String>,
    /// How its ports were opened.
    opened: Vec<OpenedPort>,
    /// By the name of a port, its descriptors by core.
    ports: Vec<(String, u16, Descriptors)>,
}

impl Running {
    /// Asks the process with this control socket to hand over. It goes on while this value exists.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub fn ask(control: &Path) -> Result<Self, TakeOverError> {
        let mut client = Client::connect(Some(control))?;
        let offer: Offer = client.ask(&Request::HandOver)?;
        if offer.version != VERSION {
            return Err(TakeOverError::Version(offer.version));
        }
        let reader = client.into_reader();
        let of_ports: usize = offer.cores.iter().flatten().map(|port| port.fds).sum();
        let count = offer.named.len() + usize::from(offer.pool.is_some()) + of_ports;
        reader.get_ref().write_all(b"descriptors\n")?;
        let mut fds = receive_fds(reader.get_ref(), count)?.into_iter();
        let names = offer.named.into_iter();
        let named = names.map_while(|name| Some((name, fds.next()?))).collect();
        let pool = offer
            .pool
            .and_then(|(frames, bytes)| Some(PoolMemory { file: fds.next()?, frames, bytes }));
        let mut ports = Vec::new();
        for (core, offered) in (0..).zip(offer.cores) {
            for OfferedPort { port, fds: count, numbers } in offered {
                let name = offer.ports.get(usize::from(port)).cloned().unwrap_or_default();
                let fds = fds.by_ref().take(count).collect();
                ports.push((name, core, Descriptors { fds, numbers }));
            }
        }
        let (secret, opened) = (offer.secret, offer.opened);
        Ok(Self { reader, secret, named, pool, names: offer.ports, opened, ports })
    }

    /// The random bytes that the keys of its tables are derived from.
    #[must_use]
    pub const fn secret(&self) -> [u8; 16] {
        self.secret
    }

    /// Takes the descriptor with this name out.
    pub fn descriptor(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.named.iter().position(|(one, _)| one == name)?;
        Some(self.named.swap_remove(at).1)
    }

    /// Takes the descriptors of all ports out, with the names of the ports and the cores.
    pub fn ports(&mut self) -> Vec<(String, u16, Descriptors)> {
        std::mem::take(&mut self.ports)
    }

    /// The names of its ports.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How its ports were opened; empty if it is of a version that does not say so.
    #[must_use]
    pub fn opened(&self) -> &[OpenedPort] {
        &self.opened
    }

    /// Takes the memory of its pool out.
    pub fn pool(&mut self) -> Option<PoolMemory> {
        self.pool.take()
    }

    /// Lets it pause, and returns its state, in which ports have the numbers that `number` gives to their names. Positions
    /// of other ports are left out. It goes on if this value is dropped.
    ///
    /// # Errors
    /// Its frames did not leave, or the connection failed.
    pub fn freeze(
        mut self,
        number: impl Fn(&str) -> Option<u16>,
    ) -> Result<(Frozen, YardState), TakeOverError> {
        self.reader.get_mut().write_all(b"freeze\n")?;
        let sizes: Sizes = read(&mut self.reader, DRAINS + Duration::from_secs(40))?;
        let mut state = YardState::default();
        for (ports, bytes) in sizes.cores {
            let work = exactly(&mut self.reader, bytes)?;
            let here = |(there, position): (u16, Vec<u64>)| {
                Some((number(self.names.get(usize::from(there))?)?, position))
            };
            let ports = ports.into_iter().filter_map(here).collect();
            state.cores.push(Arc::new(CoreState { ports, work }));
        }
        for (kind, bytes) in sizes.control {
            state.control.push((kind, exactly(&mut self.reader, bytes)?));
        }
        Ok((Frozen(self.reader), state))
    }
}

/// A paused process that waits for another one to take over.
#[derive(Debug)]
pub struct Frozen(BufReader<UnixStream>);

impl Frozen {
    /// Takes over: the other process ends without closing its ports.
    ///
    /// # Errors
    /// It did not confirm; then this process must not start.
    pub fn commit(mut self) -> Result<(), TakeOverError> {
        self.0.get_mut().write_all(b"commit\n")?;
        let gone: Result<String, _> = read(&mut self.0, COMMITS);
        match gone {
            Ok(word) if word == "gone" => Ok(()),
            Ok(word) => Err(TakeOverError::Unconfirmed(word)),
            Err(error) => Err(TakeOverError::Unconfirmed(error.to_string())),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(
    reader: &mut BufReader<UnixStream>,
    within: Duration,
) -> Result<T, TakeOverError> {
    reader.get_ref().set_read_timeout(Some(within))?;
    let mut line = Vec::new();
    if reader.read_until(b'\n', &mut line)? == 0 {
        return Err(ClientError::Gone("it closed the connection".into()).into());
    }
    Ok(answer_of(&line)?)
}

fn exactly(reader: &mut impl Read, bytes: u64) -> io::Result<Vec<u8>> {
    if bytes > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the state is too large"));
    }
    let mut all = Vec::new();
    reader.take(bytes).read_to_end(&mut all)?;
    if all.len() as u64 != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(all)
}

/// Receives `count` descriptors.
fn receive_fds(stream: &UnixStream, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut all = Vec::new();
    while all.len() < count {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let into = &mut [IoSliceMut::new(&mut byte)];
        let got = recvmsg(stream, into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let before = all.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                all.extend(fds);
            }
        }
        if got.bytes == 0 || all.len() == before {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "descriptors of the running process did not arrive; is the limit of open files (ulimit -n) reached?",
            ));
        }
    }
    Ok(all)
}
