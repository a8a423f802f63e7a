//! Steering in the kernel, measured live: memcached, the order of datagrams, and whether connections survive.
//!
//! ```text
//!  server's namespace   memcached, nginx, readers ── [vb: none, RPS, RFS or `flowyard steer`] ════ [va] ── clients
//! ```
//!
//! `flowyard steer` runs as a process of its own, as it does for users. What is measured does not come from it: the
//! CPU that received a segment is what the kernel says of the server's socket (SO_INCOMING_CPU).
//!
//! Thread-safety: plain functions; those that measure start threads and processes, and join them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

mod datagrams;
pub mod order;
pub mod requests;
mod rig;
pub mod survival;

pub(crate) use rig::Process;

/// How the frames that arrive are spread over CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Not at all: the CPU that receives a frame processes it.
    None,
    /// The kernel's RPS.
    Rps,
    /// The kernel's RPS and RFS.
    Rfs,
    /// `flowyard steer --policy rss`.
    SteerRss,
    /// `flowyard steer --policy atr`.
    SteerAtr,
    /// `flowyard steer --policy rfs`.
    SteerRfs,
    /// `flowyard steer --policy rfs --unordered`.
    SteerRfsUnordered,
}

impl Way {
    /// Those that the requests of memcached are measured with.
    pub const REQUESTS: [Self; 6] =
        [Self::None, Self::Rps, Self::Rfs, Self::SteerRss, Self::SteerAtr, Self::SteerRfs];
    /// Those that the order of datagrams is measured with.
    pub const ORDER: [Self; 4] = [Self::Rps, Self::Rfs, Self::SteerRfs, Self::SteerRfsUnordered];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rps => "RPS",
            Self::Rfs => "RFS",
            Self::SteerRss => "steer rss",
            Self::SteerAtr => "steer atr",
            Self::SteerRfs => "steer rfs",
            Self::SteerRfsUnordered => "steer rfs --unordered",
        }
    }

    /// Whether `flowyard steer` promises order.
    #[must_use]
    pub const fn is_ordered(self) -> bool {
        matches!(self, Self::SteerRss | Self::SteerAtr | Self::SteerRfs)
    }

    /// The arguments of `flowyard steer`, if it is used.
    const fn arguments(self) -> Option<&'static [&'static str]> {
        match self {
            Self::None | Self::Rps | Self::Rfs => None,
            Self::SteerRss => Some(&["--policy", "rss"]),
            Self::SteerAtr => Some(&["--policy", "atr"]),
            Self::SteerRfs => Some(&["--policy", "rfs"]),
            Self::SteerRfsUnordered => Some(&["--policy", "rfs", "--unordered"]),
        }
    }
}

/// Frames that `flowyard steer` counted, by the stage that decided.
pub type Frames = BTreeMap<String, u64>;

/// The median of the rounds, and their extremes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        let median = crate::stats::median(&mut values); // sorts them
        let [least, most] = [values.first(), values.last()].map(|one| one.copied().unwrap_or(0.0));
        Self { median, least, most }
    }
}

/// Why these measurements are not possible here, if they are not: root, two CPUs and `programs` are needed.
#[must_use]
pub fn obstacle(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root is needed, for network namespaces and BPF programs; use sudo".into());
    }
    if crate::processors() < 2 {
        return Some("two CPUs are needed, because steering chooses between them".into());
    }
    let has = |program: &str| crate::in_path(program).is_some();
    let base = ["ip", "unshare", "nsenter", "mount", "setpriv", "ethtool"];
    let missing: Vec<_> =
        base.iter().chain(programs).filter(|program| !has(program)).copied().collect();
    (!missing.is_empty()).then(|| {
        let list = missing.join(", ");
        format!("programs are missing: {list}; install the packages that have them")
    })
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn a_spread_has_the_median_and_the_extremes() {
        let spread = Spread::of(vec![3.0, 9.0, 1.0]);
        assert_eq!(spread, Spread { median: 3.0, least: 1.0, most: 9.0 });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
