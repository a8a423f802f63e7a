//! Least privilege: once everything is open, nothing may be opened any more that needs a right.
//!
//! ```text
//!  root: build ports, bind sockets ──> group, user ──> no capability, no new privileges ──> threads
//! ```
//!
//! Capabilities and ids belong to threads, and new threads inherit them: so this comes before any
//! thread is started, and holds for the whole process.

use std::fs;
use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid,
};

/// Why a privilege could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// There is no such user.
    #[error("--user: no user '{0}' in /etc/passwd; name one that exists")]
    User(String),
    /// Threads have been started already: they would keep what this one gives up.
    #[error("{0} threads run already: privileges are given up before any is started")]
    Threads(usize),
    /// The system said no.
    #[error("{what}: {source}; run as root, or leave it out")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// A user and its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user of this name in /etc/passwd.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(name: &str) -> Result<Self, PrivilegeError> {
        Self::among(&fs::read_to_string("/etc/passwd").unwrap_or_default(), name)
            .ok_or_else(|| PrivilegeError::User(name.into()))
    }

    fn among(passwd: &str, name: &str) -> Option<Self> {
        let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let line = lines.find(|line| line.first() == Some(&name))?;
        Some(Self { uid: line.get(2)?.parse().ok()?, gid: line.get(3)?.parse().ok()? })
    }
}

/// What is kept: the capabilities that opening ports of these kinds (`af_packet`, `af_xdp`, `tap`)
/// takes, for when an interface is replaced by another of its name. Other kinds take none.
#[must_use]
pub fn to_open<'a>(kinds: impl IntoIterator<Item = &'a str>) -> CapabilitySet {
    let need = |kind: &str| match kind {
        "af_packet" => CapabilitySet::NET_RAW,
        "af_xdp" => CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF,
        "tap" => CapabilitySet::NET_ADMIN,
        _ => CapabilitySet::empty(),
    };
    kinds.into_iter().map(need).fold(CapabilitySet::empty(), |all, one| all | one)
}

/// What root needs to write to a folder that is another's.
pub const TO_WRITE: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// Becomes `user`, if one is named, and gives up every capability but those of `keep`, for this
/// and all threads that are started later. Returns the names of those that were given up.
///
/// # Errors
/// When threads run already, or the system says no; what was given up by then stays so.
pub fn give_up(
    user: Option<User>,
    keep: CapabilitySet,
) -> Result<Vec<&'static str>, PrivilegeError> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(PrivilegeError::Threads(threads));
    }
    let io =
        |what| move |error: rustix::io::Errno| PrivilegeError::Io { what, source: error.into() };
    let had = capabilities(None).map_err(io("reading capabilities"))?;
    let kept = had.permitted & keep;
    if let Some(User { uid, gid }) = user {
        set_keep_capabilities(true).map_err(io("keeping capabilities"))?;
        set_thread_groups(&[]).map_err(io("leaving groups"))?;
        set_thread_gid(Gid::from_raw(gid)).map_err(io("changing the group"))?;
        set_thread_uid(Uid::from_raw(uid)).map_err(io("changing the user"))?;
    }
    let inheritable = CapabilitySet::empty();
    let few = CapabilitySets { effective: kept, permitted: kept, inheritable };
    let _old_kernel = clear_ambient_capability_set(); // they go with the permitted ones anyway
    set_capabilities(None, few).map_err(io("giving up capabilities"))?;
    set_no_new_privs(true).map_err(io("no new privileges"))?;
    Ok((had.effective - kept).iter_names().map(|(name, _)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nyard:x:990:991::/:/bin/false\nbad:x:y:z\n";
        assert_eq!(User::among(passwd, "yard"), Some(User { uid: 990, gid: 991 }));
        assert_eq!((User::among(passwd, "yar"), User::among(passwd, "bad")), (None, None));
    }

    #[test]
    fn what_opening_takes_is_kept_by_kind() {
        assert_eq!(to_open(["mem", "pcap"]), CapabilitySet::empty());
        assert_eq!(
            to_open(["af_packet", "tap"]),
            CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN
        );
        assert!(to_open(["af_xdp"]).contains(CapabilitySet::BPF));
    }

    #[test]
    fn with_threads_about_nothing_is_given_up() {
        // The test runner is a thread besides this one.
        assert!(matches!(give_up(None, CapabilitySet::empty()), Err(PrivilegeError::Threads(_))));
    }
}
