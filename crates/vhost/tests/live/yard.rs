//! `flowyard run` between two vhost-user ports.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The program in the folder of the build, or the one that FLOWYARD_BINARY names.
fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("FLOWYARD_BINARY").map(PathBuf::from);
    let built = || {
        let program = std::env::current_exe().ok()?;
        Some(program.parent()?.parent()?.parent()?.join("release/flowyard"))
    };
    named.or_else(built).filter(|path| path.is_file())
}

pub(crate) fn has_binary() -> Result<(), String> {
    let missing = "a build of the command: `cargo build --release -p flowyard-cli`";
    binary().map(drop).ok_or_else(|| missing.to_owned())
}

/// Work that sends what comes by one port out by the other one.
pub(crate) const FORWARD: &str = r#"
[work]
kind = "forward"
ports = { west = "east", east = "west" }
"#;

/// A switch that learns which station is behind which port.
pub(crate) const SWITCH: &str = r#"
[work]
kind = "switch"
[switch]
flows = ["priority=0,actions=NORMAL"]
"#;

/// A configuration with two ports: `west` listens, and `east` connects or listens.
pub(crate) fn config(folder: &Path, east: &str, idle: &str, work: &str) -> String {
    format!(
        r#"
        [yard]
        idle = "{idle}"
        [[port]]
        name = "west"
        kind = "vhost_user"
        socket = {:?}
        window_frames = 4096
        [[port]]
        name = "east"
        kind = "vhost_user"
        socket = {:?}
        role = "{east}"
        window_frames = 4096
        [[queue]]
        name = "q"
        order = "direct"
        consumers = [0]
        {work}
        "#,
        folder.join("west.sock"),
        folder.join("east.sock"),
    )
}

/// A running command, which is killed when this is dropped.
pub(crate) struct Yard {
    child: Child,
    folder: PathBuf,
}

impl Yard {
    /// Starts the configuration in `folder`, whose output is added to `out` and `err` there.
    pub(crate) fn start(folder: &Path, config: &str) -> Self {
        std::fs::write(folder.join("y.toml"), config).unwrap();
        let file =
            |name| File::options().create(true).append(true).open(folder.join(name)).unwrap();
        let mut command = Command::new(binary().unwrap());
        command
            .args(["run", "y.toml", "--json", "--control", "c.sock", "--user", "root"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"));
        flowyard_livekit::sys::end_with_parent(&mut command);
        Self { child: command.spawn().unwrap(), folder: folder.to_owned() }
    }

    /// What the log has.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("err")).unwrap()
    }

    /// Waits until the log has `what` this often, about the port `port` if that is not empty.
    pub(crate) fn wait_for(&mut self, port: &str, what: &str, times: usize) {
        let port = if port.is_empty() { String::new() } else { format!("port=\"{port}\"") };
        for _ in 0..6000 {
            let log = self.log();
            let lines = log.lines().filter(|line| line.contains(what) && line.contains(&port));
            if lines.count() >= times {
                return;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("not within a minute: {what:?}, {times} times:\n{}", self.log());
    }

    /// Ends it in order. Returns its report.
    pub(crate) fn end(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        let out = std::fs::read_to_string(self.folder.join("out")).unwrap();
        assert!(status.success(), "{status}: {out}\n{}", self.log());
        out
    }

    /// Kills it with signal 9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        // Neither fails unless it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number in the report, which is the value of the first key of this name.
pub(crate) fn number(report: &str, key: &str) -> u64 {
    let name = format!("\"{key}\":");
    let rest = report.split_once(&name).map(|(_, rest)| rest.trim_start());
    let digits = rest.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(""));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no {key}: {report}"))
}

/// The sum of all drops in the report.
pub(crate) fn dropped(report: &str) -> u64 {
    let (_, rest) = report.split_once("\"drops\": {").expect("drops");
    let (drops, _) = rest.split_once('}').expect("the end of drops");
    drops.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok()).sum()
}
