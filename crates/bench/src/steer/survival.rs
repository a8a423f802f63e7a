//! Survival: nginx, iperf3 and readers of datagrams keep working under `flowyard steer --policy rfs` while their threads
//! move between CPUs, the link goes down and up, and `flowyard steer` is restarted and killed.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use flowyard_frame::Nanos;
use flowyard_rfc2544::document::Machine;
use flowyard_testkit::Rng;
use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::Serialize;

use super::datagrams::Flows;
use super::rig::{Daemon, INTERFACE, Process, Rig};
use crate::live::hosts::SERVER;
use crate::load::clients::pin;
use crate::load::protocol::Protocol;
use crate::load::{Conn, Pace, Plan, Tally, drive};
use crate::machine::Before;

/// What to do.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The program flowyard.
    pub program: &'a Path,
    /// For how many seconds programs are disturbed.
    pub seconds: u32,
    /// Decides how long the link is down, and which end.
    pub seed: u64,
    /// The date now.
    pub date: &'a str,
    /// Version and commit of this program.
    pub build: &'a str,
}

/// The results.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Results {
    /// When it began.
    pub date: String,
    /// Version and commit of the program.
    pub build: String,
    /// The machine.
    pub machine: Machine,
    /// For how many seconds programs were disturbed.
    pub seconds: u32,
    /// The seed.
    pub seed: u64,
    /// By what.
    pub events: Events,
    /// Requests to nginx over connections that are kept.
    pub http: Http,
    /// iperf3.
    pub stream: Stream,
    /// Datagrams.
    pub datagrams: Datagrams,
    /// What should not have happened.
    pub faults: Vec<String>,
}

/// What happened to the programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Events {
    /// Threads of nginx, iperf3 and the readers that were moved to the other CPU.
    pub moves: u64,
    /// Times that an end of the link went down and up.
    pub flaps: u64,
    /// The longest time that it was down, in nanoseconds.
    pub longest_down_ns: Nanos,
    /// Times that `flowyard steer` was ended (SIGTERM) and started.
    pub restarts: u64,
    /// Times that it was killed (SIGKILL) and started.
    pub kills: u64,
}

/// Requests over kept connections.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Http {
    /// Number of connections.
    pub connections: usize,
    /// Why connections ended; empty if none did.
    pub broken: Vec<String>,
    /// Requests.
    pub requests: u64,
    /// Those without an answer.
    pub unanswered: u64,
    /// Median time from when a request was due to its answer.
    pub p50_ns: Nanos,
    /// 99th percentile.
    pub p99_ns: Nanos,
    /// The longest.
    pub longest_ns: Nanos,
}

/// What iperf3 reports.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Stream {
    /// Bytes received.
    pub bytes: u64,
    /// Seconds that it lasted.
    pub seconds: f64,
    /// Seconds in which nothing was sent.
    pub silent_seconds: u64,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Datagrams to readers that move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Datagrams {
    /// Number of flows.
    pub flows: u16,
    /// Datagrams sent, also while the link was down.
    pub sent: u64,
    /// Datagrams received, each counted once.
    pub received: u64,
    /// Datagrams that were received before.
    pub twice: u64,
    /// Datagrams that were received after a later one of their flow. A restart forgets where flows are, so they may be late.
    pub late: u64,
    /// Flows of which all datagrams arrived that were sent after the last disturbance.
    pub alive: u16,
}

const CONNECTIONS: usize = 16;
const REQUESTS_A_SECOND: f64 = 400.0;
const FLOWS: u16 = 4;
/// Ports of nginx and iperf3.
const PORTS: [u16; 2] = [80, 5201];
/// How long everything may take to recover after the last disturbance: TCP waits longer after each attempt.
const RECOVERY: Nanos = 60_000_000_000;
/// Datagrams of each flow after the last disturbance.
const LAST: u64 = 100;

