//! Checks of the interfaces that ports are opened on.

use super::text::{join, list, version};
use crate::doctor::config::{Port, Wanted};
use crate::doctor::finding::Finding;
use crate::doctor::machine::{Machine, QueueCounts};
use flowyard_host::Offload;

/// The largest MTU of an `af_xdp` port without `multi_buffer`: a frame and its headroom must fit into one page.
const XDP_MTU: u32 = 3758;

/// The first kernel whose AF_XDP sockets have frames in several buffers.
const MULTI_BUFFER: (u32, u32) = (6, 6);

pub(super) fn all(machine: &dyn Machine, wanted: &Wanted, port: &Port) -> Vec<Finding> {
    let (name, kind) = (port.interface.as_str(), port.kind.as_str());
    let about = |what: &str| format!("{what} {name}");
    if kind == "tap" {
        let why = "ports of kind \"tap\" are created with it";
        let device = Finding::new(&about("tap"), "/dev/net/tun exists", why);
        let there = machine.list("/dev/net").iter().any(|entry| entry == "tun");
        let device = match there {
            true => device,
            false => Finding::new(&about("tap"), "/dev/net/tun does not exist", why)
                .problem("modprobe tun; mkdir -p /dev/net && mknod /dev/net/tun c 10 200"),
        };
        let others = other_than_tap(machine, name).into_iter().chain(passed_on(machine, port));
        return std::iter::once(device).chain(others).collect();
    }
    let folder = format!("/sys/class/net/{name}");
    let why = "a port receives and transmits on this interface";
    if let Some(missing) = missing(machine, name, why) {
        return vec![missing];
    }
    let state = machine.read(&format!("{folder}/operstate")).unwrap_or_default();
    let state = state.trim();
    let mut found = vec![match state {
        "up" | "unknown" => Finding::new(&about("interface"), state, why),
        state => Finding::new(&about("interface"), format!("the state is {state}"), why)
            .problem(format!("ip link set {name} up")),
    }];
    let is_veth = is_virtual(machine, name);
    found.extend(uplink(machine, name));
    found.push(offloads(machine, port, is_veth));
    found.extend(queues(machine, port));
    if kind == "af_xdp" {
        found.extend(mtu(machine, port));
    }
    found.extend(interrupts(machine, wanted, name));
    found.extend(rp_filter(machine, name));
    found
}

/// An interface that does not exist, or of which `/sys` shows nothing, because it shows another network namespace.
pub(super) fn missing(machine: &dyn Machine, name: &str, why: &str) -> Option<Finding> {
    let about = format!("interface {name}");
    let names = machine.list("/sys/class/net");
    let index = machine.index(name);
    let shown = machine.read(&format!("/sys/class/net/{name}/ifindex"));
    let shown = shown.and_then(|text| text.trim().parse::<u32>().ok());
    match index {
        Some(_) if shown == index => None,
        None if !names.iter().any(|entry| entry == name) => {
            let here = |name: &&String| machine.index(name).is_some();
            let known: Vec<_> = names.iter().filter(here).map(String::as_str).collect();
            let known = known.join(", ");
            let found = Finding::new(&about, "there is no such interface", why);
            Some(found.problem(format!("choose 'interface' from {known}")))
        }
        _ => {
            let what = match index {
                Some(_) => "it cannot be checked: /sys shows another network namespace",
                None => {
                    "it is in the network namespace that /sys shows, which is not that of this command"
                }
            };
            Some(Finding::new(&about, what, why).problem(flowyard_host::OTHER_NAMESPACE_FIX))
        }
    }
}

/// The flag of a TAP interface (`IFF_TAP`, linux/if_tun.h); a TUN interface has another one.
const TAP: u32 = 2;

/// An existing interface with the name of a port of kind "tap" that is no TAP interface.
fn other_than_tap(machine: &dyn Machine, name: &str) -> Option<Finding> {
    machine.list("/sys/class/net").iter().find(|entry| *entry == name)?;
    let flags = machine.read(&format!("/sys/class/net/{name}/tun_flags"));
    let flags =
        flags.and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok());
    if flags.is_some_and(|flags| flags & TAP != 0) {
        return None;
    }
    let why = "a port of kind \"tap\" creates its interface, or uses an existing TAP interface";
    let what = "an interface of this name exists and is no TAP interface";
    Some(Finding::new(&format!("interface {name}"), what, why).problem(
        "choose a name that no interface has, or use kind = \"af_packet\" for this interface",
    ))
}

/// Whether the interface has no hardware, such as a veth.
pub(super) fn is_virtual(machine: &dyn Machine, name: &str) -> bool {
    !machine.list(&format!("/sys/class/net/{name}")).iter().any(|entry| entry == "device")
}

