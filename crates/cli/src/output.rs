//! What every command does with its results: tables in the terminal's style, JSON documents, progress.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;

use flowyard_report::{Document, Style};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::stop::Stop;

/// The style of tables: coloured and as wide as the terminal, or plain if the output is a pipe or file.
pub(crate) fn style() -> Style {
    let ascii = wants_ascii();
    if !stdout().is_terminal() {
        return Style { ascii, ..Style::plain() };
    }
    let width = terminal_size::terminal_size().map_or(100, |(width, _)| width.0 as usize);
    Style { ascii, ..Style::terminal(width) }
}

/// Whether the environment asks for ASCII.
fn wants_ascii() -> bool {
    is_ascii(["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).ok()))
}

/// Whether the locale, named by the first variable that is set, has another encoding than UTF-8. Without any,
/// as in many services and containers, UTF-8 is assumed.
fn is_ascii(variables: [Option<String>; 3]) -> bool {
    let locale = variables.into_iter().flatten().find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}

/// Prints `text` on standard output. If its reader has closed it, as in `flowyard ... | head`, nothing is printed.
pub(crate) fn text(text: &str) -> Result<(), Stop> {
    unless_closed(line(text))
}

/// As [`text`], for commands that print until they are ended: they end if the reader has closed standard output.
pub(crate) fn line(text: &str) -> Result<(), Stop> {
    if wants_ascii() { write(&flowyard_report::text::ascii(text)) } else { write(text) }
}

fn unless_closed(written: Result<(), Stop>) -> Result<(), Stop> {
    match written {
        Err(stop) if stop.is_closed_pipe() => Ok(()),
        written => written,
    }
}

fn write(text: &str) -> Result<(), Stop> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::BrokenPipe => Stop::Failed(error.into()),
        _ => Stop::Failed(anyhow::Error::new(error).context(UNWRITTEN)),
    };
    print(text.as_bytes()).map_err(failed)
}

const UNWRITTEN: &str = "standard output cannot be written";

/// Writes to standard output. The standard library does so, too, but hides that it is not open for writing.
pub(crate) fn print(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = stdout().lock();
    out.flush()?;
    File::from(out.as_fd().try_clone_to_owned()?).write_all(bytes)
}

/// Prints a remark on standard error.
pub(crate) fn note(line: &str) {
    let _closed = writeln!(stderr(), "flowyard: {line}");
}

/// Prints `body` on standard output as a JSON document of the schema `name`.
pub(crate) fn json<T: Serialize>(name: &'static str, body: T) -> Result<(), Stop> {
    // Data: the same in every locale.
    let text = Document::new(name, body).to_json().map_err(|error| Stop::Failed(error.into()))?;
    unless_closed(write(&text))
}

/// Prints `body` as a JSON document in one line, for commands that print until they are ended: they end if the reader
/// has closed standard output.
pub(crate) fn json_line<T: Serialize>(name: &'static str, body: T) -> Result<(), Stop> {
    let text = serde_json::to_string(&Document::new(name, body))
        .map_err(|error| Stop::Failed(error.into()))?;
    write(&(text + "\n"))
}

/// The command line, for HTML pages.
pub(crate) fn command_line() -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// The style of a progress bar in signs that the locale has.
pub(crate) fn for_locale(style: ProgressStyle) -> ProgressStyle {
    if wants_ascii() { style.progress_chars("#>-").tick_chars("-\\|/ ") } else { style }
}

/// A progress bar on standard error; nothing if that is not a terminal. Cleared when this is dropped.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// A bar or spinner with this template of `indicatif`.
    pub(crate) fn new(template: &str) -> Self {
        let style = ProgressStyle::with_template(template).ok();
        let style = style.filter(|_| stderr().is_terminal()).map(for_locale);
        Self(style.map(|style| ProgressBar::new(0).with_style(style)))
    }

    /// The bar of `indicatif`, if there is one.
    pub(crate) fn raw(&self) -> Option<&ProgressBar> {
        self.0.as_ref()
    }

    /// Shows that `done` steps of `of` are done.
    pub(crate) fn at(&self, done: u64, of: u64) {
        if let Some(bar) = &self.0 {
            bar.set_length(of);
            bar.set_position(done);
        }
    }

    pub(crate) fn message(&self, text: String) {
        if let Some(bar) = &self.0 {
            bar.set_message(text);
            bar.tick();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_ascii;

    #[test]
    fn the_first_variable_that_is_set_decides() {
        let is = |all: [&str; 3]| is_ascii(all.map(|value| Some(value.to_owned())));
        assert!(
            is(["C", "", "en_US.UTF-8"])
                && is(["", "POSIX", ""])
                && is(["", "", "de_DE.ISO-8859-1"])
        );
        assert!(!is(["C.UTF-8", "C", "C"]) && !is(["", "", "en_US.utf8"]) && !is(["", "", ""]));
        assert!(!is_ascii([None, None, None]));
    }
}
