//! Logs: what happens while a yard runs, on standard error, a line each.
//!
//! In a terminal and in a pipe alike lines have no colours. Under journald (`JOURNAL_STREAM`) they
//! have no time, which the journal knows, and begin with the level as it wants it: `<4>`.

use std::io::{self, IsTerminal, Write, stderr};
use std::sync::OnceLock;

use indicatif::ProgressBar;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// How logs are written.
#[derive(clap::Args)]
pub(crate) struct LogArgs {
    /// The least that is logged: off, error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL", default_value = "info", help_heading = "Logs")]
    log: LevelFilter,

    /// How: lines of text, or of JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Logs")]
    log_format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// The progress that lines must not run into.
static BAR: OnceLock<ProgressBar> = OnceLock::new();

/// Lines of the log go above `bar` from here on.
pub(crate) fn above(bar: &ProgressBar) {
    let _only_one = BAR.set(bar.clone());
}

impl LogArgs {
    /// Events are logged from here on.
    pub(crate) fn start(&self) {
        let journal = std::env::var_os("JOURNAL_STREAM").is_some() && !stderr().is_terminal();
        let builder =
            tracing_subscriber::fmt().with_max_level(self.log).with_writer(ToStderr { journal });
        // A second subscriber is only ever asked for by tests inside one process: the first stays.
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

/// Makes a writer for each line.
struct ToStderr {
    journal: bool,
}

/// Writes one line, with the level in front if the journal wants it.
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
        // Nobody may read the log any more: that is no reason to stop.
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
