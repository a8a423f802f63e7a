//! `flowyard run` in a namespace, and its books.

use std::ffi::OsString;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowyard_yard::Clock;
use serde_json::Value;
use tempfile::TempDir;

use crate::net::Net;

#[allow(clippy::disallowed_methods, reason = "live tests have a real clock")]
pub(crate) fn clock() -> Clock {
    let start = Instant::now();
    Arc::new(move || start.elapsed().as_nanos() as u64)
}

/// Asks until the answer is yes, for a minute.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = clock();
    while !is_so() {
        assert!(clock() < 60_000_000_000, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The command at work. Dropped, it is killed.
pub(crate) struct Live {
    child: Child,
    pub(crate) folder: TempDir,
}

/// The `flowyard` that is tested.
pub(crate) fn binary() -> OsString {
    let built = env!("CARGO_BIN_EXE_flowyard").into();
    std::env::var_os("FLOWYARD_BINARY").unwrap_or(built)
}

/// The command, about to run the configuration `y.toml` of a new folder in `net`.
pub(crate) fn command(net: &Net, text: &str, args: &[&str]) -> (Command, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("y.toml"), text).unwrap();
    let mut command = Command::new(binary());
    command.arg("run").arg("y.toml").args(args);
    command.current_dir(folder.path()).stdin(Stdio::null());
    crate::sys::within(&mut command, &net.0);
    (command, folder)
}

/// Runs to its end, which is near: a configuration that is refused or checked.
pub(crate) fn ends(net: &Net, text: &str, args: &[&str]) -> Output {
    let (mut command, _folder) = command(net, text, args);
    command.output().unwrap()
}

impl Live {
    pub(crate) fn start(net: &Net, text: &str) -> Self {
        Self::start_with(net, text, &[])
    }

    /// With more words; what they name is in its folder.
    pub(crate) fn start_with(net: &Net, text: &str, args: &[&str]) -> Self {
        let (mut command, folder) = command(net, text, &[&["--json"], args].concat());
        // Files, not pipes: nobody reads before the end.
        let file = |name: &str| std::fs::File::create(folder.path().join(name)).unwrap();
        let child = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        Self { child, folder }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn said(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap()
    }

    /// Whether it runs still.
    #[track_caller]
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Drains it: its books, which balance.
    pub(crate) fn stop(mut self) -> Value {
        self.signal("INT");
        let mut status = None;
        wait_until("the drain", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{}{}", self.said("out"), self.said("err"));
        let books: Value = serde_json::from_str(&self.said("out")).unwrap();
        assert_eq!((&books["balanced"], &books["held"]), (&true.into(), &0.into()), "{books:#}");
        books
    }

    /// Kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Either may have happened already.
        let (_killed, _waited) = (self.child.kill(), self.child.wait());
    }
}

/// A count of the books' total.
pub(crate) fn total(books: &Value, name: &str) -> u64 {
    books["total"][name].as_u64().unwrap()
}

/// Drops by reason, but those that have no frames.
pub(crate) fn drops(books: &Value) -> Vec<(String, u64)> {
    let all = books["total"]["drops"].as_object().unwrap();
    let some = all.iter().map(|(reason, frames)| (reason.clone(), frames.as_u64().unwrap()));
    some.filter(|(_, frames)| *frames > 0).collect()
}
