//! Health checks that the balancer's kernel sends by the interface that the balancer uses, with two ports
//! and with one: their answers are not translated, and the traffic of clients is.

use std::time::Duration;

use super::balancer::{Balancer, Config, Mode};
use super::load::Requests;
use super::modes::answers;
use super::servers::{Farm, Kind};
use super::site::{Site, vips};
use crate::yard::wait_until;
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    checks_by_the_data_interface_with_dnat,
    checks_by_the_data_interface_with_fullnat,
    checks_by_the_data_interface_with_af_xdp,
    checks_by_the_only_interface_with_dnat,
    checks_by_the_only_interface_with_fullnat,
}

const WEB: [&str; 2] = ["web4", "web6"];
const CHECKS: [&str; 2] = [
    "check = { kind = \"http\", interval_ms = 200, timeout_ms = 5000, rise = 2, fall = 2, path = \"/who\" }",
    "check = { kind = \"tcp\", interval_ms = 200, timeout_ms = 5000, rise = 2, fall = 2 }",
];

fn checked(mode: Mode, one_armed: bool, kind: &'static str) {
    let _alone = alone();
    let site = Site::new(1, 2, mode);
    site.own_address(1);
    if one_armed {
        site.one_armed();
    }
    if kind == "af_xdp" {
        site.complete_checksums();
    }
    let mut farm = Farm::of(&site, &[], Kind::Nginx);
    let returns = mode == Mode::FullNat; // the router is found by its packets
    let config =
        Config { web: CHECKS, kind, shared: true, one_armed, returns, ..Config::of(&site) };
    let balancer = Balancer::start(&site, config);
    let checks = |service: &str, n: usize, what: &str| {
        balancer.backend(service, n)["check"][what].as_u64().unwrap_or(0)
    };
    let all = || WEB.iter().flat_map(|service| [1, 2].map(|n| (*service, n)));
    wait_until("some checks of all", || all().all(|(service, n)| checks(service, n, "checks") > 5));
    for (service, n) in all() {
        assert_eq!(checks(service, n, "failures"), 0, "{service}/b{n}");
        let backend = balancer.backend(service, n);
        // The balancer has seen the answers, too, and taken none of them for a reply.
        assert_eq!(backend["counters"]["out_packets"], 0, "{backend:#}");
        assert_eq!(backend["state"], "up");
    }
    answers(&site.client);
    for vip in vips() {
        let done = Requests::short(vip).run(&site.client, 60);
        assert_eq!(done.by.len(), 2, "{done:?}; {}", balancer.said());
        done.all_well(2);
        Requests::kept(vip, 10).run(&site.client, 30).all_well(2);
    }
    farm.stop_one(1);
    wait_until("a backend that is down", || {
        WEB.iter().all(|service| balancer.backend(service, 1)["state"] == "down")
    });
    farm.start_one(&site, 1);
    wait_until("a backend that is up again", || {
        WEB.iter().all(|service| balancer.backend(service, 1)["state"] == "up")
    });
    std::thread::sleep(Duration::from_millis(300));
    for vip in vips() {
        Requests::short(vip).run(&site.client, 40).all_well(2);
    }
    site.no_wrong_checksums();
    balancer.stop();
}

fn checks_by_the_data_interface_with_dnat() {
    checked(Mode::Dnat, false, "af_packet");
}

fn checks_by_the_data_interface_with_fullnat() {
    checked(Mode::FullNat, false, "af_packet");
}

fn checks_by_the_data_interface_with_af_xdp() {
    checked(Mode::Dnat, false, "af_xdp");
}

fn checks_by_the_only_interface_with_dnat() {
    checked(Mode::Dnat, true, "af_packet");
}

fn checks_by_the_only_interface_with_fullnat() {
    checked(Mode::FullNat, true, "af_packet");
}
