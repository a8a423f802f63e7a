//! State of a balancer, and manual changes to it.
//!
//! Every change makes one generation of the plan and is logged. A manual setting holds until it is
//! undone, the backend is removed, or the process ends; a reload does not change it.
//!
//! Thread-safety: plain functions over a [`Handle`]; any thread may call them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use flowyard_frame::{Nanos, proto};
use flowyard_lb::check::{Asks, Check};
use flowyard_lb::{
    AllDown, Backend, BackendState, Choice, HEAVIEST, Limit, Mode, Persist, Persistence,
    ServiceState, Sum,
};
use flowyard_lb::{Hub, Report};
use flowyard_yard::{DropReason, Handle};

use crate::announce::{Announcements, Why};
use crate::answers::seconds;
use crate::protocol::{
    Lb, LbBackend, LbChange, LbCheck, LbCore, LbCounts, LbPeer, LbPersist, LbRoute, LbRoutes,
    LbService, LbSync, LbVotes,
};
use crate::sync::{Peer, Synchronization};

pub mod connections;
pub mod explain;

/// The hub of the balancer, or an error if the engine does not run one.
pub(crate) fn hub(yard: &Handle) -> Result<Arc<Hub>, String> {
    let none = "the running configuration is not a balancer; write kind = \"balance\" in [work] (see docs/balance.md)";
    yard.control_plane().ok_or_else(|| none.into())
}

/// The state of all services of a balancer.
///
/// # Errors
/// The engine does not run a balancer.
pub fn services(yard: &Handle) -> Result<Lb, String> {
    let (hub, shared) = (hub(yard)?, yard.control_plane::<Synchronization>());
    let cores = hub.occupancy().into_iter().enumerate().map(|(core, of)| LbCore {
        core,
        connections: of.connections,
        opening: of.opening,
        unestablished: of.unestablished,
        offloaded: of.in_front,
        marked: of.marked,
        marked_packets: of.marked_packets,
        capacity: of.capacity,
    });
    Ok(Lb {
        at_s: seconds(yard.now()),
        generation: hub.generation(),
        services: hub
            .states()
            .iter()
            .map(|state| service(&hub, state, yard.now(), shared.as_deref()))
            .collect(),
        cores: cores.collect(),
        routes: routes(yard),
        sync: sync(yard, &hub),
    })
}

/// The synchronization with other nodes, if it is configured.
pub(crate) fn sync(yard: &Handle, hub: &Hub) -> Option<LbSync> {
    let shared = yard.control_plane::<Synchronization>()?;
    let replica = hub.replicated()?;
    let (took, scanned) = shared.last_scan();
    let peer = |(address, peer): (SocketAddr, &Peer)| LbPeer {
        address: address.to_string(),
        sends: peer.sends.load(Relaxed),
        receives: peer.receives.load(Relaxed) > 0,
        is_complete: peer.is_complete.load(Relaxed),
        sent: peer.sent.load(Relaxed),
        sent_bytes: peer.sent_bytes.load(Relaxed),
        received: peer.received.load(Relaxed),
        received_bytes: peer.received_bytes.load(Relaxed),
        sent_ends: peer.sent_ends.load(Relaxed),
        received_ends: peer.received_ends.load(Relaxed),
        error: peer.wrong(),
    };
    Some(LbSync {
        reported: shared.reported(),
        stored: replica.len(yard.now()) as u64,
        evicted: replica.evicted(),
        scans: shared.scans(),
        scan_s: took.as_secs_f64(),
        scanned,
        dropped_ends: hub.dropped_ends(),
        closed: hub.closed_by_others(),
        peers: shared.peers().map(peer).collect(),
    })
}

/// The routes to the VIPs; none if the configuration does not announce any.
fn routes(yard: &Handle) -> Vec<LbRoute> {
    let announcements = yard.control_plane::<Announcements>();
    let vips = announcements.map(|announcements| announcements.vips()).unwrap_or_default();
    let route = |(vip, why): (IpAddr, Option<Why>)| LbRoute {
        vip: vip.to_string(),
        is_announced: why.is_none(),
        why: why.map(|why| why.text().to_owned()),
    };
    vips.into_iter().map(route).collect()
}

/// Withdraws the routes to all VIPs, or announces them again.
///
/// # Errors
/// The configuration announces no VIPs.
pub fn withdraw(yard: &Handle, withdrawn: bool) -> Result<LbRoutes, String> {
    let none = "the running configuration announces no VIPs; write [balance.announce] (see docs/routes.md)";
    let announcements = yard.control_plane::<Announcements>().ok_or(none)?;
    announcements.withdraw(withdrawn);
    tracing::info!(withdrawn, "routes to all VIPs changed manually");
    Ok(LbRoutes { routes: routes(yard) })
}

