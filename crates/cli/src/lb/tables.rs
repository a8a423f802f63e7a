//! A load balancer's state as tables, for `lb show` and `top`. If an earlier state is given, counters are
//! shown as rates.

use flowyard_operate::protocol::{Lb, LbBackend, LbCore, LbCounts, LbRoute, LbService, LbSync};
use flowyard_report::{Cell, Column, Table, Tone, Unit, num};

/// Services, their backends, drops and failed health checks.
pub(crate) fn all(now: &Lb, before: Option<&Lb>) -> Vec<Table> {
    let mut all = vec![services(now, before), backends(now, before)];
    if !now.routes.is_empty() {
        all.push(routes(&now.routes));
    }
    all.extend(now.sync.as_ref().map(peers));
    all.extend(networks(now));
    all.extend(drops(now));
    all.extend(faults(now));
    all
}

/// How counters are shown: as totals, or as rates over this many seconds.
struct Growth(Option<f64>);

impl Growth {
    fn since(now: &Lb, before: Option<&Lb>) -> Self {
        Self(before.map(|before| (now.at_s - before.at_s).max(1e-3)))
    }

    fn cell(&self, now: u64, before: u64) -> Cell {
        Cell::new(num::exact(match self.0 {
            None => now,
            Some(span) => (now.saturating_sub(before) as f64 / span).round() as u64,
        }))
    }

    fn bytes(&self, now: u64, before: u64) -> Cell {
        Cell::new(Unit::Bytes.show(match self.0 {
            None => now as f64,
            Some(span) => now.saturating_sub(before) as f64 / span,
        }))
    }

    /// The cells for the columns that [`Growth::columns`] adds.
    fn cells(&self, now: &LbCounts, before: Option<&LbCounts>) -> [Cell; 5] {
        let nothing = LbCounts::default();
        let before = before.unwrap_or(&nothing);
        [
            self.cell(now.connections, before.connections),
            self.cell(now.in_packets, before.in_packets),
            self.bytes(now.in_bytes, before.in_bytes),
            self.cell(now.out_packets, before.out_packets),
            self.bytes(now.out_bytes, before.out_bytes),
        ]
    }

    fn columns(&self, table: Table) -> Table {
        let by = |unit: &'static str| if self.0.is_some() { "per second" } else { unit };
        table
            .column(Column::number("new").unit(by("connections")))
            .column(Column::number("in").unit(by("packets")))
            .column(Column::number("").unit(by("bytes")))
            .column(Column::number("out").unit(by("packets")))
            .column(Column::number("").unit(by("bytes")))
    }
}

/// One row per VIP.
pub(crate) fn routes(all: &[LbRoute]) -> Table {
    let mut table = Table::new("Routes to VIPs")
        .column(Column::text("VIP"))
        .column(Column::text("announced"))
        .column(Column::text("why not"));
    for LbRoute { vip, is_announced, why } in all {
        let (text, tone) = if *is_announced { ("yes", Tone::Good) } else { ("no", Tone::Bad) };
        table.push(vec![
            Cell::new(vip.clone()).tone(Tone::Strong),
            Cell::new(text).tone(tone),
            Cell::new(why.clone().unwrap_or_default()),
        ]);
    }
    table
}

/// One row per node with which connections are synchronized.
fn peers(sync: &LbSync) -> Table {
    let LbSync { reported, stored, scanned, scan_s, dropped_ends, closed, .. } = sync;
    let mut table = Table::new("Synchronization of connections")
        .column(Column::text("node"))
        .column(Column::text("to it"))
        .column(Column::text("from it"))
        .column(Column::number("sent").unit("reports"))
        .column(Column::number("").unit("ends"))
        .column(Column::number("").unit("bytes"))
        .column(Column::number("received").unit("reports"))
        .column(Column::number("").unit("ends"))
        .column(Column::number("").unit("bytes"));
    for peer in &sync.peers {
        let state = |is_up| if is_up { ("up", Tone::Good) } else { ("down", Tone::Bad) };
        let ((to, to_tone), (from, from_tone)) = (state(peer.sends), state(peer.receives));
        table.push(vec![
            Cell::new(peer.address.clone()).tone(Tone::Strong),
            Cell::new(to).tone(to_tone),
            Cell::new(from).tone(from_tone),
            Cell::new(num::exact(peer.sent)),
            Cell::new(num::exact(peer.sent_ends)),
            Cell::new(Unit::Bytes.show(peer.sent_bytes as f64)),
            Cell::new(num::exact(peer.received)),
            Cell::new(num::exact(peer.received_ends)),
            Cell::new(Unit::Bytes.show(peer.received_bytes as f64)),
        ]);
    }
    let errors = sync.peers.iter().filter_map(|peer| Some((&peer.address, peer.error.as_ref()?)));
    let table = errors.fold(table, |table, (address, error)| {
        table.note(format!("no session to {address}: {error}"))
    });
    let table = match dropped_ends {
        0 => table,
        ends => table.note(format!(
            "{} ends of connections were not sent, because too many were seen at once",
            num::exact(*ends)
        )),
    };
    let table = table.note(format!(
        "{} connections of this node are closing because another node has seen the end of what the client sends",
        num::exact(*closed),
    ));
    table.note(format!(
        "{} connections of this node are reported, and {} of other nodes are stored; the last scan looked at {} in {:.1} ms",
        num::exact(*reported), num::exact(*stored), num::exact(*scanned), scan_s * 1e3,
    ))
}

