//! Errors of ports on interfaces: why one cannot be opened, and what an error of the kernel means.

use std::io;

/// Why a port cannot be opened, and how to fix that.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}; {fix}")]
pub struct OpenError {
    /// What failed.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl OpenError {
    pub(crate) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }

    /// The operation `doing` failed; `capability` is what it requires.
    pub(crate) fn os(doing: &str, error: &io::Error, capability: &str) -> Self {
        let fix = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                format!(
                    "run as root, or grant the program {capability} (setcap, or AmbientCapabilities in \
                     systemd)"
                )
            }
            Some(libc::ENOMEM | libc::ENOBUFS) => {
                "reduce 'ring_frames', or raise the limit of locked memory (ulimit -l)".into()
            }
            Some(libc::ENODEV | libc::ENXIO) => {
                "list the existing interfaces with 'ip link'".into()
            }
            Some(libc::EBUSY) => "another program uses it; stop that program first".into(),
            _ => "look for messages of the kernel in 'dmesg'".into(),
        };
        Self::new(format!("{doing} failed: {error}"), fix)
    }
}

/// Whether `error` means that the interface is down or gone.
#[must_use]
pub fn is_down(error: &io::Error) -> bool {
    use libc::{EBADFD, EFAULT, EIO, ENETDOWN, ENODEV, ENXIO};
    // A TAP interface reports EIO, EBADFD or EFAULT.
    matches!(error.raw_os_error(), Some(ENETDOWN | ENXIO | ENODEV | EIO | EBADFD | EFAULT))
}

/// Whether `error` of a TAP queue means that it is attached to no interface.
#[must_use]
pub fn is_detached(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

/// Whether `error` means that the kernel has no space at the moment, or that the call was
/// interrupted, so that a retry may succeed.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    use libc::{EAGAIN, EBUSY, EINTR, ENOBUFS, ENOMEM};
    matches!(error.raw_os_error(), Some(EAGAIN | ENOBUFS | ENOMEM | EBUSY | EINTR))
}

/// Whether `error` means that a frame is too long for the interface.
#[must_use]
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}
