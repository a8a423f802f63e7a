//! Binding of Unix sockets.
//!
//! ```text
//!  lock file ──try, 0.5 s──> who answers on PATH? ──nobody──> private folder ──> socket, mode ──rename──> PATH
//! ```
//!
//! Nothing here waits for another process for longer than half a second. The lock of two starts is a file of
//! this user that no other user can open, because a lock on the folder could be held by every user who may
//! read it. In a folder that all users may write to, another user can create a file of the lock's name first;
//! that is an error which names the file and its owner.
//!
//! Invariants: at most one process listens on a path, and the path never has another mode.
//! Thread-safety: plain functions. Two threads that bind one path compete as two processes do.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

/// How long another start may take with the same socket.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pause between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(10);

/// A socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another process listens on this path.
    #[error("another process listens on it")]
    Taken,
    /// The path exists and is not a socket.
    #[error("the file exists and is not a socket")]
    NoSocket,
    /// Another process that is starting uses the same path.
    #[error(
        "{} holds the lock {}, which a start with this socket takes for a moment; end that process, or choose another \
         socket", who(*holder), lock.display()
    )]
    Locked {
        /// The lock file.
        lock: PathBuf,
        /// The process that holds the lock, if the kernel tells.
        holder: Option<u32>,
    },
    /// The name of the lock file is taken.
    #[error(
        "the lock {} is not a regular file of this user (its owner is user {owner}); remove it, or choose a socket in a folder \
         that only you may write to, such as /run/flowyard", lock.display()
    )]
    Foreign {
        /// The lock file.
        lock: PathBuf,
        /// The ID of its owner.
        owner: u32,
    },
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn who(holder: Option<u32>) -> String {
    holder.map_or_else(|| "another process".into(), |pid| format!("process {pid}"))
}

/// A listener on a path, which is removed when this is dropped, unless it is another socket by then.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The device and number of the socket's inode.
    inode: Option<(u64, u64)>,
}

