//! A load balancer whose services are in a document that nginx serves.
//!
//! ```text
//!  files/lb.toml ──nginx, on the router──10.3.1.1── the balancer: its kernel has 10.3.1.3 on the interface of flowyard
//! ```

use serde_json::Value;

use super::balancer::{Balancer, Config, Mode};
use super::cluster::{broken, connect};
use super::modes::answers;
use super::servers::{Farm, nginx};
use super::site::{BACKEND, Site, VIPS, mac};
use crate::yard::wait_until;
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    a_balancer_follows_a_document_and_goes_on_without_it,
}

/// The services of both IP versions, with these backends.
fn document(backends: &[usize]) -> String {
    let mut text = String::new();
    for (vip, name, net) in [(VIPS[0], "web4", "10.2.0."), (VIPS[1], "web6", "fd02::")] {
        text += &format!(
            "[[service]]\nname = \"{name}\"\nvip = \"{vip}\"\nproto = \"tcp\"\nport = 80\nmode = \"dsr\"\n"
        );
        for n in backends {
            text += &format!(
                "[[service.backend]]\nname = \"b{n}\"\naddr = \"{net}{n}\"\nexit = {{ port = \"east\", next_hop = \"{}\" }}\n",
                mac(BACKEND, *n)
            );
        }
    }
    text
}

/// The number of backends of each service.
fn backends(balancer: &Balancer) -> Vec<usize> {
    let shown = balancer.lb(&["show"]);
    let count = |service: &Value| service["backends"].as_array().unwrap().len();
    shown["services"].as_array().unwrap().iter().map(count).collect()
}

fn a_balancer_follows_a_document_and_goes_on_without_it() {
    let _alone = alone();
    let site = Site::new(1, 2, Mode::Dsr);
    site.balancers[0].sh(
        "echo 0 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore; \
         ip addr add 10.3.1.3/24 dev west",
    );
    let _farm = Farm::start(&site, &[]);
    let folder = tempfile::tempdir().unwrap();
    let put = |text: &str| {
        // Renamed into place, so that it is never served in part.
        std::fs::write(folder.path().join("new"), text).unwrap();
        std::fs::rename(folder.path().join("new"), folder.path().join("lb.toml")).unwrap();
    };
    put(&document(&[1, 2]));
    let server = nginx(&site.router, "config", 8000, folder.path());
    let cluster = format!(
        "kind = \"http\"\nurl = \"http://10.3.1.1:8000/files/lb.toml\"\nstate = {:?}\npoll_ms = 200\ntimeout_ms = 1000",
        folder.path().join("state.json")
    );
    let start = || {
        let (cluster, seed) = (Some(cluster.clone()), 0x0012_3456_789a_bcde);
        Balancer::start(&site, Config { seed, cluster, ..Config::of(&site) })
    };
    let balancer = start();
    assert_eq!(backends(&balancer), [2, 2]);
    answers(&site.client);
    let mut kept = connect(&site);
    put(&document(&[1, 2]).replace("fd02::2", "nowhere"));
    wait_until("the refusal", || balancer.said().contains("refused, nothing changed"));
    assert!(
        balancer.said().contains("/files/lb.toml:27:8: 'nowhere' is not an IP address"),
        "{}",
        balancer.said()
    );
    put("");
    wait_until("the empty document", || balancer.said().contains("has no services any more"));
    assert_eq!((backends(&balancer), broken(&mut kept)), (vec![2, 2], 0));
    put(&document(&[1]));
    wait_until("one backend", || backends(&balancer) == [1, 1]);
    answers(&site.client);
    // Without the server: forwarding goes on, and a start uses the last good services.
    drop(server);
    wait_until("the outage", || {
        balancer.said().contains("cannot be read, the services in use stay")
    });
    answers(&site.client);
    balancer.kill();
    let balancer = start();
    assert!(balancer.said().contains("the last good services of the file in 'state' are used"));
    assert_eq!(backends(&balancer), [1, 1]);
    put(&document(&[1, 2]));
    let _server = nginx(&site.router, "config", 8000, folder.path());
    wait_until("two backends", || backends(&balancer) == [2, 2]);
    answers(&site.client);
    balancer.stop();
}
