//! The words of a line.

use std::net::IpAddr;
use std::str::FromStr;

use super::XfrmError;
use crate::sa::Mode;

/// The words of one line, taken from the left.
pub(super) struct Words<'a> {
    pub(super) line: usize,
    rest: std::vec::IntoIter<&'a str>,
}

impl<'a> Words<'a> {
    /// The words of `text`, without what is in parentheses behind a value, and without commas: `1(0x00000001),` is `1`.
    /// The name of an algorithm keeps its parentheses.
    pub(super) fn new(line: usize, text: &'a str) -> Self {
        let bare = |word: &'a str| {
            let word = word.trim_end_matches(',');
            let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic());
            if is_name { word } else { word.split_once('(').map_or(word, |(word, _)| word) }
        };
        let mut is_remark = false; // `(160 bits)` behind a key
        let is_value = |word: &&str| {
            let is_part = is_remark || word.starts_with('(');
            is_remark = is_part && !word.trim_end_matches(',').ends_with(')');
            !is_part
        };
        let words =
            text.split_whitespace().filter(is_value).map(bare).filter(|word| !word.is_empty());
        Self { line, rest: words.collect::<Vec<_>>().into_iter() }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    pub(super) fn error(&self, what: impl Into<String>, fix: impl Into<String>) -> XfrmError {
        XfrmError { line: self.line, what: what.into(), fix: fix.into() }
    }

    /// The value behind `name`.
    pub(super) fn value(&mut self, name: &str) -> Result<&'a str, XfrmError> {
        let given = self.rest.next();
        given.ok_or_else(|| self.error(format!("'{name}' has no value"), "write one behind it"))
    }

    pub(super) fn parse<T: FromStr>(&mut self, name: &str) -> Result<T, XfrmError> {
        let word = self.value(name)?;
        let wrong = || {
            self.error(
                format!("'{}' is not a value of '{name}'", short(word)),
                "give the output of 'ip xfrm' without changes",
            )
        };
        word.parse().map_err(|_| wrong())
    }

    /// A number in decimal digits, or in hexadecimal ones behind `0x`.
    pub(super) fn number(&mut self, name: &str) -> Result<u32, XfrmError> {
        let word = self.value(name)?;
        let number = match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => word.parse(),
        };
        let wrong = || {
            self.error(
                format!("'{}' is not a number", short(word)),
                format!("write a number of 32 bits behind '{name}'"),
            )
        };
        number.map_err(|_| wrong())
    }

    /// An address; `None` for `0.0.0.0` and `::`, which mean any.
    pub(super) fn address(&mut self, name: &str) -> Result<Option<IpAddr>, XfrmError> {
        let address: IpAddr = self.parse(name)?;
        Ok(Some(address).filter(|address| !address.is_unspecified()))
    }

    pub(super) fn mode(&mut self) -> Result<Mode, XfrmError> {
        match self.value("mode")? {
            "tunnel" => Ok(Mode::Tunnel),
            "transport" => Ok(Mode::Transport),
            other => {
                let what = format!("the mode '{}' is not implemented", short(other));
                Err(self.error(what, "use tunnel or transport"))
            }
        }
    }

    /// `esp`, behind `proto`.
    pub(super) fn esp(&mut self) -> Result<(), XfrmError> {
        match self.value("proto")? {
            "esp" => Ok(()),
            other => {
                let what = format!("the protocol '{}' is not implemented", short(other));
                Err(self.error(what, "use esp"))
            }
        }
    }

    /// Nothing may be left.
    pub(super) fn end(mut self) -> Result<(), XfrmError> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(self.unknown(word)),
        }
    }

    pub(super) fn unknown(&self, word: &str) -> XfrmError {
        self.error(
            format!("'{}' is not implemented", short(word)),
            "remove it if the SA or policy works without it",
        )
    }
}

/// A word as it is printed in an error: a long one may be a key.
pub(super) fn short(word: &str) -> &str {
    let is_short = word.len() <= 40 && !word.starts_with("0x");
    if is_short { word } else { "(hidden)" }
}
