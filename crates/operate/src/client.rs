//! Client of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::protocol::{Request, Response};
use crate::socket::is_answered;

/// How long an instance may take to answer, besides the time that the request itself asks for. A core that does
/// not respond delays an answer by half a second; the rest is for machines with much other load.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time in which the largest tables are read: 100 million connections take some seconds.
const LISTING: f64 = 50.0;

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
    /// There was no answer in time.
    #[error(
        "the instance did not answer within {0} s; it may be stopped or hang: see its log and its state in 'ps'"
    )]
    Silent(f64),
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
    /// The request was refused, the connection ended, or there was no answer in time.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        self.ask_within(request, PATIENCE.saturating_add(takes(request)))
    }

    /// The connection, for what follows an answer. To be called after an answer, when nothing more was sent.
    pub(crate) fn into_reader(self) -> BufReader<UnixStream> {
        self.0
    }

    fn ask_within<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        span: Duration,
    ) -> Result<T, ClientError> {
        let gone = |error: String| ClientError::Gone(error);
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ClientError::Silent(span.as_secs_f64())
            }
            _ => gone(error.to_string()),
        };
        let mut line = serde_json::to_vec(request).map_err(|error| gone(error.to_string()))?;
        line.push(b'\n');
        let stream = self.0.get_mut();
        stream.set_read_timeout(Some(span)).map_err(lost)?;
        stream.set_write_timeout(Some(span)).map_err(lost)?;
        // A server that refuses a connection says why before it closes it: then the request cannot be written,
        // but the answer can be read.
        let written = stream.write_all(&line);
        let mut answer = Vec::new();
        let read = self.0.read_until(b'\n', &mut answer);
        if answer.last() != Some(&b'\n') {
            written.map_err(lost)?;
            read.map_err(lost)?;
        }
        if answer.is_empty() {
            return Err(gone("it closed the connection".into()));
        }
        answer_of(&answer)
    }
}

/// The answer in the line of a response.
pub(crate) fn answer_of<T: DeserializeOwned>(line: &[u8]) -> Result<T, ClientError> {
    match serde_json::from_slice(line) {
        Ok(Response::Answer(answer)) => Ok(answer),
        Ok(Response::Error(text)) => Err(ClientError::Refused(text)),
        Err(error) => Err(ClientError::Gone(error.to_string())),
    }
}

/// The time that the request itself asks the instance to take.
fn takes(request: &Request) -> Duration {
    let seconds = match request {
        Request::Flows { seconds } => *seconds,
        Request::Trace(trace) => trace.seconds,
        Request::LbConnections(_) => LISTING,
        _ => 0.0,
    };
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
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
    let mut alive: Vec<_> = sockets.filter(|path| is_answered(path).unwrap_or(false)).collect();
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::protocol::Cores;

    #[test]
    fn an_instance_that_does_not_answer_is_not_waited_for_forever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sock");
        let _hung = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(Some(&path)).unwrap();
        let silent = client.ask_within::<Cores>(&Request::Cores, Duration::from_millis(50));
        let error = silent.unwrap_err();
        assert!(matches!(error, ClientError::Silent(_)), "{error}");
        assert!(error.to_string().contains("did not answer within 0.05 s"), "{error}");
    }

    #[test]
    fn a_request_that_takes_time_is_waited_for_longer() {
        assert_eq!(takes(&Request::Cores), Duration::ZERO);
        assert_eq!(takes(&Request::Flows { seconds: 20.0 }), Duration::from_secs(20));
        assert_eq!(takes(&Request::Flows { seconds: f64::NAN }), Duration::ZERO);
    }
}
