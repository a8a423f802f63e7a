//! Metrics of a balancer: by service, and by backend.

use std::fmt::Display;

use flowyard_yard::Handle;

use super::Page;
use crate::lb;
use crate::protocol::{LbBackend, LbCounts, LbService};

/// The end of its name, what it is, and its value.
type Metric<Of, Value> = (&'static str, &'static str, fn(&Of) -> Value);

/// What is counted for a service, and for a backend, in the same words.
const COUNTED: [Metric<LbCounts, u64>; 5] = [
    ("connections_total", "Connections that began", |counts| counts.connections),
    ("in_packets_total", "Packets of clients that went to a backend", |counts| counts.in_packets),
    ("in_bytes_total", "Bytes of packets of clients, Ethernet headers included", |counts| {
        counts.in_bytes
    }),
    ("out_packets_total", "Answers that came back this way (dnat, fullnat)", |counts| {
        counts.out_packets
    }),
    ("out_bytes_total", "Bytes of answers that came back this way", |counts| counts.out_bytes),
];

/// What a backend is like.
const STATES: [Metric<LbBackend, f64>; 6] = [
    ("up", "1 if the backend is up, 0 if it is down", |b| f64::from(u8::from(b.state != "down"))),
    ("drained", "1 if the backend takes no new connections although it is up", |b| {
        f64::from(u8::from(b.state == "drained"))
    }),
    ("weight", "The weight that new connections go by: health, drain, slow start", |b| b.weight),
    ("table_share", "The backend's part of the table, from 0 to 1", |b| b.share),
    ("connections", "Connections that the backend has", |b| f64::from(b.connections)),
    ("state_since_seconds", "When the backend came up, or went down, since the start", |b| {
        b.since_s
    }),
];

/// The services of a balancer; nothing, if the yard is none.
pub(super) fn page(page: &mut Page, yard: &Handle) {
    let Ok(all) = lb::services(yard) else { return };
    page.metric("lb_generation", "gauge", "The number of the plan that cores go by");
    page.sample("lb_generation", &[], all.generation);
    for (name, help, of) in [
        ("lb_core_connections", "Connections that a core keeps", 0),
        ("lb_core_connections_opening", "Of these, those that are opening", 1),
        ("lb_core_connections_capacity", "The most that it keeps", 2),
    ] {
        page.metric(name, "gauge", help);
        for core in &all.cores {
            let value = [core.connections, core.opening, core.capacity][of];
            page.sample(name, &[("core", &core.core)], value);
        }
    }
    services(page, &all.services);
    let backends: Vec<_> =
        all.services.iter().flat_map(|s| s.backends.iter().map(move |b| (s, b))).collect();
    self::backends(page, &backends);
    checks(page, &backends);
}

fn services(page: &mut Page, all: &[LbService]) {
    let name = "lb_service_info";
    page.metric(name, "gauge", "A service, and the checksum of its table, as labels");
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
    page.metric("lb_service_backends_up", "gauge", "Backends of the service that are up");
    for service in all {
        page.sample("lb_service_backends_up", &[("service", &service.name)], service.up);
    }
    for (stem, help, of) in COUNTED {
        let name = format!("lb_service_{stem}");
        page.metric(&name, "counter", &format!("{help}, by service"));
        for service in all {
            page.sample(&name, &[("service", &service.name)], of(&service.counts));
        }
    }
    let name = "lb_service_dropped_packets_total";
    page.metric(name, "counter", "Packets for a service, or of its backends, dropped, by reason");
    for service in all {
        for (reason, packets) in &service.counts.drops {
            page.sample(name, &[("service", &service.name), ("reason", reason)], packets);
        }
    }
}

fn backends(page: &mut Page, all: &[(&LbService, &LbBackend)]) {
    for (stem, help, of) in STATES {
        let name = format!("lb_backend_{stem}");
        page.metric(&name, "gauge", help);
        for (service, backend) in all {
            page.sample(&name, &labels(service, backend), of(backend));
        }
    }
    for (stem, help, of) in COUNTED {
        let name = format!("lb_backend_{stem}");
        page.metric(&name, "counter", &format!("{help}, by backend"));
        for (service, backend) in all {
            page.sample(&name, &labels(service, backend), of(&backend.counts));
        }
    }
    let name = "lb_backend_dropped_packets_total";
    page.metric(name, "counter", "Packets for a backend, or from it, dropped, by reason");
    for (service, backend) in all {
        for (reason, packets) in &backend.counts.drops {
            let [service, backend] = labels(service, backend);
            page.sample(name, &[service, backend, ("reason", reason)], packets);
        }
    }
}

fn checks(page: &mut Page, all: &[(&LbService, &LbBackend)]) {
    let checked = || all.iter().filter_map(|(s, b)| Some((labels(s, b), b.check.as_ref()?)));
    page.metric("lb_backend_checks_total", "counter", "Health checks of a backend");
    for (labels, check) in checked() {
        page.sample("lb_backend_checks_total", &labels, check.checks);
    }
    page.metric("lb_backend_check_faults_total", "counter", "Health checks that it did not pass");
    for (labels, check) in checked() {
        page.sample("lb_backend_check_faults_total", &labels, check.faults);
    }
    let name = "lb_backend_check_duration_seconds";
    page.metric(name, "gauge", "How long the last health check took");
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
