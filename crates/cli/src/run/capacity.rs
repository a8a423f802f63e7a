//! What a balancer can hold, as text for `flowyard run --check`.

use flowyard_config::{Capacity, Config, ServiceCapacity};
use flowyard_report::num::{Unit, exact};

/// The lines for a configuration; none if it has no balancer, or an error.
pub(super) fn text(config: &Config) -> String {
    let Ok(Some(capacity)) = config.capacity() else { return String::new() };
    let Capacity { cores, connections, opening, bytes, ref services } = capacity;
    let cores = if cores == 1 { "the core".into() } else { format!("each of {cores} cores") };
    let mut text = format!(
        "{cores} stores up to {} connections, of which up to {} are unestablished; the table takes {}\n",
        number(connections),
        number(opening),
        Unit::Bytes.show(bytes as f64),
    );
    for service in services {
        text += &one(service);
    }
    text
}

fn one(service: &ServiceCapacity) -> String {
    let ServiceCapacity { name, connections, opening, part, ports, further } = service;
    let mut text = format!(
        "service '{name}': up to {} of these connections, {} of them unestablished ({} whatever other services do)",
        number(*connections),
        number(*opening),
        number(*part),
    );
    if let Some(ports) = ports {
        text += &format!(
            "; its local ports suffice for {}: {} x {} ports x {}",
            number(ports.connections()),
            count(ports.addresses, "local address", "local addresses"),
            number(ports.each),
            count(ports.backends, "backend", "backends"),
        );
    }
    text += match further {
        true => "; the backend of further ones is chosen by hash for each packet\n",
        false => "; further ones are dropped\n",
    };
    text
}

fn number(value: usize) -> String {
    exact(value as u64)
}

fn count(value: usize, one: &str, many: &str) -> String {
    format!("{} {}", number(value), if value == 1 { one } else { many })
}