fn service(
    hub: &Hub,
    state: &ServiceState,
    now: Nanos,
    shared: Option<&Synchronization>,
) -> LbService {
    let (service, plan) = (&state.service, hub.plan());
    let votes = |id: u32| votes(plan.target(id)?.identity, shared?);
    let (first, last) = (service.ports.start(), service.ports.end());
    let check = service.check.as_ref();
    let all = service.backends.iter().zip(&state.backends);
    let held = hub.held(&service.name);
    LbService {
        name: service.name.clone(),
        vip: service.vip.to_string(),
        proto: protocol(service.proto).into(),
        ports: if first == last { first.to_string() } else { format!("{first}-{last}") },
        mode: match service.mode {
            Mode::Dsr => "dsr",
            Mode::Dnat => "dnat",
            Mode::FullNat => "fullnat",
            Mode::Ipip => "ipip",
            Mode::Gue => "gue",
        }
        .into(),
        choice: choice(service.choice).into(),
        checksum: format!("{:016x}", state.checksum),
        entries: state.entries,
        up: state.backends.iter().filter(|backend| backend.is_up).count(),
        all_down: match service.all_down {
            AllDown::Drop => "drop",
            AllDown::Use => "use",
        }
        .into(),
        counters: counters(&state.counts),
        one_packet: service.one_packet,
        persist: state.persist.as_ref().map(|(settings, table)| persist(settings, table, now)),
        entries_held: held.all,
        unestablished: held.unestablished,
        backends: all
            .map(|(described, is)| {
                let own = (check, hub.reported(is.id), votes(is.id));
                backend(described, is, state.entries, own)
            })
            .collect(),
    }
}

fn persist(settings: &Persistence, table: &Persist, now: Nanos) -> LbPersist {
    let Persistence { timeout, mask_v4, mask_v6, networks, keeps_drained } = *settings;
    let is = table.counts(timeout, now);
    LbPersist {
        seconds: timeout / 1_000_000_000,
        mask_ipv4: mask_v4,
        mask_ipv6: mask_v6,
        drained: if keeps_drained { "keep" } else { "move" }.into(),
        capacity: networks,
        networks: is.networks,
        kept: is.kept,
        given: is.given,
        moved: is.moved,
        evicted: is.evicted,
    }
}

fn backend(
    described: &Backend,
    is: &BackendState,
    entries: u32,
    (check, report, votes): (Option<&Check>, Option<Report>, Option<LbVotes>),
) -> LbBackend {
    LbBackend {
        name: described.name.clone(),
        addr: described.addr.to_string(),
        port: described.port,
        state: state(described, is).into(),
        since_s: seconds(is.since),
        manually_drained: is.drained,
        is_backup: described.backup,
        configured_weight: described.weight,
        manual_weight: is.set_weight,
        weight: f64::from(is.weight) / 100.0,
        share: f64::from(is.entries) / f64::from(entries.max(1)),
        connections: is.active,
        max_connections: described.ceiling.map(|ceiling| ceiling.most()),
        resume_connections: described.ceiling.map(|ceiling| ceiling.resume()),
        is_full: is.is_full,
        counters: counters(&is.counts),
        check: report.zip(check).map(|(report, check)| LbCheck {
            kind: kind(&check.asks).into(),
            at_s: seconds(report.at),
            took_s: seconds(report.took),
            failure: report.failure,
            checks: report.checks,
            failures: report.failures,
        }),
        votes,
    }
}

/// What the checks of all nodes say of the backend with this identity; `None` if nodes do not agree on it.
fn votes(backend: u64, shared: &Synchronization) -> Option<LbVotes> {
    let (own, others) = (shared.verdict(backend)?, shared.votes(backend));
    let up = others.iter().filter(|up| **up).count() + usize::from(own);
    Some(LbVotes { own, up, known: others.len() + 1, nodes: shared.nodes() })
}

/// How a backend takes part in the choice for new connections, in one word.
fn state(described: &Backend, is: &BackendState) -> &'static str {
    let weight = is.set_weight.unwrap_or(described.weight);
    match is {
        _ if !is.is_up => "down",
        _ if is.drained || described.drain || weight == 0 => "drained",
        _ if described.backup && is.weight == 0 => "standby",
        _ if is.is_full => "full",
        _ if is.weight < weight.saturating_mul(100) => "starting",
        _ => "up",
    }
}

fn counters(sum: &Sum) -> LbCounts {
    let reason = |reason: DropReason| {
        let frames = sum.drops.get(usize::from(reason.code())).copied().unwrap_or(0);
        (frames > 0).then(|| (reason.name().to_owned(), frames))
    };
    LbCounts {
        connections: sum.connections,
        resumed: sum.resumed,
        passed_over: sum.passed_over,
        ambiguous: sum.ambiguous,
        toa_omitted: sum.toa_omitted,
        in_packets: sum.in_packets,
        in_bytes: sum.in_bytes,
        out_packets: sum.out_packets,
        out_bytes: sum.out_bytes,
        offloaded_packets: sum.ahead_packets,
        drops: DropReason::ALL.into_iter().filter_map(reason).collect::<BTreeMap<_, _>>(),
        evicted: by_limit(&sum.evicted),
        refused: by_limit(&sum.refused),
    }
}

