//! What crafted 5-tuples cost a connection table, in buckets that are read: never in time.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use flowyard_flow::Secret;
use flowyard_flow::table::cuckoo::{LOOKS, tag};
use flowyard_frame::{FlowKey, proto};

use super::super::{ConnKey, Conns, Owner, State, Timeouts};

thread_local! {
    /// How often the tags of a bucket were read.
    pub(super) static READS: Cell<u64> = const { Cell::new(0) };
}

/// Connections that a table has room for; it has 64 buckets.
const CAPACITY: usize = 400;

/// Connection `n` of a client who chooses addresses and ports.
fn tuple(n: u32) -> ConnKey {
    let [src, dst] = [0x0a00_0000 + (n >> 12), 0xc000_0201].map(Ipv4Addr::from_bits);
    let port = 1024 + (n & 0xfff) as u16;
    ConnKey::of(&FlowKey::five_tuple(proto::TCP, src.into(), port, dst.into(), 80))
}

fn table(secret: Secret) -> Conns {
    Conns::new(CAPACITY, Timeouts::default(), false).with_secret(secret)
}

/// 24 connections with one bucket and one tag, computed by a client who takes the seed of the balancer and
/// the secret of the process for the fixed ones.
fn crafted() -> Vec<ConnKey> {
    let index = table(Secret::FIXED).index;
    let spot = |conn: &ConnKey| {
        let hash = index.place(conn.hash(1));
        (index.cuckoo.first(hash), tag(hash))
    };
    let wanted = spot(&tuple(0));
    (0..).map(tuple).filter(|conn| spot(conn) == wanted).take(24).collect()
}

/// The buckets that are read for a SYN of each of these connections.
fn costs(conns: &mut Conns, seed: u64, all: &[ConnKey]) -> Vec<u64> {
    let owner = Owner { backend: 1, service: 0, sees_answers: false };
    let cost = |conn: &ConnKey| {
        let (hash, before) = (conn.hash(seed), READS.get());
        if conns.find(conn, hash, 0).is_none() {
            let _entered = conns.insert(conn, hash, owner, State::Opening, 0);
        }
        READS.get() - before
    };
    all.iter().map(cost).collect()
}

#[test]
fn without_the_secret_crafted_connections_cost_what_others_cost() {
    let crafted = crafted();
    for byte in 2..40 {
        let drawn = Secret::drawn([byte; 16]);
        // The seed by which backends are chosen may be known: it is that of a cluster.
        for seed in [1, drawn.key("choice of backends")] {
            let mut conns = table(drawn);
            let others: Vec<_> = (1_000_000..).map(tuple).take(CAPACITY / 2).collect();
            let mut usual = costs(&mut conns, seed, &others);
            usual.sort_unstable();
            let median = usual[usual.len() / 2];
            let buckets: BTreeSet<_> = (crafted.iter())
                .map(|conn| conns.index.cuckoo.first(conns.index.place(conn.hash(seed))))
                .collect();
            assert!(buckets.len() > 10, "secret {byte}: 24 connections in {buckets:?}");
            for round in 0..10 {
                let all = costs(&mut conns, seed, &crafted);
                let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
                assert!(
                    mean <= 2.0 * median as f64,
                    "secret {byte}, round {round}: {all:?}, {median}"
                );
            }
            assert!(crafted.iter().all(|conn| conns.find(conn, conn.hash(seed), 0).is_some()));
        }
    }
}

#[test]
fn with_the_secret_a_packet_costs_at_most_the_bound() {
    let mut conns = table(Secret::FIXED);
    let all = crafted();
    let first = costs(&mut conns, 1, &all);
    let kept = all.iter().filter(|conn| conns.find(conn, conn.hash(1), 0).is_some()).count();
    assert_eq!(kept, 16, "two buckets of eight places");
    let later = costs(&mut conns, 1, &all);
    // The lookup and the insertion read both buckets, and the search reads both again before each of its
    // looks into the eight entries of one.
    let bound = 2 + 2 + u64::from(LOOKS) + 4 + 16;
    assert!(first.iter().chain(&later).all(|cost| *cost <= bound), "{first:?} {later:?}");
}
