//! The state file of a long run: one line with the run's arguments, then one line per trial. To continue
//! a run, the searches are given the results in the file before they ask for new trials.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use flowyard_rfc2544::suite::Journal;
use flowyard_rfc2544::{MeasureError, TrialResult};

use crate::Error;

/// A journal in a file.
#[derive(Debug)]
pub struct StateFile {
    known: std::vec::IntoIter<TrialResult>,
    file: Option<File>,
    name: String,
}

impl StateFile {
    /// A journal that saves nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { known: Vec::new().into_iter(), file: None, name: String::new() }
    }

    /// Opens or creates the file at `path`, for the run with the arguments `about`. An incomplete last
    /// line is removed.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written, or belongs to another run.
    pub fn open(path: &Path, about: &str) -> Result<Self, Error> {
        let name = path.display().to_string();
        let fail = |error: std::io::Error| {
            Error::input(format!("{name}: {error}; --state needs a state file or a new file"))
        };
        // A FIFO would be waited for, and a device read without end.
        if path.metadata().is_ok_and(|about| !about.is_file()) {
            return Err(fail(std::io::Error::other("it is not a regular file")));
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(fail)?;
        let (mut known, mut whole) = (Vec::new(), 0_u64);
        let mut reader = BufReader::new(&file);
        let mut line = String::new();
        for number in 0.. {
            line.clear();
            if reader.read_line(&mut line).map_err(fail)? == 0 || !line.ends_with('\n') {
                break;
            }
            if number == 0 && line.trim_end() != about {
                return Err(Error::input(format!(
                    "{name}: this is not a state file, or it belongs to a run with other arguments or of another version; choose another file"
                )));
            }
            if number > 0 {
                let result = serde_json::from_str(&line);
                known.push(result.map_err(|error| {
                    Error::input(format!("{name}:{}: {error}; choose another file", number + 1))
                })?);
            }
            whole += line.len() as u64;
        }
        file.set_len(whole).map_err(fail)?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(whole)).map_err(fail)?;
        if whole == 0 {
            let written = file.write_all(format!("{about}\n").as_bytes());
            written
                .map_err(|error| Error::Failed(anyhow::Error::new(error).context(name.clone())))?;
        }
        Ok(Self { known: known.into_iter(), file: Some(file), name })
    }
}

impl Journal for StateFile {
    fn recall(&mut self) -> Option<TrialResult> {
        self.known.next()
    }

    fn keep(&mut self, result: &TrialResult) -> Result<(), MeasureError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let fail = |error: String| MeasureError::Other(format!("{}: {error}", self.name));
        let mut line = serde_json::to_string(result).map_err(|error| fail(error.to_string()))?;
        line.push('\n');
        // One call per line: if the program is killed, at most the last line is incomplete.
        file.write_all(line.as_bytes()).map_err(|error| fail(error.to_string()))
    }
}