impl SocketFile {
    /// The socket that is at `path` now.
    pub(crate) fn of(path: &Path) -> Self {
        Self { inode: inode(path), path: path.into() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.inode.is_some() && inode(&self.path) == self.inode {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

/// Listens on `path` with this mode and group. A socket on which no process listens is replaced.
///
/// # Errors
/// Another process listens on the path or is about to, it is not a socket, or a system call fails.
pub(crate) fn bind(
    path: &Path,
    mode: u32,
    gid: Option<u32>,
) -> Result<(UnixListener, SocketFile), SocketError> {
    let folder = folder(path);
    let _lock = Lock::take(path)?;
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NoSocket),
        Ok(_) if is_answered(path)? => return Err(SocketError::Taken),
        Ok(_) => tracing::info!(path = %path.display(), "replacing a stale socket"),
    }
    let private = private_folder(folder)?;
    let bound = bind_in(&private, path, mode, gid);
    // Not remove_dir_all, which needs a file descriptor.
    let _moved = fs::remove_file(private.join(SOCKET));
    let _gone = fs::remove_dir(&private);
    let listener = bound?;
    Ok((listener, SocketFile { inode: inode(path), path: path.into() }))
}

/// The folder of `path`.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether all users may create files in the folder of `path`.
pub(crate) fn is_in_a_common_folder(path: &Path) -> bool {
    fs::metadata(folder(path)).is_ok_and(|about| about.mode() & 0o002 != 0)
}

/// Whether a process listens on the socket. Does not wait if its queue of connections is full.
pub(crate) fn is_answered(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The name of a socket in its private folder.
const SOCKET: &str = "s";

/// Creates a folder with a random name that only this user may enter.
fn private_folder(folder: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 6];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let mut name = String::from(".fy-");
    random.iter().for_each(|byte| {
        let _infallible = write!(name, "{byte:02x}");
    });
    let private = folder.join(name);
    DirBuilder::new().mode(0o700).create(&private)?;
    Ok(private)
}

/// Binds in the private folder, sets the socket's mode, and moves it to `path`.
fn bind_in(private: &Path, path: &Path, mode: u32, gid: Option<u32>) -> io::Result<UnixListener> {
    let socket = private.join(SOCKET);
    let listener = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(mode))?;
    if let Some(gid) = gid {
        chown(&socket, None, Some(gid))?;
    }
    fs::rename(&socket, path)?;
    Ok(listener)
}

/// The lock of a start. The file is removed when this is dropped.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock for the socket `path`.
    fn take(path: &Path) -> Result<Self, SocketError> {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".lock");
        let path = folder(path).join(name);
        let mut waited = Duration::ZERO;
        loop {
            if let Ok(found) = fs::symlink_metadata(&path) {
                own(&path, &found)?;
            }
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path)?;
            let about = file.metadata()?;
            own(&path, &about)?;
            match file.try_lock() {
                // The process that held the lock may have removed the file before.
                Ok(()) if inode(&path) == Some((about.dev(), about.ino())) => {
                    return Ok(Self { path, _file: file });
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if waited < PATIENCE => {
                    std::thread::sleep(PAUSE);
                    waited += PAUSE;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(SocketError::Locked { lock: path, holder: holder(about.ino()) });
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
    }
}

/// Refuses a lock file that another user may have locked for ever.
fn own(path: &Path, about: &fs::Metadata) -> Result<(), SocketError> {
    if about.is_file() && about.uid() == geteuid().as_raw() {
        return Ok(());
    }
    Err(SocketError::Foreign { lock: path.into(), owner: about.uid() })
}

/// The process that holds a lock on the file with this inode, if that is known (proc_locks(5)).
fn holder(inode: u64) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let wanted = format!(":{inode}");
    let of = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, pid) = (words.next()?, words.nth(2)?);
        (kind == "FLOCK" && words.next()?.ends_with(&wanted)).then(|| pid.parse().ok())?
    };
    locks.lines().find_map(of).filter(|&pid| pid > 0)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::disallowed_methods,
        reason = "the tests are about the time that a start takes"
    )]
    use std::time::Instant;

    use super::*;

    fn refusal(path: &Path) -> String {
        let began = Instant::now();
        let error = bind(path, 0o600, None).expect_err("it is refused");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        error.to_string()
    }

    #[test]
    fn a_lock_on_the_folder_does_not_delay_a_start() {
        let folder = tempfile::tempdir().unwrap();
        let held = File::open(folder.path()).unwrap();
        held.lock().unwrap();
        let path = folder.path().join("yard.sock");
        let (_listener, file) = bind(&path, 0o640, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the socket is left");
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn the_lock_of_a_start_is_tried_and_its_holder_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("yard.sock");
        let lock = Lock::take(&path).unwrap();
        let said = refusal(&path);
        let file = folder.path().join(".yard.sock.lock");
        assert!(said.contains(&format!("the lock {}", file.display())), "{said}");
        let pid = format!("process {} holds", std::process::id());
        assert!(said.starts_with(&pid) || said.starts_with("another process holds"), "{said}");
        drop(lock);
        assert!(bind(&path, 0o600, None).is_ok());
    }

    #[test]
    fn a_lock_file_of_another_kind_or_user_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("yard.sock"), folder.path().join(".yard.sock.lock"));
        fs::create_dir(&file).unwrap();
        let said = refusal(&path);
        assert!(said.contains("is not a regular file of this user"), "{said}");
        assert!(said.contains("such as /run/flowyard"), "{said}");
        fs::remove_dir(&file).unwrap();
        std::os::unix::fs::symlink("/nonexistent", &file).unwrap();
        assert!(refusal(&path).contains("is not a regular file of this user"));
        fs::remove_file(&file).unwrap();
        if geteuid().is_root() {
            fs::write(&file, "").unwrap();
            chown(&file, Some(65_534), None).unwrap();
            assert!(refusal(&path).contains("its owner is user 65534"));
        }
    }

    #[test]
    fn a_listener_that_accepts_nothing_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("yard.sock");
        let socket = || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
        };
        let address = SocketAddrUnix::new(&path).unwrap();
        let hung = socket();
        rustix::net::bind(&hung, &address).unwrap();
        rustix::net::listen(&hung, 1).unwrap();
        let mut waiting = Vec::new();
        loop {
            let socket = socket();
            match connect(&socket, &address) {
                Ok(()) => waiting.push(socket),
                Err(error) => break assert_eq!(error, Errno::AGAIN),
            }
        }
        assert_eq!(refusal(&path), "another process listens on it");
    }

    #[test]
    fn the_socket_of_a_successor_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("yard.sock");
        let (listener, file) = bind(&path, 0o600, None).unwrap();
        drop(listener);
        let (_next, other) = bind(&path, 0o600, None).unwrap();
        drop(file);
        assert!(path.exists());
        drop(other);
        assert!(!path.exists());
    }
}
