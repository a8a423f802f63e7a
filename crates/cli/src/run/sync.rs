//! Opens the synchronization of connections with other nodes (`[balance.sync]`).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use flowyard_config::{Config, file};
use flowyard_operate::sync::{Bound, SHORTEST_KEY, SyncSettings, Synchronization, Synchronizer};
use flowyard_operate::take_over::Running;
use flowyard_yard::Handle;

use crate::stop::{Stop, bad_input};

/// The state of the synchronization before the start; `None` if it is not configured.
pub(super) fn of(config: &Config) -> Result<Option<Arc<Synchronization>>, Stop> {
    let Some(sync) = config.sync() else { return Ok(None) };
    key(config)?; // so that --check reads it, too
    let (listen, peers) = config.sync_addresses(sync).map_err(bad_input)?;
    let interval = Duration::from_millis(*sync.interval_ms.get_ref());
    let wait = Duration::from_millis(sync.wait_ms);
    let settings = SyncSettings { listen, peers, interval, wait };
    Ok(Some(Arc::new(Synchronization::new(settings))))
}

/// What is needed to synchronize.
pub(super) struct Opened {
    bound: Bound,
    key: Vec<u8>,
    name: String,
}

impl Opened {
    /// A duplicate of the listening socket with its name, for a process that takes over.
    pub(super) fn duplicate(&self) -> io::Result<(String, OwnedFd)> {
        Ok((self.name.clone(), self.bound.duplicate()?))
    }
}

/// Reads the key, and opens the socket on which other nodes are accepted.
pub(super) fn open(config: &Config, running: Option<&mut Running>) -> Result<Option<Opened>, Stop> {
    let Some(sync) = config.sync() else { return Ok(None) };
    let (listen, _) = config.sync_addresses(sync).map_err(bad_input)?;
    let name = format!("sync {listen}");
    let bound = match running.and_then(|running| running.descriptor(&name)) {
        Some(socket) => Bound::adopt(socket),
        None => Bound::bind(listen).map_err(|error| {
            let fix =
                "'listen' in [balance.sync] must be a free port of an address of this machine";
            Stop::Failed(anyhow::anyhow!("listening for other nodes on {listen}: {error}; {fix}"))
        })?,
    };
    Ok(Some(Opened { bound, key: key(config)?, name }))
}

fn key(config: &Config) -> Result<Vec<u8>, Stop> {
    let Some(sync) = config.sync() else { return Ok(Vec::new()) };
    let (path, span) = (sync.key_file.get_ref(), sync.key_file.span());
    let fix = "make one with 'openssl rand -hex 32', and copy it to all nodes";
    let text = file::text(path).map_err(|error| {
        let what = format!("'key_file' {} cannot be read: {error}", path.display());
        bad_input(config.error(span.clone(), what, fix))
    })?;
    let key = text.trim_ascii().as_bytes().to_vec();
    if key.len() < SHORTEST_KEY {
        let what = format!("the key in {} has less than {SHORTEST_KEY} bytes", path.display());
        return Err(bad_input(config.error(span, what, fix)));
    }
    Ok(key)
}

/// Starts to synchronize.
pub(super) fn start(
    yard: &Handle,
    parts: Option<(Opened, &Arc<Synchronization>)>,
) -> io::Result<Option<Synchronizer>> {
    let Some((opened, shared)) = parts else { return Ok(None) };
    Synchronizer::start(yard, shared, opened.bound, &opened.key).map(Some)
}
