//! Errors in a configuration: the place, the problem, and the fix, in one line.

use std::ops::Range;

use super::Source;

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
    pub fn unread(file: &str, error: &std::io::Error) -> Self {
        let (what, fix) = (format!("cannot be read: {error}"), "name a readable file".into());
        Self { file: file.into(), line: 0, column: 0, what, fix }
    }

    /// The file, and the line and column if there are any.
    fn place(&self) -> String {
        let Self { file, line, column, .. } = self;
        if *line == 0 { file.clone() } else { format!("{file}:{line}:{column}") }
    }
}

impl Source {
    pub(super) fn error(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        ConfigError {
            file: self.name.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            what: what.into(),
            fix: fix.into(),
        }
    }

    /// An error of the TOML parser or of serde, in the terms of this crate.
    pub(super) fn untold(&self, error: &toml::de::Error) -> ConfigError {
        let span = error.span().unwrap_or(0..0);
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
            let (what, fix) = (format!("the key '{key}' is missing"), format!("add '{key} = ...'"));
            return self.error(span, what, fix);
        }
        if let Some(said) = said.strip_prefix("invalid type: ")
            && let Some((found, wanted)) = said.split_once(", expected ")
        {
            let found = found.replace('`', "'");
            return self.error(
                span,
                format!("{found} has the wrong type"),
                format!("write {}", readable(wanted)),
            );
        }
        if let Some(said) = said.strip_prefix("invalid value: ")
            && let Some((found, wanted)) = said.split_once(", expected ")
        {
            let found = found.replace('`', "'");
            return self.error(
                span,
                format!("{found} is out of range"),
                format!("write {}", readable(wanted)),
            );
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
        _ => wanted.into(),
    }
}

/// The fix for an unknown `word`: the known word that is nearest to it, or all of them.
fn nearest(word: &str, known: &str) -> String {
    flowyard_lb::nearest(word, known.split('\'').skip(1).step_by(2))
}
