//! Three load balancers that synchronize connections: one is killed after backends were changed, so that the Maglev table
//! alone would send connections elsewhere. Sessions go through the router, between the kernels of the balancers.

use std::path::Path;

use super::balancer::{Balancer, Config, Mode};
use super::cluster::{broken, connect};
use super::modes::answers;
use super::servers::Farm;
use super::site::Site;
use crate::yard::wait_until;
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    no_connection_breaks_when_a_balancer_is_killed_after_changes,
    connections_break_without_synchronization,
    nodes_agree_on_health,
}

/// Starts balancer `n`, which synchronizes if there is a key.
fn start(
    site: &Site,
    n: usize,
    choice: &'static str,
    service: &'static str,
    key: Option<&Path>,
) -> Balancer {
    let balance = match key {
        None => String::new(),
        Some(key) => {
            let peers: Vec<_> = (1..=3).filter(|&peer| peer != n).map(address).collect();
            let listen = address(n);
            format!(
                "[balance.sync]\nlisten = {listen:?}\npeers = {peers:?}\nkey_file = {key:?}\ninterval_ms = 200\n"
            )
        }
    };
    let seed = 0x3b5c_81d2_90e7; // one that cannot be guessed is required
    let balance = balance.leak();
    Balancer::start(site, Config { number: n, choice, seed, balance, service, ..Config::of(site) })
}

/// Gives the kernels of the balancers addresses, by which they reach each other and the backends.
fn address_kernels(site: &Site) {
    for (n, net) in (1..).zip(&site.balancers) {
        net.sh(&format!(
            "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore; ip addr add 10.3.{n}.3/24 dev west; \
             ip route add 10.3.0.0/16 via 10.3.{n}.1; ip route add 10.2.0.0/24 via 10.3.{n}.1"
        ));
    }
}

/// A file with the key of all nodes, in a folder.
fn key() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef\n").unwrap();
    (folder, key)
}

fn address(n: usize) -> String {
    format!("10.3.{n}.3:7926")
}

/// The balancers of a new site, after connections were opened and backend 1 was drained. Returns the connections that are
/// broken after balancer 2 was killed, and what the others say of the synchronization.
fn killed(choice: &'static str, synchronizes: bool) -> (usize, usize, Vec<serde_json::Value>) {
    let site = Site::new(3, 4, Mode::Dsr);
    address_kernels(&site);
    let _farm = Farm::start(&site, &[]);
    let (_folder, key) = key();
    let key = synchronizes.then_some(&*key);
    let [mut one, mut two, mut three] = [1, 2, 3].map(|n| start(&site, n, choice, "", key));
    if synchronizes {
        for balancer in [&one, &two, &three] {
            wait_until("the sessions", || complete(balancer));
        }
    }
    answers(&site.client);
    let mut kept = connect(&site);
    [&mut one, &mut two, &mut three].into_iter().for_each(|balancer| balancer.drain(1, true));
    assert_eq!(broken(&mut kept), 0);
    if synchronizes {
        let sums = || {
            let all = [&one, &two, &three].map(|balancer| balancer.lb(&["show"])["sync"].clone());
            let sum = |key: &str| all.iter().map(|sync| sync[key].as_u64().unwrap()).sum::<u64>();
            (sum("reported"), sum("stored"))
        };
        let scans = || {
            let all = [&one, &two, &three].map(|balancer| balancer.lb(&["show"])["sync"].clone());
            all.map(|sync| sync["scans"].as_u64().unwrap())
        };
        // One scan may have begun before the changes. Two nodes store what each one reports. The number of reports is
        // random: at least those of the connections of the drained backend, each of which has one with probability 1/4.
        let before = scans();
        wait_until("the reports", || {
            let (reported, stored) = sums();
            let is_new = scans().iter().zip(before).all(|(now, before)| *now >= before + 2);
            is_new && reported > 0 && stored == 2 * reported
        });
    }
    two.kill();
    site.route_to(&[1, 3]);
    let broken = broken(&mut kept);
    let shown = [&one, &three].map(|balancer| balancer.lb(&["show"]));
    one.stop();
    three.stop();
    (broken, kept.len(), shown.into())
}

/// Whether both other nodes have sent all connections.
fn complete(balancer: &Balancer) -> bool {
    let shown = balancer.lb(&["show"]);
    shown["sync"]["peers"].as_array().unwrap().iter().all(|peer| peer["is_complete"] == true)
}

