//! The services of a run whose configuration names a provider: what it starts with, and the thread that watches.
//!
//! ```text
//!  it answers in time ──services are right──> use them
//!    └─no            └─wrong──> the last good ones in the file of `state` ──none──> no start
//! ```

use std::sync::Arc;
use std::time::Duration;

use flowyard_config::{ClusterConfig, Config, ConfigError};
use flowyard_operate::cluster::{
    self, Cluster, Found, Provider, Snapshot, StateFile, Watcher, WatcherSettings, first_poll,
};
use flowyard_yard::{Clock, Handle};
use schemars::JsonSchema;
use serde::Serialize;

use crate::clock;
use crate::stop::{Stop, bad_input, failed};

/// The services of a run, before it starts.
pub(super) struct Joined {
    pub(super) shared: Arc<Cluster>,
    watched: WatcherSettings,
}

/// What services come from, as it stands before their keys in messages.
pub(super) fn place(config: &Config) -> String {
    config.cluster().map_or_else(String::new, ClusterConfig::place)
}

/// The configuration with these services.
pub(super) fn compose(config: &Config, snapshot: &Snapshot) -> Result<Config, ConfigError> {
    config.recompose(&place(config), &snapshot.fragments)
}

/// Reads the services of the cluster, if the configuration names one, and adds them to `config`.
pub(super) fn join(
    config: &mut Config,
    clock: &Clock,
    drawn: [u8; 16],
) -> Result<Option<Joined>, Stop> {
    let Some(cluster) = config.cluster().cloned() else {
        return Ok(None);
    };
    let mut provider = Provider::new(&cluster, Arc::clone(clock)).map_err(bad_input)?;
    let state = StateFile::new(cluster.state(), &cluster.identity());
    let saved = state.load();
    let shared = Arc::new(Cluster::new(provider.name()));
    shared.look_up(config.lookups());
    provider.look_up(&config.lookups());
    if let Ok(Some(saved)) = &saved {
        provider.remember(saved);
    }
    let patience = Duration::from_millis(*cluster.timeout_ms.get_ref());
    let found = first_poll(&provider, clock, patience);
    let found = found.map(|(asked, found)| {
        provider = asked;
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
    let watched = WatcherSettings {
        node: cluster.node().into(),
        instance: format!("{:016x}", u128::from_ne_bytes(drawn) >> 64),
        provider,
        every: Duration::from_millis(*cluster.poll_ms.get_ref()),
        state,
        saved,
        unix: Box::new(clock::unix),
    };
    Ok(Some(Joined { shared, watched }))
}

/// The services of a provider, of a configuration that is only checked.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Provided {
    /// The provider: `etcd`, `DNS`, `Kubernetes`, or the address of a document without its query.
    provider: String,
    /// The generation that was read; null if none was read.
    generation: Option<u64>,
    /// The number of its services; of DNS, of those in the file whose backends come from SRV records.
    services: usize,
    /// Why the services were not read, so that only the file was checked; null if they were read.
    unread: Option<String>,
}

impl Provided {
    /// What was read, as a line of text.
    pub(super) fn text(&self) -> String {
        let Self { provider, generation, services, unread } = self;
        match (generation, unread) {
            (Some(generation), _) => {
                let s = if *services == 1 { "" } else { "s" };
                format!(
                    "{provider}: the services are valid: {services} service{s} in generation {generation}\n"
                )
            }
            (None, why) => {
                let why = why.as_deref().unwrap_or_default();
                format!("{provider} was not read, and only the file was checked: {why}\n")
            }
        }
    }
}

/// Reads the services of the provider, if the configuration names one, and adds them to a configuration that is only
/// checked. One that cannot be read is no mistake in the configuration; a file of `[cluster]` that cannot be read is.
pub(super) fn check(config: &mut Config, clock: &Clock) -> Result<Option<Provided>, Stop> {
    let Some(cluster) = config.cluster().cloned() else {
        return Ok(None);
    };
    let patience = Duration::from_millis(*cluster.timeout_ms.get_ref());
    let mut provider = Provider::new(&cluster, Arc::clone(clock)).map_err(bad_input)?;
    provider.only_read();
    provider.look_up(&config.lookups());
    let found = first_poll(&provider, clock, patience);
    let provider = cluster::name(&cluster);
    let of_file = config.service.len();
    match found {
        Ok((_, Found::New(Snapshot { generation, fragments }))) => {
            *config = config.recompose(&cluster.place(), &fragments).map_err(bad_input)?;
            let services = config.service.len() - of_file + config.lookups().len();
            Ok(Some(Provided { provider, generation: Some(generation), services, unread: None }))
        }
        Ok((_, Found::Unusable(_, why))) => Err(bad_input(why)),
        Err(why) => {
            Ok(Some(Provided { provider, generation: None, services: 0, unread: Some(why) }))
        }
    }
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
            // An empty offer does not replace services.
            shared.used(saved.cloned().unwrap_or_default());
            shared.offer(snapshot);
            match shared.take() {
                None => Stop::Failed(anyhow::anyhow!("{} has no services", shared.name())),
                Some(snapshot) => match compose(config, &snapshot) {
                    Ok(config) => {
                        let generation = snapshot.generation;
                        let from = shared.name();
                        tracing::info!(
                            generation,
                            services = config.service.len(),
                            "services of {from}"
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
            let name = shared.name();
            let stop = format!(
                "{name} cannot be read ({why}), and there are no services of an earlier run in the file 'state' of [cluster]"
            );
            tracing::warn!("{name} cannot be read: {why}");
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

impl Joined {
    /// Starts to watch the services. The privileges that the run does not keep are dropped already.
    pub(super) fn watch(self, yard: &Handle) -> Result<Watcher, Stop> {
        let tried = self.watched.state.try_out();
        tried.map_err(|error| Stop::Failed(anyhow::anyhow!("{error}")))?;
        let watcher = Watcher::start(yard, self.shared, self.watched);
        watcher.map_err(failed("watching the services of a provider"))
    }
}
