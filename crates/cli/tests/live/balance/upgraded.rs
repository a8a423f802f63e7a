//! A balancer is upgraded under load: another process takes over, and no request fails.

use std::time::Duration;

use super::balancer::{Balancer, Config, Mode};
use super::changes::clients;
use super::load::Load;
use super::modes::answers;
use super::servers::Farm;
use super::site::Site;
use crate::yard::{drops, total, wait_until};
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    a_balancer_is_upgraded_and_no_request_fails,
    what_was_set_by_hand_stays,
}

/// Upgrades of each kind.
const ROUNDS: u32 = 5;

fn a_balancer_is_upgraded_and_no_request_fails() {
    let _alone = alone();
    for (mode, kind) in [
        (Mode::Dnat, "af_packet"),
        (Mode::FullNat, "af_packet"),
        (Mode::Dsr, "af_packet"),
        (Mode::Dnat, "af_xdp"),
    ] {
        let site = Site::new(1, 3, mode);
        let _farm = Farm::start(&site, &[]);
        // Only the table of connections knows where this choice has sent a connection, and next hops must be known.
        let config = Config { choice: "roundrobin", kind, asks: true, ..Config::of(&site) };
        if kind == "af_xdp" {
            site.complete_checksums();
        }
        let mut balancer = Balancer::start(&site, config.clone());
        answers(&site.client);
        let load = Load::start(&site.client, &clients());
        let mut frames = 0;
        for round in 0..ROUNDS {
            std::thread::sleep(Duration::from_millis(300)); // clients continue
            let counters = balancer.upgrade(&site);
            frames += total(&counters, "rx_frames");
            // Messages of neighbours, and packets of other protocols and for none of the services.
            // The first process has started without the MAC addresses of next hops; the others have got them.
            let known: &[&str] = match round {
                0 => &["no_service", "not_ip", "taken", "unresolved"],
                _ => &["no_service", "not_ip", "taken"],
            };
            let drops = drops(&counters).into_iter();
            let lost: Vec<_> = drops.filter(|(reason, _)| !known.contains(&&**reason)).collect();
            assert_eq!(lost, [], "{counters:#}");
        }
        std::thread::sleep(Duration::from_millis(300));
        let done = load.stop();
        done.all_well(3);
        flowyard_testkit::note!(
            "{mode:?}, {kind}: {ROUNDS} upgrades, {} requests, none failed, {frames} frames by the processes that ended",
            done.requests
        );
        // Counter-check: without a hand-over, kept connections reach other backends, and fail. A client may have none at the
        // moment of a restart, so there are several.
        let load = Load::start(&site.client, &clients());
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(300));
            balancer.kill();
            balancer = Balancer::start(&site, config.clone());
        }
        std::thread::sleep(Duration::from_millis(300));
        let done = load.stop();
        assert!(done.failed > 0, "{mode:?}, {kind}: {done:?}");
        balancer.stop();
    }
}

fn what_was_set_by_hand_stays() {
    let _alone = alone();
    let site = Site::new(1, 3, Mode::Dnat);
    let _farm = Farm::start(&site, &[]);
    let mut balancer = Balancer::start(&site, Config::of(&site));
    answers(&site.client);
    balancer.lb(&["drain", "web4/b1"]);
    balancer.lb(&["set-weight", "web4/b2", "7"]);
    let before: Vec<_> = (1..=3).map(|n| balancer.backend("web4", n)).collect();
    balancer.upgrade(&site);
    wait_until("the control socket", || balancer.said().contains("running"));
    for (n, before) in (1..=3).zip(before) {
        let after = balancer.backend("web4", n);
        for key in ["state", "weight", "set_weight", "drained"] {
            assert_eq!(after.get(key), before.get(key), "{n} {key}: {after:#} {before:#}");
        }
    }
    balancer.stop();
}