fn no_connection_breaks_when_a_balancer_is_killed_after_changes() {
    let _alone = alone();
    for choice in ["maglev", "roundrobin", "least"] {
        let (broken, all, shown) = killed(choice, true);
        let of = |shown: &serde_json::Value, key: &str| {
            let services = shown["services"].as_array().unwrap();
            services.iter().map(|service| service["counters"][key].as_u64().unwrap()).sum::<u64>()
        };
        let resumed: u64 = shown.iter().map(|shown| of(shown, "resumed")).sum();
        let (mut reports, mut bytes) = (0, 0);
        for peer in shown.iter().flat_map(|shown| shown["sync"]["peers"].as_array().unwrap()) {
            reports += peer["sent"].as_u64().unwrap();
            bytes += peer["sent_bytes"].as_u64().unwrap();
        }
        flowyard_testkit::note!(
            "{choice}: {broken} of {all} connections broken; {resumed} continued by a report; the two that stayed had sent {reports} \
             reports in {bytes} bytes"
        );
        assert_eq!(broken, 0, "{choice}");
        assert!(resumed > 0, "{choice}: no report was needed");
    }
}

/// Counter-check: the same without synchronization.
fn connections_break_without_synchronization() {
    let _alone = alone();
    for choice in ["maglev", "roundrobin"] {
        let (broken, all, _) = killed(choice, false);
        flowyard_testkit::note!("{choice}: {broken} of {all} connections broken");
        assert!(broken > 0, "{choice}");
    }
}

const CHECK: &str = "[service.check]\nkind = \"tcp\"\nport = 80\ninterval_ms = 100\ntimeout_ms = 500\nrise = 2\nfall = 2\nagreed = true\n";

/// Waits until backend 2 has this state on a balancer, is up by its own checks or not, and by this many of the known verdicts.
#[track_caller]
fn until_agreed(balancer: &Balancer, state: &str, own: bool, up: u64, known: u64) {
    let wanted = serde_json::json!({ "own": own, "up": up, "known": known, "nodes": 3 });
    let mut shown = serde_json::Value::Null;
    let what = format!("{state} with {wanted}");
    wait_until(&what, || {
        shown = balancer.backend("web4", 2);
        shown["state"] == state && shown["votes"] == wanted
    });
}

fn nodes_agree_on_health() {
    let _alone = alone();
    let site = Site::new(3, 3, Mode::Dsr);
    address_kernels(&site);
    let _farm = Farm::start(&site, &[]);
    let (_folder, key) = key();
    let all = [1, 2, 3].map(|n| start(&site, n, "maglev", CHECK, Some(&key)));
    let route = |n: usize, what: &str, from: &str| {
        site.balancers[n - 1].sh(&format!("ip route {what} blackhole {from}"));
    };
    let (cut, heal) = (|n, from| route(n, "add", from), |n, from| route(n, "del", from));
    let each = |state: &str, own: [bool; 3]| {
        let up = own.iter().filter(|up| **up).count() as u64;
        all.iter().zip(own).for_each(|(balancer, own)| until_agreed(balancer, state, own, up, 3));
    };
    each("up", [true; 3]);
    // One node does not reach the backend; then two; then all do again.
    cut(1, "10.2.0.2");
    each("up", [false, true, true]);
    let checksums =
        all.each_ref().map(|one| one.lb(&["show", "web4"])["services"][0]["checksum"].clone());
    assert!(checksums.iter().all(|checksum| *checksum == checksums[0]), "{checksums:?}");
    cut(2, "10.2.0.2");
    each("down", [false, false, true]);
    heal(2, "10.2.0.2");
    each("up", [false, true, true]);
    // The first node is cut off from the others, too, and then decides alone.
    cut(1, "10.3.2.3");
    cut(1, "10.3.3.3");
    until_agreed(&all[0], "down", false, 0, 1);
    all[1..].iter().for_each(|balancer| until_agreed(balancer, "up", true, 2, 2));
    heal(1, "10.3.2.3");
    heal(1, "10.3.3.3");
    each("up", [false, true, true]);
    heal(1, "10.2.0.2");
    each("up", [true; 3]);
    all.into_iter().for_each(|balancer| drop(balancer.stop()));
}
