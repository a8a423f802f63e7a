//! Client of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::protocol::{Request, Response};

/// A request could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens on the socket.
    #[error("{path}: {source}; is 'flowyard run' running, and is this its --control PATH?")]
    Nobody {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The path names a file that is no socket.
    #[error("{0} is not a socket; give the --control PATH of 'flowyard run'")]
    NoSocket(PathBuf),
    /// No path was given, and no process listens on a socket in the default folder.
    #[error("{0}")]
    Absent(String),
    /// No path was given, and the default folder is unknown or contains several live sockets.
    #[error("{0}")]
    Which(String),
    /// The connection ended before the answer was complete.
    #[error("'flowyard run' did not answer ({0}); it may have ended")]
    Gone(String),
    /// The request was refused.
    #[error("{0}")]
    Refused(String),
}

/// A connection to a running instance.
#[derive(Debug)]
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects to the socket at `path`; without a path, to the only instance whose socket is in the
    /// default folder.
    ///
    /// # Errors
    /// No process listens on the socket, or there is not exactly one instance.
    pub fn connect(path: Option<&Path>) -> Result<Self, ClientError> {
        let path = path.map_or_else(only, |path| Ok(path.to_owned()))?;
        match UnixStream::connect(&path) {
            Ok(stream) => Ok(Self(BufReader::new(stream))),
            Err(_) if is_other_file(&path) => Err(ClientError::NoSocket(path)),
            Err(source) => Err(ClientError::Nobody { path, source }),
        }
    }

    /// Sends `request` and waits for the answer.
    ///
    /// # Errors
    /// The request was refused, or the connection ended.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        let gone = |error: String| ClientError::Gone(error);
        let mut line = serde_json::to_vec(request).map_err(|error| gone(error.to_string()))?;
        line.push(b'\n');
        self.0.get_mut().write_all(&line).map_err(|error| gone(error.to_string()))?;
        let mut answer = Vec::new();
        self.0.read_until(b'\n', &mut answer).map_err(|error| gone(error.to_string()))?;
        if answer.is_empty() {
            return Err(gone("it closed the connection".into()));
        }
        match serde_json::from_slice(&answer) {
            Ok(Response::Answer(answer)) => Ok(answer),
            Ok(Response::Error(text)) => Err(ClientError::Refused(text)),
            Err(error) => Err(gone(error.to_string())),
        }
    }
}

fn is_other_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket())
}

/// The only socket in the default folder on which a process listens.
fn only() -> Result<PathBuf, ClientError> {
    let fix = "name its socket with --control PATH";
    let Some(folder) = crate::control::default_path(Path::new("x.toml"))
        .and_then(|p| Some(p.parent()?.to_owned()))
    else {
        return Err(ClientError::Which(format!("XDG_RUNTIME_DIR is not set; {fix}")));
    };
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let sockets =
        entries.map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "sock"));
    let mut alive: Vec<_> = sockets.filter(|path| UnixStream::connect(path).is_ok()).collect();
    alive.sort();
    let folder = folder.display();
    match alive.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(ClientError::Absent(format!(
            "there is no running instance with a socket in {folder}; start 'flowyard run', or {fix}"
        ))),
        several => {
            let names: Vec<_> = several.iter().map(|path| path.display().to_string()).collect();
            let names = names.join(", ");
            Err(ClientError::Which(format!("several instances are running ({names}); {fix}")))
        }
    }
}
