//! Metrics of a balancer, for each service and each backend.

use std::collections::BTreeMap;
use std::fmt::Display;

use flowyard_lb::Limit;
use flowyard_yard::Handle;

use super::text::Page;
use crate::lb;
use crate::protocol::{LbBackend, LbCore, LbCounts, LbPersist, LbService};

/// A family of samples, each taken from an `Of`.
struct Metric<Of, Value> {
    /// The name without its prefix, which differs between services and backends.
    stem: &'static str,
    /// `{of}` stands for `service` or `backend`.
    help: &'static str,
    value: fn(&Of) -> Value,
}

/// Counters of a service, and of a backend.
const COUNTED: [Metric<LbCounts, u64>; 9] = [
    Metric {
        stem: "connections_total",
        help: "Counts the connections to the {of}, when their first packet is forwarded.",
        value: |counts| counts.connections,
    },
    Metric {
        stem: "resumed_connections_total",
        help: "Counts the connections of the {of} that another node has had before, as it has reported.",
        value: |counts| counts.resumed,
    },
    Metric {
        stem: "passed_over_connections_total",
        help: "Counts the new connections that the {of} did not get because of a limit of connections to a backend: another backend got them, or they were dropped.",
        value: |counts| counts.passed_over,
    },
    Metric {
        stem: "ambiguous_total",
        help: "Counts the new connections that the {of} did not get because the client's port has a connection to the same backend through another service, and replies that could belong to two services.",
        value: |counts| counts.ambiguous,
    },
    Metric {
        stem: "toa_omitted_total",
        help: "Counts the segments to the {of} that passed without the TCP option with the client's address, because it had no room.",
        value: |counts| counts.toa_omitted,
    },
    Metric {
        stem: "in_packets_total",
        help: "Counts the packets from clients that were forwarded to the {of}.",
        value: |counts| counts.in_packets,
    },
    Metric {
        stem: "in_bytes_total",
        help: "Counts the bytes, with Ethernet headers, of packets from clients that were forwarded to the {of}.",
        value: |counts| counts.in_bytes,
    },
    Metric {
        stem: "out_packets_total",
        help: "Counts the replies of the {of} that returned through the balancer (modes dnat and fullnat only).",
        value: |counts| counts.out_packets,
    },
    Metric {
        stem: "out_bytes_total",
        help: "Counts the bytes, with Ethernet headers, of replies of the {of} that returned through the balancer.",
        value: |counts| counts.out_bytes,
    },
];

/// Gauges of a backend.
const STATES: [Metric<LbBackend, f64>; 7] = [
    Metric {
        stem: "up",
        help: "Is 1 if the backend is up, and 0 if its health checks failed.",
        value: |backend| f64::from(u8::from(backend.state != "down")),
    },
    Metric {
        stem: "drained",
        help: "Is 1 if the backend is up but gets no new connections because it is drained or has weight 0.",
        value: |backend| f64::from(u8::from(backend.state == "drained")),
    },
    Metric {
        stem: "weight",
        help: "Gives the effective weight for new connections, which includes health, drain and slow start.",
        value: |backend| backend.weight,
    },
    Metric {
        stem: "table_share",
        help: "Gives the backend's share of the entries of the service's Maglev table, from 0 to 1.",
        value: |backend| backend.share,
    },
    Metric {
        stem: "connections",
        help: "Gives the number of current connections of the backend.",
        value: |backend| f64::from(backend.connections),
    },
    Metric {
        stem: "max_connections",
        help: "Gives the number of connections with which the backend accepts no new ones; 0 is no limit.",
        value: |backend| f64::from(backend.max_connections.unwrap_or(0)),
    },
    Metric {
        stem: "full",
        help: "Is 1 if the backend accepts no new connections because it has reached its limit of connections.",
        value: |backend| f64::from(u8::from(backend.is_full)),
    },
];

/// A gauge of the connection table of a core.
struct CoreMetric {
    name: &'static str,
    help: &'static str,
    value: fn(&LbCore) -> usize,
}

const CORE: [CoreMetric; 5] = [
    CoreMetric {
        name: "lb_core_connections",
        help: "Gives the number of connections in the table of the core.",
        value: |core| core.connections,
    },
    CoreMetric {
        name: "lb_core_connections_opening",
        help: "Gives the number of half-open connections in the table of the core, which saw only a SYN.",
        value: |core| core.opening,
    },
    CoreMetric {
        name: "lb_core_connections_unestablished",
        help: "Gives the number of connections in the table of the core that are not established: one packet of the client was seen, or no answer of the backend.",
        value: |core| core.unestablished,
    },
    CoreMetric {
        name: "lb_core_connections_marked",
        help: "Gives the number of connections in the table of the core whose packets adapters were asked to mark.",
        value: |core| core.marked,
    },
    CoreMetric {
        name: "lb_core_connections_capacity",
        help: "Gives the largest number of connections in the table of the core.",
        value: |core| core.capacity,
    },
];

