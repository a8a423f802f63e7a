//! Log lines of a running instance, on standard error.
//!
//! Lines have no colours. Under journald (`JOURNAL_STREAM` is set) they have no time, because the journal
//! adds it, and begin with the level in the journal's format: `<4>`.

use std::io::{self, IsTerminal, Write, stderr};
use std::sync::OnceLock;

use indicatif::ProgressBar;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Options for log lines.
#[derive(clap::Args)]
pub(crate) struct LogArgs {
    /// Least severe level to log: off, error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL", default_value = "info", help_heading = "Logs")]
    log: LevelFilter,

    /// Format of log lines
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Logs")]
    log_format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// The progress bar, if there is one; it must be hidden while a log line is written.
static BAR: OnceLock<ProgressBar> = OnceLock::new();

/// From now on, prints log lines above `bar`.
pub(crate) fn above(bar: &ProgressBar) {
    let _only_one = BAR.set(bar.clone());
}

impl LogArgs {
    /// Starts logging.
    pub(crate) fn start(&self) {
        let journal = std::env::var_os("JOURNAL_STREAM").is_some() && !stderr().is_terminal();
        let builder =
            tracing_subscriber::fmt().with_max_level(self.log).with_writer(ToStderr { journal });
        // Fails if there is a subscriber already, which happens only in tests; the first one stays.
        let _first_stays = match (self.log_format, journal) {
            (Format::Json, _) => {
                tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish())
            }
            (Format::Text, true) => tracing::subscriber::set_global_default(
                builder.without_time().with_level(false).finish(),
            ),
            (Format::Text, false) => tracing::subscriber::set_global_default(builder.finish()),
        };
    }
}

struct ToStderr {
    journal: bool,
}

/// Writes one line after this prefix: the level for the journal, or nothing.
struct Line(&'static str);

impl<'a> MakeWriter<'a> for ToStderr {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line("")
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line(match *meta.level() {
            _ if !self.journal => "",
            Level::ERROR => "<3>",
            Level::WARN => "<4>",
            Level::INFO => "<6>",
            _ => "<7>",
        })
    }
}

impl Write for Line {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let line = [self.0.as_bytes(), text].concat();
        // An error here means that the log's reader has gone; the instance goes on.
        let write = || drop(stderr().lock().write_all(&line));
        match BAR.get() {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
