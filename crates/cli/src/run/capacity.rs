//! What a balancer can hold, for `flowyard run --check`.

use flowyard_config::{Config, ServiceCapacity};
use flowyard_report::num::{Unit, exact};
use schemars::JsonSchema;
use serde::Serialize;

/// What a balancer can hold.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Holds {
    /// The number of cores that work on packets of the balancer.
    cores: usize,
    /// The most connections of all services on a core.
    connections: usize,
    /// The most unestablished connections among them.
    unestablished: usize,
    /// Memory of the table of a core when it is full.
    table_bytes: usize,
    /// The services, in the order of the configuration.
    services: Vec<ServiceHolds>,
}

/// What a service can hold on a core.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ServiceHolds {
    /// The name of the service.
    service: String,
    /// The most connections.
    connections: usize,
    /// The most unestablished connections among them.
    unestablished: usize,
    /// The unestablished connections that it can have whatever other services do.
    unestablished_assured: usize,
    /// The local ports of fullnat, for the core that has the fewest; null in other modes.
    local_ports: Option<LocalPorts>,
    /// What happens to packets of further connections: `hashed` (their backend is chosen by hash for each
    /// packet) or `dropped`; `placed` if the service has no connections, because each datagram is placed by itself.
    further: &'static str,
}

/// The local ports of a service on a core.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LocalPorts {
    /// The connections for which they suffice: the product of the others.
    connections: usize,
    /// Local addresses of the core.
    addresses: usize,
    /// Ports of each address.
    ports_of_an_address: usize,
    /// Different addresses and ports of backends.
    backends: usize,
}

/// What a configuration can hold; `None` if it has no balancer, or an error.
pub(super) fn of(config: &Config) -> Option<Holds> {
    let capacity = config.capacity().ok().flatten()?;
    Some(Holds {
        cores: capacity.cores,
        connections: capacity.connections,
        unestablished: capacity.opening,
        table_bytes: capacity.bytes,
        services: capacity.services.into_iter().map(one).collect(),
    })
}

fn one(service: ServiceCapacity) -> ServiceHolds {
    let ports = service.ports.map(|ports| LocalPorts {
        connections: ports.connections(),
        addresses: ports.addresses,
        ports_of_an_address: ports.each,
        backends: ports.backends,
    });
    ServiceHolds {
        service: service.name,
        connections: service.connections,
        unestablished: service.opening,
        unestablished_assured: service.part,
        local_ports: ports,
        further: match service.further {
            _ if service.one_packet => "placed",
            true => "hashed",
            false => "dropped",
        },
    }
}

impl Holds {
    /// As lines.
    pub(super) fn text(&self) -> String {
        let Self { cores, connections, unestablished, table_bytes, services } = self;
        let cores = match cores {
            1 => "the core".into(),
            cores => format!("each of {cores} cores"),
        };
        let mut text = format!(
            "{cores} stores up to {} connections, of which up to {} are unestablished; the table takes {}\n",
            number(*connections),
            number(*unestablished),
            Unit::Bytes.show(*table_bytes as f64),
        );
        for service in services {
            text += &service.text();
        }
        text
    }
}

impl ServiceHolds {
    fn text(&self) -> String {
        if self.further == "placed" {
            let name = &self.service;
            return format!(
                "service '{name}': no connections: each datagram is placed by itself\n"
            );
        }
        let mut text = format!(
            "service '{}': up to {} of these connections, {} of them unestablished ({} whatever other services do)",
            self.service,
            number(self.connections),
            number(self.unestablished),
            number(self.unestablished_assured),
        );
        if let Some(ports) = &self.local_ports {
            text += &format!(
                "; its local ports suffice for {}: {} x {} ports x {}",
                number(ports.connections),
                count(ports.addresses, "local address", "local addresses"),
                number(ports.ports_of_an_address),
                count(ports.backends, "backend", "backends"),
            );
        }
        text += match self.further {
            "hashed" => "; the backend of further ones is chosen by hash for each packet\n",
            _ => "; further ones are dropped\n",
        };
        text
    }
}

fn number(value: usize) -> String {
    exact(value as u64)
}

fn count(value: usize, one: &str, many: &str) -> String {
    format!("{} {}", number(value), if value == 1 { one } else { many })
}