/// Writes the metrics of a balancer; none if the engine does not run one.
pub(super) fn page(page: &mut Page, yard: &Handle) {
    let Ok(all) = lb::services(yard) else { return };
    let help = "Gives the number of the plan that the cores use; it increases with every change.";
    page.metric("lb_generation", "gauge", help);
    page.sample("lb_generation", &[], all.generation);
    for CoreMetric { name, help, value } in CORE {
        page.metric(name, "gauge", help);
        for core in &all.cores {
            page.sample(name, &[("core", &core.core)], value(core));
        }
    }
    let name = "lb_marked_packets_total";
    let help = "Counts the packets whose connection was found by the mark of an adapter, without a lookup.";
    page.metric(name, "counter", help);
    for core in &all.cores {
        page.sample(name, &[("core", &core.core)], core.marked_packets);
    }
    if !all.routes.is_empty() {
        let name = "lb_vip_announced";
        let help =
            "Is 1 if the kernel has a route to the VIP for the routing daemon, and 0 if not.";
        page.metric(name, "gauge", help);
        for route in &all.routes {
            page.sample(name, &[("vip", &route.vip)], u8::from(route.is_announced));
        }
    }
    services(page, &all.services);
    limits(page, &all.services);
    networks(page, &all.services);
    let backends: Vec<_> =
        all.services.iter().flat_map(|s| s.backends.iter().map(move |b| (s, b))).collect();
    self::backends(page, &backends);
    ages(page, &backends, yard.now() as f64 / 1e9);
    checks(page, &backends);
}

fn services(page: &mut Page, all: &[LbService]) {
    let name = "lb_service_info";
    let help =
        "Is always 1; the labels describe the service and have the checksum of its Maglev table.";
    page.metric(name, "gauge", help);
    for service in all {
        let LbService { name: service, vip, proto, ports, mode, choice, checksum, .. } = service;
        let labels: [(&str, &dyn Display); 7] = [
            ("service", service),
            ("vip", vip),
            ("proto", proto),
            ("ports", ports),
            ("mode", mode),
            ("choice", choice),
            ("checksum", checksum),
        ];
        page.sample(name, &labels, 1);
    }
    let name = "lb_service_backends_up";
    page.metric(name, "gauge", "Gives the number of backends of the service that are up.");
    for service in all {
        page.sample(name, &[("service", &service.name)], service.up);
    }
    for Metric { stem, help, value } in COUNTED {
        let name = format!("lb_service_{stem}");
        page.metric(&name, "counter", &help.replace("{of}", "service"));
        for service in all {
            page.sample(&name, &[("service", &service.name)], value(&service.counters));
        }
    }
    let name = "lb_service_dropped_packets_total";
    let help =
        "Counts the dropped packets to the service or from its backends; the label has the reason.";
    page.metric(name, "counter", help);
    for service in all {
        for (reason, packets) in &service.counters.drops {
            page.sample(name, &[("service", &service.name), ("reason", reason)], packets);
        }
    }
}

/// Counts by the name of a limit.
type ByLimit = fn(&LbCounts) -> &BTreeMap<String, u64>;

/// Counters of a service by limit: name, help and value.
const LIMITED: [(&str, &str, ByLimit); 2] = [
    (
        "lb_service_evicted_entries_total",
        "Counts the entries of the service that were replaced by new connections; the label has the limit that these had reached.",
        |counts| &counts.evicted,
    ),
    (
        "lb_service_refused_entries_total",
        "Counts the packets of new connections to the service that got no entry; the label has the limit that was reached.",
        |counts| &counts.refused,
    ),
];

/// Entries of the services in the connection tables, and what their limits did.
fn limits(page: &mut Page, all: &[LbService]) {
    let gauges: [Metric<LbService, usize>; 2] = [
        Metric {
            stem: "entries",
            help: "Gives the number of entries of the service in the connection tables of all cores.",
            value: |service| service.entries_held,
        },
        Metric {
            stem: "entries_unestablished",
            help: "Gives the number of unestablished connections among the entries of the service.",
            value: |service| service.unestablished,
        },
    ];
    for Metric { stem, help, value } in gauges {
        let name = format!("lb_service_{stem}");
        page.metric(&name, "gauge", help);
        for service in all {
            page.sample(&name, &[("service", &service.name)], value(service));
        }
    }
    for (name, help, value) in LIMITED {
        page.metric(name, "counter", help);
        for service in all {
            for limit in Limit::ALL.map(Limit::name) {
                // Also those that are 0, so that a rate has a beginning.
                let count = value(&service.counters).get(limit).copied().unwrap_or(0);
                page.sample(name, &[("service", &service.name), ("limit", &limit)], count);
            }
        }
    }
}

