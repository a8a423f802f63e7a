//! A value that was read, or the reason for which it is not known.

use std::io;

use schemars::JsonSchema;
use serde::Serialize;

/// A value of the machine. In JSON it is the value itself, or `{"unknown": "the reason"}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Known<T> {
    /// The value.
    Value(T),
    /// The value is not known.
    Unknown {
        /// The reason, with the kernel's error.
        unknown: String,
    },
}

impl<T> Known<T> {
    /// A value that is not known for this reason.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { unknown: why.into() }
    }

    /// The value, if it is known.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unknown { .. } => None,
        }
    }

    /// The reason for which the value is not known.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Value(_) => None,
            Self::Unknown { unknown } => Some(unknown),
        }
    }

    /// The value converted by `to`.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Self::Value(value) => Known::Value(to(value)),
            Self::Unknown { unknown } => Known::Unknown { unknown },
        }
    }

    /// The result of a call; `what` says what was asked, such as `ETHTOOL_GRSSH`.
    pub fn of(what: &str, result: io::Result<T>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(error) => Self::unknown(reason(what, &error)),
        }
    }
}

/// An error of the kernel in words, with its name.
pub(crate) fn reason(what: &str, error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else { return format!("{what}: {error}") };
    let said = match number {
        libc::EOPNOTSUPP => "EOPNOTSUPP: the driver does not offer this",
        libc::EPERM => "EPERM: this needs CAP_NET_ADMIN",
        libc::EACCES => "EACCES: this needs more privileges, such as root",
        libc::ENOENT => "ENOENT: there is no such file",
        libc::ENODEV => "ENODEV: there is no such interface",
        libc::EINVAL => "EINVAL: the kernel or the driver does not permit this",
        libc::EBUSY => "EBUSY: the driver is busy, or the setting is in use",
        libc::EIO => "EIO: the kernel or the driver refuses this",
        libc::EROFS => "EROFS: the file system is read-only",
        _ => return format!("{what}: {error}"),
    };
    format!("{what}: {said}")
}
