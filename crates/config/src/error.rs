//! Errors in a configuration: the place, the problem, and the fix, in one line.

use std::io::ErrorKind;
use std::ops::Range;

use super::file::FileError;

/// The texts from which a configuration was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// All texts, one after the other, each with a newline behind it.
    pub(crate) text: String,
    /// The name of each text, and where it begins.
    parts: Vec<(usize, String)>,
}

/// An error in a configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {what}; {fix}", self.place())]
pub struct ConfigError {
    /// The name of the file.
    pub file: String,
    /// The line, from 1; 0 if the error is about the whole file.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The problem.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl ConfigError {
    /// The file cannot be read.
    #[must_use]
    pub fn unread(file: &str, error: &FileError) -> Self {
        let fix = match error {
            FileError::Io(error) if is_wrong_name(error.kind()) => "name a readable file",
            FileError::Io(_) => "check the limits of the process (ulimit -a) and the disk",
            FileError::Kind(_) => "name a file with a configuration",
            FileError::Size => "check that this is a configuration, or shorten it",
            FileError::NoText => {
                "name a configuration in TOML (a capture is the 'in' of a [[port]])"
            }
        };
        Self { file: file.into(), line: 0, column: 0, what: error.to_string(), fix: fix.into() }
    }

    /// The file, and the line and column if there are any.
    fn place(&self) -> String {
        let Self { file, line, column, .. } = self;
        if *line == 0 { file.clone() } else { format!("{file}:{line}:{column}") }
    }
}

/// Whether another name, or other permissions, help against an error of reading.
fn is_wrong_name(kind: ErrorKind) -> bool {
    use ErrorKind::{
        InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied,
    };
    matches!(
        kind,
        InvalidFilename | InvalidInput | IsADirectory | NotADirectory | NotFound | PermissionDenied
    )
}

impl Source {
    /// One text.
    pub(super) fn new(name: &str, text: &str) -> Self {
        Self { text: text.into(), parts: vec![(0, name.into())] }
    }

    /// The name of the first text.
    pub(super) fn name(&self) -> &str {
        self.parts.first().map_or("CONFIG", |(_, name)| name)
    }

    /// Adds a text, and returns where it begins.
    pub(super) fn add(&mut self, name: &str, text: &str) -> usize {
        self.text.push('\n');
        let start = self.text.len();
        self.text.push_str(text);
        self.parts.push((start, name.into()));
        start
    }

    /// The name of the first text, and the text.
    pub(super) fn first(&self) -> (&str, &str) {
        let name = self.parts.first().map_or("", |(_, name)| name);
        let end = self.parts.get(1).map_or(self.text.len(), |(start, _)| start - 1);
        (name, self.text.get(..end).unwrap_or_default())
    }

    /// The position of a key in the first section with this heading, both at the start of a line. If there is no such
    /// key, that of the heading; without a heading, 0.
    pub(super) fn find(&self, section: &str, key: &str) -> usize {
        let mut start = 0;
        let lines = self.text.split_inclusive('\n').map(|line| {
            let at = start + line.len() - line.trim_start().len();
            start += line.len();
            (at, line.trim())
        });
        let is_heading = |line: &str| {
            let rest = line.strip_prefix(section).map(str::trim_start);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
        };
        let mut lines = lines.skip_while(|(_, line)| !is_heading(line));
        let Some((heading, _)) = lines.next() else { return 0 };
        let is_key = |line: &str| {
            let rest = line.strip_prefix(key).map(str::trim_start);
            rest.is_some_and(|rest| rest.starts_with('='))
        };
        let mut inside = lines.take_while(|(_, line)| !line.starts_with('['));
        inside.find(|(_, line)| is_key(line)).map_or(heading, |(at, _)| at)
    }

    /// The start and the name of the text in which this position is.
    fn part(&self, at: usize) -> (usize, &str) {
        let part = self.parts.iter().rfind(|(start, _)| *start <= at);
        part.map_or((0, ""), |(start, name)| (*start, name))
    }

