//! Three load balancers whose VIPs a router learns by BGP ([`routing`](super::routing)).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::balancer::{Balancer, Config, Mode};
use super::cluster::{broken, connect};
use super::load::Web;
use super::modes::answers;
use super::routing::{Fast, beside, on_router, paths, until_paths};
use super::servers::Farm;
use super::site::{Site, vips};
use crate::yard::{clock, wait_until};
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    routers_follow_the_balancers,
}

const ANNOUNCE: &str = "[balance.announce]\nafter_ms = 500\nwithdraw_ms = 1000\n";

/// Clients that open a connection for each request, until their end is requested.
struct Short {
    ends: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Short {
    fn start(site: &Site) -> Self {
        let (ends, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let client = |vip| {
            let (ends, served) = (Arc::clone(&ends), Arc::clone(&served));
            site.client.spawn(move || {
                let mut failed = Vec::new();
                while !ends.load(Ordering::Relaxed) {
                    let web = Web::open((vip, 80).into(), Duration::from_secs(30));
                    match web.and_then(|mut web| web.get("/who", false)) {
                        Ok(_) => drop(served.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => failed.push(error.to_string()),
                    }
                }
                failed
            })
        };
        let threads = vips().into_iter().map(client).collect();
        Self { ends, served, threads }
    }

    /// Requests that were served, and those that failed.
    fn end(self) -> (u64, Vec<String>) {
        self.ends.store(true, Ordering::Relaxed);
        let failed = self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (self.served.load(Ordering::Relaxed), failed)
    }
}

fn start(site: &Site, n: usize) -> Balancer {
    Balancer::start(site, Config { number: n, balance: ANNOUNCE, ..Config::of(site) })
}

fn announced(balancer: &Balancer) -> Vec<bool> {
    let shown = balancer.lb(&["show"]);
    let routes = shown["routes"].as_array().unwrap();
    routes.iter().map(|route| route["is_announced"].as_bool().unwrap()).collect()
}

fn routers_follow_the_balancers() {
    let _alone = alone();
    let site = Site::new(3, 3, Mode::Dsr);
    let _farm = Farm::start(&site, &[]);
    let mut birds: Vec<_> = (1..=3).map(|n| beside(&site, n, Fast::No)).collect();
    birds.push(on_router(&site, Fast::No));
    let (mut one, two, three) = (start(&site, 1), start(&site, 2), start(&site, 3));
    until_paths(&site, &birds, &[1, 2, 3]);
    assert_eq!(announced(&one), [true, true]);
    answers(&site.client);
    let mut kept = connect(&site);
    let short = Short::start(&site);

    // An upgrade: the routes stay.
    one.upgrade(&site);
    assert_eq!(paths(&site), [vec![1, 2, 3], vec![1, 2, 3]]);
    wait_until("the state of the announcements", || announced(&one) == [true, true]);
    assert!(!one.said().contains("withdrawn"), "{}", one.said());
    assert_eq!((broken(&mut kept), paths(&site)), (0, [vec![1, 2, 3], vec![1, 2, 3]]));

    // By hand: routers send nothing to the balancer, which goes on.
    one.lb(&["withdraw"]);
    let withdrawn = until_paths(&site, &birds, &[2, 3]);
    assert_eq!((broken(&mut kept), announced(&one)), (0, vec![false, false]));
    one.lb(&["withdraw", "--undo"]);
    let back = until_paths(&site, &birds, &[1, 2, 3]);
    assert_eq!(broken(&mut kept), 0);

    // No backend of any service of the VIP gets new connections: other balancers may have some.
    one.change(|config| config.backends.iter_mut().for_each(|backend| backend.drain = true));
    let drained = until_paths(&site, &birds, &[2, 3]);
    one.change(|config| config.backends.iter_mut().for_each(|backend| backend.drain = false));
    until_paths(&site, &birds, &[1, 2, 3]);

    // kill -9: the kernel removes the routes.
    two.kill();
    let killed = until_paths(&site, &birds, &[1, 3]);
    assert_eq!(broken(&mut kept), 0);
    let two = start(&site, 2);
    until_paths(&site, &birds, &[1, 2, 3]);
    assert_eq!(broken(&mut kept), 0);

    // A planned end: the route goes first, and the balancer ends a second later. Nothing is lost.
    let clock = clock();
    let ending = std::thread::spawn(move || three.stop());
    until_paths(&site, &birds, &[1, 2]);
    assert!(!ending.is_finished(), "the balancer has ended before its routes");
    let counters = ending.join().unwrap();
    assert!(clock() > 1_000_000_000, "withdraw_ms has not passed");
    assert_eq!(broken(&mut kept), 0);
    let (served, failed) = short.end();
    assert!(failed.is_empty() && served > 100, "{served} served, failed: {failed:?}");
    flowyard_testkit::note!(
        "{served} short requests and {} kept connections: none failed; until the router knew: withdrawal by hand {withdrawn} ms, \
         undone {back} ms, all backends drained {drained} ms, kill -9 {killed} ms; the ended balancer had received {} frames",
        kept.len(),
        counters["total"]["rx_frames"],
    );
    one.stop();
    two.stop();
    // The interface of the routes is gone with the process.
    wait_until("the end of the interface", || {
        !site.balancers[0].sh("ip -o link").contains("flowyard-vips")
    });
}
