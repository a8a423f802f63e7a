//! Files of an interface, and what they say.

use crate::known::{Known, reason};
use crate::machine::Machine;

/// The folder of an interface.
pub(crate) fn folder(interface: &str) -> String {
    format!("/sys/class/net/{interface}")
}

/// A file whose text `read` understands.
pub(crate) fn parsed<T>(
    machine: &dyn Machine,
    path: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Known<T> {
    match machine.read(path) {
        Ok(text) => match read(text.trim()) {
            Some(value) => Known::Value(value),
            None => Known::unknown(format!("{path}: '{}' cannot be read", text.trim())),
        },
        Err(error) => Known::unknown(reason(path, &error)),
    }
}

/// A file with one number.
pub(crate) fn number<T: std::str::FromStr>(machine: &dyn Machine, path: &str) -> Known<T> {
    parsed(machine, path, |text| text.parse().ok())
}

/// Bytes as `6d:5a:...`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// The bytes of a text such as [`hex`] returns.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    text.split(':').map(|digits| u8::from_str_radix(digits, 16).ok()).collect()
}

/// The size of the socket flow table of RFS.
pub(crate) const SOCK_FLOW_ENTRIES: &str = "/proc/sys/net/core/rps_sock_flow_entries";
