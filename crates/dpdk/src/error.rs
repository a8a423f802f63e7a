//! Errors: what failed, and how to fix it.

use std::ffi::CStr;

use crate::sys;

/// Why something of DPDK failed, and how to fix it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}; {fix}")]
pub struct Error {
    /// What failed.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }

    /// The operation `doing` failed with this code of DPDK, a negative errno.
    pub(crate) fn code(doing: &str, code: i32, fix: impl Into<String>) -> Self {
        Self::new(format!("{doing} failed: {}", text(code)), fix)
    }
}

/// The text of an error of DPDK.
#[expect(unsafe_code, reason = "a string of the C library")]
pub(crate) fn text(code: i32) -> String {
    // SAFETY: the function returns a string that ends with a zero, which lives until the thread calls it again.
    unsafe { CStr::from_ptr(sys::fy_error(code)) }.to_string_lossy().into_owned()
}

/// A text in an array of C, up to its zero.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
