//! What runs in the guest: net_tap with two queues, rules, and datagrams that the kernel sends to the interface.
#![allow(clippy::print_stdout, reason = "what it prints is read from the serial port of the guest")]

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use flowyard_dpdk::rules::{
    Ask, Capabilities, Device, Match, Offer, Place, PortRules, Protocol, Rule, RuleId,
};
use flowyard_dpdk::{Buffers, Copying, Eal, Error, Port, Queue, Settings};

/// Ports of the datagrams.
const PORTS: [u16; 4] = [53, 80, 443, 5000];
/// Datagrams to each port.
const EACH: usize = 20;

pub(crate) fn main() -> ExitCode {
    match run() {
        Ok(()) => {
            println!("all rules were tried");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The number of datagrams that came by each queue, by port.
type Came = BTreeMap<u16, [usize; 2]>;

fn run() -> Result<(), String> {
    let options = ["--no-huge", "-m", "64"].map(str::to_owned);
    let eal = Eal::start(&options, &[]).map_err(|error| error.to_string())?;
    let settings = Settings { queues: 2, rx_frames: 512, tx_frames: 512, mtu: 0 };
    let choose = |_: &_| Ok::<_, Error>(Buffers::Copying(Arc::new(Copying::new(eal, 4096, 2048)?)));
    let mut queues = Port::open(eal, "net_tap0,iface=fyt0", &settings, choose)
        .map_err(|error| error.to_string())?;
    shell(
        "/bin/ip addr add 10.9.0.1/24 dev fyt0 && /bin/ip link set fyt0 up && \
         /bin/ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev fyt0",
    )?;
    let mut rules = PortRules::new(queues[0].port());
    let table = Capabilities::learn(&mut rules);
    for (of, ask, verdict) in table.table() {
        println!("{of:?} {ask:?}: {}", verdict.as_ref().err().map_or("accepted", |why| &why.0));
    }
    for ask in [Ask::Queue, Ask::Drop] {
        table.of(Match::Udp, ask).map_err(|why| format!("{ask:?} of UDP: {why}"))?;
    }
    let offered = |rules: &mut PortRules, rule: &Rule| rules.create(rule).map_err(|why| why.0);

    let before = try_all(&mut queues)?;
    expect("without rules all came", &before, |_, [a, b]| a + b == EACH)?;

    let drop = offered(&mut rules, &rule(53, Place::Drop))?;
    let came = try_all(&mut queues)?;
    expect("port 53 was dropped", &came, |port, [a, b]| {
        a + b == if port == 53 { 0 } else { EACH }
    })?;

    let mut moved = Vec::<RuleId>::new();
    for (port, queue) in [(80, 0), (443, 1)] {
        moved.push(offered(&mut rules, &rule(port, Place::Queue(queue)))?);
    }
    let came = try_all(&mut queues)?;
    expect("ports 80 and 443 came by the queues of their rules", &came, |port, by| match port {
        53 => by == [0, 0],
        80 => by == [EACH, 0],
        443 => by == [0, EACH],
        _ => by[0] + by[1] == EACH,
    })?;

    for rule in moved.into_iter().chain([drop]) {
        rules.destroy(rule).map_err(|why| why.0)?;
    }
    let after = try_all(&mut queues)?;
    expect("after the rules were removed all came", &after, |_, [a, b]| a + b == EACH)?;
    let mark = Offer { place: Place::Usual, mark: Some(7), count: false };
    let why = rules.validate(&Rule { offer: mark, ..rule(53, Place::Usual) }).err();
    println!("a mark is refused: {}", why.ok_or("net_tap accepted a mark")?);
    Ok(())
}

fn rule(port: u16, place: Place) -> Rule {
    Rule {
        to: Some(([10, 9, 0, 2].into(), 32)),
        protocol: Some(Protocol::Udp),
        to_port: Some(port),
        offer: Offer { place, mark: None, count: false },
        ..Rule::default()
    }
}

fn shell(line: &str) -> Result<(), String> {
    let done = Command::new("sh").args(["-c", line]).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("{line}: {other:?}")),
    }
}

/// Sends datagrams to all ports, and counts by which queue they came.
fn try_all(queues: &mut [Queue]) -> Result<Came, String> {
    let socket = UdpSocket::bind("10.9.0.1:0").map_err(|error| error.to_string())?;
    let mut came = Came::new();
    for _ in 0..EACH {
        for port in PORTS {
            let sent = socket.send_to(b"flowyard", ("10.9.0.2", port));
            sent.map_err(|error| format!("sending to port {port}: {error}"))?;
        }
        take(queues, &mut came);
    }
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(10));
        take(queues, &mut came);
    }
    Ok(came)
}

fn take(queues: &mut [Queue], came: &mut Came) {
    for (at, queue) in queues.iter_mut().enumerate() {
        queue.rx(32, |frame| {
            let Some(bytes) = frame.piece() else { return };
            // Ethernet, IPv4 without options, UDP to the other host.
            let is_ours = bytes.get(12..14) == Some(&[8, 0])
                && bytes.get(23) == Some(&17)
                && bytes.get(30..34) == Some(&[10, 9, 0, 2]);
            if let (true, Some([high, low])) = (is_ours, bytes.get(36..38)) {
                came.entry(u16::from_be_bytes([*high, *low])).or_default()[at] += 1;
            }
        });
    }
}

fn expect(
    what: &str,
    came: &Came,
    is_right: impl Fn(u16, [usize; 2]) -> bool,
) -> Result<(), String> {
    println!("{what}: {came:?}");
    let wrong = |port: &&u16| !is_right(**port, came.get(port).copied().unwrap_or_default());
    match PORTS.iter().find(wrong) {
        Some(port) => Err(format!("not true of port {port}: {what}")),
        None => Ok(()),
    }
}
