//! The socket of the protocol: listening and connecting.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Why a port cannot be opened, and how to fix that.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}; {fix}")]
pub struct OpenError {
    /// What failed.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

/// Checks that `path` can be the path of a socket.
///
/// # Errors
/// When it cannot.
pub(crate) fn check(path: &Path) -> Result<(), OpenError> {
    rustix::net::SocketAddrUnix::new(path).map(drop).map_err(|error| OpenError {
        what: format!("'{}' is not a path of a socket: {error}", path.display()),
        fix: "write a path of at most 107 bytes".into(),
    })
}

/// Listens at `path`. A socket that nobody listens on is replaced.
///
/// # Errors
/// When another program listens there, or the socket cannot be created.
pub(crate) fn listener(path: &Path) -> Result<UnixListener, OpenError> {
    check(path)?;
    let failed = |error: Error| OpenError {
        what: format!("listening on '{}' failed: {error}", path.display()),
        fix: "make sure that its folder exists and may be written to".into(),
    };
    let listener = match UnixListener::bind(path) {
        Ok(listener) => listener,
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let refused = |error: &Error| error.kind() == ErrorKind::ConnectionRefused;
            if !UnixStream::connect(path).is_err_and(|error| refused(&error)) {
                return Err(OpenError {
                    what: format!("'{}' is in use by another program", path.display()),
                    fix: "stop that program, or name another socket".into(),
                });
            }
            fs::remove_file(path).map_err(|error| OpenError {
                what: format!("'{}' cannot be removed: {error}", path.display()),
                fix: "remove it, or name another socket".into(),
            })?;
            UnixListener::bind(path).map_err(failed)?
        }
        Err(error) => return Err(failed(error)),
    };
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}
