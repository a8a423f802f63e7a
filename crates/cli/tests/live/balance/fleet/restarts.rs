//! Everything is restarted, one after the other, and each balancer is upgraded.

use super::topology::{BALANCERS, Fleet, MEMBERS};
use super::{WEB, clock, wait_until};

/// Each member of etcd.
pub(crate) fn of_etcd(fleet: &mut Fleet) -> String {
    let (_, checksum) = fleet.until_current(0);
    for k in 1..=MEMBERS {
        fleet.stop_member(k);
        // Two members are a majority.
        fleet.until_current(fleet.keys().put_one(WEB[0], 2, "weight = 2"));
        fleet.start_member(k);
        fleet.keys().are_there();
        let revision = fleet.keys().put_one(WEB[0], 2, "");
        assert_eq!(fleet.until_current(revision).1, checksum);
    }
    "while each member was away, all nodes followed a change".into()
}

/// BIRD of each balancer, whose routes go meanwhile, and BIRD of the router, whose routes stay.
pub(crate) fn of_bird(fleet: &mut Fleet) -> String {
    for n in 1..=BALANCERS {
        let others: Vec<_> = (1..=BALANCERS).filter(|other| *other != n).collect();
        fleet.birds[n - 1].stop();
        fleet.until_paths(&others);
        fleet.kept().round();
        fleet.birds[n - 1].start_again(&[]);
        fleet.until_paths(&[1, 2, 3]);
    }
    let router = BALANCERS;
    fleet.birds[router].stop();
    fleet.all_are_paths();
    fleet.birds[router].start_again(&["-R"]);
    wait_until("the sessions of the router", || fleet.birds[router].sessions() == BALANCERS);
    // Until then, it does not change routes in the kernel.
    let clock = clock();
    wait_until("the end of the recovery", || !fleet.birds[router].is_recovering());
    fleet.all_are_paths();
    format!(
        "routes of the router stayed; it followed changes {} ms after all sessions were established again",
        clock() / 1_000_000
    )
}

/// Each balancer ends in order: its routes go, it forwards for a second, and it ends.
pub(crate) fn of_balancers(fleet: &mut Fleet) -> String {
    let mut times = Vec::new();
    for n in 1..=BALANCERS {
        let others: Vec<_> = (1..=BALANCERS).filter(|other| *other != n).collect();
        let balancer = fleet.take(n);
        let began = clock();
        let ending = std::thread::spawn(move || balancer.stop());
        let withdrawn = fleet.until_paths(&others);
        assert!(!ending.is_finished(), "balancer {n} has ended before its routes");
        ending.join().unwrap();
        let ended = began() / 1_000_000;
        assert!(ended >= 1000, "withdraw_ms has not passed");
        fleet.kept().round();
        fleet.start_balancer(n);
        let back = fleet.until_paths(&[1, 2, 3]);
        times.push(format!(
            "balancer {n}: withdrawn after {withdrawn} ms, ended after {ended} ms, announced {back} ms after its start"
        ));
    }
    fleet.until_current(0);
    times.join(", ")
}

/// Another process takes over from each balancer.
pub(crate) fn upgrades(fleet: &mut Fleet) -> String {
    for n in 1..=BALANCERS {
        fleet.upgrade(n);
        fleet.all_are_paths();
        wait_until("a whole start", || fleet.balancer(n).said().contains("running"));
        fleet.kept().round();
        let said = fleet.balancer(n).said();
        assert!(!said.contains("withdrawn"), "{said}");
    }
    fleet.until_current(0);
    "routes and connections stayed".into()
}
