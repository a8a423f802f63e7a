//! `flowyard run` in a namespace, and its counters.

use std::ffi::OsString;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowyard_yard::Clock;
use serde_json::Value;
use tempfile::TempDir;

use flowyard_livekit::net::Net;

#[allow(clippy::disallowed_methods, reason = "live tests use the real clock")]
pub(crate) fn clock() -> Clock {
    let start = Instant::now();
    Arc::new(move || start.elapsed().as_nanos() as u64)
}

/// Waits until `is_so` is true, at most for a minute.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = clock();
    while !is_so() {
        assert!(clock() < 60_000_000_000, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running command, killed when this is dropped.
pub(crate) struct Live {
    child: Child,
    pub(crate) folder: TempDir,
}

/// The program to test.
pub(crate) fn binary() -> OsString {
    let built = env!("CARGO_BIN_EXE_flowyard").into();
    std::env::var_os("FLOWYARD_BINARY").unwrap_or(built)
}

/// The command that runs the configuration `text`, as `y.toml` in a new folder, in `net`.
pub(crate) fn command(net: &Net, text: &str, args: &[&str]) -> (Command, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("y.toml"), text).unwrap();
    let mut command = Command::new(binary());
    command.arg("run").arg("y.toml").args(args);
    command.current_dir(folder.path()).stdin(Stdio::null());
    flowyard_livekit::sys::within(&mut command, &net.0);
    (command, folder)
}

/// Runs a command that ends by itself, because its configuration is refused or only checked.
pub(crate) fn ends(net: &Net, text: &str, args: &[&str]) -> Output {
    let (mut command, _folder) = command(net, text, args);
    command.output().unwrap()
}

impl Live {
    pub(crate) fn start(net: &Net, text: &str) -> Self {
        Self::start_with(net, text, &[])
    }

    /// With more arguments; relative paths are in its folder.
    pub(crate) fn start_with(net: &Net, text: &str, args: &[&str]) -> Self {
        let (mut command, folder) = command(net, text, &[&["--json"], args].concat());
        // Files, not pipes, because the output is read only at the end.
        let file = |name: &str| std::fs::File::create(folder.path().join(name)).unwrap();
        let child = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        Self { child, folder }
    }

    /// Lets another process take over, and waits until this one has ended. Returns its counters, which must balance.
    pub(crate) fn upgrade(&mut self, net: &Net, args: &[&str]) -> Value {
        let path = |name: &str| self.folder.path().join(name);
        // Each process has files of its own.
        for name in ["out", "err"] {
            std::fs::rename(path(name), path(&format!("{name}.old"))).unwrap();
        }
        let file = |name: &str| std::fs::File::create(path(name)).unwrap();
        let mut command = Command::new(binary());
        command.args(["run", "y.toml", "--json", "--take-over"]).args(args);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        flowyard_livekit::sys::within(&mut command, &net.0);
        let next = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        let mut old = std::mem::replace(&mut self.child, next);
        let mut status = None;
        wait_until("the take-over", || {
            assert!(self.is_alive(), "{}\n{}", self.said("err"), self.said("err.old"));
            status = old.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{}", self.said("err.old"));
        let counters: Value = serde_json::from_str(&self.said("out.old")).unwrap();
        assert_eq!(counters["balanced"], true, "{counters:#}");
        counters
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn said(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap()
    }

    /// Whether it still runs.
    #[track_caller]
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Stops it by SIGINT; returns its counters, which must balance.
    pub(crate) fn stop(mut self) -> Value {
        self.signal("INT");
        let mut status = None;
        wait_until("the drain", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{}{}", self.said("out"), self.said("err"));
        let counters: Value = serde_json::from_str(&self.said("out")).unwrap();
        let balance = (&counters["balanced"], &counters["held"]);
        assert_eq!(balance, (&true.into(), &0.into()), "{counters:#}");
        counters
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let (_killed, _waited) = (self.child.kill(), self.child.wait());
    }
}

/// A counter of all cores together.
pub(crate) fn total(counters: &Value, name: &str) -> u64 {
    counters["total"][name].as_u64().unwrap()
}

/// Dropped frames by reason, without the reasons that have none.
pub(crate) fn drops(counters: &Value) -> Vec<(String, u64)> {
    let all = counters["total"]["drops"].as_object().unwrap();
    let some = all.iter().map(|(reason, frames)| (reason.clone(), frames.as_u64().unwrap()));
    some.filter(|(_, frames)| *frames > 0).collect()
}
