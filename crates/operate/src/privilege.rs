//! Least privilege: gives up the user, groups and capabilities that are not needed after the start.
//!
//! ```text
//!  root: build ports, bind sockets ──> group, user ──> no capability, no new privileges ──> threads
//! ```
//!
//! Capabilities and IDs belong to threads, and a new thread inherits those of its creator. They are
//! therefore given up before any thread is started, so that this holds for the whole process.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use crate::accounts::{self, Account};
use rustix::fs::{Access, access};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_gid, set_thread_groups, set_thread_uid,
};

/// Privileges could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The user does not exist.
    #[error("--user: there is no user '{0}'; name an existing user")]
    User(String),
    /// The user database could not be read.
    #[error("--user: looking up '{name}' failed: {source}; check /etc/nsswitch.conf")]
    Lookup {
        /// The name in the request.
        name: String,
        /// The error of the lookup.
        source: io::Error,
    },
    /// Other threads run already; they would keep the privileges.
    #[error("{0} threads are running, but privileges must be given up before a thread is started")]
    Threads(usize),
    /// A system call failed.
    #[error("{what} failed: {source}; run as root, or leave out --user")]
    Io {
        /// The attempted change.
        what: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

/// A user with its primary group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct User(Account);

impl User {
    /// The user with this name.
    ///
    /// # Errors
    /// There is no such user, or the lookup failed.
    pub fn find(name: &str) -> Result<Self, PrivilegeError> {
        let wrong = |source| PrivilegeError::Lookup { name: name.into(), source };
        Self::look_up(name).map_err(wrong)?.ok_or_else(|| PrivilegeError::User(name.into()))
    }

    /// The user with this name, if there is one.
    ///
    /// # Errors
    /// The lookup failed.
    pub fn look_up(name: &str) -> io::Result<Option<Self>> {
        Ok(accounts::user(name)?.map(Self))
    }

    /// The user with these IDs.
    pub(crate) const fn new(uid: u32, gid: u32) -> Self {
        Self(Account { uid, gid })
    }

    pub(crate) const fn uid(self) -> u32 {
        self.0.uid
    }

    pub(crate) const fn gid(self) -> u32 {
        self.0.gid
    }

    /// Whether this user, without capabilities and other groups than its own, has this access to each path. The
    /// kernel answers, so access control lists and the folders above count, too. To be called by root.
    ///
    /// A thread changes to the user and ends; the process stays root.
    ///
    /// # Errors
    /// The thread cannot be started, or cannot change to the user.
    pub fn may(self, paths: &[(&Path, Access)]) -> io::Result<Vec<bool>> {
        let before = threads();
        let ask = || -> io::Result<Vec<bool>> {
            set_thread_groups(&[])?;
            set_thread_gid(Gid::from_raw(self.0.gid))?;
            set_thread_uid(Uid::from_raw(self.0.uid))?;
            Ok(paths.iter().map(|&(path, wanted)| access(path, wanted).is_ok()).collect())
        };
        let asked = thread::scope(|scope| {
            let thread = thread::Builder::new().name("access".into()).spawn_scoped(scope, ask)?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
        });
        // The kernel lists a thread for a moment after it has ended, and `give_up` refuses to run beside others.
        for _ in 0..1000 {
            if threads() <= before {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        asked
    }

    /// Whether this process has this user already.
    #[must_use]
    pub fn is_own(self) -> bool {
        geteuid().as_raw() == self.0.uid
    }

    /// Whether this is root.
    #[must_use]
    pub const fn is_root(self) -> bool {
        self.0.uid == 0
    }

    /// Changes to this user, without any capability or other group.
    ///
    /// # Errors
    /// A system call failed, or root is left in some form.
    pub(crate) fn become_only(self) -> Result<(), String> {
        give_up(Some(self), CapabilitySet::empty()).map_err(|error| match error {
            PrivilegeError::Io { what, source } => format!("{what} failed: {source}"),
            error => error.to_string(),
        })?;
        let left = capabilities(None).map_err(|error| error.to_string())?;
        let uids = [rustix::process::getuid(), rustix::process::geteuid()];
        if left.permitted.is_empty() && uids.iter().all(|uid| uid.as_raw() == self.0.uid) {
            return Ok(());
        }
        Err(format!("after the change to user {} it has other rights", self.0.uid))
    }
}

/// The capabilities that are needed to open ports of these kinds (`af_packet`, `af_xdp`, `tap`; other
/// kinds need none). They are kept, so that a port can be opened again when its interface is replaced
/// by another one of the same name.
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

/// The capability that is needed to change routes of the kernel.
pub const TO_ROUTE: CapabilitySet = CapabilitySet::NET_ADMIN;

/// The capability that root needs to write to a folder that belongs to another user.
pub const TO_WRITE: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// Changes to `user`, if given, and gives up all capabilities except `keep`, for this thread and all
/// threads started later. Returns the names of the capabilities that were given up.
///
/// # Errors
/// Other threads run already, or a system call fails. Privileges given up before the failure stay
/// given up.
pub fn give_up(
    user: Option<User>,
    keep: CapabilitySet,
) -> Result<Vec<&'static str>, PrivilegeError> {
    let threads = threads();
    if threads > 1 {
        return Err(PrivilegeError::Threads(threads));
    }
    let io =
        |what| move |error: rustix::io::Errno| PrivilegeError::Io { what, source: error.into() };
    let had = capabilities(None).map_err(io("reading capabilities"))?;
    let kept = had.permitted & keep;
    if let Some(User(Account { uid, gid })) = user {
        set_keep_capabilities(true).map_err(io("keeping capabilities"))?;
        set_thread_groups(&[]).map_err(io("leaving groups"))?;
        set_thread_gid(Gid::from_raw(gid)).map_err(io("changing the group"))?;
        set_thread_uid(Uid::from_raw(uid)).map_err(io("changing the user"))?;
    }
    let inheritable = CapabilitySet::empty();
    let few = CapabilitySets { effective: kept, permitted: kept, inheritable };
    // Fails on old kernels, where ambient capabilities are removed with the permitted ones anyway.
    let _old_kernel = clear_ambient_capability_set();
    set_capabilities(None, few).map_err(io("giving up capabilities"))?;
    set_no_new_privs(true).map_err(io("setting no_new_privs"))?;
    Ok((had.effective - kept).iter_names().map(|(name, _)| name).collect())
}

/// Starts a program with the capabilities that this process has kept. A program of a user other than root would
/// otherwise have none.
///
/// # Errors
/// The program or a thread cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    // Capabilities belong to threads, and a process inherits those of the thread that starts it.
    let start = || {
        let mut own = capabilities(None)?;
        own.inheritable = own.permitted;
        set_capabilities(None, own)?;
        for capability in own.permitted.iter() {
            configure_capability_in_ambient_set(capability, true)?;
        }
        command.spawn()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("spawn".into()).spawn_scoped(scope, start)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
    })
}

/// The number of threads of this process.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_to_open_ports_are_kept() {
        assert_eq!(to_open(["mem", "pcap"]), CapabilitySet::empty());
        assert_eq!(
            to_open(["af_packet", "tap"]),
            CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN
        );
        assert!(to_open(["af_xdp"]).contains(CapabilitySet::BPF));
    }

    #[test]
    fn nothing_is_given_up_while_other_threads_run() {
        // The test runner has a thread besides this one.
        assert!(matches!(give_up(None, CapabilitySet::empty()), Err(PrivilegeError::Threads(_))));
    }
}
