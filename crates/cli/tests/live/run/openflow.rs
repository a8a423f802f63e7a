//! `flowyard run` as an OpenFlow switch, with real controllers: Faucet, and an application on os-ken.
//!
//! ```text
//!  h1 [eth] ── [p1] ┐                          ┌── [ctl 10.99.0.1] controllers
//!  h2 [eth] ── [p2] ├── switch [ctl 10.99.0.2] ┘
//!  h3 [eth] ── [p3] │
//!  h4 [eth] ── [p4] ┘                          sw: a socket for `flowyard switch`
//! ```
//!
//! `FLOWYARD_FAUCET` and `FLOWYARD_OS_KEN_BIN` name the folders with the programs, if they are not in PATH.
//! Tests of a program that is missing are reported as ignored.

mod by_hand;
mod faucet;
mod long;
mod offloaded;
mod os_ken;

use std::ffi::OsString;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use flowyard_ports::af_packet::{Fanout, Ring, Sender, Settings};
use flowyard_ports::live::Interface;

use crate::yard::{Live, wait_until};
use flowyard_livekit::net::Net;
use flowyard_testkit::harness::Need;

flowyard_testkit::tests! {
    mod by_hand,
    mod faucet needs [Need::Check(|| runs("FLOWYARD_FAUCET", "faucet"))],
    mod long,
    mod offloaded,
    mod os_ken,
}

/// Four hosts, the switch between them, and the controllers' host.
struct Star {
    hosts: [Net; 4],
    switch: Net,
    control: Net,
}

impl Star {
    fn new() -> Self {
        let star = Self {
            hosts: [(); 4].map(|()| Net::new().unwrap()),
            switch: Net::new().unwrap(),
            control: Net::new().unwrap(),
        };
        for (host, n) in star.hosts.iter().zip(1..) {
            star.switch.cable(&format!("p{n}"), host, "eth", 1);
            host.sh(&format!("ip link set eth address {}", mac(n)));
            host.address("eth", n);
        }
        star.switch.cable("ctl", &star.control, "ctl", 1);
        star.switch.sh("ip addr add 10.99.0.2/24 dev ctl");
        star.control.sh("ip addr add 10.99.0.1/24 dev ctl");
        star
    }

    /// Starts the switch with two cores and more keys of `[switch]`.
    fn start(&self, more: &str) -> Live {
        let port = |n: u8| {
            format!(
                "[[port]]\nname = \"p{n}\"\nkind = \"af_packet\"\ninterface = \"p{n}\"\n\
                 cores = [0, 1]\nfanout = \"hash\"\nring_frames = 8192\n"
            )
        };
        self.run(2, &port, more, "")
    }

    /// Starts the switch with this number of cores, four ports, more keys of `[switch]`, and more sections.
    fn run(&self, cores: u32, port: &dyn Fn(u8) -> String, more: &str, sections: &str) -> Live {
        let ports: String = (1..=4).map(port).collect();
        let queue =
            |n: u32| format!("[[queue]]\nname = \"q{n}\"\norder = \"direct\"\nconsumers = [{n}]\n");
        let queues: String = (0..cores).map(queue).collect();
        let text = format!(
            "[yard]\ncores = {cores}\n{ports}{queues}[work]\nkind = \"switch\"\n[switch]\n\
             datapath = \"1\"\nlisten = [\"punix:sw\"]\n{more}\n{sections}"
        );
        // Not the default socket: another test program on this machine may use it.
        let mut live = Live::start_with(&self.switch, &text, &["--control", "control"]);
        let socket = live.folder.path().join("sw");
        wait_until("the switch", || {
            assert!(live.is_alive(), "{}", live.said("err"));
            socket.exists()
        });
        live
    }

    /// Whether host `from` reaches host `to` now.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let ping = format!("ping -n -c 1 -W 1 10.9.0.{to}");
        self.hosts[from - 1].run(&ping).status.success()
    }

    /// Waits until host `from` reaches host `to`.
    #[track_caller]
    fn reached(&self, from: usize, to: usize) {
        wait_until(&format!("an answer of h{to} to h{from}"), || self.reaches(from, to));
    }

    /// Every host in `among` pings every other one with both IP versions; every ping must be answered.
    /// Returns the number of pairs.
    #[track_caller]
    fn ping_all(&self, among: &[usize]) -> usize {
        let mut asked = 0;
        for &from in among {
            for &to in among.iter().filter(|to| **to != from) {
                for to in [format!("10.9.0.{to}"), format!("fd09::{to}")] {
                    self.hosts[from - 1].sh(&format!("ping -n -c 1 -W 20 {to}"));
                }
                asked += 1;
            }
        }
        asked
    }

    /// A raw socket on a host's interface, which receives all frames.
    fn wire(&self, host: usize) -> Wire {
        self.hosts[host - 1].within(|| {
            let settings = Settings { fanout: Fanout::Hash, frames: 16_384 };
            let interface = Interface::find("eth").unwrap();
            let ring = Ring::open(&interface, 1, settings).unwrap().pop().unwrap();
            Wire { ring, sender: Sender::open(&interface, false).unwrap() }
        })
    }
}

