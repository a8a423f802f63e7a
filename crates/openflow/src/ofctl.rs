//! Flow entries, groups and meters as text in the syntax of `ovs-ofctl`: parsing and printing.
//!
//! ```text
//!   table=0,priority=100,tcp,in_port=1,nw_dst=10.0.0.0/8,actions=dec_ttl,output:2
//!   group_id=1,type=select,bucket=weight:2,output:1,bucket=weight:1,output:2
//!   meter=1,kbps,burst,band=type=drop,rate=1000,burst_size=100
//! ```
//!
//! Settings are read in any order, and the text that is printed parses to the same value. Old and
//! new names of fields are accepted (`dl_src` and `eth_src`, `nw_dst` and `ipv4_dst`, `tp_src` and
//! `tcp_src`). Actions become one apply-actions instruction; `goto_table`, `meter`,
//! `write_metadata`, `clear_actions` and `write_actions(..)` may stand among them. Extensions of
//! Open vSwitch (`resubmit`, registers, `ct`) are refused, with an error that names them. Blanks may
//! stand around `=`. Wherever a port has a number, its name may be written. Groups and meters to delete
//! may be written as their number alone.
//!
//! Thread-safety: plain functions.

mod actions;
mod bands;
mod fields;
mod flow;
mod foreign;
mod groups;
mod print;

use crate::group::Bucket;

pub use bands::{meter, meter_text};
pub use flow::{filter, filter_with, flow, flow_with, packet_out, port_with};
pub use groups::{BucketEdit, BucketPlace, bucket_edit, group, group_with};
pub use print::{
    actions_text, field_name, field_texts, flag_names, flow_mod_text, flow_mod_text_with,
    flow_text, flow_text_with, group_text, group_text_with, group_type, instruction_texts,
    match_text, port_text,
};

/// Text that cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("column {column}: {}{why}; {fix}", quoted(.found))]
pub struct TextError {
    /// The position, from 1, in bytes.
    pub column: usize,
    /// The text at the position.
    pub found: String,
    /// What is wrong with it.
    pub why: String,
    /// What to write instead.
    pub fix: String,
    /// Whether the text would be right if a port had this name.
    pub may_be_port: bool,
}

/// The text at the position of an error, if it is not the end.
fn quoted(found: &str) -> String {
    if found.is_empty() { String::new() } else { format!("'{found}': ") }
}

/// Names of ports, with their numbers. Reserved names and plain numbers take precedence.
pub type Ports<'a> = &'a [(&'a str, u32)];

/// A part of the text, and its position.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    text: &'a str,
    at: usize,
    /// Names of ports.
    ports: Ports<'a>,
}

impl<'a> Part<'a> {
    const fn new(text: &'a str, ports: Ports<'a>) -> Self {
        Self { text, at: 0, ports }
    }

    fn wrong(self, why: impl Into<String>, fix: impl Into<String>) -> TextError {
        let found: String = self.text.chars().take(40).collect();
        let (why, fix) = (why.into(), fix.into());
        TextError { column: self.at + 1, found, why, fix, may_be_port: false }
    }

    /// The part after the first `bytes`, which must end at a character boundary.
    fn skip(self, bytes: usize) -> Self {
        Self { text: self.text.get(bytes..).unwrap_or(""), at: self.at + bytes, ..self }
    }

    fn take(self, bytes: usize) -> Self {
        Self { text: self.text.get(..bytes).unwrap_or(self.text), ..self }
    }

    fn trim(self) -> Self {
        let front = self.text.len() - self.text.trim_start().len();
        Self { text: self.text.trim(), at: self.at + front, ..self }
    }

    /// The parts before and after the first of `marks`.
    fn split(self, marks: &[char]) -> Option<(Self, Self)> {
        let at = self.text.find(marks)?;
        Some((self.take(at), self.skip(at + 1)))
    }

    /// Whether the blank at `at` is next to a `=` or `->`, and so does not end a part. It holds for all blanks up to the
    /// second result, where something else follows.
    fn joins(self, at: usize) -> (bool, usize) {
        let (before, behind) = (self.text[..at].trim_end(), self.text[at..].trim_start());
        let joins = before.ends_with('=')
            || before.ends_with("->")
            || behind.starts_with('=')
            || behind.starts_with("->");
        (joins, self.text.len() - behind.len())
    }

    /// The parts between commas and blanks. Text in parentheses is not split.
    fn list(self) -> Result<Vec<Self>, TextError> {
        let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0_u32);
        let (mut joins, mut blank_until) = (false, 0);
        for (at, c) in self.text.char_indices() {
            if matches!(c, ' ' | '\t') && depth == 0 && at >= blank_until {
                (joins, blank_until) = self.joins(at); // once for many blanks
            }
            match c {
                '(' => depth += 1,
                ')' if depth == 0 => {
                    return Err(self.skip(at).wrong("a ')' without '('", "remove it"));
                }
                ')' => depth -= 1,
                ' ' | '\t' if depth == 0 && joins => {}
                ',' | ' ' | '\t' if depth == 0 => {
                    parts.push(self.skip(from).take(at - from).trim());
                    from = at + 1;
                }
                _ => {}
            }
        }
        if depth > 0 {
            return Err(self.skip(from).wrong("a '(' without ')'", "close it"));
        }
        parts.push(self.skip(from).trim());
        parts.retain(|part| !part.text.is_empty());
        Ok(parts)
    }

    /// A number, decimal or with 0x, of at most `bits` bits.
    fn number(self, bits: u32) -> Result<u128, TextError> {
        let hex = self.text.strip_prefix("0x").or_else(|| self.text.strip_prefix("0X"));
        let read = match hex {
            Some(digits) if !digits.starts_with('+') => u128::from_str_radix(digits, 16).ok(),
            None if self.text.starts_with(|c: char| c.is_ascii_digit()) => self.text.parse().ok(),
            _ => None,
        };
        let most = u128::MAX >> (128 - bits.clamp(1, 128));
        match read {
            Some(number) if number <= most => Ok(number),
            Some(_) => Err(self.wrong("too large", format!("write a number up to {most}"))),
            None => Err(self.wrong(
                "not a number",
                format!("write a number up to {most}, or 0x and hex digits"),
            )),
        }
    }
}

/// A bucket that watches nothing.
const fn bucket() -> Bucket {
    Bucket {
        weight: 0,
        watch_port: crate::port::reserved::ANY,
        watch_group: crate::group::ANY,
        actions: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
