//! Client: asks the control socket of a running yard.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::protocol::{Request, Response};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers there.
    #[error("{path}: {source}; is 'flowyard run' running, and is this its --control PATH?")]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No path was given, and there is not just one socket in the usual folder.
    #[error("{0}")]
    Which(String),
    /// The yard went away in the middle.
    #[error("the yard gave no answer ({0}); it may have ended")]
    Gone(String),
    /// It refused.
    #[error("{0}")]
    Refused(String),
}

/// A connection to a running yard.
#[derive(Debug)]
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects to the socket at `path`; without one, to the only yard that has its socket in the
    /// usual folder.
    ///
    /// # Errors
    /// When nobody answers there, or it is not clear where.
    pub fn connect(path: Option<&Path>) -> Result<Self, ClientError> {
        let path = path.map_or_else(only, |path| Ok(path.to_owned()))?;
        match UnixStream::connect(&path) {
            Ok(stream) => Ok(Self(BufReader::new(stream))),
            Err(source) => Err(ClientError::Nobody { path, source }),
        }
    }

    /// The answer to `request`.
    ///
    /// # Errors
    /// When the yard refuses, or goes away.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        let gone = |error: String| ClientError::Gone(error);
        let mut line = serde_json::to_vec(request).map_err(|error| gone(error.to_string()))?;
        line.push(b'\n');
        self.0.get_mut().write_all(&line).map_err(|error| gone(error.to_string()))?;
        let mut answer = Vec::new();
        self.0.read_until(b'\n', &mut answer).map_err(|error| gone(error.to_string()))?;
        if answer.is_empty() {
            return Err(gone("the connection was closed".into()));
        }
        match serde_json::from_slice(&answer) {
            Ok(Response::Answer(answer)) => Ok(answer),
            Ok(Response::Error(text)) => Err(ClientError::Refused(text)),
            Err(error) => Err(gone(error.to_string())),
        }
    }
}

/// The only socket in the usual folder that answers.
fn only() -> Result<PathBuf, ClientError> {
    let mend = "name its socket: --control PATH";
    let Some(folder) = crate::control::default_path(Path::new("x.toml"))
        .and_then(|p| Some(p.parent()?.to_owned()))
    else {
        return Err(ClientError::Which(format!("XDG_RUNTIME_DIR is not set; {mend}")));
    };
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let sockets =
        entries.map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "sock"));
    let mut alive: Vec<_> = sockets.filter(|path| UnixStream::connect(path).is_ok()).collect();
    alive.sort();
    let folder = folder.display();
    match alive.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(ClientError::Which(format!(
            "no yard answers in {folder}; start 'flowyard run', or {mend}"
        ))),
        several => {
            let names: Vec<_> = several.iter().map(|path| path.display().to_string()).collect();
            Err(ClientError::Which(format!("several yards run ({}); {mend}", names.join(", "))))
        }
    }
}