/// Disturbs for as long as `job` says. `progress` is called with the seconds passed and all.
///
/// # Errors
/// When the hosts cannot be made, or a program cannot be started.
pub fn measure(
    job: &Job<'_>,
    clock: &Clock,
    progress: &dyn Fn(usize, usize),
) -> anyhow::Result<Results> {
    let before = Before::read();
    let rig = Rig::new(job.program)?;
    let folder = tempfile::tempdir()?;
    let nginx = nginx(&rig, folder.path())?;
    let [port, time] = [PORTS[1].to_string(), job.seconds.to_string()];
    let address = SERVER.to_string();
    let mut iperf = rig.hosts.server.command("iperf3");
    let iperf = Process::start(iperf.args(["-s", "-B", &address, "-p", &port]))?;
    let streams = rig.hosts.connect(PORTS[0], CONNECTIONS)?;
    drop(rig.hosts.connect(PORTS[1], 1)?); // it listens
    let mut conns =
        streams.into_iter().map(|one| Conn::new(one, None)).collect::<anyhow::Result<Vec<_>>>()?;
    let flows = Flows::start(&rig, FLOWS, Duration::from_millis(50))?;
    let daemon = rig.daemon(&["--policy", "rfs"])?;
    let mut client = rig.hosts.clients.command("iperf3");
    let client = client.args(["-c", &address, "-p", &port, "-t", &time, "-b", "50M", "-J"]);
    let client = client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = Process(client.spawn().context("iperf3")?);

    let is_over = AtomicBool::new(false);
    let from = clock();
    let until = from + Nanos::from(job.seconds) * 1_000_000_000;
    let plan = Plan {
        protocol: Protocol::Http,
        pace: Pace::Open(REQUESTS_A_SECOND),
        from,
        until: until + 1_000_000_000,
        patience: RECOVERY,
        seed: job.seed,
    };
    let (events, tally, sent) = thread::scope(|scope| {
        let requests = scope.spawn(|| drive(&mut conns, &plan, clock));
        let sender = scope.spawn(|| offer(&flows, &is_over));
        let mut chaos = Chaos {
            rig: &rig,
            servers: [&nginx, &iperf],
            daemon: Some(daemon),
            rng: Rng::new(job.seed),
            events: Events::default(),
        };
        let disturbed = chaos.run(from, until, clock, progress);
        is_over.store(true, Ordering::Relaxed);
        let tally = requests.join().map_err(|_| anyhow::anyhow!("the requests panicked"))?;
        let sent = sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?;
        disturbed?;
        chaos.daemon.take().map(Daemon::end).transpose()?;
        anyhow::Ok((chaos.events, tally?, sent))
    })?;
    let (datagrams, moves) = finish(flows, sent)?;
    let stream = stream(&mut client)?;
    let events = Events { moves: events.moves + moves, ..events };
    let results = Results {
        date: job.date.into(),
        build: job.build.into(),
        machine: before.machine(),
        seconds: job.seconds,
        seed: job.seed,
        events,
        http: http(&tally),
        stream,
        datagrams,
        faults: Vec::new(),
    };
    Ok(Results { faults: results.faults(), ..results })
}

/// nginx with two processes, which keeps connections for ever.
fn nginx(rig: &Rig, folder: &Path) -> anyhow::Result<Process> {
    let (file, at) = (folder.join("nginx.conf"), folder.display());
    let text = format!(
        "daemon off;\nuser root;\nworker_processes 2;\npid {at}/pid;\nerror_log {at}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{\naccess_log off;\nkeepalive_requests 1000000000;\nkeepalive_timeout 24h;\n\
         server {{ listen {SERVER}:{}; location / {{ return 200 '{}'; }} }}\n}}\n",
        PORTS[0],
        "x".repeat(512),
    );
    fs::write(&file, text)?;
    // Its processes end with the process number space, which ends with the first of them.
    let mut command = rig.hosts.server.command("unshare");
    command.args(["--pid", "--fork", "--kill-child", "nginx", "-e"]);
    command.arg(folder.join("error.log")).arg("-c").arg(file);
    Process::start(&mut command)
}

