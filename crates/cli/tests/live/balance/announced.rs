//! Three load balancers whose VIPs a router learns by BGP: BIRD beside each balancer, and BIRD on the router, which
//! distributes flows over all announced paths.
//!
//! ```text
//!  flowyard ──route──> kernel, table 7925 ──learn──> BIRD 10.3.n.3 ──BGP──> BIRD 10.3.n.1, router ──multipath──> kernel
//! ```
//!
//! The kernel of a balancer has the address 10.3.n.3 on the interface that flowyard uses, and the next hop of the announced
//! routes is flowyard's address, 10.3.n.2.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use super::balancer::{Balancer, Config, Mode};
use super::cluster::{broken, connect};
use super::load::Web;
use super::modes::answers;
use super::servers::Farm;
use super::site::{Site, VIPS, vips};
use crate::yard::{clock, wait_until};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::sys;

flowyard_testkit::tests! {
    routers_follow_the_balancers,
}

const ANNOUNCE: &str = "[balance.announce]\nafter_ms = 500\nwithdraw_ms = 1000\n";

/// BIRD in a namespace.
struct Bird {
    child: Child,
    folder: TempDir,
}

impl Bird {
    fn start(net: &Net, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("bird.conf"), text).unwrap();
        let log = fs::File::create(path("log")).unwrap();
        let mut command = Command::new("bird");
        command.arg("-f").arg("-c").arg(path("bird.conf")).arg("-s").arg(path("ctl"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        sys::within(&mut command, &net.0);
        let child = command.spawn().unwrap();
        Self { child, folder }
    }

    /// The output of `birdc`, for the message of a failed test.
    fn show(&self) -> String {
        let ctl = self.folder.path().join("ctl");
        let mut all = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        for what in ["protocols all", "route all"] {
            let mut command = Command::new("birdc");
            command.arg("-s").arg(&ctl).arg("show").args(what.split(' '));
            let output = command.output().unwrap();
            all += &String::from_utf8_lossy(&output.stdout);
        }
        all
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        let (_killed, _waited) = (self.child.kill(), self.child.wait());
    }
}

/// BIRD beside balancer `n`: it learns the routes of table 7925 and announces them.
fn beside(site: &Site, n: usize) -> Bird {
    let net = &site.balancers[n - 1];
    net.sh(&format!(
        "echo 0 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore; \
         echo 0 > /proc/sys/net/ipv6/conf/default/disable_ipv6; ip addr add 10.3.{n}.3/24 dev west"
    ));
    let learn = |family: &str| {
        format!(
            "protocol kernel vips{family} {{ kernel table 7925; learn; {family} {{ import all; export none; }}; }}\n"
        )
    };
    Bird::start(
        net,
        &format!(
            "router id 10.3.{n}.3;\nprotocol device {{ }}\n{}{}\
             protocol bgp upstream {{\n local 10.3.{n}.3 as 65001;\n neighbor 10.3.{n}.1 as 65000;\n connect retry time 1;\n \
             connect delay time 1;\n error wait time 1, 2;\n \
             ipv4 {{ import none; export where proto = \"vipsipv4\"; next hop address 10.3.{n}.2; }};\n \
             ipv6 {{ import none; export where proto = \"vipsipv6\"; next hop address fd03:{n}::2; }};\n}}\n",
            learn("ipv4"),
            learn("ipv6"),
        ),
    )
}

/// BIRD on the router, in place of the routes that the site has.
fn on_router(site: &Site) -> Bird {
    site.router.sh(&format!("ip route del {}/32; ip -6 route del {}/128", VIPS[0], VIPS[1]));
    let peer = |n: usize| {
        format!(
            "protocol bgp lb{n} {{\n local 10.3.{n}.1 as 65000;\n neighbor 10.3.{n}.3 as 65001;\n passive;\n \
             ipv4 {{ import all; export none; }};\n ipv6 {{ import all; export none; }};\n}}\n"
        )
    };
    let peers: String = (1..=site.balancers.len()).map(peer).collect();
    Bird::start(
        &site.router,
        &format!(
            "router id 10.9.9.9;\nprotocol device {{ }}\n\
             protocol kernel k4 {{ merge paths on; ipv4 {{ export all; import none; }}; }}\n\
             protocol kernel k6 {{ merge paths on; ipv6 {{ export all; import none; }}; }}\n{peers}"
        ),
    )
}

/// The balancers to which the router sends each VIP.
fn paths(site: &Site) -> [Vec<usize>; 2] {
    let said = [format!("ip route show {}", VIPS[0]), format!("ip -6 route show {}", VIPS[1])]
        .map(|line| site.router.sh(&line));
    said.map(|said| {
        (1..=site.balancers.len()).filter(|n| said.contains(&format!("dev lb{n} "))).collect()
    })
}

/// Waits until the router sends both VIPs to these balancers; returns how long it took in milliseconds.
#[track_caller]
fn until_paths(site: &Site, birds: &[Bird], balancers: &[usize]) -> u64 {
    let clock = clock();
    let mut seen = paths(site);
    while seen.iter().any(|paths| paths != balancers) {
        let all = || birds.iter().map(Bird::show).collect::<Vec<_>>().join("\n====\n");
        assert!(clock() < 30_000_000_000, "{seen:?} in place of {balancers:?}\n{}", all());
        std::thread::sleep(Duration::from_millis(2));
        seen = paths(site);
    }
    clock() / 1_000_000
}

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
    let mut birds: Vec<_> = (1..=3).map(|n| beside(&site, n)).collect();
    birds.push(on_router(&site));
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
