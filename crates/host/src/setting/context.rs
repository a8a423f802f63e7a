//! RSS contexts as text: the queue of each entry, and the key.

use std::io;

use super::{NONE, table, table_text};
use crate::files::{hex, unhex};
use crate::machine::Machine;
use crate::rules::words::NEW_CONTEXT;

/// The numbers of contexts that are tried: the call has no list of them.
pub(crate) const CONTEXTS: std::ops::Range<u32> = 1..32;

/// The value of a context.
pub(crate) fn text(table: &[u32], key: Option<&str>) -> String {
    let key = key.map_or(String::new(), |key| format!(" key {key}"));
    table_text(table) + &key
}

/// The table and the key of a value; no key: that of the driver.
pub(crate) fn read(value: &str) -> Option<(Vec<u32>, Vec<u8>)> {
    let (entries, key) = value.split_once(" key ").unwrap_or((value, ""));
    let key = if key.is_empty() { Vec::new() } else { unhex(key)? };
    Some((table(entries)?, key))
}

/// The value of a context; `none` if it is not there.
pub(super) fn get(machine: &dyn Machine, interface: &str, number: u32) -> io::Result<String> {
    match machine.rss(interface, number) {
        Ok(rss) => {
            let key = (!rss.key.is_empty()).then(|| hex(&rss.key));
            Ok(text(&rss.table, key.as_deref()))
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP) => Ok(NONE.to_owned()),
            _ => Err(error),
        },
    }
}

/// The command of a shell that makes a context, and keeps its number in the variable CONTEXT.
pub(super) fn command(interface: &str, value: &str) -> String {
    let (table, _) = read(value).unwrap_or_default();
    let first = table.iter().min().copied().unwrap_or(0);
    let queues = table.iter().max().map_or(1, |most| most - first + 1);
    let in_turn = (0..).zip(&table).all(|(entry, queue)| *queue == first + entry % queues);
    let spread = if in_turn {
        format!("start {first} equal {queues}")
    } else {
        let mut weights = vec![0_u32; (first + queues) as usize];
        table.iter().for_each(|queue| weights[*queue as usize] += 1);
        let words: Vec<_> = weights.iter().map(ToString::to_string).collect();
        format!("weight {}", words.join(" "))
    };
    let key = value.split_once(" key ").map_or(String::new(), |(_, key)| format!(" hkey {key}"));
    format!("CONTEXT=$(ethtool -X {interface} context new {spread}{key} | grep -o '[0-9]*$')")
}

/// A rule in the words of a shell in which the variable CONTEXT has the number of the new context.
pub(super) fn in_shell(rule: &str) -> String {
    rule.replace(&format!("context {NEW_CONTEXT} "), "context $CONTEXT ")
        .replace("context new ", "context $CONTEXT ")
}
