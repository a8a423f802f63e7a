//! `[balance.sync]`: synchronization of connections with other nodes.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::names::Checked;
use crate::{Config, ConfigError, free};

/// Settings of the synchronization.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SyncConfig {
    /// The address and port where this node accepts sessions of other nodes.
    pub listen: Spanned<String>,
    /// The addresses and ports of the other nodes.
    pub peers: Vec<Spanned<String>>,
    /// A file with a secret that all nodes have.
    pub key_file: Spanned<PathBuf>,
    /// The number of connections of other nodes for which there is room.
    #[serde(default = "room")]
    pub connections: Spanned<usize>,
    /// The time between two scans of the connections, in milliseconds.
    #[serde(default = "interval")]
    pub interval_ms: Spanned<u64>,
    /// The longest time after the start that announcements wait for the connections of other nodes, in milliseconds.
    #[serde(default = "wait")]
    pub wait_ms: u64,
}

fn room() -> Spanned<usize> {
    free(1 << 18)
}

fn interval() -> Spanned<u64> {
    free(1000)
}

const fn wait() -> u64 {
    5000
}

/// The most connections of other nodes: as many as a core can have.
const MOST: usize = 1 << 30;
/// Milliseconds between two scans.
const INTERVALS: std::ops::RangeInclusive<u64> = 50..=60_000;

impl Config {
    /// How connections are synchronized with other nodes, if they are.
    #[must_use]
    pub fn sync(&self) -> Option<&SyncConfig> {
        Some(self.balance.as_ref()?.get_ref().sync.as_ref()?.get_ref())
    }

    /// The address where this node accepts sessions, and those of the other nodes.
    ///
    /// # Errors
    /// The first that is not an address with a port.
    pub fn sync_addresses(
        &self,
        sync: &SyncConfig,
    ) -> Result<(SocketAddr, Vec<SocketAddr>), ConfigError> {
        let peers: Result<_, _> = sync.peers.iter().map(|peer| self.socket(peer)).collect();
        Ok((self.socket(&sync.listen)?, peers?))
    }

    fn socket(&self, text: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
        let parsed = text.get_ref().parse::<SocketAddr>().ok().filter(|address| address.port() > 0);
        parsed.ok_or_else(|| {
            let what = format!("'{}' is not an IP address with a port", text.get_ref());
            self.error(
                text.span(),
                what,
                "write an address such as \"10.9.0.1:7926\" or \"[fd00::1]:7926\"",
            )
        })
    }
}

/// Returns the first mistake.
pub(super) fn check(config: &Config, sync: &Spanned<SyncConfig>) -> Checked {
    let (span, sync) = (sync.span(), sync.get_ref());
    let (listen, peers) = config.sync_addresses(sync)?;
    if peers.is_empty() {
        let fix = "write the addresses and ports of the other nodes, or leave [balance.sync] out";
        return Err(config.error(span, "'peers' is empty", fix));
    }
    for (at, (peer, text)) in peers.iter().zip(&sync.peers).enumerate() {
        let what = match () {
            () if *peer == listen => "is the address of this node",
            () if peers[..at].contains(peer) => "is there twice",
            () if peer.is_ipv4() != listen.is_ipv4() => "has another IP version than 'listen'",
            () => continue,
        };
        let what = format!("{peer} {what}");
        return Err(config.error(text.span(), what, "write each other node once"));
    }
    if !(1..=MOST).contains(sync.connections.get_ref()) {
        let what = format!("there cannot be room for {} connections", sync.connections.get_ref());
        return Err(config.error(sync.connections.span(), what, "write 1 to 1073741824"));
    }
    if !INTERVALS.contains(sync.interval_ms.get_ref()) {
        let what = format!("{} ms is no interval of scans", sync.interval_ms.get_ref());
        return Err(config.error(sync.interval_ms.span(), what, "write 50 to 60000"));
    }
    Ok(())
}
