//! A fleet as operators run it: three balancers with BIRD behind a router with ECMP, etcd with three members, four
//! nginx, and clients with a thousand kept connections and connections for one request each, by both IP versions.
//!
//! Every step of operation and every loss happens while the clients go on. No request may fail, except on connections
//! whose balancer was killed, and that another balancer would send elsewhere ([`losses::kill`]).
//!
//! `FLOWYARD_FLEET_ROUNDS` is the number of times that all steps are done, 1 if it is not set.

mod changes;
mod clients;
mod losses;
mod restarts;
mod topology;

use topology::Fleet;

use super::balancer::Balancer;
use super::store::{WEB, generation};
use crate::yard::{clock, wait_until};
use flowyard_livekit::net::{Net, alone};

flowyard_testkit::tests! {
    a_fleet_loses_no_request,
}

fn rounds() -> u32 {
    let set = std::env::var("FLOWYARD_FLEET_ROUNDS");
    set.map_or(1, |rounds| rounds.parse().expect("FLOWYARD_FLEET_ROUNDS is a number"))
}

/// Announcements of VIPs by balancer `net` since the start of this watch.
struct Watch(std::process::Child, tempfile::TempDir);

impl Watch {
    fn start(net: &Net) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("ip");
        let file = std::fs::File::create(folder.path().join("routes")).unwrap();
        command.args(["-o", "monitor", "route"]).stdout(file);
        flowyard_livekit::sys::within(&mut command, &net.0);
        let watch = Self(command.spawn().unwrap(), folder);
        // A route that is not a VIP's shows that it listens.
        wait_until("the watch", || {
            net.sh("ip route add 198.51.100.0/24 dev lo; ip route del 198.51.100.0/24");
            watch.text().contains("198.51.100.0")
        });
        watch
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.1.path().join("routes")).unwrap()
    }

    /// Changes of table 7925, which flowyard writes and BIRD reads.
    fn announcements(&self) -> Vec<String> {
        self.text().lines().filter(|line| line.contains("table 7925")).map(str::to_owned).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let (_killed, _waited) = (self.0.kill(), self.0.wait());
    }
}

/// Why balancer `balancer` does not announce its VIPs.
fn reasons(balancer: &Balancer) -> Vec<String> {
    let shown = balancer.lb(&["show"]);
    let routes = shown["routes"].as_array().unwrap().iter();
    routes.map(|route| route["why"].as_str().unwrap_or_default().to_owned()).collect()
}

/// No route is announced by a balancer without services, or without a backend that is up. Leaves three balancers that
/// announce both VIPs, and servers that run.
fn nothing_is_announced_without_a_table(fleet: &mut Fleet) {
    let watches: Vec<_> = fleet.site.balancers.iter().map(Watch::start).collect();
    let none = |what: &str| {
        let announced: Vec<_> = watches.iter().flat_map(Watch::announcements).collect();
        assert_eq!(announced, [] as [String; 0], "{what}");
    };
    // Neither etcd nor a file of the last good services.
    let refused = Balancer::refused(&fleet.site, &fleet.config(1));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    none("without etcd and without a file");

    // No service yet; then services whose servers do not run.
    fleet.start_etcd();
    fleet.start_balancer(1);
    wait_until("a whole start", || fleet.balancer(1).said().contains("running"));
    std::thread::sleep(std::time::Duration::from_millis(topology::AFTER_MS + 500));
    assert_eq!(reasons(fleet.balancer(1)), [] as [String; 0]);
    none("without services");
    fleet.put_services();
    fleet.start_balancer(2);
    fleet.start_balancer(3);
    fleet.keys().until(3, "current", 0);
    let no_backend = "no service of this address has a backend for new connections";
    for n in 1..=3 {
        wait_until("backends that are down", || {
            reasons(fleet.balancer(n)) == [no_backend, no_backend]
        });
    }
    std::thread::sleep(std::time::Duration::from_millis(topology::AFTER_MS));
    none("without a backend that is up");
    fleet.start_servers();
    let clock = clock();
    fleet.until_paths(&[1, 2, 3]);
    flowyard_testkit::note!(
        "nothing was announced without etcd and a file, without services, and without a backend that is up; with the servers \
         all balancers announced both VIPs after {} ms",
        clock() / 1_000_000
    );
    // A connection that is opened while a balancer does not yet know that a backend is up has another backend than Maglev
    // names later.
    topology::until_up(fleet, 3);
}

fn a_fleet_loses_no_request() {
    let _alone = alone();
    let clock = clock();
    let mut fleet = Fleet::new();
    nothing_is_announced_without_a_table(&mut fleet);
    fleet.start_clients();
    for _ in 0..rounds() {
        fleet.step("100 changes of the configuration", changes::hundred);
        fleet.step("wrong values", changes::mistakes);
        fleet.step("a balancer without etcd", losses::of_etcd);
        fleet.step("etcd without a quorum", losses::of_the_quorum);
        fleet.step("balancers without the router", losses::of_the_router);
        fleet.step("restarts of etcd", restarts::of_etcd);
        fleet.step("restarts of BIRD", restarts::of_bird);
        fleet.step("restarts of balancers", restarts::of_balancers);
        fleet.step("upgrades", restarts::upgrades);
        losses::kill(&mut fleet);
    }
    let total = fleet.end();
    flowyard_testkit::note!("{total}, in {:.0} s", clock() as f64 / 1e9);
}