/// One row per service.
pub(crate) fn services(now: &Lb, before: Option<&Lb>) -> Table {
    let growth = Growth::since(now, before);
    let table = Table::new("Services")
        .column(Column::text("service"))
        .column(Column::text("address"))
        .column(Column::text("mode"))
        .column(Column::text("chosen by"))
        .column(Column::number("backends up"))
        .column(Column::number("connections").unit("now"));
    let mut table = growth
        .columns(table)
        .column(Column::number("dropped"))
        .column(Column::text("table checksum"));
    for service in &now.services {
        let old = before.and_then(|b| b.services.iter().find(|old| old.name == service.name));
        let connections: u64 = service.backends.iter().map(|b| u64::from(b.connections)).sum();
        let (up, all) = (service.up, service.backends.len());
        let tone = match up {
            0 => Tone::Bad,
            up if up < all => Tone::Warn,
            _ => Tone::Plain,
        };
        let dropped = |service: &LbService| service.counters.drops.values().sum();
        let row = [
            Cell::new(service.name.as_str()).tone(Tone::Strong),
            Cell::new(address(service)),
            Cell::new(service.mode.as_str()),
            Cell::new(match service.one_packet {
                true => format!("{}, each datagram", service.choice),
                false => service.choice.clone(),
            }),
            Cell::new(format!("{up} of {all}")).tone(tone),
            Cell::new(num::exact(connections)),
        ];
        let counted = growth.cells(&service.counters, old.map(|old| &old.counters));
        let last = [
            growth.cell(dropped(service), old.map_or(0, dropped)),
            Cell::new(service.checksum.as_str()),
        ];
        table.push(row.into_iter().chain(counted).chain(last));
    }
    let of = |value: fn(&LbCore) -> usize| {
        num::exact(now.cores.iter().map(|core| value(core) as u64).sum())
    };
    table.note(format!(
        "table generation {}; {} connections tracked, {} of them unestablished, capacity {}",
        now.generation,
        of(|core| core.connections),
        of(|core| core.unestablished),
        of(|core| core.capacity),
    ))
}

fn address(service: &LbService) -> String {
    let LbService { proto, vip, ports, .. } = service;
    if vip.contains(':') {
        format!("{proto} [{vip}]:{ports}")
    } else {
        format!("{proto} {vip}:{ports}")
    }
}

/// One row per backend.
fn backends(now: &Lb, before: Option<&Lb>) -> Table {
    let growth = Growth::since(now, before);
    let table = Table::new("Backends")
        .column(Column::text("backend"))
        .column(Column::text("address"))
        .column(Column::text("state"))
        .column(Column::number("for").unit("s"))
        .column(Column::number("weight").unit("current"))
        .column(Column::number("share").unit("of the table"))
        .column(Column::number("connections").unit("now"));
    let mut table = growth.columns(table);
    for service in &now.services {
        let old = before.and_then(|b| b.services.iter().find(|old| old.name == service.name));
        for backend in &service.backends {
            let old = old.and_then(|s| s.backends.iter().find(|old| old.name == backend.name));
            let port = backend.port.map_or_else(String::new, |port| format!(" port {port}"));
            let tone = match backend.state.as_str() {
                "down" => Tone::Bad,
                "up" => Tone::Plain,
                _ => Tone::Warn,
            };
            let row = [
                Cell::new(format!("{}/{}", service.name, backend.name)).tone(Tone::Strong),
                Cell::new(format!("{}{port}", backend.addr)),
                Cell::new(match &backend.votes {
                    None => backend.state.clone(),
                    Some(votes) => {
                        format!("{} (up on {} of {})", backend.state, votes.up, votes.known)
                    }
                })
                .tone(tone),
                Cell::new(format!("{:.0}", (now.at_s - backend.since_s).max(0.0))),
                Cell::new(weight(backend)),
                Cell::new(Unit::Share.show(backend.share)),
                Cell::new(connections(backend)),
            ];
            let counted = growth.cells(&backend.counters, old.map(|old| &old.counters));
            table.push(row.into_iter().chain(counted));
        }
    }
    table
}