/// A host's MAC address.
fn mac(host: u8) -> String {
    format!("02:00:00:00:00:{host:02x}")
}

/// A host's IP address.
fn ip(host: u8) -> IpAddr {
    [10, 9, 0, host].into()
}

/// A raw socket on a host's interface.
struct Wire {
    ring: Ring,
    sender: Sender,
}

impl Wire {
    /// Sends a test frame: addresses, more headers, and 60 bytes `mark` at its end.
    fn send(&mut self, to: [u8; 6], from: u8, headers: &[u8], mark: u8) {
        let from = [2, 0, 0, 0, 0, from];
        let frame = [&to[..], &from, headers, &[mark; 60]].concat();
        let (sent, error) = self.sender.send([&frame[..]].into_iter());
        assert_eq!(sent, 1, "{error:?}");
    }

    /// The next received frame, if there is one.
    fn take(&mut self) -> Option<Vec<u8>> {
        let frame = self.ring.peek()?;
        let mut bytes = vec![0; frame.len(None, 0)];
        frame.write(None, 0, &mut bytes);
        self.ring.advance();
        Some(bytes)
    }

    /// The received test frames with this `mark`: the headers between addresses and mark.
    fn heard(&mut self, mark: u8) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while let Some(bytes) = self.take() {
            if let Some(head) = bytes.strip_suffix(&[mark; 60]) {
                found.push(head[12..].to_vec());
            }
        }
        found
    }

    /// Waits for test frames with this `mark`; returns their headers.
    #[track_caller]
    fn hears(&mut self, mark: u8) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        wait_until("a frame of the test", || {
            found.append(&mut self.heard(mark));
            !found.is_empty()
        });
        found
    }
}

/// Runs `flowyard switch` with the switch's own socket.
fn ask(live: &Live, command: &str, arguments: &[&str]) -> Output {
    let mut flowyard = Command::new(env!("CARGO_BIN_EXE_flowyard"));
    flowyard.args(["switch", command, "unix:sw"]).args(arguments);
    flowyard.current_dir(live.folder.path()).output().unwrap()
}

/// The output of a command, which must succeed.
#[track_caller]
fn says(live: &Live, command: &str, arguments: &[&str]) -> String {
    let output = ask(live, command, arguments);
    assert!(output.status.success(), "{command} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Stops the switch. It may have dropped frames that no flow outputs, frames that go only to controllers,
/// and, on a busy machine, overruns of its rings; and frames for the reasons in `also`, but no others.
#[track_caller]
fn ends(live: Live, what: &str, also: &[&str]) {
    let counters = live.stop();
    let drops = crate::yard::drops(&counters);
    let total = |name: &str| crate::yard::total(&counters, name);
    flowyard_testkit::note!(
        "{what}: {} frames in, {} copied, {} out, dropped {drops:?}",
        total("rx_frames"),
        total("copies"),
        total("tx_frames")
    );
    let expected = ["no_flow", "punted", "filtered", "work", "overrun"];
    let is_expected = |why: &str| expected.contains(&why) || also.contains(&why);
    let odd: Vec<_> = drops.into_iter().filter(|drop| !is_expected(&drop.0)).collect();
    assert_eq!(odd, []);
}

/// The program in the folder that an environment variable names, or in PATH.
fn program(variable: &str, name: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| name.into(), |at| Path::new(&at).join(name))
}

/// Whether the program runs. The error names it and the variable.
fn runs(variable: &str, name: &str) -> Result<(), String> {
    let found = program(variable, name);
    let mut command = Command::new(&found);
    command.arg("--version").env("PATH", path(&found)).env("OSKEN_HUB_TYPE", "eventlet");
    let is_here = command.output().is_ok_and(|output| output.status.success());
    if is_here { Ok(()) } else { Err(format!("{name}, see {variable}")) }
}

/// PATH with the program's folder in front.
fn path(program: &Path) -> OsString {
    let mut path = program.parent().map_or_else(OsString::new, |at| at.as_os_str().to_owned());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

/// A running controller, killed when this is dropped.
struct Controller(Child);

impl Controller {
    fn start(net: &Net, mut command: Command, folder: &Path) -> Self {
        let said = File::options().create(true).append(true).open(folder.join("said")).unwrap();
        command.current_dir(folder).stdin(Stdio::null());
        command.stdout(said.try_clone().unwrap()).stderr(said);
        flowyard_livekit::sys::within(&mut command, &net.0);
        Self(command.spawn().unwrap())
    }

    #[track_caller]
    fn lives(&mut self, folder: &Path) {
        let over = self.0.try_wait().unwrap();
        assert!(over.is_none(), "{over:?}: {}", text(&folder.join("said")));
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let (_killed, _waited) = (self.0.kill(), self.0.wait());
    }
}

/// A file's text; empty if the file does not exist yet.
fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