/// Sends a datagram of each flow every millisecond until it is over, and then the last ones. Returns how many of each
/// flow, and how many had arrived before the last ones.
fn offer(flows: &Flows, is_over: &AtomicBool) -> (u64, Vec<u64>) {
    let mut number = 0;
    let mut send = || {
        number += 1;
        flows.offer(number);
        thread::sleep(Duration::from_millis(1));
    };
    while !is_over.load(Ordering::Relaxed) {
        send();
    }
    // The neighbour's address may have to be found again.
    (0..1000).for_each(|_| send());
    thread::sleep(Duration::from_millis(200));
    let counts = flows.counts();
    (0..LAST).for_each(|_| send());
    (number, counts)
}

fn finish(flows: Flows, (sent, counts): (u64, Vec<u64>)) -> anyhow::Result<(Datagrams, u64)> {
    thread::sleep(Duration::from_millis(300));
    let arrived = |(now, before): (&u64, &u64)| now - before >= LAST;
    let alive = flows.counts().iter().zip(&counts).filter(|pair| arrived(*pair)).count() as u16;
    let (seen, moves) = flows.finish()?;
    let datagrams = Datagrams {
        flows: FLOWS,
        sent: sent * u64::from(FLOWS),
        received: seen.received,
        twice: seen.twice,
        late: seen.late,
        alive,
    };
    Ok((datagrams, moves))
}

fn http(tally: &Tally) -> Http {
    let latency = tally.latency.finish();
    Http {
        connections: CONNECTIONS,
        broken: tally.broken.clone(),
        requests: tally.requests,
        unanswered: tally.unanswered,
        p50_ns: latency.p50_ns,
        p99_ns: latency.p99_ns,
        longest_ns: latency.max_ns,
    }
}

/// What iperf3 reports at its end, for which it has a minute.
fn stream(client: &mut Process) -> anyhow::Result<Stream> {
    let output = client.0.stdout.take().context("no standard output")?;
    let reader = thread::spawn(move || std::io::read_to_string(output));
    for _ in 0..600 {
        if client.0.try_wait()?.is_some() {
            let text = reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
            return report(&text);
        }
        thread::sleep(Duration::from_millis(100));
    }
    let error = Some("it did not end within a minute after its time".to_owned());
    Ok(Stream { error, ..Stream::default() })
}

/// The JSON report of iperf3.
fn report(text: &str) -> anyhow::Result<Stream> {
    let report: serde_json::Value = serde_json::from_str(text).context("the report of iperf3")?;
    let bytes = |value: &serde_json::Value| value["bytes"].as_u64().unwrap_or_default();
    let received = &report["end"]["sum_received"];
    let intervals = report["intervals"].as_array().into_iter().flatten();
    Ok(Stream {
        bytes: bytes(received),
        seconds: received["seconds"].as_f64().unwrap_or_default(),
        silent_seconds: intervals.filter(|one| bytes(&one["sum"]) == 0).count() as u64,
        error: report["error"].as_str().map(str::to_owned),
    })
}

impl Results {
    /// What should not have happened.
    fn faults(&self) -> Vec<String> {
        let (http, stream, datagrams) = (&self.http, &self.stream, &self.datagrams);
        let mut faults = Vec::new();
        if !http.broken.is_empty() {
            let (lost, all) = (http.broken.len(), http.connections);
            faults
                .push(format!("nginx: {lost} of {all} connections were lost: {}", http.broken[0]));
        }
        if http.unanswered > 0 {
            let (unanswered, all) = (http.unanswered, http.requests);
            faults.push(format!("nginx: {unanswered} of {all} requests were not answered"));
        }
        if let Some(error) = &stream.error {
            faults.push(format!("iperf3: {error}"));
        }
        if stream.bytes == 0 {
            faults.push("iperf3: no byte was received".into());
        }
        if datagrams.alive < datagrams.flows {
            let (alive, flows) = (datagrams.alive, datagrams.flows);
            faults.push(format!("datagrams: {alive} of {flows} flows arrived at the end"));
        }
        if datagrams.twice > 0 || datagrams.received > datagrams.sent {
            let Datagrams { sent, received, twice, .. } = datagrams;
            faults.push(format!(
                "datagrams: of {sent} sent, {received} and {twice} again were received"
            ));
        }
        faults
    }
}