/// The current weight, followed by the weight that was configured or set by `set-weight` if it differs.
fn weight(backend: &LbBackend) -> String {
    let wanted = backend.manual_weight.unwrap_or(backend.configured_weight);
    let set = if backend.manual_weight.is_some() { ", set by hand" } else { "" };
    match backend.weight {
        weight if weight == f64::from(wanted) => format!("{weight}{set}"),
        weight => format!("{weight} (of {wanted}{set})"),
    }
}

/// The current connections, and their limit if there is one.
fn connections(backend: &LbBackend) -> String {
    let now = num::exact(backend.connections.into());
    match backend.max_connections {
        None => now,
        Some(most) => format!("{now} of {}", num::exact(most.into())),
    }
}

/// Services whose clients' networks keep their backends, if there are any.
fn networks(now: &Lb) -> Option<Table> {
    let mut table = Table::new("Networks with a backend")
        .column(Column::text("service"))
        .column(Column::text("networks of"))
        .column(Column::number("for").unit("s"))
        .column(Column::number("now").unit("networks"))
        .column(Column::number("most").unit("networks"))
        .column(Column::number("kept").unit("connections"))
        .column(Column::number("moved").unit("networks"))
        .column(Column::number("evicted").unit("networks"));
    for service in &now.services {
        let Some(persist) = &service.persist else { continue };
        let is_ipv6 = service.vip.contains(':');
        let mask = if is_ipv6 { persist.mask_ipv6 } else { persist.mask_ipv4 };
        let numbers = [
            persist.seconds,
            persist.networks,
            persist.capacity as u64,
            persist.kept,
            persist.moved,
            persist.evicted,
        ];
        let row =
            [Cell::new(service.name.as_str()).tone(Tone::Strong), Cell::new(format!("/{mask}"))];
        table.push(row.into_iter().chain(numbers.map(|number| Cell::new(num::exact(number)))));
    }
    (!table.is_empty()).then_some(table)
}

/// Dropped packets, if there are any.
fn drops(now: &Lb) -> Option<Table> {
    let mut table = Table::new("Dropped")
        .column(Column::text("service"))
        .column(Column::text("reason"))
        .column(Column::number("packets"));
    for service in &now.services {
        for (reason, packets) in &service.counters.drops {
            table.push([
                Cell::new(service.name.as_str()).tone(Tone::Strong),
                Cell::new(reason.as_str()),
                Cell::new(num::exact(*packets)),
            ]);
        }
    }
    let note =
        "'flowyard show drops' shows the fix for each reason, and drops that belong to no service";
    (!table.is_empty()).then(|| table.note(note))
}

/// Health checks whose most recent result is a failure.
fn faults(now: &Lb) -> Option<Table> {
    let mut table = Table::new("Health checks that failed most recently")
        .column(Column::text("backend"))
        .column(Column::text("check"))
        .column(Column::number("failed").unit("of all"))
        .column(Column::number("ended").unit("s ago"))
        .column(Column::text("why"));
    for service in &now.services {
        for backend in &service.backends {
            let Some(check) = &backend.check else { continue };
            let Some(failure) = &check.failure else { continue };
            table.push([
                Cell::new(format!("{}/{}", service.name, backend.name)).tone(Tone::Strong),
                Cell::new(check.kind.as_str()),
                Cell::new(format!("{} of {}", check.failures, check.checks)),
                Cell::new(format!("{:.0}", (now.at_s - check.at_s).max(0.0))),
                Cell::new(failure.as_str()).tone(Tone::Bad),
            ]);
        }
    }
    (!table.is_empty()).then_some(table)
}
