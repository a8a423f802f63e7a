//! Losses: of etcd, of its quorum, of the router, and of a balancer.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::topology::{BALANCERS, Fleet, synchronizes, until_up};
use super::{WEB, clock, wait_until};

/// A balancer is cut off from etcd: it forwards on, is `silent`, and catches up when it is back.
pub(crate) fn of_etcd(fleet: &mut Fleet) -> String {
    let (_, checksum) = fleet.until_current(0);
    let cut = fleet.without_etcd(2);
    let since = clock();
    let revision = fleet.keys().put_one(WEB[0], 1, "weight = 5");
    let mut shown = fleet.keys().shown();
    wait_until("a silent node", || {
        shown = fleet.keys().shown();
        shown["nodes"][1]["state"] == "silent"
    });
    let silent = since() / 1_000_000;
    for (at, state) in [(0, "current"), (1, "silent"), (2, "current")] {
        assert_eq!(shown["nodes"][at]["state"], state, "{shown}");
    }
    assert_eq!(shown["nodes"][1]["checksum"], checksum.as_str(), "{shown}");
    fleet.all_are_paths();
    let outage = fleet.balancer(2).said();
    cut.heal();
    let since = clock();
    let (_, other) = fleet.until_current(revision);
    let back = since() / 1_000_000;
    assert_ne!(other, checksum);
    assert!(outage.contains("etcd"), "the log reports the outage: {outage}");
    // As it was, before flows can move to other balancers.
    let revision = fleet.keys().put_one(WEB[0], 1, "");
    assert_eq!(fleet.until_current(revision).1, checksum);
    format!(
        "its node was silent after {silent} ms, and current {back} ms after the end of the partition"
    )
}

/// Two of three members of etcd end: balancers forward on, one of them is restarted with its last good services, and all
/// follow changes when the members are back.
pub(crate) fn of_the_quorum(fleet: &mut Fleet) -> String {
    let (_, checksum) = fleet.until_current(0);
    fleet.stop_member(1);
    fleet.stop_member(2);
    assert!(!fleet.keys().can_write(), "etcd has no quorum");
    let output = fleet.keys().fleet();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!output.stderr.is_empty(), "{output:?}");
    fleet.all_are_paths();
    // The paths of other balancers have all connections meanwhile.
    fleet.take(3).stop();
    fleet.until_paths(&[1, 2]);
    fleet.start_balancer(3);
    let said = fleet.balancer(3).said();
    assert!(said.contains("the last good services of the file in 'state' are used"), "{said}");
    assert!(!said.contains("cannot drop privileges"), "{said}");
    fleet.until_paths(&[1, 2, 3]);
    // The balancer must have seen a packet of each connection that returned to it before its table changes.
    fleet.kept().round();
    let since = clock();
    fleet.start_member(1);
    fleet.start_member(2);
    fleet.keys().are_there();
    let there = since() / 1_000_000;
    fleet.until_current(fleet.keys().put_one(WEB[1], 1, "weight = 2"));
    let current = since() / 1_000_000;
    let revision = fleet.keys().put_one(WEB[1], 1, "");
    assert_eq!(fleet.until_current(revision).1, checksum);
    format!(
        "with one member, `flowyard fleet` failed and a balancer was restarted from its file; with all, etcd answered after \
         {there} ms, and all nodes had a change after {current} ms"
    )
}

/// Each balancer is cut off from the router, which notices by BFD. Until then, packets to it are lost, and TCP sends them
/// again: the first SYN after a second.
pub(crate) fn of_the_router(fleet: &mut Fleet) -> String {
    let mut times = Vec::new();
    for n in 1..=BALANCERS {
        let others: Vec<_> = (1..=BALANCERS).filter(|other| *other != n).collect();
        let cut = fleet.without_router(n);
        let withdrawn = fleet.until_paths(&others);
        let since = clock();
        fleet.kept().round();
        let round = since() / 1_000_000;
        cut.heal();
        let back = fleet.until_paths(&[1, 2, 3]);
        fleet.kept().round();
        times.push(format!(
            "balancer {n}: withdrawn after {withdrawn} ms, two rounds of all kept connections after {round} ms more, back \
             after {back} ms"
        ));
    }
    times.join(", ")
}

