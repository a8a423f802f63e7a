//! BIRD beside each balancer, and BIRD on the router, which distributes flows over all announced paths.
//!
//! ```text
//!  flowyard ──route──> kernel, table 7925 ──learn──> BIRD 10.3.n.3 ──BGP──> BIRD 10.3.n.1, router ──multipath──> kernel
//! ```
//!
//! The kernel of a balancer has the address 10.3.n.3 on the interface that flowyard uses, and the next hop of the announced
//! routes is flowyard's address, 10.3.n.2.

use std::fs;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::site::{Site, VIPS};
use crate::yard::{clock, wait_until};
use flowyard_livekit::net::Net;
use flowyard_livekit::sys;

/// Whether BIRD detects by BFD that the other end of a link does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fast {
    No,
    /// After half a second. The router's BIRD leaves its routes in the kernel when it ends, and takes them back when it
    /// starts again (graceful restart).
    Bfd,
}

impl Fast {
    /// The protocol, and the line of a BGP protocol that uses it.
    const fn text(self) -> [&'static str; 2] {
        match self {
            Self::No => ["", ""],
            Self::Bfd => [
                "protocol bfd { interface \"*\" { min rx interval 100 ms; min tx interval 100 ms; multiplier 5; }; }\n",
                " bfd;\n",
            ],
        }
    }
}

/// BIRD in a namespace.
pub(crate) struct Bird {
    net: Net,
    child: Child,
    folder: TempDir,
}

impl Bird {
    fn start(net: &Net, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("bird.conf"), text).unwrap();
        let net = Net(net.0.try_clone().unwrap());
        let child = Self::spawn(&net, &folder, &[]);
        Self { net, child, folder }
    }

    fn spawn(net: &Net, folder: &TempDir, more: &[&str]) -> Child {
        let path = |name: &str| folder.path().join(name);
        let log = fs::File::options().append(true).create(true).open(path("log")).unwrap();
        // It answers within the time of BFD, whatever else the machine does.
        let mut command = Command::new("nice");
        command
            .args(["-n", "-10", "bird", "-f", "-c"])
            .arg(path("bird.conf"))
            .arg("-s")
            .arg(path("ctl"))
            .args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        sys::within(&mut command, &net.0);
        command.spawn().unwrap()
    }

    /// Ends it in order, by SIGTERM.
    pub(crate) fn stop(&mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        wait_until("the end of BIRD", || self.child.try_wait().unwrap().is_some());
    }

    /// Starts it again with more arguments.
    pub(crate) fn start_again(&mut self, more: &[&str]) {
        self.child = Self::spawn(&self.net, &self.folder, more);
    }

    /// The number of BGP sessions that are established.
    pub(crate) fn sessions(&self) -> usize {
        self.birdc("protocols").matches("Established").count()
    }

    /// Whether it was started with `-R` and still waits for its neighbours, before it changes routes in the kernel.
    pub(crate) fn is_recovering(&self) -> bool {
        self.birdc("status").contains("recovery in progress")
    }

    fn birdc(&self, what: &str) -> String {
        let mut command = Command::new("birdc");
        command.arg("-s").arg(self.folder.path().join("ctl")).arg("show").args(what.split(' '));
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    }

    /// The output of `birdc`, for the message of a failed test.
    pub(crate) fn show(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        ["protocols all", "route all"].iter().fold(log, |all, what| all + &self.birdc(what))
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        let (_killed, _waited) = (self.child.kill(), self.child.wait());
    }
}

/// BIRD beside balancer `n`: it learns the routes of table 7925 and announces them.
pub(crate) fn beside(site: &Site, n: usize, fast: Fast) -> Bird {
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
    let [bfd, by_bfd] = fast.text();
    Bird::start(
        net,
        &format!(
            "router id 10.3.{n}.3;\nprotocol device {{ }}\n{}{}{bfd}\
             protocol bgp upstream {{\n local 10.3.{n}.3 as 65001;\n neighbor 10.3.{n}.1 as 65000;\n connect retry time 1;\n \
             connect delay time 1;\n error wait time 1, 2;\n{by_bfd} \
             ipv4 {{ import none; export where proto = \"vipsipv4\"; next hop address 10.3.{n}.2; }};\n \
             ipv6 {{ import none; export where proto = \"vipsipv6\"; next hop address fd03:{n}::2; }};\n}}\n",
            learn("ipv4"),
            learn("ipv6"),
        ),
    )
}

/// BIRD on the router, in place of the routes that the site has.
pub(crate) fn on_router(site: &Site, fast: Fast) -> Bird {
    site.router.sh(&format!("ip route del {}/32; ip -6 route del {}/128", VIPS[0], VIPS[1]));
    let [bfd, by_bfd] = fast.text();
    let (restart, keep, by_restart) = match fast {
        Fast::No => ("", "", ""),
        Fast::Bfd => {
            ("graceful restart wait 15;\n", "persist; graceful restart;", " graceful restart on;\n")
        }
    };
    let peer = |n: usize| {
        format!(
            "protocol bgp lb{n} {{\n local 10.3.{n}.1 as 65000;\n neighbor 10.3.{n}.3 as 65001;\n passive;\n error wait time 1, 2;\n{by_bfd}{by_restart} \
             ipv4 {{ import all; export none; }};\n ipv6 {{ import all; export none; }};\n}}\n"
        )
    };
    let peers: String = (1..=site.balancers.len()).map(peer).collect();
    Bird::start(
        &site.router,
        &format!(
            "router id 10.9.9.9;\n{restart}protocol device {{ }}\n{bfd}\
             protocol kernel k4 {{ merge paths on; {keep} ipv4 {{ export all; import none; }}; }}\n\
             protocol kernel k6 {{ merge paths on; {keep} ipv6 {{ export all; import none; }}; }}\n{peers}"
        ),
    )
}

/// The balancers to which the router sends each VIP.
pub(crate) fn paths(site: &Site) -> [Vec<usize>; 2] {
    let said = [format!("ip route show {}", VIPS[0]), format!("ip -6 route show {}", VIPS[1])]
        .map(|line| site.router.sh(&line));
    said.map(|said| {
        (1..=site.balancers.len()).filter(|n| said.contains(&format!("dev lb{n} "))).collect()
    })
}

/// Waits until the router sends both VIPs to these balancers; returns how long it took in milliseconds.
#[track_caller]
pub(crate) fn until_paths(site: &Site, birds: &[Bird], balancers: &[usize]) -> u64 {
    let clock = clock();
    let mut seen = paths(site);
    while seen.iter().any(|paths| paths != balancers) {
        let all = || birds.iter().map(Bird::show).collect::<Vec<_>>().join("\n====\n");
        assert!(clock() < 30_000_000_000, "{seen:?} in place of {balancers:?}\n{}", all());
        std::thread::sleep(std::time::Duration::from_millis(2));
        seen = paths(site);
    }
    clock() / 1_000_000
}
