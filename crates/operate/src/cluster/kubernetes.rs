//! Polls the Kubernetes API: Services of type LoadBalancer, and the EndpointSlices with their backends.
//!
//! ```text
//!  GET /api/v1/services                         ──┐
//!  GET /apis/discovery.k8s.io/v1/endpointslices ──┴─> objects ──> a key for each service and each backend
//!        ?resourceVersion=LAST&resourceVersionMatch=NotOlderThan
//! ```
//!
//! The lists come from the cache of the API server. It may lag, and never goes back behind what was read before.

use std::fmt::Write;

use flowyard_config::ClusterConfig;
use flowyard_yard::Clock;
use serde::de::DeserializeOwned;

use super::client::Client;
use super::found::{Read, Services};
use super::http::Request;
use super::login::OpenError;
use objects::{EndpointSlice, List, Service};

mod objects;

/// The longest list, in bytes.
const LONGEST: usize = 64 << 20;

/// Why a request has failed.
enum Failed {
    /// The version that was asked for is not there: forgotten, or of another API server.
    Version(String),
    Other(String),
}

/// Polls the API server.
#[derive(Clone, Debug)]
pub(super) struct Kubernetes {
    client: Client,
    /// The part of paths that names the namespace; empty for all.
    within: String,
    /// The class of the load balancers that are taken; `None` for those without a class.
    class: Option<String>,
    /// The version of each list that was read last.
    versions: [Option<String>; 2],
}

impl Kubernetes {
    pub(super) fn new(config: &ClusterConfig, clock: Clock) -> Result<Self, OpenError> {
        let within = config.namespace.as_ref();
        let within =
            within.map_or_else(String::new, |name| format!("/namespaces/{}", name.get_ref()));
        let class = config.class.as_ref().map(|class| class.get_ref().clone());
        Ok(Self { client: Client::new(config, clock)?, within, class, versions: [None, None] })
    }

    /// Reads both lists from one API server, or else from another. After all have failed, the next lists may be those of
    /// a cluster that was restored, whose versions are other ones, so they are read without a version.
    pub(super) fn read(&mut self) -> Read {
        let mut failed = Vec::new();
        for _ in 0..self.client.count() {
            match self.lists() {
                Ok(services) => return Ok(Some(services)),
                Err(why) => failed.push(format!("{}: {why}", self.client.endpoint())),
            }
            self.client.turn();
        }
        self.versions = [None, None];
        Err(failed.join("; "))
    }

    fn lists(&mut self) -> Result<Services, String> {
        let services: List<Service> = self.list(0, "/api/v1", "services")?;
        let slices: List<EndpointSlice> =
            self.list(1, "/apis/discovery.k8s.io/v1", "endpointslices")?;
        let versions = [services.version(), slices.version()];
        let fragments = objects::fragments(&services, &slices, self.class.as_deref());
        self.versions = versions;
        Ok(Services::Usable(fragments))
    }

    /// Reads a list that is not older than the one before.
    fn list<T: DeserializeOwned>(
        &mut self,
        which: usize,
        api: &str,
        what: &str,
    ) -> Result<List<T>, String> {
        let path = format!("{api}{}/{what}", self.within);
        let version = self.versions[which].clone();
        match self.get(&path, version.as_deref()) {
            Err(Failed::Version(why)) => {
                // Without a version the API server reads what is newest.
                tracing::debug!("{path}: {why}; it is read without a version");
                self.versions[which] = None;
                self.get(&path, None).map_err(String::from)
            }
            done => done.map_err(String::from),
        }
    }

    fn get<T: DeserializeOwned>(
        &mut self,
        path: &str,
        version: Option<&str>,
    ) -> Result<List<T>, Failed> {
        let mut full = path.to_owned();
        if let Some(version) = version {
            let _infallible =
                write!(full, "?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        }
        let mut fields = vec![("Accept", "application/json".to_owned())];
        fields.extend(self.client.authorization().map(|value| ("Authorization", value)));
        let request =
            Request { method: "GET", path: &full, fields: &fields, body: &[], longest: LONGEST };
        let answer = self.client.ask(request).map_err(Failed::Other)?;
        match answer.status {
            200 => {}
            401 | 403 => {
                return Err(Failed::Other(format!(
                    "{path}: access is refused ({}): see 'token_file' of [cluster], and permit its user to list services \
                     and endpointslices",
                    answer.status
                )));
            }
            status @ (410 | 504) if version.is_some() => {
                return Err(Failed::Version(format!("the answer has status {status}")));
            }
            status => return Err(Failed::Other(format!("{path}: the answer has status {status}"))),
        }
        let list: List<T> = serde_json::from_slice(&answer.body)
            .map_err(|error| Failed::Other(format!("{path}: this is not a list: {error}")))?;
        match list.is_whole() {
            true => Ok(list),
            false => Err(Failed::Other(format!("{path}: the list is not complete"))),
        }
    }
}

impl From<Failed> for String {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Version(why) | Failed::Other(why) => why,
        }
    }
}
