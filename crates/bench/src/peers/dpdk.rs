//! A program of DPDK as a process: its command line, and its counters by DPDK's telemetry.
//!
//! The program receives a capture again and again (`net_pcap` with `infinite_rx`) and frees what it transmits. It polls
//! on CPU 0; its other threads use CPU 1, if there is one. Without huge pages it runs without them.
//!
//! Thread-safety: one thread.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::process::{Pid, Signal, kill_process};

/// A program and its arguments.
pub(super) struct Peer {
    program: PathBuf,
    arguments: Vec<String>,
    /// What it prints.
    output: PathBuf,
    /// The name of its files in DPDK's folder.
    prefix: String,
}

/// A measured rate.
pub(super) struct Measured {
    /// Frames per second of processor time.
    pub(super) pps: f64,
    /// The version of DPDK.
    pub(super) version: String,
}

/// Time between two questions whether a program has begun to forward.
const STEP: Duration = Duration::from_millis(100);
/// Number of these questions.
const STEPS: u32 = 300;

impl Peer {
    /// DPDK's example l3fwd with exact-match rules for IPv4 and IPv6.
    pub(super) fn l3fwd(program: &Path, folder: &Path, capture: &Path, rules: [&Path; 2]) -> Self {
        let [rules4, rules6] = rules.map(|path| path.display().to_string());
        let words = ["-p", "0x1", "--config", "(0,0,0)", "--lookup=em", "--parse-ptype", "-P"];
        let rules = [format!("--rule_ipv4={rules4}"), format!("--rule_ipv6={rules6}")];
        let all = words.into_iter().map(str::to_owned).chain(rules).collect();
        Self::new("l3fwd", program, folder, (capture, "0@0"), all)
    }

    /// testpmd, which rewrites the MAC addresses of every frame.
    pub(super) fn testpmd(program: &Path, folder: &Path, capture: &Path) -> Self {
        // One buffer for each frame of the capture, and some for the way.
        let words = [
            "--nb-cores=1",
            "--forward-mode=mac",
            "--port-topology=loop",
            "--total-num-mbufs=40960",
        ];
        let other = if crate::processors() > 1 { 1 } else { 0 };
        let cpus = format!("0@{other},1@0"); // the first waits for Enter, the second forwards
        Self::new("testpmd", program, folder, (capture, &cpus), words.map(str::to_owned).to_vec())
    }

    fn new(
        name: &str,
        program: &Path,
        folder: &Path,
        (capture, cpus): (&Path, &str),
        words: Vec<String>,
    ) -> Self {
        let prefix = format!("flowyard-{name}-{}", std::process::id());
        let mut arguments = vec![format!("--lcores={cpus}"), "--no-pci".into()];
        arguments.extend((!has_huge_pages()).then(|| "--no-huge".into()));
        arguments.extend(["-m", "512", "--log-level=3"].map(str::to_owned));
        arguments.push(format!("--file-prefix={prefix}"));
        arguments.push(format!("--vdev=net_pcap0,rx_pcap={},infinite_rx=1", capture.display()));
        arguments.push("--".into());
        arguments.extend(words);
        let output = folder.join(format!("{name}.log"));
        Self { program: program.to_owned(), arguments, output, prefix }
    }

    /// Starts the program, measures its rate for `time` after a quarter of it to warm up, and ends it.
    pub(super) fn measure(&self, time: Duration) -> anyhow::Result<Measured> {
        let mut running = self.start()?;
        let (socket, version) = self.connect(&mut running)?;
        let mut began = false;
        for _ in 0..STEPS {
            began = frames(&socket)? > 0;
            if began {
                break;
            }
            sleep(STEP);
        }
        if !began {
            bail!("it has forwarded no frame for {:?}; it said: {}", STEP * STEPS, self.said());
        }
        sleep(time / 4);
        let before = (frames(&socket)?, running.cpu_ns()?);
        sleep(time);
        let after = (frames(&socket)?, running.cpu_ns()?);
        let pps = (after.0 - before.0) as f64 * 1e9 / (after.1 - before.1).max(1) as f64;
        Ok(Measured { pps, version })
    }

    fn start(&self) -> anyhow::Result<Running> {
        let output = File::create(&self.output)?;
        // Also if this process is killed, the program must not keep a processor busy.
        let mut command = match crate::in_path("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "TERM", "--"]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(&self.arguments).stdout(output.try_clone()?).stderr(output);
        // testpmd forwards until it reads a line, or this process has ended.
        let child = command.stdin(Stdio::piped()).spawn();
        let child =
            child.with_context(|| format!("{} cannot be started", self.program.display()))?;
        Ok(Running { child, folder: self.folder() })
    }

    /// DPDK's folder for this process.
    fn folder(&self) -> PathBuf {
        let root = if rustix::process::geteuid().is_root() {
            "/var/run".into()
        } else {
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| "/tmp".into(), PathBuf::from)
        };
        root.join("dpdk").join(&self.prefix)
    }

    /// Connects to the program's telemetry. Returns its version, too.
    fn connect(&self, running: &mut Running) -> anyhow::Result<(OwnedFd, String)> {
        let path = self.folder().join("dpdk_telemetry.v2");
        for _ in 0..STEPS {
            if let Some(status) = running.child.try_wait()? {
                bail!("it ended with {status}; it said: {}", self.said());
            }
            if let Ok(socket) = open(&path) {
                let hello: serde_json::Value = serde_json::from_slice(&receive(&socket)?)?;
                let version = hello["version"].as_str().unwrap_or("unknown");
                return Ok((socket, version.to_owned()));
            }
            sleep(STEP);
        }
        bail!("its telemetry socket {} did not appear; it said: {}", path.display(), self.said())
    }

    /// The end of what it printed.
    fn said(&self) -> String {
        let text = fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().rev().filter(|line| !line.is_empty()).take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

/// Whether the machine has free huge pages.
fn has_huge_pages() -> bool {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    free.is_some_and(|count| count.trim() != "0")
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let limit = Some(Duration::from_secs(10));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, limit)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn receive(socket: &OwnedFd) -> anyhow::Result<Vec<u8>> {
    let mut answer = vec![0; 1 << 16];
    let received = rustix::net::recv(socket, answer.as_mut_slice(), RecvFlags::empty());
    let (length, _) = received.context("its telemetry does not answer")?;
    answer.truncate(length);
    Ok(answer)
}

/// Frames that port 0 has transmitted.
fn frames(socket: &OwnedFd) -> anyhow::Result<u64> {
    rustix::net::send(socket, b"/ethdev/stats,0", SendFlags::empty())?;
    let answer: serde_json::Value = serde_json::from_slice(&receive(socket)?)?;
    let frames = answer["/ethdev/stats"]["opackets"].as_u64();
    frames.context("its telemetry has no counter opackets for port 0")
}

/// A process; it ends when this is dropped.
struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    /// Processor time that all its threads have used.
    fn cpu_ns(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let times = fs::read_to_string(thread?.path().join("schedstat"))?;
            let first = times.split_whitespace().next();
            sum += first.context("an empty schedstat")?.parse::<u64>()?;
        }
        Ok(sum)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let term = Pid::from_raw(self.child.id() as i32).map(|it| kill_process(it, Signal::TERM));
        let ends = term.is_some_and(|sent| sent.is_ok())
            && (0..50).any(|_| {
                sleep(STEP);
                matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
            });
        if !ends {
            let _gone = self.child.kill();
            let _gone = self.child.wait();
        }
        let _gone = fs::remove_dir_all(&self.folder);
    }
}
