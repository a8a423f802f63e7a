//! The keys of `[ipsec]`, and their checks; and the files of SAs and policies.
//!
//! ```toml
//! [work]
//! kind = "ipsec"
//!
//! [[work.route]]
//! prefix = "0.0.0.0/0"
//! port = "outside"
//! next_hop = "02:00:00:00:00:01"
//!
//! [ipsec]
//! state = "state.txt"      # the output of `ip xfrm state`: it has keys
//! policy = "policy.txt"    # the output of `ip xfrm policy`
//! ```
//!
//! The files are read when the configuration is resolved, not when it is parsed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use flowyard_ipsec::xfrm::{self, XfrmError};
use flowyard_ipsec::{IpsecHub, Settings};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use zeroize::Zeroizing;

use super::names::Checked;
use super::{Config, ConfigError, Order, WorkKind, file, free};

/// `[ipsec]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IpsecConfig {
    /// The file of security associations, in the form that `ip xfrm state` prints. It has keys, so only its owner may
    /// read it.
    pub state: Spanned<PathBuf>,
    /// The file of policies, in the form that `ip xfrm policy` prints.
    pub policy: Spanned<PathBuf>,
    /// The longest packet that leaves with ESP, in bytes.
    #[serde(default = "mtu")]
    pub mtu: Spanned<usize>,
    /// What happens to packets without a policy.
    #[serde(default)]
    pub unmatched: Unmatched,
    /// Whether packets that were opened are coalesced where they leave by a port that passes on long frames.
    #[serde(default = "coalesce")]
    pub coalesce: bool,
    /// Whether other users may be able to read the file of security associations.
    #[serde(default)]
    pub allow_readable_keys: bool,
}

/// What happens to packets without a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unmatched {
    /// They pass unprotected, as in Linux.
    #[default]
    Pass,
    /// They are dropped, as RFC 4301 recommends.
    Drop,
}

/// The smallest MTU of IPv6, and the largest length of an IP packet.
const MTUS: std::ops::RangeInclusive<usize> = 1280..=65_535;

const fn coalesce() -> bool {
    true
}

fn mtu() -> Spanned<usize> {
    free(1500)
}

impl Config {
    /// Whether the work is IPsec.
    pub(crate) fn is_ipsec(&self) -> bool {
        *self.work.get_ref().kind.get_ref() == WorkKind::Ipsec
    }

    /// The settings of the gateway. Reads its files.
    ///
    /// # Errors
    /// When a file cannot be read, may be read by others, or has a mistake.
    pub(crate) fn ipsec_settings(&self) -> Result<Settings, ConfigError> {
        let Some(ipsec) = self.ipsec.as_ref().map(Spanned::get_ref) else {
            let fix = "add [ipsec] with 'state' and 'policy'";
            return Err(self.error(self.work.span(), "the section [ipsec] is missing", fix));
        };
        self.check_keys(ipsec)?;
        let state = Zeroizing::new(self.ipsec_text(&ipsec.state)?);
        let sas = xfrm::states(&state).map_err(|error| self.ipsec_mistake(&ipsec.state, error))?;
        let policy = self.ipsec_text(&ipsec.policy)?;
        let policies =
            xfrm::policies(&policy).map_err(|error| self.ipsec_mistake(&ipsec.policy, error))?;
        let spreads = self.queues().any(|queue| queue.consumers.get_ref().len() > 1);
        let windows = self.queues().map(|queue| *queue.window_frames.get_ref());
        let settings = Settings {
            sas,
            policies,
            mtu: *ipsec.mtu.get_ref(),
            discards_unmatched: ipsec.unmatched == Unmatched::Drop,
            slack: if spreads { windows.max().unwrap_or_default() } else { 0 },
            stamps: if spreads { self.blueprint()?.pool_frames() + self.large_frames() } else { 0 },
            seeds: [
                self.secret().key("first IVs of IPsec"),
                self.secret().key("policies of IPsec"),
            ],
        };
        // SAs are tried here, so that the engine can be built without an error.
        IpsecHub::new(&Settings { stamps: 0, ..settings.clone() }).map_err(|bad| {
            let text = bad.error.to_string();
            let (what, fix) = text.split_once("; ").unwrap_or((&text, "see docs/ipsec.md"));
            let path = ipsec.state.get_ref().display();
            self.error(ipsec.state.span(), format!("{path}, line {}: {what}", bad.line), fix)
        })?;
        Ok(settings)
    }

    fn ipsec_text(&self, path: &Spanned<PathBuf>) -> Result<String, ConfigError> {
        file::text(path.get_ref()).map_err(|error| {
            let what = format!("{}: {error}", path.get_ref().display());
            self.error(path.span(), what, "name a file that this user can read")
        })
    }

    fn ipsec_mistake(&self, path: &Spanned<PathBuf>, error: XfrmError) -> ConfigError {
        let what = format!("{}, line {}: {}", path.get_ref().display(), error.line, error.what);
        self.error(path.span(), what, error.fix)
    }

    /// Only the owner may read keys.
    fn check_keys(&self, ipsec: &IpsecConfig) -> Checked {
        let path = ipsec.state.get_ref();
        let mode = fs::metadata(path).map_or(0, |about| about.mode() & 0o777);
        if mode & 0o077 == 0 || ipsec.allow_readable_keys {
            return Ok(()); // a file that is missing is reported when it is read
        }
        let what = format!("{} has keys, and its mode {mode:o} lets others use it", path.display());
        let fix = format!(
            "run 'chmod 600 {}', or write 'allow_readable_keys = true' in [ipsec]",
            path.display()
        );
        Err(self.error(ipsec.state.span(), what, fix))
    }
}

/// Returns the first mistake.
pub(super) fn check(config: &Config) -> Checked {
    let Some(ipsec) = &config.ipsec else {
        if config.is_ipsec() {
            let fix = "add [ipsec] with 'state' and 'policy'";
            return Err(config.error(config.work.span(), "the section [ipsec] is missing", fix));
        }
        return Ok(());
    };
    if !config.is_ipsec() {
        let what = "[ipsec] is for kind = \"ipsec\"";
        let fix = "write that kind in [work], or leave it out";
        return Err(config.error(ipsec.span(), what, fix));
    }
    let mtu = &ipsec.get_ref().mtu;
    if !MTUS.contains(mtu.get_ref()) {
        let what = format!("an MTU of {} bytes is not possible", mtu.get_ref());
        return Err(config.error(mtu.span(), what, "write 1280 to 65535"));
    }
    if config.yard.seed.is_some() {
        let what = "a fixed 'seed' would use the same IVs again after a restart".to_owned();
        return Err(config.error_in("[yard]", "seed", what, "leave 'seed' out of [yard]"));
    }
    if let [_, second, ..] = config.queue.as_slice() {
        let what = "frames of one security association would leave several queues out of order";
        let fix = "use one [[queue]] with order = \"ordered\" and all cores as consumers";
        return Err(config.error(second.span(), what, fix));
    }
    match config.queue.first() {
        Some(queue) if !matches!(queue.get_ref().order, Order::Direct | Order::Ordered) => {
            let what = "frames of one security association would leave this queue out of order";
            let fix = "write order = \"ordered\", or order = \"direct\" for one core";
            Err(config.error(queue.span(), what, fix))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
