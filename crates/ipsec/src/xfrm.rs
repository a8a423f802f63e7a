//! The text of `ip xfrm state` and `ip xfrm policy`, with statistics (`-s`) or without.
//!
//! ```text
//!  src 192.0.2.1 dst 192.0.2.2                        a record starts at the left margin
//!          proto esp spi 0x00001000 reqid 1 mode tunnel
//!          replay-window 64 flag esn
//!          aead rfc4106(gcm(aes)) 0x... 128
//! ```
//!
//! A word that changes what happens to packets and is not implemented is an error, with its line. Times of `expire`, the
//! selector of an SA and counters are ignored.
//!
//! Invariants: all bytes are handled; no error has a part of a key in it.
//! Thread-safety: plain functions.

use crate::sa::SaConfig;
use crate::spd::{POLICIES, Policy};

mod policy;
mod state;
mod words;

use words::Words;

/// The most SAs.
pub const STATES: usize = 1 << 16;

/// What is wrong with a text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}; {fix}")]
pub struct XfrmError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

/// The lines of each record, with their numbers from 1. Empty lines and comments (`#`) are left out.
fn records(text: &str) -> Result<Vec<Vec<(usize, &str)>>, XfrmError> {
    let mut all: Vec<Vec<(usize, &str)>> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let is_first = !line.starts_with([' ', '\t']);
        match all.last_mut() {
            _ if is_first => all.push(vec![(number, line)]),
            Some(record) => record.push((number, line)),
            None => {
                return Err(XfrmError {
                    line: number,
                    what: "a record starts with 'src ADDRESS dst ADDRESS' at the left margin"
                        .to_owned(),
                    fix: "give the output of 'ip xfrm' without changes".to_owned(),
                });
            }
        }
    }
    Ok(all)
}

fn at_most(line: usize, most: usize, what: &str) -> XfrmError {
    XfrmError {
        line,
        what: format!("there are more than {most} {what}"),
        fix: "leave some out".to_owned(),
    }
}

/// SAs, from the text of `ip xfrm state`.
///
/// # Errors
/// The first record that is wrong, or that is not implemented.
pub fn states(text: &str) -> Result<Vec<SaConfig>, XfrmError> {
    let records = records(text)?;
    if let Some(over) = records.get(STATES) {
        return Err(at_most(over[0].0, STATES, "SAs"));
    }
    let mut all: Vec<SaConfig> = Vec::with_capacity(records.len());
    let mut known = std::collections::HashMap::new();
    for record in records {
        let sa = state::state(&record)?;
        if let Some(other) = known.insert((sa.dst, sa.spi), sa.line) {
            return Err(XfrmError {
                line: sa.line,
                what: format!(
                    "line {other} has an SA with SPI {:#010x} to {} already",
                    sa.spi, sa.dst
                ),
                fix: "leave one of them out".to_owned(),
            });
        }
        all.push(sa);
    }
    Ok(all)
}

/// Policies, from the text of `ip xfrm policy`. Policies of single sockets are left out.
///
/// # Errors
/// As [`states`].
pub fn policies(text: &str) -> Result<Vec<Policy>, XfrmError> {
    let mut all = Vec::new();
    for record in records(text)? {
        let line = record[0].0;
        if let Some(policy) = policy::policy(&record)? {
            if all.len() == POLICIES {
                return Err(at_most(line, POLICIES, "policies"));
            }
            all.push(policy);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
