//! The services of a run whose configuration names etcd: what it starts with, and the thread that watches.
//!
//! ```text
//!  etcd answers in time ──services are right──> use them
//!    └─no            └─wrong──> the last good ones in the file of `state` ──none──> no start
//! ```

use std::sync::Arc;
use std::time::Duration;

use flowyard_config::{ClusterConfig, Config, ConfigError};
use flowyard_operate::cluster::{
    self, Cluster, Etcd, Found, Poller, Snapshot, StateFile, Watcher, WatcherSettings, first_poll,
};
use flowyard_yard::{Clock, Handle};

use crate::clock;
use crate::stop::{Stop, bad_input, failed};

/// The services of a run, before it starts.
pub(super) struct Joined {
    pub(super) shared: Arc<Cluster>,
    watched: WatcherSettings,
}

/// The prefix of keys, as it stands before them in messages.
pub(super) fn place(config: &Config) -> String {
    let cluster = config.cluster();
    cluster.map_or_else(String::new, |cluster| cluster::place(cluster.prefix.get_ref()))
}

/// The configuration with these services.
pub(super) fn compose(config: &Config, snapshot: &Snapshot) -> Result<Config, ConfigError> {
    config.recompose(&place(config), &snapshot.fragments)
}

/// Reads the services of the cluster, if the configuration names one, and adds them to `config`.
pub(super) fn join(config: &mut Config, clock: &Clock) -> Result<Option<Joined>, Stop> {
    let Some(cluster) = config.cluster().cloned() else {
        return Ok(None);
    };
    let etcd = Etcd::new(&cluster, Arc::clone(clock)).map_err(bad_input)?;
    let mut poller = Poller::new(etcd, cluster.prefix.get_ref());
    let state = StateFile::new(cluster.state(), cluster.prefix.get_ref());
    let saved = state.load();
    let shared = Arc::<Cluster>::default();
    let patience = Duration::from_millis(*cluster.timeout_ms.get_ref());
    let found = first_poll(&poller, clock, patience);
    let found = found.map(|(asked, found)| {
        poller = asked;
        found
    });
    let chosen = choose(config, found, saved.as_ref().ok().and_then(Option::as_ref), &shared);
    *config = match (chosen, &saved) {
        (Ok(config), _) => config,
        // The file might have had services.
        (Err(_), Err(error)) => return Err(Stop::Failed(anyhow::anyhow!("{error}"))),
        (Err(stop), Ok(_)) => return Err(stop),
    };
    let saved = saved.unwrap_or_else(|error| {
        tracing::warn!("{error}; it is written anew");
        None
    });
    let watched = watched(&cluster, poller, state, saved);
    Ok(Some(Joined { shared, watched }))
}

/// The configuration with the services that were found, or else with those that were saved.
fn choose(
    config: &Config,
    found: Result<Found, String>,
    saved: Option<&Snapshot>,
    shared: &Cluster,
) -> Result<Config, Stop> {
    let refused = match found {
        Ok(Found::New(snapshot)) => {
            // An empty prefix does not replace services.
            shared.used(saved.cloned().unwrap_or_default());
            shared.offer(snapshot);
            match shared.take() {
                None => Stop::Failed(anyhow::anyhow!("etcd has no services")),
                Some(snapshot) => match compose(config, &snapshot) {
                    Ok(config) => {
                        let generation = snapshot.generation;
                        tracing::info!(
                            generation,
                            keys = snapshot.fragments.len(),
                            "services of etcd"
                        );
                        shared.used(snapshot);
                        return Ok(config);
                    }
                    Err(error) => {
                        shared.refuse(snapshot, error.to_string());
                        bad_input(error)
                    }
                },
            }
        }
        Ok(Found::Unusable(generation, why)) => {
            shared.refuse_for_good(generation, why.clone());
            bad_input(why)
        }
        Err(why) => {
            let stop = format!(
                "etcd cannot be read ({why}), and there are no services of an earlier run in the file 'state' of [cluster]"
            );
            tracing::warn!("etcd cannot be read: {why}");
            Stop::Failed(anyhow::anyhow!(stop))
        }
    };
    let Some(saved) = saved else { return Err(refused) };
    let config = compose(config, saved).map_err(bad_input)?;
    let generation = saved.generation;
    tracing::warn!(generation, "the last good services of the file in 'state' are used");
    shared.used_saved(saved.clone());
    Ok(config)
}

fn watched(
    cluster: &ClusterConfig,
    poller: Poller,
    state: StateFile,
    saved: Option<Snapshot>,
) -> WatcherSettings {
    WatcherSettings {
        node: cluster.node().into(),
        poller,
        every: Duration::from_millis(*cluster.poll_ms.get_ref()),
        state,
        saved,
        unix: Box::new(clock::unix),
    }
}

impl Joined {
    /// Starts to watch the services. The privileges that the run does not keep are dropped already.
    pub(super) fn watch(self, yard: &Handle) -> Result<Watcher, Stop> {
        let tried = self.watched.state.try_out();
        tried.map_err(|error| Stop::Failed(anyhow::anyhow!("{error}")))?;
        let watcher = Watcher::start(yard, self.shared, self.watched);
        watcher.map_err(failed("watching the services in etcd"))
    }
}