/// A balancer is killed with SIGKILL.
///
/// The kernel then removes its routes, and the router distributes the flows of the balancer over the others. These send
/// a connection that they do not know to the backend that Maglev names for it. So the connections that break without reports
/// (`[balance.sync]`) are those of this balancer that had been opened before the table changed, and whose entry differs from
/// the table. With reports, none breaks. To have some, all
/// connections are opened before a change here, and not used by other balancers before. The flows of the others do not move:
/// the kernel divides the range of the hash into equal parts in the order of the next hops, and when the second of three
/// ends, the other two have the halves in which their parts were. When it is back, only flows return to it that the others
/// have by Maglev alone.
///
/// Only the IPv4 service changes. BIRD 2.0 replaces an IPv6 route by deleting it and adding its next hops one by one, so for
/// a moment packets of all IPv6 connections reach other balancers than before.
pub(crate) fn kill(fleet: &mut Fleet) {
    const KILLED: usize = 2;
    let before = fleet.until_current(0);
    fleet.reconnect();
    fleet.keys().put_one(WEB[0], 1, "weight = 3");
    let revision = fleet.keys().put_one(WEB[0], 2, "drain = true");
    let (_, checksum) = fleet.until_current(revision);
    assert_ne!(checksum, before.1);
    let mut owned = Owned::by(fleet, KILLED);
    // Entries of earlier connections from the same ports end after `closing_ms`.
    wait_until("the reports of the connections, and the end of entries of earlier ones", || {
        owned = Owned::by(fleet, KILLED);
        owned.known.is_empty() && (!synchronizes() || owned.unreported == 0)
    });
    let Owned { equal, moved, known, .. } = owned;
    let counts = (equal.len(), moved.len(), known.len());
    assert!(counts.0 > 100 && counts.1 > 20 && counts.2 == 0, "{counts:?}");
    fleet.settled("before the kill");

    fleet.take(KILLED).kill();
    let withdrawn = fleet.until_paths(&[1, 3]);
    let outcome = fleet.outcome();
    let broken: BTreeSet<_> = outcome.broken.iter().map(|broken| broken.from).collect();
    outcome.no_short_one_failed("kill -9");
    let [of_equal, of_moved, of_known] =
        [&equal, &moved, &known].map(|those| broken.intersection(those).count());
    let elsewhere = broken.len() - of_equal - of_moved - of_known;
    let expected = (0, 0, if synchronizes() { 0 } else { moved.len() }, 0);
    assert_eq!(
        (elsewhere, of_equal, of_moved, of_known),
        expected,
        "broken of other balancers, with the backend of Maglev, with another one, and known by others: {:?}",
        outcome.broken
    );
    flowyard_testkit::note!(
        "kill -9: the router knew after {withdrawn} ms; {} of its connections have the backend that Maglev names, of which \
         {of_equal} broke, and {} another one, of which {of_moved} broke; no other request failed; {}",
        equal.len(),
        moved.len(),
        outcome.text()
    );
    fleet.start_balancer(KILLED);
    fleet.until_paths(&[1, 2, 3]);
    fleet.settled("the return of the killed balancer");
    fleet.keys().put_one(WEB[0], 1, "");
    let revision = fleet.keys().put_one(WEB[0], 2, "");
    assert_eq!(fleet.until_current(revision).1, before.1);
    until_up(fleet, 3);
    fleet.settled("the changes undone");
    fleet.reconnect();
}

/// Connections of a balancer, by the client's end.
#[derive(Default)]
struct Owned {
    /// They have the backend that Maglev names.
    equal: BTreeSet<SocketAddr>,
    /// They have another one.
    moved: BTreeSet<SocketAddr>,
    /// The number of those of `moved` that one of the other balancers would send elsewhere.
    unreported: usize,
    /// Another balancer has an entry: that of an earlier connection from the same port.
    known: BTreeSet<SocketAddr>,
}

impl Owned {
    /// The kept connections of which balancer `n` has an entry.
    fn by(fleet: &Fleet, n: usize) -> Self {
        let mut owned = Self::default();
        for [from, to] in fleet.kept().ends() {
            let flow = format!("tcp {from} > {to}");
            let trace = |n: usize| fleet.balancer(n).lb(&["trace", &flow]);
            let own = trace(n);
            if own["why"] != "connection" {
                continue;
            }
            let others = (1..=BALANCERS).filter(|other| *other != n).map(trace);
            let others: Vec<_> = others.collect();
            let of = if others.iter().any(|other| other["why"] == "connection") {
                &mut owned.known
            } else {
                let agrees = others.iter().all(|other| other["backend"] == own["backend"]);
                let is_reported = others.iter().any(|other| other["why"] == "reported");
                owned.unreported += usize::from(!agrees);
                if agrees && !is_reported { &mut owned.equal } else { &mut owned.moved }
            };
            of.insert(from);
        }
        owned
    }
}
