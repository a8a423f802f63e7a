//! Why a command stops early: bad input (2) or a failure on the way (1).

use std::fmt;

/// Why a command stopped.
pub(crate) enum Stop {
    /// The user's words or files: one line that names the place and the mend. Status 2.
    BadInput(String),
    /// Something failed on the way. Status 1.
    Failed(anyhow::Error),
}

impl Stop {
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::BadInput(_) => 2,
            Self::Failed(_) => 1,
        }
    }

    /// `flowyard ... | head` is no failure.
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
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// The user's words or files are at fault.
#[allow(clippy::needless_pass_by_value, reason = "so that `map_err(bad_input)` reads as it does")]
pub(crate) fn bad_input(line: impl ToString) -> Stop {
    Stop::BadInput(line.to_string())
}