/// Times between disturbances of each kind, in nanoseconds. They do not divide each other.
const MOVE: Nanos = 50_000_000;
const FLAP: Nanos = 4_100_000_000;
const RESTART: Nanos = 3_300_000_000;
const KILL: Nanos = 5_700_000_000;

/// What disturbs.
struct Chaos<'a> {
    rig: &'a Rig,
    servers: [&'a Process; 2],
    daemon: Option<Daemon>,
    rng: Rng,
    events: Events,
}

impl Chaos<'_> {
    fn run(
        &mut self,
        from: Nanos,
        until: Nanos,
        clock: &Clock,
        progress: &dyn Fn(usize, usize),
    ) -> anyhow::Result<()> {
        let mut due = [MOVE, FLAP, RESTART, KILL].map(|every| from + every);
        let seconds = |time: Nanos| (time.saturating_sub(from) / 1_000_000_000) as usize;
        loop {
            let now = clock();
            if now >= until {
                return Ok(());
            }
            progress(seconds(now), seconds(until));
            if now >= due[0] {
                due[0] = now + MOVE;
                self.move_threads();
            }
            // Nothing is down at the end.
            if now >= due[1] && until - now > 1_500_000_000 {
                due[1] = now + FLAP;
                self.flap()?;
            }
            if now >= due[2] {
                due[2] = now + RESTART;
                self.daemon.take().map(Daemon::end).transpose()?;
                self.start()?;
                self.events.restarts += 1;
            }
            if now >= due[3] {
                due[3] = now + KILL;
                self.daemon.take().map_or(Ok(()), Daemon::kill)?;
                self.start()?;
                self.events.kills += 1;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.daemon = Some(self.rig.daemon(&["--policy", "rfs"])?);
        Ok(())
    }

    /// Moves each thread of the servers to a random CPU. Threads may end meanwhile.
    fn move_threads(&mut self) {
        for thread in self.servers.iter().flat_map(|server| server.threads()) {
            let cpu = self.rig.cpus[self.rng.below(2) as usize];
            self.events.moves += u64::from(pin(Some(thread), cpu).is_ok());
        }
    }

    /// One end of the link is down for 2 ms to 1 s; short times are as frequent as long ones.
    fn flap(&mut self) -> anyhow::Result<()> {
        let down = 0.002 * 500_f64.powf(self.rng.unit());
        let hosts = &self.rig.hosts;
        let (net, interface) = if self.rng.below(2) == 0 {
            (&hosts.server, INTERFACE)
        } else {
            (&hosts.clients, "va")
        };
        net.sh(&format!(
            "ip link set {interface} down && sleep {down:.3}; ip link set {interface} up"
        ))?;
        self.events.flaps += 1;
        self.events.longest_down_ns = self.events.longest_down_ns.max((down * 1e9) as Nanos);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_iperf3_has_bytes_silence_and_errors() {
        let text = r#"{"intervals":[{"sum":{"bytes":5}},{"sum":{"bytes":0}},{"sum":{"bytes":7}}],
            "end":{"sum_received":{"bytes":12,"seconds":3.5}}}"#;
        let expected = Stream { bytes: 12, seconds: 3.5, silent_seconds: 1, error: None };
        assert_eq!(report(text).unwrap(), expected);
        let failed = report(r#"{"intervals":[],"end":{},"error":"no route"}"#).unwrap();
        assert_eq!((failed.bytes, failed.error.as_deref()), (0, Some("no route")));
        assert!(report("").is_err());
    }
}
