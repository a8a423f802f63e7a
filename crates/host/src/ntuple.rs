//! Rules of an interface (`ethtool -N`): encoded as the kernel wants them, inserted, deleted, listed.
//!
//! ```text
//!  Rule ──encode──> Request ──insert──> driver        location: the rule's, the driver's choice, or the highest free
//!  Rule <──decode── Request <──list──── driver        ethtool_rxnfc with an ethtool_rx_flow_spec in it
//! ```
//!
//! The bytes are those that `ethtool -N` passes for the same rule. A listed rule keeps its bytes, so a rule that
//! cannot be expressed in ethtool's words can be put back as it was.
//!
//! Invariant: `decode(encode(rule))` is the rule, without its line and text.
//! Thread-safety: each call opens a socket of its own; nothing is shared.

use std::collections::BTreeSet;
use std::io;

use flowyard_adapter::rules::Rule;

mod call;
mod layout;
pub(crate) mod table;

pub use layout::{NotARule, Request, SIZE};
pub use table::{Listed, Rules, Table};

/// `RX_CLS_LOC_ANY`: the driver chooses the location.
pub const ANY_LOCATION: u32 = u32::MAX;

/// `RX_CLS_LOC_SPECIAL` in the size of a table: the driver can choose locations.
const CHOOSES: u64 = 1 << 31;

/// Attempts to list rules while others change them.
const ATTEMPTS: u32 = 8;

/// The rules of `interface`.
///
/// # Errors
/// What the kernel or the driver returns: `EOPNOTSUPP` if the driver has no rules.
pub fn list(interface: &str) -> io::Result<Table> {
    let (size, chooses, locations) = locations(interface)?;
    let mut rules = Vec::with_capacity(locations.len());
    for loc in locations {
        // If there is none, somebody has deleted it since the locations were read.
        rules.extend(at(interface, loc)?);
    }
    Ok(Table { size: (size > 0).then_some(size), chooses, rules })
}

/// The rule at a location of `interface`, if there is one.
///
/// # Errors
/// What the kernel or the driver returns.
pub fn at(interface: &str, loc: u32) -> io::Result<Option<Listed>> {
    match call::one(interface, loc) {
        Ok(bytes) => Ok(Some(Listed { loc, rule: bytes.decode(), bytes })),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Installs a rule, and returns its location. A rule at the same location is replaced.
///
/// A rule without a location gets one from the driver if it can choose, and the highest free one otherwise, as
/// with ethtool.
///
/// # Errors
/// What the driver returns, and `ENOSPC` if no location is free.
pub fn insert(interface: &str, rule: &Rule) -> io::Result<u32> {
    let loc = match rule.loc {
        Some(loc) => loc,
        None => place(interface)?,
    };
    insert_at(interface, &Request::encode(rule, loc), loc)
}

/// Installs a rule at `loc`, which may be [`ANY_LOCATION`] if the driver chooses locations. Returns its location. The
/// bytes may be those of a listed rule, also if it has no words in ethtool.
///
/// # Errors
/// What the driver returns.
pub fn insert_at(interface: &str, rule: &Request, loc: u32) -> io::Result<u32> {
    call::insert(interface, &rule.at(loc))
}

/// Deletes the rule at a location.
///
/// # Errors
/// What the driver returns: `ENOENT` or `EINVAL` if there is none.
pub fn delete(interface: &str, loc: u32) -> io::Result<()> {
    call::delete(interface, loc)
}

/// A location for a new rule.
fn place(interface: &str) -> io::Result<u32> {
    let (size, chooses, taken) = locations(interface)?;
    if chooses {
        return Ok(ANY_LOCATION);
    }
    let free = (0..size).rev().find(|loc| !taken.contains(loc));
    free.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))
}

/// The number of locations, whether the driver chooses, and the locations in use.
fn locations(interface: &str) -> io::Result<(u32, bool, BTreeSet<u32>)> {
    for _ in 0..ATTEMPTS {
        let (count, data) = call::count(interface)?;
        match call::all(interface, count) {
            Ok((size, taken)) => {
                // Some drivers tell the size only here, others only with the number of rules.
                let size = (size as u32).max((data & (CHOOSES - 1)) as u32);
                return Ok((size, data & CHOOSES != 0, taken.into_iter().collect()));
            }
            // Rules were added since they were counted.
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}
