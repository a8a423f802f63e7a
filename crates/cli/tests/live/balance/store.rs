//! etcd, the keys of the services in it, and what `flowyard fleet` says of the nodes that follow them.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::site::{BACKEND, VIPS, mac};
use crate::yard::{binary, wait_until};
use flowyard_livekit::net::Net;
use flowyard_livekit::sys;

/// The prefix of the keys of services.
const SERVICES: &str = "/flowyard/config/services/";

/// The services that [`Keys::put_services`] puts, with the IP versions of their VIPs.
pub(crate) const WEB: [&str; 2] = ["web4", "web6"];

/// A member of etcd, with its data in a folder that survives it.
pub(crate) struct Etcd(Child);

impl Etcd {
    /// Starts a member with these arguments.
    pub(crate) fn spawn(net: &Net, folder: &Path, args: &[String]) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(folder.join("data")).args(args);
        let log = std::fs::File::create(folder.join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        sys::within(&mut command, &net.0);
        Self(command.spawn().unwrap())
    }

    /// Ends it in order, by SIGTERM.
    pub(crate) fn stop(mut self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        wait_until("the end of a member of etcd", || self.0.try_wait().unwrap().is_some());
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let (_killed, _waited) = (self.0.kill(), self.0.wait());
    }
}

/// The keys in etcd, as seen from a namespace.
pub(crate) struct Keys<'a> {
    pub(crate) net: &'a Net,
    /// The URLs of the members, with commas between them.
    pub(crate) endpoints: String,
}

impl Keys<'_> {
    fn etcdctl(&self, args: &[&str], input: &str) -> Output {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", &self.endpoints).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        sys::within(&mut command, &self.net.0);
        let mut child = command.spawn().unwrap();
        // If the program ends without having read it, its status tells.
        let _written = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Changes something; returns the revision of the change.
    #[track_caller]
    fn ask(&self, args: &[&str], input: &str) -> u64 {
        let output = self.etcdctl(&[args, &["-w", "json"]].concat(), input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {args:?}: {said}");
        // A transaction prints words first.
        let text = String::from_utf8_lossy(&output.stdout);
        let answer: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
        answer["header"]["revision"].as_u64().unwrap()
    }

    /// Waits until all members answer.
    pub(crate) fn are_there(&self) {
        wait_until("etcd", || self.etcdctl(&["endpoint", "health"], "").status.success());
    }

    /// Whether a key can be written, within two seconds.
    pub(crate) fn can_write(&self) -> bool {
        let args = ["--command-timeout=2s", "put", "/other", "value"];
        self.etcdctl(&args, "").status.success()
    }

    /// A change of a key below `/flowyard/config/services/`; returns its revision, as all changes do here.
    #[track_caller]
    pub(crate) fn put(&self, key: &str, value: &str) -> u64 {
        self.ask(&["put", &format!("{SERVICES}{key}")], value)
    }

    #[track_caller]
    pub(crate) fn delete(&self, key: &str) -> u64 {
        self.ask(&["del", &format!("{SERVICES}{key}")], "")
    }

    #[track_caller]
    pub(crate) fn delete_all(&self) -> u64 {
        self.ask(&["del", "--prefix", SERVICES], "")
    }

    /// Several changes as one; `None` deletes a key.
    #[track_caller]
    pub(crate) fn at_once(&self, changes: &[(String, Option<String>)]) -> u64 {
        let line = |(key, value): &(String, Option<String>)| match value {
            Some(value) => format!("put {SERVICES}{key} {value:?}\n"),
            None => format!("del {SERVICES}{key}\n"),
        };
        let lines: String = changes.iter().map(line).collect();
        self.ask(&["txn"], &format!("\n{lines}\n\n"))
    }

    /// Services `web4` and `web6` without backends, with more keys.
    pub(crate) fn put_services(&self, more: &str) {
        for (vip, name) in VIPS.iter().zip(WEB) {
            let value =
                format!("vip = \"{vip}\"\nproto = \"tcp\"\nport = 80\nmode = \"dsr\"\n{more}");
            self.put(name, &value);
        }
    }

    /// The keys of backend `n` in service `web4` or `web6`.
    #[track_caller]
    pub(crate) fn put_one(&self, family: &str, n: usize, more: &str) -> u64 {
        let (key, value) = backend(family, n, more);
        self.put(&key, &value)
    }

    /// The keys of backend `n` in the services of both IP versions.
    pub(crate) fn put_backend(&self, n: usize, more: &str) {
        for family in WEB {
            self.put_one(family, n, more);
        }
    }

    /// Runs `flowyard fleet`.
    pub(crate) fn fleet(&self) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet.toml");
        let all: Vec<&str> = self.endpoints.split(',').collect();
        std::fs::write(&file, format!("[cluster]\nendpoints = {all:?}\ntimeout_ms = 2000\n"))
            .unwrap();
        let mut command = Command::new(binary());
        command.arg("fleet").arg("--config").arg(&file).arg("--json");
        sys::within(&mut command, &self.net.0);
        command.output().unwrap()
    }

    /// The document of `flowyard fleet`.
    pub(crate) fn shown(&self) -> Value {
        self.document().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The document of `flowyard fleet`, or its error.
    fn document(&self) -> Result<Value, String> {
        let output = self.fleet();
        let shown: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
        assert_eq!(output.status.success(), shown["agrees"] == true, "{shown}");
        Ok(shown)
    }

    /// Waits until there are this many nodes, and all have this state for the newest generation, which is newer than
    /// `before`; returns the document.
    #[track_caller]
    pub(crate) fn until(&self, count: usize, state: &str, before: u64) -> Value {
        let mut shown = Value::Null;
        wait_until(state, || {
            // `flowyard fleet` has no answer while the members of etcd elect a leader.
            shown = match self.document() {
                Ok(shown) => shown,
                Err(error) => {
                    flowyard_testkit::note!("{error}");
                    return false;
                }
            };
            let nodes = shown["nodes"].as_array().unwrap();
            let newest = generation(&shown);
            let is_so =
                |node: &Value| node["state"] == state && node["seen"] == newest && newest > before;
            nodes.len() == count && nodes.iter().all(is_so)
        });
        shown
    }
}

/// The key and the value of backend `n` in service `web4` or `web6`.
pub(crate) fn backend(family: &str, n: usize, more: &str) -> (String, String) {
    let own = if family == "web4" { format!("10.2.0.{n}") } else { format!("fd02::{n}") };
    let exit = format!("{{ port = \"east\", next_hop = \"{}\" }}", mac(BACKEND, n));
    (format!("{family}/backends/b{n}"), format!("addr = \"{own}\"\nexit = {exit}\n{more}\n"))
}

/// The newest generation.
pub(crate) fn generation(shown: &Value) -> u64 {
    shown["generation"].as_u64().unwrap()
}
