//! `flowyard run` in a process of its own, which ends with the test.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes for a limited time")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{flowyard, root, text};

/// The longest time to wait for anything, on a machine with much other load.
const LONGEST: Duration = Duration::from_secs(30);

/// Two flows of the capture with many frames: one that is dropped,
pub(crate) const DROPPED: &str = "tcp 192.0.2.101:52298 > 192.0.2.10:5201";
/// and one that is forwarded.
pub(crate) const OTHER: &str = "tcp 192.0.2.10:5201 > 192.0.2.101:52298";

/// A configuration that runs until it is stopped.
pub(crate) fn config() -> String {
    format!(
        r#"
        [yard]
        cores = 2
        [[port]]
        name = "west"
        kind = "mem"
        in = "captures/yard.pcap"
        repeat = 1000000
        pace = "20000"
        [[port]]
        name = "east"
        kind = "mem"
        core = 1
        [[queue]]
        name = "a"
        order = "direct"
        consumers = [0]
        [[queue]]
        name = "b"
        order = "atomic"
        consumers = [0, 1]
        [steer]
        exact = [
            {{ flow = "{DROPPED}", drop = true }},
            {{ flow = "{OTHER}", queue = "b", mark = 7 }},
        ]
        [work]
        kind = "forward"
        ports = {{ west = "east" }}
        "#
    )
}

pub(crate) struct Yard {
    pub(crate) folder: TempDir,
    pub(crate) child: Child,
}

/// Waits until `there` returns a value.
#[track_caller]
pub(crate) fn wait<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(began.elapsed() < LONGEST, "{what}: not within {LONGEST:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Yard {
    /// Runs the configuration with these arguments and a control socket.
    pub(crate) fn start(config: &str, args: &[&str]) -> Self {
        Self::start_with(config, args, &[])
    }

    /// As [`Yard::start`], with these environment variables.
    pub(crate) fn start_with(config: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("yard.toml"), config).unwrap();
        let child = Self::spawn(folder.path(), args, env);
        let mut yard = Self { folder, child };
        yard.wait_for_socket();
        yard
    }

    /// As [`Yard::start`], with at most this much address space, in KiB.
    pub(crate) fn start_within(config: &str, kib: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("yard.toml"), config).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\"")]);
        shell.arg(flowyard().get_program()).current_dir(root());
        let child = Self::spawn_by(shell, folder.path(), &[], &[]);
        let mut yard = Self { folder, child };
        yard.wait_for_socket();
        yard
    }

    fn spawn(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Child {
        Self::spawn_by(flowyard(), folder, args, env)
    }

    fn spawn_by(mut command: Command, folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Child {
        let file = |name: &str| fs::File::create(folder.join(name)).unwrap();
        command
            .arg("run")
            .arg(folder.join("yard.toml"))
            .arg("--control")
            .arg(folder.join("sock"))
            .args(args)
            .envs(env.iter().copied())
            .stdout(file("out"))
            .stderr(file("err"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Starts it again in the same folder.
    pub(crate) fn restart(&mut self, args: &[&str]) {
        self.child = Self::spawn(self.folder.path(), args, &[]);
        self.wait_for_socket();
    }

    fn wait_for_socket(&mut self) {
        let socket = self.socket();
        wait("the control socket", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("flowyard run ended: {status}; {}", self.log());
            }
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("yard.toml")
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("err")).unwrap_or_default()
    }

    /// Waits until the log contains `text`, and returns the log.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) -> String {
        wait(text, || Some(self.log()).filter(|log| log.contains(text)))
    }

    /// Runs `flowyard` with these arguments and the control socket; returns its standard output.
    #[track_caller]
    pub(crate) fn ask(&self, args: &[&str]) -> String {
        let output = flowyard().args(args).arg("--control").arg(self.socket()).output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{args:?} {}", self.log());
        assert!(!out.contains('\x1b'), "an escape code in a pipe: {out}");
        out
    }

    /// As [`Yard::ask`], as JSON.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ask(&[args, &["--json"]].concat())).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it by SIGTERM; returns its exit status and its output.
    pub(crate) fn stop(&mut self) -> (ExitStatus, String) {
        self.signal(Signal::TERM);
        let status = wait("the end", || self.child.try_wait().unwrap());
        (status, fs::read_to_string(self.folder.path().join("out")).unwrap())
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
