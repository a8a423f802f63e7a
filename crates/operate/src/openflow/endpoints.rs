//! The endpoints of a channel: controllers to connect to, and addresses to listen on. They can be replaced while the
//! channel runs.
//!
//! ```text
//!  prepare: read certificates, bind new addresses  ──error──> nothing has changed
//!  replace: end the endpoints that are gone, start the new ones; the others go on
//! ```
//!
//! Thread-safety: used under the lock of the channel.

use std::sync::Arc;

use crossbeam_channel::{Sender, bounded};

use super::ChannelError;
use super::config::Config;
use super::endpoint::Endpoint;
use super::peers::{self, Bound};
use super::shared::{Boxes, ENDS, Shared, Threads, close_all};
use super::sync::lock;
use super::tls::{self, Loaded, TlsError};

/// Why a connection ends whose endpoint is not used any more.
const GONE: &str = "the configuration has changed";

/// Endpoints that are ready to be used.
#[derive(Debug)]
pub struct Prepared {
    pub(super) config: Config,
    shared: Shared,
    tls: Option<Arc<Loaded>>,
    /// The endpoints in their order, with the bound addresses of those that listen.
    endpoints: Vec<(Endpoint, Option<Arc<Bound>>)>,
    /// Whether all connections are opened again.
    all_anew: bool,
}

/// The endpoints in use.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    all: Vec<InUse>,
    config: Option<Config>,
}

/// An endpoint with its threads, which end when this is dropped.
#[derive(Debug)]
struct InUse {
    endpoint: Endpoint,
    bound: Option<Arc<Bound>>,
    shared: Shared,
    /// Dropped first, which the threads detect.
    stop: Option<Sender<()>>,
    threads: Threads,
}

impl Endpoints {
    /// Reads certificates, and binds addresses that are not bound yet.
    pub(super) fn prepare(
        &self,
        shared: &Shared,
        config: Config,
    ) -> Result<Prepared, ChannelError> {
        let tls = config.tls.as_ref().map(tls::Loaded::new).transpose()?.map(Arc::new);
        let secure = config.endpoints.iter().find(|one| one.is_tls());
        if let (Some(endpoint), None) = (secure, &tls) {
            return Err(TlsError::Missing(endpoint.to_string()).into());
        }
        let one = |endpoint: &Endpoint| {
            if endpoint.dials() {
                return Ok((endpoint.clone(), None));
            }
            if let Some(used) = self.all.iter().find(|used| used.endpoint == *endpoint) {
                return Ok((endpoint.clone(), used.bound.clone()));
            }
            let wrong = |source| ChannelError::Listen { endpoint: endpoint.to_string(), source };
            let bound = peers::bind(endpoint).map_err(wrong)?;
            peers::warn(&bound);
            Ok((endpoint.clone(), Some(Arc::new(bound))))
        };
        let endpoints = config.endpoints.iter().map(one).collect::<Result<_, ChannelError>>()?;
        // Certificates are read again by each reload that changes their names; the contents of files are not compared.
        let all_anew = self
            .config
            .as_ref()
            .is_none_or(|old| old.versions != config.versions || old.tls != config.tls);
        let shared = Shared { config: Arc::new(config.clone()), ..shared.clone() };
        Ok(Prepared { config, shared, tls, endpoints, all_anew })
    }

    /// Ends what is not used any more, and starts what is new.
    pub(super) fn replace(&mut self, next: Prepared) -> Result<(), ChannelError> {
        let Prepared { config, shared, tls, endpoints, all_anew } = next;
        let stays =
            |used: &InUse| !all_anew && endpoints.iter().any(|(one, _)| *one == used.endpoint);
        self.all.retain(stays);
        self.config = Some(config);
        for (endpoint, bound) in endpoints {
            if !self.all.iter().any(|used| used.endpoint == endpoint) {
                self.all.push(InUse::start(endpoint, bound, &shared, tls.clone())?);
            }
        }
        Ok(())
    }

    /// The addresses on which the switch listens, with the ports that the system chose.
    pub(super) fn listening(&self) -> Vec<String> {
        let bound = self.all.iter().filter_map(|used| used.bound.as_ref());
        bound.map(|bound| bound.endpoint.to_string()).collect()
    }

    /// Ends all.
    pub(super) fn end(&mut self) {
        self.all.iter_mut().for_each(|used| used.end(ENDS));
        self.all.clear();
    }
}

impl InUse {
    fn start(
        endpoint: Endpoint,
        bound: Option<Arc<Bound>>,
        shared: &Shared,
        tls: Option<Arc<Loaded>>,
    ) -> Result<Self, ChannelError> {
        let (stop, stopped) = bounded(0);
        let own = Boxes::default();
        let shared = Shared { tls, stop: stopped, own, ..shared.clone() };
        let stop = Some(stop);
        let mut used = Self { endpoint, bound, shared, stop, threads: Threads::default() };
        match &used.bound {
            Some(bound) => peers::listen(Arc::clone(bound), &used.shared, &mut used.threads)?,
            None => peers::dial_all(&used.endpoint, &used.shared, &mut used.threads)?,
        }
        Ok(used)
    }

    fn end(&mut self, why: &'static str) {
        drop(self.stop.take());
        close_all(&self.shared.own, why);
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.end(GONE);
        for thread in self.threads.0.drain(..) {
            let _ = thread.join();
        }
        // The states of connections to controllers stay on the board while their threads run.
        let name = self.endpoint.to_string();
        lock(&self.shared.board).retain(|status| lock(status).endpoint != name);
    }
}
