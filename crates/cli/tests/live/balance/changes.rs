//! Backends are added, removed and restarted under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::balancer::{Backend, Balancer, Config, Mode};
use super::load::{Load, Requests, Web, content};
use super::modes::answers;
use super::servers::Farm;
use super::site::{Site, vips};
use crate::yard::{drops, wait_until};
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    drained_backends_restart_and_no_request_fails,
    downloads_continue_while_backends_are_added_and_removed,
}

/// Clients of both families, with short and with kept connections.
pub(crate) fn clients() -> Vec<Requests> {
    let pause = Duration::from_millis(4);
    let of = |vip| {
        [Requests { pause, ..Requests::short(vip) }, Requests { pause, ..Requests::kept(vip, 25) }]
    };
    vips().into_iter().flat_map(|vip| [of(vip), of(vip)]).flatten().collect()
}

/// Waits until no client is connected to the web server of backend `n`.
pub(crate) fn empty(site: &Site, n: usize) {
    let left =
        || site.backends[n - 1].sh("ss -Htan state connected exclude time-wait 'sport = :80'");
    // Twice, because a SYN may be on its way.
    wait_until("a drained backend", || left().is_empty() && left().is_empty());
}

fn drained_backends_restart_and_no_request_fails() {
    let _alone = alone();
    for mode in [Mode::Dnat, Mode::Dsr] {
        let clock = crate::yard::clock();
        let site = Site::new(1, 3, mode);
        let mut farm = Farm::start(&site, &[]);
        let mut balancer = Balancer::start(&site, Config::of(&site));
        answers(&site.client);
        let load = Load::start(&site.client, &clients());
        for n in [1, 2, 3] {
            balancer.drain(n, true);
            empty(&site, n);
            farm.stop_one(n);
            std::thread::sleep(Duration::from_millis(200)); // clients continue
            farm.start_one(&site, n);
            balancer.drain(n, false);
            wait_until("connections of its own", || {
                !site.backends[n - 1].sh("ss -Htn state established 'sport = :80'").is_empty()
            });
        }
        let done = load.stop();
        done.all_well(3);
        flowyard_testkit::note!(
            "{mode:?}: three restarts in {:.1} s, {} requests, none failed: {:?}",
            clock() as f64 / 1e9,
            done.requests,
            done.by
        );
        // Counter-check: without draining first, requests fail.
        let load = Load::start(&site.client, &clients());
        wait_until("connections", || {
            !site.backends[0].sh("ss -Htn state established 'sport = :80'").is_empty()
        });
        farm.stop_one(1);
        std::thread::sleep(Duration::from_millis(200));
        let done = load.stop();
        assert!(done.failed > 0, "{done:?}");
        flowyard_testkit::note!(
            "{mode:?}: not drained: {} of {} requests failed",
            done.failed,
            done.requests
        );
        balancer.stop();
    }
}

fn downloads_continue_while_backends_are_added_and_removed() {
    let _alone = alone();
    let file: Arc<[u8]> = content(200 << 20).into();
    for mode in [Mode::FullNat, Mode::Dsr] {
        let clock = crate::yard::clock();
        let site = Site::new(1, 3, mode);
        let farm = Farm::start(&site, &file);
        let mut config = Config::of(&site);
        config.backends.truncate(2);
        let mut balancer = Balancer::start(&site, config);
        answers(&site.client);
        let enough = Arc::new(AtomicBool::new(false));
        let downloads = [0, 1].map(|family| {
            let (file, enough) = (Arc::clone(&file), Arc::clone(&enough));
            site.client.spawn(move || {
                let mut web =
                    Web::open((vips()[family], 80).into(), Duration::from_secs(60)).unwrap();
                let (who, mut times) = (web.get("/who", false).unwrap(), 0);
                while times == 0 || !enough.load(Ordering::Relaxed) {
                    web.download("/files/big", &file).unwrap();
                    times += 1;
                }
                assert_eq!(web.get("/who", false).unwrap(), who);
                times
            })
        });
        wait_until("the downloads", || {
            let of = |n: usize| site.backends[n].sh("ss -Htn state established 'sport = :80'");
            of(0).lines().count() + of(1).lines().count() == 2
        });
        let load = Load::start(&site.client, &clients());
        let (mut changes, third) = (0, Backend { n: 3, drain: false });
        for _ in 0..3 {
            balancer.change(|config| config.backends.insert(0, third));
            wait_until("the third backend", || {
                !site.backends[2].sh("ss -Htn state established 'sport = :80'").is_empty()
            });
            balancer.drain(1, true);
            balancer.drain(3, true);
            balancer.drain(1, false);
            empty(&site, 3);
            balancer.change(|config| config.backends.retain(|b| b.n != 3));
            changes += 5;
        }
        enough.store(true, Ordering::Relaxed);
        let times: u32 = downloads.into_iter().map(|thread| thread.join().unwrap()).sum();
        let done = load.stop();
        done.all_well(3);
        site.no_wrong_checksums();
        let lost = drops(&balancer.stop());
        flowyard_testkit::note!(
            "{mode:?}: {times} downloads of 200 MiB whole, beside {changes} changes and {} requests; {:.1} s, dropped {lost:?}",
            done.requests,
            clock() as f64 / 1e9,
        );
        drop(farm);
    }
}
