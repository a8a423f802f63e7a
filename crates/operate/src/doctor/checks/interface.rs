//! Interfaces: what stands between their frames and a port.

use super::text::{join, list};
use crate::doctor::{Finding, Machine, Offload, Port, Wanted};

/// The largest MTU of an `af_xdp` port: its frames have to fit into a page, with room in front.
const XDP_MTU: u32 = 3758;

pub(super) fn all(machine: &dyn Machine, wanted: &Wanted, port: &Port) -> Vec<Finding> {
    let (name, kind) = (port.interface.as_str(), port.kind.as_str());
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
    found.push(offloads(machine, port, is_veth));
    found.extend(queues(machine, port));
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

/// Interfaces that a default route goes through, of IPv4 or IPv6.
#[must_use]
fn uplinks(machine: &dyn Machine) -> Vec<String> {
    let v4 = machine.read("/proc/net/route").unwrap_or_default();
    let v6 = machine.read("/proc/net/ipv6_route").unwrap_or_default();
    let v4 = v4.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        // Destination and mask are both 0: not a route of half the addresses.
        (words.get(1) == Some(&"00000000") && words.get(7).is_none_or(|mask| *mask == "00000000"))
            .then(|| words[0].to_owned())
    });
    let v6 = v6.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let all = words.first()?.bytes().all(|digit| digit == b'0') && words.get(1) == Some(&"00");
        // The kernel's own reject route stands on lo.
        words.get(9).filter(|name| all && **name != "lo").map(|name| (*name).to_owned())
    });
    let mut all: Vec<_> = v4.chain(v6).collect();
    all.sort();
    all.dedup();
    all
}

/// The interface with the default route is how people reach the machine.
fn uplink(machine: &dyn Machine, name: &str) -> Option<Finding> {
    let why = "a port takes frames away from the kernel: who reaches the machine here is cut off";
    uplinks(machine).iter().any(|uplink| uplink == name).then(|| {
        Finding::new(&format!("uplink {name}"), "a default route goes through it", why)
            .problem("choose another interface, or run with --yes-this-is-my-uplink")
    })
}

fn offloads(machine: &dyn Machine, port: &Port, is_veth: bool) -> Finding {
    let name = &port.interface;
    let about = format!("offload {name}");
    let on = |offload| machine.offload(name, offload).unwrap_or(false);
    if machine.offload(name, Offload::Gro).is_err() {
        let what = "what the interface does to frames cannot be read";
        let why = "merged or half-made frames are no frames of the wire";
        return Finding::new(&about, what, why).warn(format!("ethtool -k {name}"));
    }
    if port.kind == "af_xdp" && is_veth && on(Offload::TxChecksum) {
        let why = "programs on this machine then send frames whose checksum nobody has filled in: AF_XDP cannot \
                   see that, and the receiver drops them (a SYN that is never answered)";
        let one = Finding::new(&about, "tx checksum is on, on a virtual interface", why);
        if port.completes_checksums {
            return Finding {
                why: "the port computes checksums anew: complete_checksums".into(),
                ..one
            };
        }
        return one.problem(format!(
            "ethtool -K {name} tx off; the same for its peer, inside the peer's namespace; or \
             complete_checksums = true in the [[port]]"
        ));
    }
    let cuts = [(Offload::Gro, "GRO"), (Offload::Tso, "TSO"), (Offload::Gso, "GSO")];
    let large: Vec<_> =
        cuts.into_iter().filter(|(one, _)| on(*one)).map(|(_, name)| name).collect();
    if port.kind == "af_packet" && !large.is_empty() {
        let why = "merged segments are cut again by the port, in software: it costs time, and the cuts are not \
                   those of the wire";
        let all = large.iter().map(|one| format!("{} off", one.to_lowercase()));
        let mend = format!("ethtool -K {name} {}", all.collect::<Vec<_>>().join(" "));
        let peer =
            if is_veth { "; the same for its peer, inside the peer's namespace" } else { "" };
        return Finding::new(&about, format!("on: {}", large.join(", ")), why).warn(mend + peer);
    }
    Finding::new(&about, "none that is in the way", "frames reach the port as they are on the wire")
}

fn queues(machine: &dyn Machine, port: &Port) -> Option<Finding> {
    if port.kind != "af_xdp" {
        return None;
    }
    let name = &port.interface;
    let why =
        "an AF_XDP socket is bound to one queue: frames of a queue without one go to the kernel";
    let rx = machine.list(&format!("/sys/class/net/{name}/queues"));
    let rx = rx.iter().filter(|entry| entry.starts_with("rx-")).count();
    let (now, most) =
        machine.queues(name).map_or((rx, rx), |(now, most)| (now as usize, most as usize));
    let bound = port.queues.max(1);
    let found = Finding::new(
        &format!("queues {name}"),
        format!("{now}, of which the port has {bound}"),
        why,
    );
    Some(match now {
        now if now == bound => found,
        now if now < bound && most >= bound => {
            found.problem(format!("ethtool -L {name} combined {bound}"))
        }
        now if now < bound => {
            found.problem(format!("name at most {now} cores in the [[port]]'s 'cores'"))
        }
        _ if machine.queues(name).is_ok() => {
            found.warn(format!("ethtool -L {name} combined {bound}"))
        }
        _ => found.warn(format!("name {now} cores in the [[port]]'s 'cores', one for each queue")),
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
