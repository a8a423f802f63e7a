//! Faucet: what its users do with it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::{Controller, Star, ends, ip, path, program, text};
use crate::net::alone;
use crate::skipped;
use crate::traffic::stream;
use crate::yard::{Live, wait_until};

const ONE: &str = "vlans: {office: {vid: 100}}
dps:
  sw:
    dp_id: 1
    hardware: Open vSwitch
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: office}
      3: {native_vlan: office}
      4: {native_vlan: office}
";

/// A Faucet, its files, and where it tells how it is.
struct Faucet {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    running: Option<Controller>,
}

impl Faucet {
    /// One that is not started, at this port; its figures are 1,000 further.
    fn new(port: u16, text: &str) -> Option<Self> {
        let program = program("FLOWYARD_FAUCET", "faucet", "faucet 1.10 (pip install faucet)")?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("faucet.yaml"), text).unwrap();
        Some(Self { program, folder, port, running: None })
    }

    fn start(&mut self, star: &Star) {
        let mut command = Command::new(&self.program);
        command.args(["--ryu-ofp-tcp-listen-port", &self.port.to_string()]);
        command.env("PATH", path(&self.program)).env("OSKEN_HUB_TYPE", "eventlet");
        for (name, value) in [
            ("FAUCET_CONFIG", "faucet.yaml"),
            ("FAUCET_LOG", "log"),
            ("FAUCET_EXCEPTION_LOG", "exceptions"),
            ("FAUCET_PROMETHEUS_ADDR", "127.0.0.1"),
        ] {
            command.env(name, value);
        }
        command.env("FAUCET_PROMETHEUS_PORT", (self.port + 1000).to_string());
        self.running = Some(Controller::start(&star.control, command, self.folder.path()));
    }

    /// Kill -9.
    fn kill(&mut self) {
        drop(self.running.take());
    }

    fn log(&self) -> String {
        text(&self.folder.path().join("log"))
    }

    /// Waits until its log has more than `before` lines with `what`.
    #[track_caller]
    fn logs(&mut self, what: &str, before: usize) {
        wait_until(&format!("Faucet logs {what}"), || {
            self.running.as_mut().unwrap().lives(self.folder.path());
            self.count(what) > before
        });
    }

    fn count(&self, what: &str) -> usize {
        self.log().matches(what).count()
    }

    /// Waits until Faucet has set the switch up and the switch has said that it has done so.
    #[track_caller]
    fn converges(&mut self, star: &Star) {
        let figure = "dp_status{dp_id=\"0x1\",dp_name=\"sw\"} 1.0";
        wait_until("Faucet's switch is up", || {
            self.running.as_mut().unwrap().lives(self.folder.path());
            self.figures(star).contains(figure)
        });
    }

    /// Its figures, as Prometheus reads them.
    fn figures(&self, star: &Star) -> String {
        let at = ("127.0.0.1", self.port + 1000);
        star.control.within(move || {
            let Ok(mut stream) = TcpStream::connect(at) else { return String::new() };
            let asked = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
            let mut said = Vec::new();
            let _ = asked.and_then(|()| stream.read_to_end(&mut said));
            String::from_utf8_lossy(&said).into_owned()
        })
    }

    /// Nothing may have gone wrong in it, and the switch refused nothing.
    #[track_caller]
    fn is_content(&self) {
        let exceptions = text(&self.folder.path().join("exceptions"));
        assert_eq!(exceptions, "");
        let log = self.log();
        assert!(!log.contains("OFError"), "{log}");
    }
}

/// A star, its switch and Faucet, which has set it up.
fn set_up(text: &str) -> Option<(Star, Live, Faucet)> {
    let mut faucet = Faucet::new(6653, text)?;
    let star = Star::new();
    faucet.start(&star);
    let live = star.start("controllers = [\"tcp:10.99.0.1:6653\"]");
    faucet.converges(&star);
    Some((star, live, faucet))
}

#[test]
fn one_vlan() {
    if skipped() {
        return;
    }
    let _alone = alone();
    let Some((star, live, faucet)) = set_up(ONE) else { return };
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    let rate = stream(&star.hosts[0], &star.hosts[3], ip(4), 16 << 20);
    crate::tell(format_args!("Faucet, TCP: {rate:.0} Mb/s"));
    faucet.is_content();
    ends(live, "Faucet, one VLAN");
}
