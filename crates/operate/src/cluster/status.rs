//! The status that each node writes under `PREFIX/status/NODE`.

use flowyard_lb::Hub;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::View;

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The name of the node.
    pub node: String,
    /// The generation in use.
    pub generation: u64,
    /// The newest generation that the node has seen.
    pub seen: u64,
    /// Why the newest generation is not in use, if the node has refused it.
    pub error: Option<String>,
    /// Whether the services in use are those of a file on the node, because the provider had none that could be used at its start.
    pub is_from_file: bool,
    /// A checksum of services and tables in hexadecimal, without health: equal on nodes of one generation.
    pub checksum: String,
    /// The number of services.
    pub services: usize,
    /// The names of services that have backends, all of which are down.
    pub services_down: Vec<String>,
    /// The number of backends of all services.
    pub backends: usize,
    /// The number of backends that are up.
    pub backends_up: usize,
    /// A number that is drawn at each start: it tells two instances of one name from each other.
    #[serde(default)]
    pub instance: String,
    /// Whether another instance writes its status under the same name.
    #[serde(default)]
    pub has_namesake: bool,
    /// When the node wrote this, in seconds since 1970-01-01 by its own clock.
    pub at: u64,
}

impl Status {
    /// The status of this node, without a date.
    #[must_use]
    pub fn of(node: &str, instance: &str, view: &View, hub: &Hub) -> Self {
        let states = hub.states();
        let backends = || states.iter().flat_map(|state| &state.backends);
        let is_down = |state: &&flowyard_lb::ServiceState| {
            !state.backends.is_empty() && state.backends.iter().all(|backend| !backend.is_up)
        };
        let down = states.iter().filter(is_down).map(|state| state.service.name.clone());
        Self {
            node: node.into(),
            generation: view.generation,
            seen: view.seen,
            error: view.error.clone(),
            is_from_file: view.is_from_file,
            checksum: format!("{:016x}", hub.plan().configured_checksum()),
            services: states.len(),
            services_down: down.collect(),
            backends: backends().count(),
            backends_up: backends().filter(|backend| backend.is_up).count(),
            instance: instance.into(),
            has_namesake: view.has_namesake,
            at: 0,
        }
    }
}