/// The interfaces that have a default route of IPv4 or IPv6.
#[must_use]
fn uplinks(machine: &dyn Machine) -> Vec<String> {
    let v4 = machine.read("/proc/net/route").unwrap_or_default();
    let v6 = machine.read("/proc/net/ipv6_route").unwrap_or_default();
    let v4 = v4.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        // Destination and mask are both 0; a route to 0.0.0.0/1 has another mask.
        (words.get(1) == Some(&"00000000") && words.get(7).is_none_or(|mask| *mask == "00000000"))
            .then(|| words[0].to_owned())
    });
    let v6 = v6.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let all = words.first()?.bytes().all(|digit| digit == b'0') && words.get(1) == Some(&"00");
        // The kernel has a reject route on lo.
        words.get(9).filter(|name| all && **name != "lo").map(|name| (*name).to_owned())
    });
    let mut all: Vec<_> = v4.chain(v6).collect();
    all.sort();
    all.dedup();
    all
}

/// An interface with a default route may be the one through which the machine is administered.
fn uplink(machine: &dyn Machine, name: &str) -> Option<Finding> {
    let why =
        "a port takes all frames from the kernel, so remote sessions through this interface end";
    uplinks(machine).iter().any(|uplink| uplink == name).then(|| {
        Finding::new(&format!("uplink {name}"), "a default route uses this interface", why)
            .problem("choose another interface, or run with --yes-this-is-my-uplink")
    })
}

const LONG: &str =
    "a long frame passes in one piece and is cut where a port, or the next adapter, cannot take it";

/// The first kernel that leaves UDP segmentation to a TAP.
const TAP_USO: (u32, u32) = (6, 2);

/// What a port of kind "tap" passes on unfinished.
fn passed_on(machine: &dyn Machine, port: &Port) -> Option<Finding> {
    let release = machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_old = version(release.trim()).is_some_and(|version| version < TAP_USO);
    let carries = port.carries;
    let words =
        [("csum", carries.csum()), ("tso", carries.tso()), ("uso", carries.uso() && !is_old)];
    let words: Vec<_> =
        words.into_iter().filter(|(_, is_on)| *is_on).map(|(word, _)| word).collect();
    if words.is_empty() {
        return None;
    }
    let about = format!("offload {}", port.interface);
    let found =
        Finding::new(&about, format!("the host leaves to the port: {}", words.join(", ")), LONG);
    Some(match carries.uso() && is_old {
        true => found.warn("use Linux 6.2 or later for uso"),
        false => found,
    })
}

fn offloads(machine: &dyn Machine, port: &Port, is_veth: bool) -> Finding {
    let name = &port.interface;
    let about = format!("offload {name}");
    let on = |offload| machine.offload(name, offload).unwrap_or(false);
    if machine.offload(name, Offload::Gro).is_err() {
        let what = "the offload settings cannot be read";
        let why = "with some offloads a port receives frames that differ from those on the wire";
        return Finding::new(&about, what, why).warn(format!("ethtool -k {name}"));
    }
    if port.kind == "af_xdp" && is_veth && on(Offload::TxChecksum) {
        let why = "programs on this machine send frames without a checksum, which an AF_XDP socket cannot detect; \
                   the receiver drops these frames, so that for example a SYN is never answered";
        let one = Finding::new(&about, "tx checksum offload is on, on a virtual interface", why);
        if port.completes_checksums {
            let why = "the port computes the missing checksums (complete_checksums = true)";
            return Finding { why: why.into(), ..one };
        }
        return one.problem(format!(
            "ethtool -K {name} tx off; the same for its peer, inside the peer's namespace; or \
             complete_checksums = true in the [[port]]"
        ));
    }
    let cuts = [(Offload::Gro, "GRO"), (Offload::Tso, "TSO"), (Offload::Gso, "GSO")];
    let large: Vec<_> =
        cuts.into_iter().filter(|(one, _)| on(*one)).map(|(_, name)| name).collect();
    if port.kind == "af_packet" && !large.is_empty() && port.carries.segments() {
        let what = format!(
            "these offloads are on, and the port passes on long frames: {}",
            large.join(", ")
        );
        return Finding::new(&about, what, LONG);
    }
    if port.kind == "af_packet" && !large.is_empty() {
        let why = "the port splits merged segments in software, which takes time, and the segments then differ \
                   from those on the wire";
        let all = large.iter().map(|one| format!("{} off", one.to_lowercase()));
        let fix = format!("ethtool -K {name} {}", all.collect::<Vec<_>>().join(" "));
        let peer =
            if is_veth { "; the same for its peer, inside the peer's namespace" } else { "" };
        let what = format!("these offloads are on: {}", large.join(", "));
        return Finding::new(&about, what, why).warn(fix + peer);
    }
    let why = "frames reach the port as they are on the wire";
    Finding::new(&about, "no offload that interferes with the port is on", why)
}

