//! The error type of commands: bad input (exit status 2) or a failure at run time (1).

use std::fmt;

/// Why a command stopped early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Wrong arguments or files. One line that names the place and the fix. Status 2.
    BadInput(String),
    /// A failure at run time. Status 1.
    Failed(anyhow::Error),
}

impl Stop {
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::BadInput(_) => 2,
            Self::Failed(_) => 1,
        }
    }

    /// Whether standard output was closed, as in `flowyard ... | head`. That is not a failure.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        match self {
            Self::BadInput(_) => false,
            Self::Failed(error) => error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadInput(line) => f.write_str(line),
            Self::Failed(error) => f.write_str(&chain(error)),
        }
    }
}

/// An error and its causes, without those that an error before them has named already.
fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

impl From<flowyard_bench::Error> for Stop {
    fn from(error: flowyard_bench::Error) -> Self {
        match error {
            flowyard_bench::Error::Input(line) => Self::BadInput(line),
            flowyard_bench::Error::Failed(error) => Self::Failed(error),
        }
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// An error of a capture: bad input if it cannot be opened or is no capture, a failure if reading fails.
impl From<flowyard_ports::Error> for Stop {
    fn from(error: flowyard_ports::Error) -> Self {
        use std::io::ErrorKind::IsADirectory;
        match &error {
            flowyard_ports::Error::Io { doing: "read", source, .. }
                if source.kind() != IsADirectory =>
            {
                Self::Failed(error.into())
            }
            _ => bad_input(error),
        }
    }
}

/// Makes an error of the system a failure that says what was being done.
pub(crate) fn failed(doing: &'static str) -> impl FnOnce(std::io::Error) -> Stop {
    move |error| Stop::Failed(anyhow::Error::new(error).context(doing))
}

/// Makes an error about wrong arguments or files.
#[allow(clippy::needless_pass_by_value, reason = "so that `map_err(bad_input)` needs no closure")]
pub(crate) fn bad_input(line: impl ToString) -> Stop {
    Stop::BadInput(line.to_string())
}
