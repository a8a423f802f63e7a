//! Backends that are drained with `flowyard lb` and restarted, and health checks of real servers that are
//! killed and started again.

use std::time::Duration;

use super::balancer::{Balancer, Config, Mode};
use super::changes::clients;
use super::load::{Load, Requests};
use super::modes::answers;
use super::servers::{Farm, Kind};
use super::site::{Site, vips};
use crate::yard::wait_until;
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    drained_by_hand_backends_restart_and_no_request_fails,
    a_killed_server_is_found_by_http_and_tcp,
    a_killed_server_is_found_by_a_command,
}

/// The services of web servers.
const WEB: [&str; 2] = ["web4", "web6"];

/// Drains backend `n` in both services; `more` may be `--undo`.
fn drain(balancer: &Balancer, n: usize, more: &[&str]) {
    for service in WEB {
        let backend = format!("{service}/b{n}");
        balancer.lb(&[&["drain", &backend], more].concat());
    }
}

fn drained_by_hand_backends_restart_and_no_request_fails() {
    let _alone = alone();
    for mode in [Mode::Dnat, Mode::Dsr] {
        let clock = crate::yard::clock();
        let site = Site::new(1, 3, mode);
        let mut farm = Farm::of(&site, &[], Kind::Nginx);
        // A short time, so that closed connections are soon removed.
        let config = Config { balance: "closing_ms = 500", ..Config::of(&site) };
        let balancer = Balancer::start(&site, config);
        answers(&site.client);
        let load = Load::start(&site.client, &clients());
        for n in [1, 2, 3] {
            let connections =
                || WEB.map(|service| balancer.backend(service, n)["connections"].as_u64());
            wait_until("connections of its own", || connections().iter().all(|n| *n > Some(0)));
            drain(&balancer, n, &[]);
            wait_until("a drained backend", || connections() == [Some(0); 2]);
            for service in WEB {
                let backend = balancer.backend(service, n);
                assert_eq!(
                    (&backend["manually_drained"], &backend["weight"]),
                    (&true.into(), &0.0.into())
                );
            }
            // The backend's kernel agrees that there is no connection left.
            let left = site.backends[n - 1]
                .sh("ss -Htan state connected exclude time-wait exclude last-ack 'sport = :80'");
            assert_eq!(left, "", "backend {n}");
            farm.stop_one(n);
            std::thread::sleep(Duration::from_millis(200)); // clients continue
            farm.start_one(&site, n);
            drain(&balancer, n, &["--undo"]);
        }
        wait_until("connections of the last one", || {
            balancer.backend(WEB[0], 3)["connections"].as_u64() > Some(0)
        });
        let done = load.stop();
        done.all_well(3);
        flowyard_testkit::note!(
            "{mode:?}: three nginx restarted, drained by lb drain, in {:.1} s: {} requests, none failed: {:?}",
            clock() as f64 / 1e9,
            done.requests,
            done.by
        );
        balancer.stop();
    }
}

/// Seconds between two checks.
const INTERVAL: f64 = 0.4;
/// Failed checks until a backend is down.
const FALL: u64 = 2;

/// Kills and restarts the server of backend 1, with the check in `services` for each IP version.
fn checked(services: [&'static str; 2]) {
    let _alone = alone();
    let site = Site::new(1, 3, Mode::Dnat);
    site.manage(1);
    let mut farm = Farm::of(&site, &[], Kind::Nginx);
    let balancer = Balancer::start(&site, Config { web: services, ..Config::of(&site) });
    answers(&site.client);
    let state = |service: &str, n: usize| balancer.backend(service, n)["state"].clone();
    wait_until("checks of all", || {
        WEB.iter().all(|service| {
            (1..=3).all(|n| balancer.backend(service, n)["check"]["checks"].as_u64() > Some(0))
        })
    });
    for service in WEB {
        for n in 1..=3 {
            let backend = balancer.backend(service, n);
            assert_eq!(
                (&backend["state"], &backend["check"]["failures"]),
                (&"up".into(), &0.into()),
                "{backend:#}"
            );
        }
    }
    let clock = crate::yard::clock();
    farm.stop_one(1);
    let mut down = [None; 2];
    wait_until("a backend that is down", || {
        for (family, service) in WEB.iter().enumerate() {
            if down[family].is_none() && state(service, 1) == "down" {
                down[family] = Some(clock() as f64 / 1e9);
            }
        }
        down.iter().all(Option::is_some)
    });
    let down = down.map(Option::unwrap);
    // Checks are at most a tenth late, and are refused at once. The rest allows for a busy machine.
    let most = FALL as f64 * INTERVAL * 1.1 + 3.0;
    assert!(down.iter().all(|s| *s < most), "{down:?}, {most}");
    for (service, vip) in WEB.iter().zip(vips()) {
        let backend = balancer.backend(service, 1);
        assert!(backend["check"]["failures"].as_u64() >= Some(FALL), "{backend:#}");
        assert_eq!(backend["share"], 0.0);
        let mut done = Requests::short(vip).run(&site.client, 60);
        done.add(Requests::kept(vip, 10).run(&site.client, 6));
        done.all_well(2);
    }
    farm.start_one(&site, 1);
    let clock = crate::yard::clock();
    wait_until("a backend that is up again", || {
        WEB.iter().all(|service| state(service, 1) == "up")
    });
    let up = clock() as f64 / 1e9;
    for vip in vips() {
        Requests::short(vip).run(&site.client, 60).all_well(3);
    }
    let said = balancer.said();
    assert!(said.contains("b1"), "{said}");
    flowyard_testkit::note!(
        "{}, {}: down {:.1} and {:.1} s after the kill, up {up:.1} s after the start",
        kind(services[0]),
        kind(services[1]),
        down[0],
        down[1]
    );
    balancer.stop();
}

/// The kind of a check.
fn kind(check: &str) -> &str {
    check.split('"').nth(1).unwrap_or_default()
}

fn a_killed_server_is_found_by_http_and_tcp() {
    checked([
        "check = { kind = \"http\", interval_ms = 400, timeout_ms = 5000, rise = 2, fall = 2, path = \"/who\", expect = \"b\" }",
        "check = { kind = \"tcp\", interval_ms = 400, timeout_ms = 5000, rise = 2, fall = 2 }",
    ]);
}

fn a_killed_server_is_found_by_a_command() {
    checked([
        "check = { kind = \"command\", interval_ms = 400, timeout_ms = 5000, rise = 2, fall = 2, \
         command = [\"sh\", \"-c\", \"curl -sf -o /dev/null --noproxy '*' http://$FLOWYARD_ADDRESS/who\"] }",
        "check = { kind = \"command\", interval_ms = 400, timeout_ms = 5000, rise = 2, fall = 2, \
         command = [\"sh\", \"-c\", \"curl -sfg -o /dev/null --noproxy '*' http://[$FLOWYARD_ADDRESS]:$FLOWYARD_PORT/who\"] }",
    ]);
}
