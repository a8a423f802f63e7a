//! Interfaces: what stands between their frames and a port.

use super::text::{join, list};
use crate::doctor::{Finding, Machine, Offload, Wanted};

/// The largest MTU of an XDP program without fragments on veth, as measured.
const XDP_MTU: u32 = 3498;

pub(super) fn all(machine: &dyn Machine, wanted: &Wanted, name: &str, kind: &str) -> Vec<Finding> {
    let about = |what: &str| format!("{what} {name}");
    if kind == "tap" {
        let why = "ports of kind \"tap\" are made with it";
        let device = Finding::new(&about("tap"), "/dev/net/tun is there", why);
        let there = machine.list("/dev/net").iter().any(|entry| entry == "tun");
        return vec![match there {
            true => device,
            false => Finding::new(&about("tap"), "there is no /dev/net/tun", why)
                .problem("modprobe tun; mkdir -p /dev/net && mknod /dev/net/tun c 10 200"),
        }];
    }
    let folder = format!("/sys/class/net/{name}");
    let there = machine.list("/sys/class/net").iter().any(|entry| entry == name);
    let why = "a port receives and transmits there";
    if !there {
        let known = machine.list("/sys/class/net").join(", ");
        return vec![
            Finding::new(&about("interface"), "there is none of this name", why)
                .problem(format!("choose 'interface' from {known}")),
        ];
    }
    let state = machine.read(&format!("{folder}/operstate")).unwrap_or_default();
    let state = state.trim();
    let mut found = vec![match state {
        "up" | "unknown" => Finding::new(&about("interface"), state, why),
        state => Finding::new(&about("interface"), format!("its state is {state}"), why)
            .problem(format!("ip link set {name} up")),
    }];
    let is_veth = is_virtual(machine, name);
    found.extend(uplink(machine, name));
    found.extend(offloads(machine, name, kind, is_veth));
    found.extend(queues(machine, wanted, name, kind));
    if kind == "af_xdp" {
        found.extend(mtu(machine, name));
    }
    found.extend(interrupts(machine, wanted, name));
    found.extend(rp_filter(machine, name));
    found
}

/// Whether it has no device behind it: veth and its like.
fn is_virtual(machine: &dyn Machine, name: &str) -> bool {
    !machine.list(&format!("/sys/class/net/{name}")).iter().any(|entry| entry == "device")
}

/// The interface with the default route is how people reach the machine.
fn uplink(machine: &dyn Machine, name: &str) -> Option<Finding> {
    let why = "a port takes frames away from the kernel: who reaches the machine here is cut off";
    let routes = machine.read("/proc/net/route")?;
    let is = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some(name) && words.next() == Some("00000000")
    };
    routes.lines().any(is).then(|| {
        Finding::new(&format!("uplink {name}"), "the default route goes through it", why)
            .problem("choose another interface, or run with --yes-this-is-my-uplink")
    })
}

fn offloads(machine: &dyn Machine, name: &str, kind: &str, is_veth: bool) -> Vec<Finding> {
    let about = format!("offload {name}");
    let on = |offload| machine.offload(name, offload).unwrap_or(false);
    if machine.offload(name, Offload::Gro).is_err() {
        let what = "what the interface does to frames cannot be read";
        let why = "merged or half-made frames are no frames of the wire";
        return vec![Finding::new(&about, what, why).warn(format!("ethtool -k {name}"))];
    }
    let mut found = Vec::new();
    if is_veth && on(Offload::TxChecksum) {
        let why = "programs on this machine then send frames whose checksum nobody has filled in: AF_XDP cannot \
                   see that, and the receiver drops them (a SYN that is never answered)";
        let mend =
            format!("ethtool -K {name} tx off; the same for its peer, inside the peer's namespace");
        let one = Finding::new(&about, "tx checksum is on, on a virtual interface", why);
        found.push(if kind == "af_xdp" { one.problem(mend) } else { one.warn(mend) });
    }
    if on(Offload::Gro) && kind == "af_packet" {
        let why = "received frames are merged before the port sees them: longer than any buffer, they are dropped \
                   as too_long";
        let one = Finding::new(&about, "GRO is on", why);
        found.push(one.problem(format!("ethtool -K {name} gro off")));
    }
    if is_veth && (on(Offload::Tso) || on(Offload::Gso)) && kind == "af_packet" {
        let why = "segments of up to 64 KiB go over a virtual wire uncut: longer than any buffer, they are dropped \
                   as too_long";
        let mend = format!(
            "ethtool -K {name} tso off gso off; the same for its peer, inside the peer's namespace"
        );
        found.push(
            Finding::new(&about, "TSO or GSO is on, on a virtual interface", why).problem(mend),
        );
    }
    if found.is_empty() {
        let why = "frames reach the port as they are on the wire";
        found.push(Finding::new(&about, "none that is in the way", why));
    }
    found
}

