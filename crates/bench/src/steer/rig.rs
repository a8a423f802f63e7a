//! Two hosts with a veth between them; the frames of the server's end are steered in one of several ways.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{Frames, Way};
use crate::live::hosts::{FlowTable, Hosts};
use crate::load::clients::cpus;

/// The server's interface.
pub(super) const INTERFACE: &str = "vb";
/// Flows that the kernel's RFS distinguishes, of all interfaces and of this one.
const FLOWS: [u32; 2] = [32_768, 4096];

/// The hosts.
pub(super) struct Rig {
    pub(super) hosts: Hosts,
    /// The program `flowyard`.
    program: PathBuf,
    /// The CPUs that are steered to.
    pub(super) cpus: [usize; 2],
}

impl Rig {
    /// `program` is flowyard.
    pub(super) fn new(program: &Path) -> anyhow::Result<Self> {
        let hosts = Hosts::new()?;
        // A redirect forgets that a checksum is missing. All ways are measured with the same settings.
        hosts.clients.sh("ethtool -K va tx off >/dev/null")?;
        hosts.server.sh("ethtool -K vb tx off >/dev/null")?;
        Ok(Self { hosts, program: program.to_owned(), cpus: cpus()? })
    }

    /// Steers in this way until the result is dropped or ended.
    pub(super) fn steer(&self, way: Way) -> anyhow::Result<Steering> {
        let mask = self.cpus.iter().fold(0, |mask, cpu| mask | 1_u32 << cpu);
        let table = if way == Way::Rfs { Some(FlowTable::set(FLOWS[0])?) } else { None };
        let kernel = match way {
            Way::Rps => Some(0),
            Way::Rfs => Some(FLOWS[1]),
            _ => None,
        };
        if let Some(flows) = kernel {
            self.hosts.server.steer(INTERFACE, mask, flows)?;
        }
        let daemon = way.arguments().map(|arguments| self.daemon(arguments)).transpose()?;
        Ok(Steering { _table: table, daemon })
    }

    /// Starts `flowyard steer`, and waits until it steers. It is killed when the calling thread ends.
    pub(super) fn daemon(&self, arguments: &[&str]) -> anyhow::Result<Daemon> {
        let mut command = self.hosts.server.command(&self.program);
        let cpus = self.cpus.map(|cpu| cpu.to_string()).join(",");
        command.args(["steer", INTERFACE, "--json", "--cpus", &cpus]).args(arguments);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("nsenter")?;
        let mut errors = BufReader::new(child.stderr.take().context("no standard error")?);
        let mut said = String::new();
        while !said.contains("steering the frames") {
            if errors.read_line(&mut said)? == 0 {
                let status = child.wait()?;
                anyhow::bail!("flowyard steer {}: {status}: {}", arguments.join(" "), said.trim());
            }
        }
        Ok(Daemon { child: Process(child), _errors: errors })
    }
}

/// A way of steering that is in force.
pub(super) struct Steering {
    _table: Option<FlowTable>,
    daemon: Option<Daemon>,
}

impl Steering {
    /// Ends it, and returns what `flowyard steer` counted.
    pub(super) fn end(self) -> anyhow::Result<Frames> {
        self.daemon.map_or_else(|| Ok(BTreeMap::new()), Daemon::end)
    }
}

/// `flowyard steer` as a process, killed when this is dropped.
pub(super) struct Daemon {
    child: Process,
    /// Kept open for what it may say.
    _errors: BufReader<ChildStderr>,
}

impl Daemon {
    /// Asks it to end; returns the frames of all queues by reason.
    pub(super) fn end(mut self) -> anyhow::Result<Frames> {
        let pid = Pid::from_child(&self.child.0);
        kill_process(pid, Signal::TERM).context("ending flowyard steer")?;
        let mut text = String::new();
        let mut output = self.child.0.stdout.take().context("no standard output")?;
        output.read_to_string(&mut text)?;
        let status = self.child.0.wait()?;
        ensure!(status.success(), "flowyard steer ended with {status}");
        let document: serde_json::Value =
            serde_json::from_str(&text).context("the output of flowyard steer")?;
        let mut frames = Frames::new();
        for queue in document["queues"].as_array().into_iter().flatten() {
            for (reason, count) in queue["frames"].as_object().into_iter().flatten() {
                *frames.entry(reason.clone()).or_default() += count.as_u64().unwrap_or_default();
            }
        }
        Ok(frames)
    }

    /// Kills it (SIGKILL).
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.child.0.kill()?;
        self.child.0.wait()?;
        Ok(())
    }
}

/// A process, killed when this is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let name = format!("{:?}", command.get_program());
        Ok(Self(command.spawn().context(name)?))
    }

    /// The threads of this process and of its children.
    pub(super) fn threads(&self) -> Vec<Pid> {
        let mut all = Vec::new();
        let mut processes = vec![self.0.id()];
        while let Some(process) = processes.pop() {
            let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
            for task in tasks.flatten() {
                let number = task.file_name().to_string_lossy().parse().ok();
                all.extend(number.and_then(Pid::from_raw));
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                processes
                    .extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
            }
        }
        all
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = (self.0.kill(), self.0.wait());
    }
}