fn queues(machine: &dyn Machine, port: &Port) -> Option<Finding> {
    if port.kind != "af_xdp" {
        return None;
    }
    let name = &port.interface;
    let why = "an AF_XDP socket is bound to one queue: frames of queues without a socket go to the kernel";
    let rx = machine.list(&format!("/sys/class/net/{name}/queues"));
    let rx = rx.iter().filter(|entry| entry.starts_with("rx-")).count();
    let none = QueueCounts { now: rx, most: rx, are_combined: true };
    let QueueCounts { now, most, are_combined } = machine.queues(name).unwrap_or(none);
    let bound = port.queues.max(1);
    let command = match are_combined {
        true => format!("ethtool -L {name} combined {bound}"),
        false => format!("ethtool -L {name} rx {bound} tx {bound}"),
    };
    let found = Finding::new(
        &format!("queues {name}"),
        format!("the interface uses {now} queues, and the port is bound to {bound}"),
        why,
    );
    Some(match now {
        now if now == bound => found,
        now if now < bound && most >= bound => found.problem(command),
        now if now < bound => {
            found.problem(format!("write at most {now} cores in 'cores' of the [[port]]"))
        }
        _ if machine.queues(name).is_ok() => found.warn(command),
        _ => {
            found.warn(format!("write {now} cores in 'cores' of the [[port]], one for each queue"))
        }
    })
}

fn mtu(machine: &dyn Machine, port: &Port) -> Option<Finding> {
    let name = &port.interface;
    let why = match port.multi_buffer {
        true => {
            "frames that are longer than a buffer are received in several (multi_buffer = true)"
        }
        false => "without multi_buffer = true, a frame must fit into one page",
    };
    let mtu: u32 = machine.read(&format!("/sys/class/net/{name}/mtu"))?.trim().parse().ok()?;
    let found = Finding::new(&format!("mtu {name}"), mtu.to_string(), why);
    let release = machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let can_join = version(&release).is_none_or(|version| version >= MULTI_BUFFER);
    Some(match mtu {
        ..=XDP_MTU => found,
        _ if port.multi_buffer && can_join => found,
        _ if port.multi_buffer => {
            found.problem(format!("use Linux 6.6 or newer, or: ip link set {name} mtu {XDP_MTU}"))
        }
        _ => found.warn(format!(
            "write multi_buffer = true in the [[port]], or: ip link set {name} mtu {XDP_MTU}"
        )),
    })
}

/// The CPUs that handle the interrupts of the interface.
fn interrupts(machine: &dyn Machine, wanted: &Wanted, name: &str) -> Option<Finding> {
    let why = "interrupts of one queue on changing CPUs cause cache misses and disturb the cores on these CPUs";
    let text = machine.read("/proc/interrupts")?;
    let owned = owned(machine, name);
    let is_its =
        |word: &str| word == name || word.strip_prefix(name).is_some_and(|r| r.starts_with('-'));
    let mut unpinned = Vec::new();
    let mut count = 0;
    for line in text.lines() {
        let Some((number, rest)) = line.split_once(':') else { continue };
        let Ok(number) = number.trim().parse::<usize>() else { continue };
        let is_its = match owned.is_empty() {
            true => rest.split([' ', '@', ',']).any(is_its),
            false => owned.contains(&number),
        };
        if !is_its {
            continue;
        }
        count += 1;
        let cpus = machine.read(&format!("/proc/irq/{number}/smp_affinity_list"));
        if cpus.is_some_and(|cpus| list(&cpus).len() > 1) {
            unpinned.push(number);
        }
    }
    if count == 0 {
        return None; // a virtual interface: frames are received on the CPU that sends them
    }
    let about = format!("interrupts {name}");
    if unpinned.is_empty() {
        return Some(Finding::new(&about, format!("{count}, each on one CPU"), why));
    }
    let cpus = if wanted.pin.is_empty() { vec![0] } else { wanted.pin.clone() };
    let echo = |(at, number): (usize, &usize)| {
        format!("echo {} > /proc/irq/{number}/smp_affinity_list", cpus[at % cpus.len()])
    };
    let fix: Vec<_> = unpinned.iter().enumerate().map(echo).collect();
    let what = format!(
        "{} of {count} interrupts may go to several CPUs ({})",
        unpinned.len(),
        join(&unpinned)
    );
    Some(Finding::new(&about, what, why).warn(format!("stop irqbalance; {}", fix.join("; "))))
}

/// The interrupts that the device of the interface lists; the name in /proc/interrupts may be that of the driver and the
/// bus address. Those of a virtio device are its parent's; the parent of others is the port that they are plugged into.
fn owned(machine: &dyn Machine, name: &str) -> Vec<usize> {
    let list = |folder| machine.list(&format!("/sys/class/net/{name}/device/{folder}"));
    let mut names = list("msi_irqs");
    if names.is_empty() && list("driver").iter().any(|device| device.starts_with("virtio")) {
        names = list("../msi_irqs");
    }
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

fn rp_filter(machine: &dyn Machine, name: &str) -> Option<Finding> {
    let why = "in strict mode the kernel silently drops packets that arrive on another interface than the one that \
               replies would use";
    let read = |of: &str| -> Option<u8> {
        machine.read(&format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"))?.trim().parse().ok()
    };
    // The larger value is used (Linux, ip-sysctl.rst).
    let mode = read("all")?.max(read(name)?);
    let about = format!("rp_filter {name}");
    Some(match mode {
        // The setting of "all" is that of other interfaces, too, and stays as it is.
        1 => Finding::new(&about, "strict", why)
            .warn(format!("sysctl -w net.ipv4.conf.{name}.rp_filter=2")),
        _ => Finding::new(&about, if mode == 0 { "off" } else { "loose" }, why),
    })
}
