//! Objects of Kubernetes, as far as they are read, and the services that they mean.
//!
//! ```text
//!  Service NS/NAME, address, port     ──> config/services/NS.NAME.PORT
//!  EndpointSlice of it, an endpoint   ──> config/services/NS.NAME.PORT/backends/POD
//! ```
//!
//! Invariant: equal objects give equal fragments, in whatever order they are listed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use flowyard_config::{Fragment, SERVICES};
use serde::Deserialize;

/// A list of objects.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct List<T> {
    metadata: ListMeta,
    // A list without objects may have null in place of an empty list.
    items: Option<Vec<T>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: Option<String>,
    r#continue: Option<String>,
}

impl<T> List<T> {
    /// The version of the list, which becomes a part of a path; `None` if the list has none.
    pub(super) fn version(&self) -> Option<String> {
        let version = self.metadata.resource_version.as_ref();
        let is_version =
            |text: &&String| !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric());
        version.filter(is_version).cloned()
    }

    /// Whether there is no further page.
    pub(super) fn is_whole(&self) -> bool {
        self.metadata.r#continue.as_ref().is_none_or(String::is_empty)
    }

    fn items(&self) -> impl Iterator<Item = &T> {
        self.items.iter().flatten()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Meta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    labels: Option<BTreeMap<String, String>>,
}

/// A Service.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Service {
    metadata: Meta,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    r#type: Option<String>,
    load_balancer_class: Option<String>,
    #[serde(rename = "loadBalancerIP")]
    load_balancer_ip: Option<String>,
    ports: Option<Vec<Port>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Port {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<u16>,
}

impl Port {
    /// Whether a port of an EndpointSlice is this one of the Service.
    fn is(&self, other: &Self) -> bool {
        let name = |port: &Self| port.name.clone().unwrap_or_default();
        name(self) == name(other) && self.protocol() == other.protocol()
    }

    fn protocol(&self) -> String {
        self.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    load_balancer: LoadBalancer,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    ingress: Option<Vec<Ingress>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Ingress {
    ip: Option<String>,
}

/// An EndpointSlice.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct EndpointSlice {
    metadata: Meta,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    addresses: Option<Vec<String>>,
    #[serde(default)]
    conditions: Conditions,
    target_ref: Option<TargetRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

impl Conditions {
    /// Whether the endpoint takes new connections, or only has those that it has (`false`); `None` if it is not used.
    fn takes_more(&self) -> Option<bool> {
        match (self.ready.unwrap_or(true), self.serving, self.terminating) {
            (true, ..) => Some(true),
            (false, Some(true), Some(true)) => Some(false),
            (false, ..) => None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
struct TargetRef {
    name: Option<String>,
}

/// The label with the name of the Service of an EndpointSlice.
const OWNER: &str = "kubernetes.io/service-name";

/// The services that these objects mean, of load balancers of this class; without a class, of those without one.
pub(super) fn fragments(
    services: &List<Service>,
    slices: &List<EndpointSlice>,
    class: Option<&str>,
) -> Vec<Fragment> {
    let mut owned = BTreeMap::<(&str, &str), Vec<&EndpointSlice>>::new();
    for slice in slices.items() {
        let owner = slice.metadata.labels.as_ref().and_then(|labels| labels.get(OWNER));
        if let Some(owner) = owner {
            owned.entry((&slice.metadata.namespace, owner)).or_default().push(slice);
        }
    }
    let mut all = Vec::new();
    for service in services.items() {
        let Service { metadata, spec, .. } = service;
        let is_mine = spec.r#type.as_deref() == Some("LoadBalancer")
            && spec.load_balancer_class.as_deref() == class;
        if !is_mine {
            continue;
        }
        let slices = owned.get(&(metadata.namespace.as_str(), metadata.name.as_str()));
        let slices = slices.map(Vec::as_slice).unwrap_or_default();
        let mut families = [false; 2];
        for vip in service.addresses() {
            // The first address of each IP version has the short name.
            let is_first = !std::mem::replace(&mut families[usize::from(vip.is_ipv6())], true);
            let end = match (is_first, vip.is_ipv6()) {
                (true, false) => String::new(),
                (true, true) => ".v6".into(),
                (false, _) => format!(".{vip}"),
            };
            for port in spec.ports.iter().flatten() {
                all.extend(one(metadata, vip, port, &end, slices));
            }
        }
    }
    all.sort_unstable();
    all
}

impl Service {
    /// Its virtual addresses: those of its status, or else the one that was asked for.
    fn addresses(&self) -> Vec<IpAddr> {
        let given = self.status.load_balancer.ingress.iter().flatten();
        let given: Vec<IpAddr> = given.filter_map(|one| one.ip.as_ref()?.parse().ok()).collect();
        let asked = self.spec.load_balancer_ip.as_ref().and_then(|text| text.parse().ok());
        if given.is_empty() { asked.into_iter().collect() } else { given }
    }
}

/// One port of a Service at one of its addresses, and its backends.
fn one(
    meta: &Meta,
    vip: IpAddr,
    port: &Port,
    end: &str,
    slices: &[&EndpointSlice],
) -> Vec<Fragment> {
    let (Some(number), proto) = (port.port, port.protocol()) else { return Vec::new() };
    if !["tcp", "udp", "sctp"].contains(&proto.as_str()) {
        return Vec::new();
    }
    let called = port.name.clone().filter(|name| !name.is_empty());
    let called = called.unwrap_or_else(|| number.to_string());
    let key = format!("{SERVICES}{}.{}.{called}{end}", meta.namespace, meta.name);
    let text = format!("vip = \"{vip}\"\nproto = \"{proto}\"\nport = {number}\n");
    let mut all = vec![Fragment { key: key.clone(), text }];
    // An endpoint may be in two slices for a moment: the one that takes connections counts.
    let mut backends = BTreeMap::<String, (bool, IpAddr, u16)>::new();
    for slice in slices {
        let target = slice.ports.iter().flatten().find(|target| target.is(port));
        let Some(target) = target.and_then(|target| target.port) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let addr = endpoint.addresses.iter().flatten().next();
            let addr = addr.and_then(|text| text.parse::<IpAddr>().ok());
            let Some(addr) = addr.filter(|addr| addr.is_ipv6() == vip.is_ipv6()) else { continue };
            let Some(takes_more) = endpoint.conditions.takes_more() else { continue };
            let name = endpoint.target_ref.as_ref().and_then(|target| target.name.clone());
            let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| addr.to_string());
            let new = (takes_more, addr, target);
            let kept = backends.entry(name).or_insert(new);
            *kept = new.max(*kept);
        }
    }
    for (name, (takes_more, addr, target)) in backends {
        let mut text = format!("addr = \"{addr}\"\n");
        if target != number {
            let _infallible = writeln!(text, "port = {target}");
        }
        if !takes_more {
            text += "drain = true\n";
        }
        all.push(Fragment { key: format!("{key}/backends/{name}"), text });
    }
    all
}

#[cfg(test)]
mod tests;