fn queues(machine: &dyn Machine, wanted: &Wanted, name: &str, kind: &str) -> Option<Finding> {
    if kind != "af_xdp" {
        return None;
    }
    let why =
        "an AF_XDP socket is bound to one queue: frames of a queue without one go to the kernel";
    let rx = machine.list(&format!("/sys/class/net/{name}/queues"));
    let rx = rx.iter().filter(|entry| entry.starts_with("rx-")).count() as u32;
    let (now, most) = machine.queues(name).unwrap_or((rx, rx));
    let cores = wanted.cores.max(1) as u32;
    let found =
        Finding::new(&format!("queues {name}"), format!("{now} queues, {cores} cores"), why);
    Some(match now {
        now if now <= cores => found,
        _ if most >= cores => found.warn(format!("ethtool -L {name} combined {cores}")),
        _ => found.warn(format!("name every queue in the port's 'queues', 0 to {}", now - 1)),
    })
}

fn mtu(machine: &dyn Machine, name: &str) -> Option<Finding> {
    let why = "an XDP program without fragments takes frames of one page: above that it cannot be attached";
    let mtu: u32 = machine.read(&format!("/sys/class/net/{name}/mtu"))?.trim().parse().ok()?;
    let found = Finding::new(&format!("mtu {name}"), mtu.to_string(), why);
    Some(match mtu {
        ..=XDP_MTU => found,
        _ => found.warn(format!("ip link set {name} mtu {XDP_MTU}")),
    })
}

/// Where the interface's interrupts go.
fn interrupts(machine: &dyn Machine, wanted: &Wanted, name: &str) -> Option<Finding> {
    let why =
        "a queue whose interrupts wander over processors has cold caches, and disturbs every core";
    let text = machine.read("/proc/interrupts")?;
    let is_its =
        |word: &str| word == name || word.strip_prefix(name).is_some_and(|r| r.starts_with('-'));
    let mut wandering = Vec::new();
    let mut count = 0;
    for line in text.lines() {
        let Some((number, rest)) = line.split_once(':') else { continue };
        let Ok(number) = number.trim().parse::<usize>() else { continue };
        if !rest.split([' ', '@', ',']).any(is_its) {
            continue;
        }
        count += 1;
        let cpus = machine.read(&format!("/proc/irq/{number}/smp_affinity_list"));
        if cpus.is_some_and(|cpus| list(&cpus).len() > 1) {
            wandering.push(number);
        }
    }
    if count == 0 {
        return None; // virtual: its frames come on whatever processor sends them
    }
    let about = format!("interrupts {name}");
    if wandering.is_empty() {
        return Some(Finding::new(&about, format!("{count}, each on one processor"), why));
    }
    let cpus = if wanted.pin.is_empty() { vec![0] } else { wanted.pin.clone() };
    let echo = |(at, number): (usize, &usize)| {
        format!("echo {} > /proc/irq/{number}/smp_affinity_list", cpus[at % cpus.len()])
    };
    let mend: Vec<_> = wandering.iter().enumerate().map(echo).collect();
    let what = format!(
        "{} of {count} may go to several processors ({})",
        wandering.len(),
        join(&wandering)
    );
    Some(Finding::new(&about, what, why).warn(format!("stop irqbalance; {}", mend.join("; "))))
}

fn rp_filter(machine: &dyn Machine, name: &str) -> Option<Finding> {
    let why = "the kernel drops what comes in by another interface than it would answer by, and says nothing";
    let read = |of: &str| -> Option<u8> {
        machine.read(&format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"))?.trim().parse().ok()
    };
    // The larger of both counts (Linux, ip-sysctl.rst).
    let mode = read("all")?.max(read(name)?);
    let about = format!("rp_filter {name}");
    Some(match mode {
        1 => Finding::new(&about, "strict", why).warn(format!(
            "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{name}.rp_filter=2"
        )),
        _ => Finding::new(&about, if mode == 0 { "off" } else { "loose" }, why),
    })
}