    pub(super) fn error(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        let (start, name) = self.part(span.start);
        let before = self.text.get(start..span.start);
        let before = before.or_else(|| self.text.get(start..)).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        ConfigError {
            file: name.into(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            what: what.into(),
            fix: fix.into(),
        }
    }

    /// An error of the TOML parser or of serde, in the terms of this crate. Its position counts from `start`.
    pub(super) fn untold(&self, error: &toml::de::Error, start: usize) -> ConfigError {
        let span = error.span().unwrap_or(0..0);
        let span = span.start + start..span.end + start;
        let said = error.message().replace('\n', ", ");
        let quoted = |prefix: &str| {
            let rest = said.strip_prefix(prefix)?.strip_prefix('`')?;
            let (name, rest) = rest.split_once('`')?;
            Some((name.to_owned(), rest.trim_start_matches(", ").replace('`', "'")))
        };
        if let Some((key, known)) = quoted("unknown field ") {
            let near = nearest(&key, &known);
            return self.error(span, format!("there is no key '{key}' here"), near);
        }
        if let Some((word, known)) = quoted("unknown variant ") {
            return self.error(
                span,
                format!("'{word}' is not a valid choice"),
                nearest(&word, &known),
            );
        }
        if let Some((key, _)) = quoted("missing field ") {
            if key == "work" {
                let fix =
                    "add one that says what happens to frames, such as: [work] kind = \"forward\"";
                return self.error(span, "there is no [work] section", fix);
            }
            let (what, fix) = (format!("the key '{key}' is missing"), format!("add '{key} = ...'"));
            return self.error(span, what, fix);
        }
        if let Some(said) = said.strip_prefix("invalid type: ")
            && let Some((found, wanted)) = said.split_once(", expected ")
        {
            let found = found.replace('`', "'");
            let what = format!("{found} has the wrong type");
            if let Some((what, fix)) = self.section(&span, wanted) {
                return self.error(span, what, fix);
            }
            let fix = format!("write {}", self.example(&span, wanted));
            return self.error(span, what, fix);
        }
        if let Some(said) = said.strip_prefix("invalid value: ")
            && let Some((found, wanted)) = said.split_once(", expected ")
        {
            let found = found.replace('`', "'");
            let is =
                if found.starts_with("string") { "is not possible" } else { "is out of range" };
            let fix = format!("write {}", self.example(&span, wanted));
            return self.error(span, format!("{found} {is}"), fix);
        }
        if said.contains("must be quoted") || said.contains("expected literal string") {
            // The parser reports an absent value like text without quotes.
            let rest = self.text.get(span.start..).and_then(|rest| rest.lines().next());
            if rest.is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with('#')) {
                return self.error(
                    span,
                    "there is no value after '='",
                    "write one, such as 1 or \"text\"",
                );
            }
            let fix = "write \"...\" around it, or a number, true or false";
            return self.error(span, "text needs quotes", fix);
        }
        self.error(span, said.replace('`', "'"), "see the TOML syntax at https://toml.io")
    }
}

impl Source {
    /// The problem and the fix if a heading has the wrong number of brackets: `[queue]` instead of `[[queue]]`, or
    /// the reverse.
    fn section(&self, span: &Range<usize>, wanted: &str) -> Option<(String, String)> {
        let line = self.text.get(span.start..)?.lines().next()?.trim();
        let line = line.split_once('#').map_or(line, |(heading, _)| heading.trim_end());
        let inner = line.strip_prefix('[')?.strip_suffix(']')?;
        let of_list = inner.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        let is_heading = |name: &str| !name.is_empty() && name.chars().all(is_key);
        match of_list {
            None if wanted == "a sequence" && is_heading(inner) => Some((
                format!(
                    "[{inner}] would be the only section of this name, but there can be several"
                ),
                format!("write [[{inner}]]"),
            )),
            Some(name) if wanted != "a sequence" && is_heading(name) => {
                Some((format!("there can be only one section [{name}]"), format!("write [{name}]")))
            }
            _ => None,
        }
    }

    /// What to write for the value at `span`, of which serde expects `wanted`: an example for keys whose value is
    /// a list or a map, and otherwise the type in words.
    fn example(&self, span: &Range<usize>, wanted: &str) -> String {
        let before = self.text.get(..span.start).unwrap_or_default().trim_end();
        let key = before.strip_suffix('=').map_or("", str::trim_end);
        let key = key.rsplit(|c: char| !is_key(c)).next().unwrap_or_default();
        let key = key.rsplit('.').next().unwrap_or_default();
        EXAMPLES
            .iter()
            .find(|(known, kind, _)| *known == key && wanted == *kind)
            .map_or_else(|| readable(wanted), |(.., example)| (*example).to_owned())
    }
}

impl super::Config {
    /// An error about a key without a position of its own, or with "" about a whole section: at the key, or at the
    /// first heading of the section if it is not found.
    pub(crate) fn error_in(
        &self,
        section: &str,
        key: &str,
        what: String,
        fix: &str,
    ) -> ConfigError {
        let at = self.source.find(section, key);
        self.error(at..at, what, fix)
    }
}

/// Whether this character is one of an unquoted key, possibly with dots.
fn is_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Examples of values, or their range, by the key and by what serde expects.
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("cores", "u16", "1 to 1024"),
    ("core", "u16", "the number of a core, 0 to 1023"),
    ("port", "a nonzero u16", "a port from 1 to 65535"),
    ("address", "a map", "{ east = [\"10.0.1.254\"] }, the addresses by the name of the port"),
    (
        "pass",
        "a map",
        "{ west = \"other\" }: the port of reception, and the port by which frames leave",
    ),
    (
        "ports",
        "a map",
        "{ west = \"east\" }: the port of reception, and the port by which frames leave",
    ),
    ("consumers", "a sequence", "a list such as [0, 1]"),
    ("cores", "a sequence", "a list such as [0, 1]"),
    ("pin", "a sequence", "a list such as [0, 1]"),
    ("queues", "a sequence", "a list such as [0, 1]"),
];

/// What serde expects, in words: the names of Rust's types say nothing to a user.
fn readable(wanted: &str) -> String {
    let number = |most: u64| format!("a whole number from 0 to {most}");
    match wanted {
        "u8" => number(u8::MAX.into()),
        "u16" => number(u16::MAX.into()),
        "u32" => number(u32::MAX.into()),
        "u64" | "usize" => "a whole number from 0".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" => "text in quotes".into(),
        "a sequence" => "a list such as [\"a\", \"b\"]".into(),
        "a map" => "keys and values in braces, such as { key = \"value\" }".into(),
        _ if wanted.starts_with("struct ") => "a section, or keys and values in braces".into(),
        _ => wanted.into(),
    }
}

/// The fix for an unknown `word`: the known word that is nearest to it, or all of them.
fn nearest(word: &str, known: &str) -> String {
    flowyard_lb::nearest(word, known.split('\'').skip(1).step_by(2))
}