/// Counts that are not 0, by the name of the limit.
fn by_limit(counts: &[u64; Limit::ALL.len()]) -> BTreeMap<String, u64> {
    let all = Limit::ALL.into_iter().map(|limit| (limit.name().to_owned(), counts[limit as usize]));
    all.filter(|(_, count)| *count > 0).collect()
}

/// The name of a protocol in the configuration.
pub(crate) fn protocol(number: u8) -> &'static str {
    match number {
        proto::TCP => "tcp",
        proto::UDP => "udp",
        _ => "sctp",
    }
}

/// The name of a choice in the configuration.
pub(crate) const fn choice(choice: Choice) -> &'static str {
    match choice {
        Choice::Maglev => "maglev",
        Choice::SourceHash => "source",
        Choice::RoundRobin => "roundrobin",
        Choice::LeastConnections => "least",
        Choice::WeightedLeast => "wlc",
        Choice::NeverQueue => "nq",
        Choice::Failover => "fo",
        Choice::Overflow => "ovf",
    }
}

const fn kind(asks: &Asks) -> &'static str {
    match asks {
        Asks::Tcp => "tcp",
        Asks::Http(http) if http.tls.is_some() => "https",
        Asks::Http(_) => "http",
        Asks::Udp { .. } => "udp",
        Asks::Dns { .. } => "dns",
        Asks::Grpc(_) => "grpc",
        Asks::Command(_) => "command",
    }
}

/// Drains a backend manually, or ends that.
///
/// # Errors
/// The backend does not exist.
pub fn drain(
    yard: &Handle,
    service: &str,
    backend: &str,
    drained: bool,
) -> Result<LbChange, String> {
    let hub = hub(yard)?;
    hub.drain(service, backend, drained, yard.now()).map_err(|error| error.to_string())?;
    let change = changed(&hub, service, backend)?;
    let weight = change.weight;
    tracing::info!(service, backend, drained, weight, "drain set manually");
    Ok(change)
}

/// Sets the weight of a backend manually; `None` restores the configured weight.
///
/// # Errors
/// The backend does not exist, or the weight exceeds [`HEAVIEST`].
pub fn set_weight(
    yard: &Handle,
    service: &str,
    backend: &str,
    weight: Option<u32>,
) -> Result<LbChange, String> {
    let hub = hub(yard)?;
    if let Some(weight) = weight.filter(|weight| *weight > HEAVIEST) {
        return Err(format!("the weight {weight} is out of range; write 0 to {HEAVIEST}"));
    }
    hub.set_weight(service, backend, weight, yard.now()).map_err(|error| error.to_string())?;
    tracing::info!(service, backend, weight, "weight set manually");
    let mut change = changed(&hub, service, backend)?;
    if change.manually_drained {
        let which =
            weight.map_or("the configured weight".into(), |weight| format!("weight {weight}"));
        let then = format!("{which} is used after 'flowyard lb drain {service}/{backend} --undo'");
        change.note = Some(match change.note.take() {
            Some(note) => format!("{then}; {note}"),
            None => then,
        });
    }
    Ok(change)
}

/// The state of a backend after a manual change.
fn changed(hub: &Hub, service: &str, backend: &str) -> Result<LbChange, String> {
    let generation = hub.generation();
    let all = hub.states();
    let of = all.iter().find(|state| state.service.name == service);
    let pair = of.and_then(|state| {
        let mut pairs = state.service.backends.iter().zip(&state.backends);
        pairs.find(|(described, _)| described.name == backend)
    });
    let (Some(of), Some((described, is))) = (of, pair) else {
        return Err("the change was made, but a reload has removed the backend since".into());
    };
    let idle = of.backends.iter().all(|backend| backend.weight == 0);
    let note = match (is.is_up, state(described, is)) {
        _ if idle => Some("no backend of this service accepts new connections now".into()),
        (_, "drained") if !is.drained && described.drain => {
            Some("the configuration drains the backend with 'drain = true'".into())
        }
        (_, "drained") if !is.drained => Some("the weight of the backend is 0".into()),
        (_, "standby") => Some(
            "a backup gets new connections only while no other backend of the service accepts any"
                .into(),
        ),
        (_, "full") => Some(
            "the backend gets no new connections until it has less than its 'resume_connections'"
                .into(),
        ),
        (false, _) => Some("the backend is down until its health checks pass".into()),
        _ => None,
    };
    Ok(LbChange {
        service: service.into(),
        backend: backend.into(),
        generation,
        state: state(described, is).into(),
        manually_drained: is.drained,
        manual_weight: is.set_weight,
        weight: f64::from(is.weight) / 100.0,
        connections: is.active,
        note,
    })
}
