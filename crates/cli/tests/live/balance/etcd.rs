//! Two load balancers whose services are in etcd.
//!
//! ```text
//!  etcdctl ──> etcd, on the router ──10.3.n.1── balancers: their kernels have 10.3.n.3 on the interface of flowyard
//! ```

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::balancer::{Balancer, Config, Mode};
use super::cluster::{broken, connect};
use super::modes::answers;
use super::servers::Farm;
use super::site::Site;
use super::store::{Etcd, Keys, generation};
use crate::yard::{clock, wait_until};
use flowyard_livekit::net::{Net, alone};

flowyard_testkit::tests! {
    balancers_follow_etcd_and_go_on_without_it,
}

/// Starts etcd on the router.
fn start(net: &Net, folder: &Path) -> Etcd {
    let args = [
        "--listen-client-urls=http://0.0.0.0:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
    ];
    let etcd = Etcd::spawn(net, folder, &args.map(str::to_owned));
    Keys { net, endpoints: "http://127.0.0.1:2379".into() }.are_there();
    etcd
}

/// Two balancers, the folders of their last good services, and etcd.
struct Fleet {
    site: Site,
    folder: TempDir,
}

impl Fleet {
    fn new() -> Self {
        let site = Site::new(2, 2, Mode::Dsr);
        for (n, net) in (1..).zip(&site.balancers) {
            net.sh(&format!(
                "echo 0 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore; \
                 ip addr add 10.3.{n}.3/24 dev west"
            ));
        }
        Self { site, folder: tempfile::tempdir().unwrap() }
    }

    /// The keys of `[cluster]` of node `n`.
    fn cluster(&self, n: usize) -> String {
        let state = self.folder.path().join(format!("lb{n}.json"));
        format!(
            "endpoints = [\"http://10.3.{n}.1:2379\"]\nnode = \"lb{n}\"\nstate = {state:?}\npoll_ms = 200\n\
             timeout_ms = 1000"
        )
    }

    fn start(&self, n: usize) -> Balancer {
        let (cluster, seed) = (Some(self.cluster(n)), 0x0012_3456_789a_bcde);
        Balancer::start(&self.site, Config { number: n, seed, cluster, ..Config::of(&self.site) })
    }

    /// The keys, as seen on the router.
    fn keys(&self) -> Keys<'_> {
        Keys { net: &self.site.router, endpoints: "http://127.0.0.1:2379".into() }
    }

    /// Waits until both nodes have this state for the newest generation, which is newer than `before`; returns it.
    #[track_caller]
    fn until(&self, state: &str, before: u64) -> Value {
        self.keys().until(2, state, before)
    }
}

/// The states of the backends of service `web4` in `lb show`.
fn backends(balancer: &Balancer) -> Vec<String> {
    let shown = balancer.lb(&["show", "web4"]);
    let all = shown["services"][0]["backends"].as_array().unwrap();
    let one = |backend: &Value| {
        format!("{} {}", backend["name"].as_str().unwrap(), backend["state"].as_str().unwrap())
    };
    all.iter().map(one).collect()
}

/// Puts two services with two backends each, and waits until both balancers have them; returns what `flowyard fleet`
/// shows.
fn put_services(fleet: &Fleet, balancers: [&Balancer; 2]) -> Value {
    let keys = fleet.keys();
    let began = generation(&fleet.until("current", 0));
    keys.put_services("");
    keys.put_backend(1, "");
    keys.put_backend(2, "");
    wait_until("two backends", || {
        balancers.iter().all(|balancer| {
            let all = balancer.lb(&["show"]);
            let services = all["services"].as_array().unwrap();
            services.len() == 2 && services.iter().all(|service| service["up"] == 2)
        })
    });
    let shown = fleet.until("current", began);
    assert_eq!(shown["agrees"], true);
    assert_eq!(shown["nodes"][0]["checksum"], shown["nodes"][1]["checksum"]);
    shown
}

/// Each of the balancers serves clients.
fn both_serve(site: &Site) {
    for only in [1, 2] {
        site.route_to(&[only]);
        answers(&site.client);
    }
    site.route_to(&[1, 2]);
}

