//! Providers: what the services of a balancer come from. Each has a client of its own; generations, refusals, the file of the
//! last good services, metrics and logs are the same for all.
//!
//! ```text
//!  etcd ────keys──────> Poller ───┐  the nodes agree on a number by a key
//!  HTTP ──document────> Document ─┼─> Provider ──New(Snapshot)──> Cluster
//!  DNS ───SRV records─> Lookups ──┤
//!  Kubernetes ─lists──> Kubernetes┘
//!                        the number is a digest of the contents
//! ```
//!
//! A provider in which nodes cannot write has no place for a number on which they agree. There the number of a generation is
//! a digest of the services: equal services have the same number on all nodes, and the numbers have no order.

use flowyard_config::{ClusterConfig, Lookup, ProviderKind};
use flowyard_yard::Clock;

use super::document::Document;
use super::found::{Found, Polled, Read, Services};
use super::kubernetes::Kubernetes;
use super::lookup::Lookups;
use super::{Etcd, OpenError, Poller, Snapshot};

#[derive(Clone, Debug)]
enum Client {
    Etcd(Poller),
    Http(Document),
    Dns(Lookups),
    Kubernetes(Kubernetes),
}

/// What the services come from.
#[derive(Clone, Debug)]
pub struct Provider {
    client: Client,
    /// As the provider is named in messages.
    name: String,
    /// What was returned last; the poller of etcd has its own.
    last: Option<Found>,
}

impl Provider {
    /// Prepares a client, and reads the files that it needs.
    ///
    /// # Errors
    /// A file cannot be read, or contains something else.
    pub fn new(config: &ClusterConfig, clock: Clock) -> Result<Self, OpenError> {
        let client = match config.kind.get_ref() {
            ProviderKind::Etcd => {
                Client::Etcd(Poller::new(Etcd::new(config, clock)?, config.prefix()))
            }
            ProviderKind::Http => Client::Http(Document::new(config, clock)?),
            ProviderKind::Dns => Client::Dns(Lookups::new(config, clock)?),
            ProviderKind::Kubernetes => Client::Kubernetes(Kubernetes::new(config, clock)?),
        };
        Ok(Self { client, name: name(config), last: None })
    }

    /// Writes nothing to the provider from now on.
    pub const fn only_read(&mut self) {
        if let Client::Etcd(poller) = &mut self.client {
            poller.only_read();
        }
    }

    /// As the provider is named in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Looks for services, and returns them if they are other ones than before.
    pub fn poll(&mut self) -> Polled {
        let (read, failed) = match &mut self.client {
            Client::Etcd(poller) => return poller.poll().map_err(|error| error.to_string()).into(),
            Client::Http(document) => parts(document.read()),
            Client::Dns(lookups) => lookups.read(),
            Client::Kubernetes(api) => parts(api.read()),
        };
        let found = read.map(Services::numbered).filter(|found| self.last.as_ref() != Some(found));
        if found.is_some() {
            self.last.clone_from(&found);
        }
        Polled { found, failed }
    }

    /// Looks up these records from now on, if the provider is DNS.
    pub fn look_up(&mut self, all: &[Lookup]) {
        if let Client::Dns(lookups) = &mut self.client {
            lookups.look_up(all);
        }
    }

    /// Takes the last good services of an earlier run, for a provider that has services in parts.
    pub fn remember(&mut self, saved: &Snapshot) {
        if let Client::Dns(lookups) = &mut self.client {
            lookups.remember(&saved.fragments);
        }
    }

    /// The balancer runs from now on, with the services of an earlier run if no poll has found some.
    pub(super) const fn run(&mut self) {
        if let Client::Dns(lookups) = &mut self.client {
            lookups.run();
        }
    }

    /// Whether nodes write their statuses there.
    #[must_use]
    pub const fn keeps_statuses(&self) -> bool {
        matches!(self.client, Client::Etcd(_))
    }

    /// Writes the status of a node, if they are kept there, and returns the status that it replaces.
    pub(super) fn report(&mut self, node: &str, status: &str) -> Result<Option<Vec<u8>>, String> {
        let Client::Etcd(poller) = &mut self.client else { return Ok(None) };
        let key = poller.key(&format!("status/{node}"));
        poller.etcd.put(&key, status).map_err(|error| error.to_string())
    }
}

/// What was read, or why it was not.
fn parts(read: Read) -> (Option<Services>, Option<String>) {
    match read {
        Ok(services) => (services, None),
        Err(why) => (None, Some(why)),
    }
}

/// As a provider is named in messages.
#[must_use]
pub fn name(config: &ClusterConfig) -> String {
    match config.kind.get_ref() {
        ProviderKind::Http => config.place(),
        kind => kind.to_string(),
    }
}
