//! PROXY protocol: nginx (`listen .. proxy_protocol`) and HAProxy (`accept-proxy`) learn the client's
//! address.

use std::time::Duration;

use super::balancer::{Balancer, Config, Mode};
use super::load::{Requests, Web, content};
use super::modes::{answers, through_narrow, upload};
use super::servers::{Farm, Kind};
use super::site::{Site, vips};
use crate::yard::{drops, wait_until};
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    servers_learn_the_clients_address,
    servers_that_expect_the_header_do_not_answer_without_it,
}

/// Size of the large file in bytes.
const LARGE: usize = 32 << 20;

fn servers_learn_the_clients_address() {
    let _alone = alone();
    let clock = crate::yard::clock();
    let site = Site::new(1, 2, Mode::FullNat);
    let file = content(LARGE);
    let farm = Farm::of(&site, &file, Kind::Proxied);
    let config = Config { web: ["proxy = \"v2\""; 2], cores: 2, ..Config::of(&site) };
    let balancer = Balancer::start(&site, config);
    answers(&site.client);
    let mut told = 0;
    for vip in vips() {
        let mut done = Requests::short(vip).run(&site.client, 60);
        done.add(Requests::kept(vip, 20).run(&site.client, 6));
        done.all_well(2);
        let mut by = [0, 0];
        for n in 0..24 {
            let (here, from, who) = site.client.within(move || {
                let mut web = Web::open((vip, 80).into(), Duration::from_secs(30)).unwrap();
                // The address is read by the first, second or third request.
                let who = web.get("/who", false).unwrap();
                (0..n % 3).for_each(|_| drop(web.get("/who", false).unwrap()));
                (web.here(), web.get("/from", true).unwrap(), who)
            });
            assert_eq!(from, format!("{} {}", here.ip(), here.port()), "{who}");
            by[usize::from(who == "b2")] += 1;
            told += 1;
            if who == "b1" {
                // nginx writes the log line after its answer.
                let log = farm.web[0][0].folder.path().join("log");
                let line = format!("{} {} /from\n", here.ip(), here.port());
                wait_until("the server's line about the client", || {
                    std::fs::read_to_string(&log).unwrap().contains(&line)
                });
            }
        }
        assert!(by.iter().all(|n| *n > 0), "{by:?}");
        let file = file.clone();
        site.client.within(move || {
            let mut web = Web::open((vip, 80).into(), Duration::from_secs(60)).unwrap();
            web.download("/files/big", &file).unwrap();
        });
        upload(&site, &farm, vip);
        // The packet quoted in an ICMP error has the sequence numbers of the backend's side.
        let (who, knows) = through_narrow(&site, vip);
        assert_eq!(knows, [who], "the backend that has learned the path MTU");
    }
    site.no_wrong_checksums();
    let lost = drops(&balancer.stop());
    flowyard_testkit::note!(
        "proxy: nginx and HAProxy learned {told} clients' addresses; 2 downloads of {} MiB whole; {:.1} s, dropped {lost:?}",
        LARGE >> 20,
        clock() as f64 / 1e9,
    );
    let about = ["no_service", "not_ip", "overrun"];
    assert_eq!(lost.iter().filter(|drop| !about.contains(&&*drop.0)).count(), 0, "{lost:?}");
}

/// Counter-check: without the header, these servers do not answer.
fn servers_that_expect_the_header_do_not_answer_without_it() {
    let _alone = alone();
    let site = Site::new(1, 2, Mode::FullNat);
    let farm = Farm::of(&site, &[], Kind::Proxied);
    let balancer = Balancer::start(&site, Config::of(&site));
    for vip in vips() {
        let done = Requests::short(vip).run(&site.client, 4);
        assert_eq!((done.requests, done.failed), (4, 4), "{done:?}");
    }
    balancer.stop();
    drop(farm);
}
