//! Backends of services from SRV records: which records are looked up.

use std::net::{IpAddr, SocketAddr};

use toml::Spanned;

use super::ProviderKind;
use crate::names::Checked;
use crate::{Config, ConfigError};

/// Which records the backends of a service come from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lookup {
    /// The name of the service.
    pub service: String,
    /// The name of the SRV records.
    pub name: String,
    /// Whether the backends have IPv6 addresses.
    pub is_v6: bool,
    /// The port of the service.
    pub port: u16,
}

impl Config {
    /// The records that backends come from, of all services with `[service.srv]`.
    #[must_use]
    pub fn lookups(&self) -> Vec<Lookup> {
        let all = self.service.iter().map(Spanned::get_ref);
        all.filter_map(|service| {
            let srv = service.srv.as_ref()?.get_ref();
            let ports = &service.port.get_ref().0;
            Some(Lookup {
                service: service.name.get_ref().clone(),
                name: srv.name.get_ref().trim_end_matches('.').to_ascii_lowercase(),
                is_v6: service.vip.get_ref().parse::<IpAddr>().is_ok_and(|vip| vip.is_ipv6()),
                port: *ports.start(),
            })
        })
        .collect()
    }
}

/// Reads the address of a DNS server, whose port is 53 if none is written.
pub(super) fn server(text: &str) -> Option<SocketAddr> {
    let plain = text.parse::<IpAddr>().map(|addr| SocketAddr::new(addr, 53));
    plain.or_else(|_| text.parse()).ok().filter(|addr| addr.port() > 0)
}

/// Checks the names of records, and that there are some if and only if the provider is DNS.
pub(super) fn check(config: &Config) -> Checked {
    let kind = config.cluster().map(|cluster| *cluster.kind.get_ref());
    let mut has_one = false;
    for service in &config.service {
        let Some(srv) = &service.get_ref().srv else { continue };
        has_one = true;
        if kind != Some(ProviderKind::Dns) {
            let fix = "add [cluster] with kind = \"dns\", or leave 'srv' out";
            return Err(config.error(srv.span(), "nothing looks up SRV records here", fix));
        }
        let name = &srv.get_ref().name;
        config.domain(name)?;
        let ports = &service.get_ref().port;
        if ports.get_ref().0.start() != ports.get_ref().0.end() {
            let what = "a service with several ports cannot have backends from SRV records, each of which names one port";
            return Err(config.error(ports.span(), what, "write one port, or leave 'srv' out"));
        }
        if name.get_ref() == "." {
            let fix = "write it as \"_http._tcp.web.example\"";
            return Err(config.error(name.span(), "the root has no SRV records", fix));
        }
    }
    match (&config.cluster, kind) {
        (Some(cluster), Some(ProviderKind::Dns)) if !has_one => {
            Err(no_records(config, cluster.span()))
        }
        _ => Ok(()),
    }
}

fn no_records(config: &Config, span: std::ops::Range<usize>) -> ConfigError {
    let fix = "add 'srv = { name = \"_http._tcp.web.example\", exit = { port = \"east\" } }' to a [[service]]";
    config.error(span, "no service has backends from SRV records", fix)
}