type OfNetworks = fn(&LbPersist) -> u64;

/// What became of new connections of services with persistence: name, kind, help and value.
const NETWORKS: [(&str, &str, &str, OfNetworks); 5] = [
    (
        "lb_service_persist_networks",
        "gauge",
        "Gives the number of clients' networks that have a backend of the service.",
        |persist| persist.networks,
    ),
    (
        "lb_service_persist_kept_total",
        "counter",
        "Counts the new connections that went to the backend that their client's network had.",
        |persist| persist.kept,
    ),
    (
        "lb_service_persist_given_total",
        "counter",
        "Counts the networks that were given a backend.",
        |persist| persist.given,
    ),
    (
        "lb_service_persist_moved_total",
        "counter",
        "Counts the networks that were given another backend, because theirs was down, removed, drained or at its limit.",
        |persist| persist.moved,
    ),
    (
        "lb_service_persist_evicted_total",
        "counter",
        "Counts the networks that were forgotten before their time, because there was no room for another one.",
        |persist| persist.evicted,
    ),
];

fn networks(page: &mut Page, all: &[LbService]) {
    let with = || all.iter().filter_map(|service| Some((service, service.persist.as_ref()?)));
    if with().next().is_none() {
        return;
    }
    for (name, kind, help, value) in NETWORKS {
        page.metric(name, kind, help);
        for (service, persist) in with() {
            page.sample(name, &[("service", &service.name)], value(persist));
        }
    }
}

fn backends(page: &mut Page, all: &[(&LbService, &LbBackend)]) {
    for Metric { stem, help, value } in STATES {
        let name = format!("lb_backend_{stem}");
        page.metric(&name, "gauge", help);
        for (service, backend) in all {
            page.sample(&name, &labels(service, backend), value(backend));
        }
    }
    for Metric { stem, help, value } in COUNTED {
        let name = format!("lb_backend_{stem}");
        page.metric(&name, "counter", &help.replace("{of}", "backend"));
        for (service, backend) in all {
            page.sample(&name, &labels(service, backend), value(&backend.counters));
        }
    }
    let name = "lb_backend_dropped_packets_total";
    let help = "Counts the dropped packets to or from the backend; the label has the reason.";
    page.metric(name, "counter", help);
    for (service, backend) in all {
        for (reason, packets) in &backend.counters.drops {
            let [service, backend] = labels(service, backend);
            page.sample(name, &[service, backend, ("reason", reason)], packets);
        }
    }
}

/// How long each backend has been in its state. A time of the change would be one since the start of the
/// engine, which no other program knows.
fn ages(page: &mut Page, all: &[(&LbService, &LbBackend)], now_s: f64) {
    let name = "lb_backend_state_age_seconds";
    let help = "Gives the time since the backend last came up or went down, or since it was added.";
    page.metric(name, "gauge", help);
    for (service, backend) in all {
        page.sample(name, &labels(service, backend), (now_s - backend.since_s).max(0.0));
    }
}

fn checks(page: &mut Page, all: &[(&LbService, &LbBackend)]) {
    let checked = || all.iter().filter_map(|(s, b)| Some((labels(s, b), b.check.as_ref()?)));
    let name = "lb_backend_checks_total";
    page.metric(name, "counter", "Counts the completed health checks of the backend.");
    for (labels, check) in checked() {
        page.sample(name, &labels, check.checks);
    }
    let name = "lb_backend_check_failures_total";
    page.metric(name, "counter", "Counts the failed health checks of the backend.");
    for (labels, check) in checked() {
        page.sample(name, &labels, check.failures);
    }
    let name = "lb_backend_check_duration_seconds";
    page.metric(name, "gauge", "Gives the duration of the last health check of the backend.");
    for (labels, check) in checked() {
        page.sample(name, &labels, check.took_s);
    }
}

fn labels<'a>(
    service: &'a LbService,
    backend: &'a LbBackend,
) -> [(&'static str, &'a dyn Display); 2] {
    [("service", &service.name), ("backend", &backend.name)]
}