/// A value that is wrong changes nothing, and is reported with its key; returns the generation after it was deleted.
fn refuse_a_mistake(fleet: &Fleet, before: &Value, balancer: &Balancer) -> u64 {
    let keys = fleet.keys();
    keys.put("web4/backends/b3", "addr = \"nowhere\"\nexit = { port = \"east\" }\n");
    let refused = fleet.until("refused", generation(before));
    for (node, old) in
        refused["nodes"].as_array().unwrap().iter().zip(before["nodes"].as_array().unwrap())
    {
        let error = node["error"].as_str().unwrap();
        let at =
            "etcd:/flowyard/config/services/web4/backends/b3:1:8: 'nowhere' is not an IP address";
        assert!(error.starts_with(at), "{error}");
        assert_eq!(
            (&node["generation"], &node["checksum"]),
            (&old["generation"], &old["checksum"])
        );
    }
    assert!(balancer.said().contains("refused, nothing changed"), "{}", balancer.said());
    assert_eq!(backends(balancer), ["b1 up", "b2 up"]);
    keys.delete("web4/backends/b3");
    generation(&fleet.until("current", generation(&refused)))
}

/// Changes a weight twenty times; returns the longest time until both nodes had a change, in milliseconds.
fn change_weights(fleet: &Fleet, mut last: u64) -> (u64, u64) {
    let mut longest = 0;
    for weight in 2..=21 {
        let clock = clock();
        fleet.keys().put_one("web6", 1, &format!("weight = {weight}"));
        last = generation(&fleet.until("current", last));
        longest = longest.max(clock() / 1_000_000);
    }
    (last, longest)
}

fn balancers_follow_etcd_and_go_on_without_it() {
    let _alone = alone();
    let fleet = Fleet::new();
    let (site, router, keys) = (&fleet.site, &fleet.site.router, fleet.keys());
    let _farm = Farm::start(site, &[]);
    let etcd = start(router, fleet.folder.path());
    let (mut one, two) = (fleet.start(1), fleet.start(2));
    let shown = put_services(&fleet, [&one, &two]);
    both_serve(site);
    let mut kept = connect(site);
    // The file is read again, and the services of etcd stay.
    one.change(|_| {});
    assert_eq!(backends(&one), ["b1 up", "b2 up"]);

    let last = refuse_a_mistake(&fleet, &shown, &one);
    keys.put_backend(2, "drain = true");
    wait_until("the drain", || backends(&two) == ["b1 up", "b2 drained"]);
    let last = generation(&fleet.until("current", last));
    let (last, longest) = change_weights(&fleet, last);
    keys.put_backend(2, "");
    wait_until("the end of the drain", || {
        [&one, &two].iter().all(|lb| backends(lb) == ["b1 up", "b2 up"])
    });
    assert_eq!(broken(&mut kept), 0);
    keys.delete("web4/backends/b2");
    wait_until("the deletion", || [&one, &two].iter().all(|lb| backends(lb) == ["b1 up"]));
    let deleted = fleet.until("current", last);
    assert_eq!(deleted["agrees"], true);

    // Without etcd: forwarding goes on, and a node starts with the last good services.
    drop(etcd);
    two.kill();
    let two = fleet.start(2);
    assert!(two.said().contains("the last good services of the file in 'state' are used"));
    assert_eq!(backends(&two), ["b1 up"]);
    both_serve(site);
    let etcd = start(router, fleet.folder.path());
    wait_until("services of etcd", || {
        let nodes = keys.shown()["nodes"].clone();
        nodes.as_array().unwrap().iter().all(|node| node["is_from_file"] == false)
    });
    let back = fleet.until("current", 0);
    assert_eq!((&back["generation"], &back["agrees"]), (&deleted["generation"], &true.into()));

    // An empty prefix removes no service, neither from a node that runs nor from one that starts.
    keys.delete_all();
    let empty = fleet.until("refused", generation(&back));
    assert_eq!(empty["nodes"][0]["services"], 2);
    two.kill();
    let two = fleet.start(2);
    assert_eq!(backends(&two), ["b1 up"]);
    flowyard_testkit::note!(
        "20 changes: both nodes had each within {longest} ms, with looks every 200 ms; none of {} connections broke before the \
         deletion of a backend",
        kept.len()
    );
    drop(etcd);
    one.stop();
    two.stop();
}
