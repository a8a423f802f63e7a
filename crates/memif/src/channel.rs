//! The socket of the control channel: messages of 128 bytes, with a descriptor where they have one.

use std::fs;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};

use crate::message::{MESSAGE_BYTES, Message};

/// Why an interface cannot be opened, and how to fix that.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}; {fix}")]
pub struct OpenError {
    /// What failed.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

pub(crate) fn address(path: &Path) -> Result<SocketAddrUnix, OpenError> {
    SocketAddrUnix::new(path).map_err(|error| OpenError {
        what: format!("'{}' is not a path of a socket: {error}", path.display()),
        fix: "write a path of at most 107 bytes".into(),
    })
}

pub(crate) fn seqpacket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Listens at `path`. A file that nobody listens on is replaced.
pub(crate) fn listener(path: &Path) -> Result<OwnedFd, OpenError> {
    let at = address(path)?;
    let failed = |error: rustix::io::Errno| OpenError {
        what: format!("listening on '{}' failed: {error}", path.display()),
        fix: "make sure that its folder exists and may be written to".into(),
    };
    let socket = seqpacket().map_err(failed)?;
    if let Err(error) = bind(&socket, &at) {
        if error != rustix::io::Errno::ADDRINUSE {
            return Err(failed(error));
        }
        let probe = seqpacket().map_err(failed)?;
        if connect(&probe, &at) != Err(rustix::io::Errno::CONNREFUSED) {
            return Err(OpenError {
                what: format!("'{}' is in use by another program", path.display()),
                fix: "stop that program, or name another socket".into(),
            });
        }
        fs::remove_file(path).map_err(|error| OpenError {
            what: format!("'{}' cannot be removed: {error}", path.display()),
            fix: "remove it, or name another socket".into(),
        })?;
        bind(&socket, &at).map_err(failed)?;
    }
    listen(&socket, 8).map_err(failed)?;
    Ok(socket)
}

pub(crate) fn send(
    socket: &OwnedFd,
    message: &Message,
    fd: Option<BorrowedFd<'_>>,
) -> Result<(), String> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fd.into_iter().collect();
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let bytes = message.encode();
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
        .map(drop)
        .map_err(|error| format!("the control channel: {error}"))
}

/// The next message; `None` if none has come.
pub(crate) fn receive(socket: &OwnedFd) -> Result<Option<(Message, Option<OwnedFd>)>, String> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let mut to = [rustix::io::IoSliceMut::new(&mut bytes)];
    let got = match recvmsg(socket, &mut to, &mut control, RecvFlags::CMSG_CLOEXEC) {
        Ok(got) => got.bytes,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        Err(error) => return Err(format!("the control channel: {error}")),
    };
    if got == 0 {
        return Err("the other side is gone".into());
    }
    let fd = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .next();
    let message = Message::decode(&bytes[..got]).map_err(|error| error.to_string())?;
    Ok(Some((message, fd)))
}
