//! The last good services, on disk: what an instance starts with when the provider does not answer.
//!
//! The file is written under another name, flushed to the disk, and renamed, so it is complete whenever it is read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flowyard_config::{Fragment, file};
use serde::{Deserialize, Serialize};

use super::Snapshot;

/// Name and version of the file's format.
const FORMAT: &str = "flowyard.cluster.state/1";

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be read.
    #[error("{path}: {source}; it is 'state' of [cluster]", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: file::FileError,
    },
    /// It contains something else.
    #[error(
        "{path}: this is not a file of last good services: {why}; delete it, or name another file as 'state' of [cluster]",
        path = .path.display()
    )]
    Contents {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It cannot be written.
    #[error("{path}: cannot be written: {source}; it is 'state' of [cluster], and its folder must be writable", path = .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Saved {
    format: String,
    prefix: String,
    generation: u64,
    fragments: Vec<Fragment>,
}

/// The file of the last good services.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
    prefix: String,
}

impl StateFile {
    /// The file at `path`, for services of this provider (`ClusterConfig::identity`). It need not exist yet.
    #[must_use]
    pub fn new(path: &Path, prefix: &str) -> Self {
        Self { path: path.into(), prefix: prefix.into() }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The services that were saved last; `None` if there is no file, or if it is one of another provider.
    ///
    /// # Errors
    /// The file cannot be read, or contains something else.
    pub fn load(&self) -> Result<Option<Snapshot>, StateError> {
        let text = match file::text(&self.path) {
            Ok(text) => text,
            Err(file::FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(source) => return Err(StateError::Read { path: self.path.clone(), source }),
        };
        let wrong = |why: String| StateError::Contents { path: self.path.clone(), why };
        let saved: Saved = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if saved.format != FORMAT {
            return Err(wrong(format!("its format is '{}'", saved.format.escape_debug())));
        }
        let Saved { prefix, generation, fragments, .. } = saved;
        Ok((prefix == self.prefix).then_some(Snapshot { generation, fragments }))
    }

    /// Saves services.
    ///
    /// # Errors
    /// The file cannot be written. What was saved before stays.
    pub fn save(&self, snapshot: &Snapshot) -> Result<(), StateError> {
        let Snapshot { generation, fragments } = snapshot.clone();
        let (format, prefix) = (FORMAT.to_owned(), self.prefix.clone());
        let saved = serde_json::to_vec_pretty(&Saved { format, prefix, generation, fragments });
        let done = saved.map_err(io::Error::other).and_then(|text| self.replace(&text));
        done.map_err(|source| StateError::Write { path: self.path.clone(), source })
    }

    /// Finds out whether the file can be written.
    ///
    /// # Errors
    /// It cannot.
    pub fn try_out(&self) -> Result<(), StateError> {
        let new = self.beside();
        let done = create(&new).and_then(|_| fs::remove_file(&new));
        done.map_err(|source| StateError::Write { path: self.path.clone(), source })
    }

    fn beside(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        name.into()
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let new = self.beside();
        let mut file = create(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        // The new name is on the disk when the folder is.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// Creates a file that only its user can read: QUIC keys may be in it.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("services.json");
        let state = StateFile::new(&path, "/flowyard");
        assert_eq!(state.load().unwrap(), None);
        state.try_out().unwrap();
        assert!(!path.exists() && fs::read_dir(folder.path()).unwrap().next().is_none());
        let fragment =
            |text: &str| Fragment { key: "config/services/web".into(), text: text.into() };
        for (generation, text) in [(7, "a"), (9, "b\n\"ü\"")] {
            let snapshot = Snapshot { generation, fragments: vec![fragment(text)] };
            state.save(&snapshot).unwrap();
            assert_eq!(state.load().unwrap(), Some(snapshot));
        }
        assert_eq!(StateFile::new(&path, "/other").load().unwrap(), None, "another prefix");
        fs::write(&path, "{}").unwrap();
        assert!(state.load().unwrap_err().to_string().contains("not a file of last good services"));
        fs::write(&path, r#"{"format":"x","prefix":"","generation":1,"fragments":[]}"#).unwrap();
        assert!(state.load().unwrap_err().to_string().contains("its format is 'x'"));
        let lost = StateFile::new(&folder.path().join("no/such.json"), "/flowyard");
        let error = lost.save(&Snapshot::default()).unwrap_err().to_string();
        assert!(error.contains("cannot be written") && lost.try_out().is_err(), "{error}");
    }
}
