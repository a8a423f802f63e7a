//! Files of a configuration: regular files of a limited size.
//!
//! A configuration is read again while flowyard runs. A FIFO would be waited for, and a device such as
//! `/dev/zero` never ends.

use std::fs::{File, FileType, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The largest size of a file, in bytes.
pub const LONGEST: u64 = 16 << 20;

/// A file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A system call failed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is a FIFO, a device, a directory or a socket.
    #[error("this is {0} and not a regular file")]
    Kind(&'static str),
    /// It is too large.
    #[error("the file has more than {} bytes (16 MiB), the limit for a configuration", LONGEST)]
    Size,
    /// It is not text.
    #[error("this is not a text file")]
    NoText,
}

/// Reads a whole file.
///
/// # Errors
/// It is not a regular file, has more than [`LONGEST`] bytes, or cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    // Opening a device can have an effect, so it is not opened.
    regular(&std::fs::metadata(path)?)?;
    // The opening of a FIFO waits for its writer otherwise.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    regular(&about)?;
    let mut bytes = Vec::new();
    if about.len() <= LONGEST {
        file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    }
    if about.len().max(bytes.len() as u64) > LONGEST {
        return Err(FileError::Size);
    }
    Ok(bytes)
}

/// Reads a whole file of text.
///
/// # Errors
/// As [`read`], or it is not UTF-8.
pub fn text(path: &Path) -> Result<String, FileError> {
    String::from_utf8(read(path)?).map_err(|_| FileError::NoText)
}

/// Whether users other than its owner and its group may read the file.
#[must_use]
pub fn is_for_everyone(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.mode() & 0o004 != 0)
}

/// Whether two paths name one regular file, or one that does not exist yet: also through links or other spellings.
#[must_use]
pub fn is_same(one: &Path, other: &Path) -> bool {
    match (std::fs::metadata(one), std::fs::metadata(other)) {
        (Ok(one), Ok(other)) => {
            one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        (Err(_), Err(_)) => one == other || target(one).is_some_and(|it| target(other) == Some(it)),
        _ => false,
    }
}

/// The path of a file that does not exist yet, without links in it.
fn target(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..40 {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        let name = folder.join(path.file_name()?);
        match name.read_link() {
            Ok(to) => path = folder.join(to),
            Err(_) => return Some(name),
        }
    }
    None
}

fn regular(about: &Metadata) -> Result<(), FileError> {
    let kind = about.file_type();
    if kind.is_file() { Ok(()) } else { Err(FileError::Kind(name(kind))) }
}

fn name(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a FIFO or pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_limited_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("yard.toml");
        let said = |path: &Path| read(path).unwrap_err().to_string();
        assert!(said(&path).contains("No such file"));
        std::fs::write(&path, "[yard]\n").unwrap();
        assert_eq!(text(&path).unwrap(), "[yard]\n");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(text(&path).unwrap_err().to_string(), "this is not a text file");
        assert_eq!(said(folder.path()), "this is a directory and not a regular file");
        for device in ["/dev/zero", "/dev/null", "/dev/full"] {
            assert_eq!(said(Path::new(device)), "this is a device and not a regular file");
        }
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert_eq!(said(&fifo), "this is a FIFO or pipe and not a regular file");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(said(&socket), "this is a socket and not a regular file");
        // A file without blocks on the disk.
        File::create(&path).unwrap().set_len(LONGEST).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, LONGEST);
        File::create(&path).unwrap().set_len(LONGEST + 1).unwrap();
        let limit = "the file has more than 16777216 bytes (16 MiB), the limit for a configuration";
        assert_eq!(said(&path), limit);
    }
}
