//! Files that are written completely or not at all: a temporary file in the same folder replaces the file of that
//! name when it is complete and on the disk.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot write the {what}: {source}; {}", path.display(), self.fix())]
pub struct WriteError {
    /// The file that was to be written; it is unchanged.
    pub path: PathBuf,
    /// What the file was to contain, in one word.
    pub what: &'static str,
    /// The error of the system.
    pub source: std::io::Error,
}

impl WriteError {
    /// Whether the name is wrong, or the folder not one that the user may write to, rather than the disk full or
    /// failing.
    #[must_use]
    pub fn is_wrong_use(&self) -> bool {
        use ErrorKind::{
            InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied,
            ReadOnlyFilesystem,
        };
        matches!(
            self.source.kind(),
            InvalidFilename
                | InvalidInput
                | IsADirectory
                | NotADirectory
                | NotFound
                | PermissionDenied
                | ReadOnlyFilesystem
        )
    }

    fn fix(&self) -> &'static str {
        match self.source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                "free space on the disk, or write to another one"
            }
            _ if self.is_wrong_use() => "name a file in a folder that exists and is writable",
            _ => "check the disk, or write to another one",
        }
    }
}

/// Whether `path` can be written, as far as that is known before it is. Leaves no file behind.
///
/// # Errors
/// [`WriteError`]: the folder does not exist or cannot be written, or `path` is a folder or a socket.
pub fn check(path: &Path, what: &'static str) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_path_buf(), what, source: of_system(source) };
    let target = followed(path);
    match target.metadata().map(|about| about.file_type()) {
        Ok(kind) if kind.is_dir() => Err(failed(ErrorKind::IsADirectory.into())),
        Ok(kind) if kind.is_socket() => {
            Err(failed(std::io::Error::new(ErrorKind::InvalidInput, "it is a socket")))
        }
        Ok(kind) if !kind.is_file() => Ok(()),
        _ => tempfile::tempfile_in(folder(&target)).map(drop).map_err(failed),
    }
}

/// Writes `bytes` to `path` completely or not at all. `what` names the contents in messages: `page`.
///
/// # Errors
/// [`WriteError`]; an existing file at `path` is then unchanged.
pub fn write(path: &Path, what: &'static str, bytes: &[u8]) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_path_buf(), what, source: of_system(source) };
    // Links are followed to their target. A device or pipe is written to and not replaced: a rename to
    // /dev/null would replace the device by a file.
    let path = followed(path);
    if path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir()) {
        let mut options = std::fs::OpenOptions::new();
        let written = options.write(true).open(&path).and_then(|mut file| file.write_all(bytes));
        return written.map_err(failed);
    }
    let fill = || -> std::io::Result<()> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".flowyard-").suffix(".part");
        // By default only the owner can read a temporary file; the result has the permissions of the umask.
        builder.permissions(PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(folder(&path))?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    };
    fill().map_err(failed)
}

/// The target of a link.
fn followed(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The error of the system without the name of the temporary file, which the user does not know.
fn of_system(error: std::io::Error) -> std::io::Error {
    match (error.get_ref(), error.kind()) {
        // The words of the system are "No such file or directory", as if the file itself had to be there.
        (_, ErrorKind::NotFound) => {
            std::io::Error::new(ErrorKind::NotFound, "the folder does not exist")
        }
        (None, _) | (_, ErrorKind::InvalidInput) => error,
        (_, kind) => kind.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        check(&path, "report").unwrap();
        assert_eq!(names(), 0, "the check leaves nothing");
        write(&path, "report", b"first").unwrap();
        write(&path, "report", b"second").unwrap();
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), names()), (&b"second"[..], 1));
        let nowhere = folder.path().join("missing/report.json");
        for error in
            [check(&nowhere, "report").unwrap_err(), write(&nowhere, "report", b"x").unwrap_err()]
        {
            let said = error.to_string();
            assert!(error.is_wrong_use() && said.contains("missing/report.json: cannot"), "{said}");
            assert!(said.contains("write the report: the folder does not exist; name"), "{said}");
        }
        assert!(check(folder.path(), "report").unwrap_err().is_wrong_use());
    }

    #[test]
    fn a_full_device_is_no_wrong_use() {
        let full = Path::new("/dev/full");
        check(full, "report").unwrap();
        let error = write(full, "report", b"x").unwrap_err();
        assert!(!error.is_wrong_use(), "{error}");
        assert!(error.to_string().ends_with("free space on the disk, or write to another one"));
        write(Path::new("/dev/null"), "report", b"x").unwrap();
    }
}
