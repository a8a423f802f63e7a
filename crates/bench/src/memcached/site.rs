//! The hosts of a measurement, with or without a yard between them.
//!
//! ```text
//!  veth of the kernel   server [vb: none, RPS or RFS] ═══════════════════ [va] clients
//!  yard between veths   server [vb] ═══ [vc] flowyard run [vd] ══════════ [va] clients
//!  yard with a TAP      server [tap0] ─ flowyard run ─ [vb] ═════════════ [va] clients     in the server's namespace
//! ```
//!
//! Thread-safety: belongs to the thread that made it, whose end kills the yard.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Link, Policy, Way};
use crate::live::hosts::{FlowTable, Hosts, Net};
use crate::load::clients::THREADS;
use crate::steer::Process;

/// Flows that the kernel's RFS distinguishes, of all interfaces and of this one.
const FLOWS: [u32; 2] = [32_768, 4096];

/// The hosts, with the steering in force.
pub(super) struct Site {
    /// Dropped first.
    yard: Option<Yard>,
    pub(super) hosts: Hosts,
    _between: Option<Net>,
    _table: Option<FlowTable>,
}

impl Site {
    /// Makes the hosts; `program` is flowyard.
    pub(super) fn new(way: Way, program: &Path, cpus: [usize; THREADS]) -> anyhow::Result<Self> {
        match way.link() {
            Link::Veth => Self::kernel(way, cpus),
            Link::Packet => {
                let (hosts, between) = Hosts::apart()?;
                let yard = Yard::start(&between, program, &text(way, cpus))?;
                Ok(Self { yard: Some(yard), hosts, _between: Some(between), _table: None })
            }
            Link::Tap => {
                let hosts = Hosts::unaddressed()?;
                let mut yard = Yard::start(&hosts.server, program, &text(way, cpus))?;
                yard.wait_for(&hosts.server, "tap0")?;
                // The default of 1000 frames would drop answers while the yard does not run.
                hosts.server.sh("ip link set tap0 txqueuelen 20000")?;
                hosts.address("tap0")?;
                Ok(Self { yard: Some(yard), hosts, _between: None, _table: None })
            }
        }
    }

    fn kernel(way: Way, cpus: [usize; THREADS]) -> anyhow::Result<Self> {
        let hosts = Hosts::new()?;
        let mask = cpus.iter().fold(0, |mask, cpu| mask | 1_u32 << cpu);
        let is_rfs = way.policy() == Policy::Rfs;
        let table = if is_rfs { Some(FlowTable::set(FLOWS[0])?) } else { None };
        let (mask, flows) = match way.policy() {
            Policy::None => (0, 0),
            _ => (mask, if is_rfs { FLOWS[1] } else { 0 }),
        };
        hosts.server.steer("vb", mask, flows)?;
        Ok(Self { yard: None, hosts, _between: None, _table: table })
    }

    /// The process of the yard.
    pub(super) fn yard(&self) -> Option<u32> {
        self.yard.as_ref().map(|yard| yard.child.0.id())
    }

    /// Ends the yard; returns the frames that it dropped, by reason.
    pub(super) fn end(mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        self.yard.take().map_or_else(|| Ok(BTreeMap::new()), Yard::end)
    }
}

/// The configuration of a yard that steers frames of the clients to the core on the CPU of a queue. Frames of the server
/// leave by the core that received them, on the CPU that sent them, because ATR learns from that.
fn text(way: Way, [first, second]: [usize; THREADS]) -> String {
    let (host, net) = match way.link() {
        Link::Tap => (
            "kind = \"tap\"\ninterface = \"tap0\"\nhost_queue = \"cpu\"\ninterface_mac = \"02:00:00:00:00:aa\"",
            "vb",
        ),
        _ => ("kind = \"af_packet\"\ninterface = \"vc\"\nfanout = \"cpu\"", "vd"),
    };
    let learn = match way.policy() {
        Policy::Atr => "[learn]\nkind = \"atr\"\n",
        Policy::Rfs => "[learn]\nkind = \"rfs\"\n",
        _ => "",
    };
    format!(
        "[yard]\ncores = 2\npin = [{first}, {second}]\n\
         [[port]]\nname = \"host\"\n{host}\ncores = [0, 1]\n\
         [[port]]\nname = \"net\"\nkind = \"af_packet\"\ninterface = \"{net}\"\ncores = [0, 1]\n\
         [[queue]]\nname = \"q0\"\norder = \"direct\"\nconsumers = [0]\n\
         [[queue]]\nname = \"q1\"\norder = \"direct\"\nconsumers = [1]\n\
         [steer]\nspread = [\"q0\", \"q1\"]\n\
         [[steer.rule]]\nmatch = {{ in_port = \"host\" }}\nport = \"net\"\n\
         {learn}\
         [work]\nkind = \"forward\"\nports = {{ net = \"host\", host = \"net\" }}\n"
    )
}

/// A running `flowyard run`, killed when this is dropped.
struct Yard {
    child: Process,
    folder: TempDir,
}

impl Yard {
    fn start(net: &Net, program: &Path, text: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the yard")?;
        let path = folder.path().join("yard.toml");
        fs::write(&path, text).context("the yard's configuration")?;
        // Files, not pipes, because they are read only at the end.
        let file = |name: &str| File::create(folder.path().join(name)).context("the yard's output");
        let mut command: Command = net.command(program);
        command.arg("run").arg(&path).args(["--json", "--control", "none"]).stdin(Stdio::null());
        command.stdout(file("out")?).stderr(file("err")?);
        let child = Process(command.spawn().context("nsenter")?);
        Ok(Self { child, folder })
    }

    /// What it printed, without what is not text.
    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// Waits until the yard has made the interface `name`.
    fn wait_for(&mut self, net: &Net, name: &str) -> anyhow::Result<()> {
        for _ in 0..1000 {
            if net.proc("dev")?.contains(&format!("{name}:")) {
                return Ok(());
            }
            if let Some(status) = self.child.0.try_wait()? {
                anyhow::bail!("flowyard run: {status}: {}", self.said("err").trim());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        anyhow::bail!("flowyard run made no {name} within 10 s: {}", self.said("err").trim())
    }

    fn end(mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        let running = self.child.0.try_wait()?.is_none();
        ensure!(running, "flowyard run ended early: {}", self.said("err").trim());
        kill_process(Pid::from_child(&self.child.0), Signal::INT).context("ending flowyard run")?;
        let status = self.child.0.wait()?;
        let said = self.said("err");
        ensure!(status.success(), "flowyard run ended with {status}: {}", said.trim());
        let document: serde_json::Value =
            serde_json::from_str(&self.said("out")).context("the output of flowyard run")?;
        ensure!(document["balanced"] == true, "the counters of flowyard run do not balance");
        let drops = document["total"]["drops"].as_object().into_iter().flatten();
        let drops = drops.map(|(why, count)| (why.clone(), count.as_u64().unwrap_or_default()));
        Ok(drops.filter(|(_, count)| *count > 0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every configuration is one that `flowyard run` reads.
    #[test]
    fn configurations_are_read() {
        for way in Way::ALL.into_iter().filter(|way| way.link() != Link::Veth) {
            let text = text(way, [2, 5]);
            let config = flowyard_config::Config::parse("yard.toml", &text);
            assert!(config.is_ok(), "{way:?}: {config:?}\n{text}");
            assert!(text.contains("pin = [2, 5]"));
            assert_eq!(text.contains("[learn]"), way.policy() != Policy::Hash, "{way:?}");
        }
    }
}
