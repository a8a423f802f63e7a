//! Each mode, by both families.

use std::time::Duration;

use crate::balancer::{Balancer, Config, Mode};
use crate::load::{Requests, Web};
use crate::net::{Net, alone};
use crate::servers::nginx;
use crate::site::{Site, vips};
use crate::yard::{drops, total, wait_until};
use crate::{skipped, tell};

/// Waits until the VIPs answer.
pub(crate) fn answers(client: &Net) {
    for vip in vips() {
        wait_until("the VIP", || {
            client.within(move || {
                let web = Web::open((vip, 80).into(), Duration::from_millis(300));
                web.and_then(|mut web| web.get("/who", true)).is_ok()
            })
        });
    }
}

#[test]
fn dnat() {
    if skipped() {
        return;
    }
    let _alone = alone();
    let site = Site::new(1, 2, Mode::Dnat);
    let files = tempfile::tempdir().unwrap();
    let servers = [1, 2].map(|n| nginx(&site.backends[n - 1], &format!("b{n}"), 80, files.path()));
    let balancer = Balancer::start(&site, Config::of(&site));
    answers(&site.client);
    for vip in vips() {
        let done = Requests::short(vip).run(&site.client, 100);
        done.all_well(2);
        tell(format_args!("{vip}: {} requests: {:?}", done.requests, done.by));
    }
    site.no_wrong_checksums();
    let books = balancer.stop();
    tell(format_args!("{} frames, dropped {:?}", total(&books, "rx_frames"), drops(&books)));
    drop(servers);
}
