//! Metrics of a balancer that synchronizes connections with other nodes.

use flowyard_yard::Handle;

use super::text::Page;
use crate::lb;
use crate::protocol::LbPeer;

/// Name, type, help and value of a metric of each peer.
type OfPeer = (&'static str, &'static str, &'static str, fn(&LbPeer) -> f64);

const PEERS: [OfPeer; 9] = [
    (
        "sync_peer_sends",
        "gauge",
        "Is 1 if this node has a session to the other node, and 0 if not.",
        |peer| f64::from(u8::from(peer.sends)),
    ),
    (
        "sync_peer_receives",
        "gauge",
        "Is 1 if the other node has a session to this one, and 0 if not.",
        |peer| f64::from(u8::from(peer.receives)),
    ),
    (
        "sync_peer_complete",
        "gauge",
        "Is 1 if the other node has reported all its connections since this one was started, and 0 if not.",
        |peer| f64::from(u8::from(peer.is_complete)),
    ),
    (
        "sync_sent_reports_total",
        "counter",
        "Counts the reports of connections that were sent to the other node.",
        |peer| peer.sent as f64,
    ),
    (
        "sync_sent_bytes_total",
        "counter",
        "Counts the bytes that were sent to the other node, without the headers of TCP and IP.",
        |peer| peer.sent_bytes as f64,
    ),
    (
        "sync_received_reports_total",
        "counter",
        "Counts the reports of connections that the other node has sent.",
        |peer| peer.received as f64,
    ),
    (
        "sync_received_bytes_total",
        "counter",
        "Counts the bytes that the other node has sent, without the headers of TCP and IP.",
        |peer| peer.received_bytes as f64,
    ),
    (
        "sync_sent_ends_total",
        "counter",
        "Counts the FINs and RSTs of clients that were reported to the other node, because it may have an entry of the connection.",
        |peer| peer.sent_ends as f64,
    ),
    (
        "sync_received_ends_total",
        "counter",
        "Counts the FINs and RSTs of clients that the other node has reported.",
        |peer| peer.received_ends as f64,
    ),
];

/// Writes the metrics; none if the configuration has no `[balance.sync]`.
pub(super) fn page(page: &mut Page, yard: &Handle) {
    let Some(sync) = lb::hub(yard).ok().and_then(|hub| lb::sync(yard, &hub)) else { return };
    let all = [
        (
            "sync_reported_connections",
            "gauge",
            "Gives the number of connections that this node reports to others, because the Maglev table does not name their backends.",
            sync.reported as f64,
        ),
        (
            "sync_stored_connections",
            "gauge",
            "Gives the number of connections of other nodes that this node stores.",
            sync.stored as f64,
        ),
        (
            "sync_evicted_connections_total",
            "counter",
            "Counts the stored connections of other nodes that were replaced by others because there was no room.",
            sync.evicted as f64,
        ),
        (
            "sync_scans_total",
            "counter",
            "Counts the scans of the connection tables.",
            sync.scans as f64,
        ),
        (
            "sync_scan_seconds",
            "gauge",
            "Gives the duration of the last scan of the connection tables.",
            sync.scan_s,
        ),
        (
            "sync_dropped_ends_total",
            "counter",
            "Counts the FINs and RSTs of clients that were not reported to other nodes, because too many came at once.",
            sync.dropped_ends as f64,
        ),
        (
            "sync_closed_connections_total",
            "counter",
            "Counts the connections of this node that are closing because another node has reported the FIN or RST of the client.",
            sync.closed as f64,
        ),
    ];
    for (name, kind, help, value) in all {
        page.metric(name, kind, help);
        page.sample(name, &[], value);
    }
    for (name, kind, help, value) in PEERS {
        page.metric(name, kind, help);
        for peer in &sync.peers {
            page.sample(name, &[("peer", &peer.address)], value(peer));
        }
    }
}
