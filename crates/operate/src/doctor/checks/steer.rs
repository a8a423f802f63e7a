//! What `flowyard steer` needs of the kernel and of an interface.

use super::interface::missing;
use super::text::{cap, version};
use crate::doctor::Offload;
use crate::doctor::finding::Finding;
use crate::doctor::machine::Machine;

/// The kind of an interface that `flowyard steer` is to have.
pub(super) const KIND: &str = "steer";

/// Capabilities that loading and attaching need.
const RIGHTS: [(u32, &str); 3] = [(12, "CAP_NET_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];
/// What each version of Linux brings, and what is missing before.
const VERSIONS: [((u32, u32), &str); 3] = [
    (
        (5, 15),
        "links that end with the process, programs on the side of the CPU, and loops: without them nothing works",
    ),
    (
        (6, 3),
        "the tracepoint where a thread reads a UDP socket: before, --policy rfs learns only from TCP",
    ),
    (
        (6, 6),
        "programs at egress that are attached by links (tcx): before, --policy atr cannot start",
    ),
];
/// The largest MTU whose frames fit into a page beside what XDP and the kernel need in it.
const MTU: u32 = 3498;

/// All findings about an interface.
pub(super) fn all(machine: &dyn Machine, name: &str) -> Vec<Finding> {
    if let Some(missing) = missing(machine, name, "its frames are to be steered") {
        return vec![missing];
    }
    let mut found = vec![kernel(machine), rights(machine), types(machine), pins(machine)];
    found.extend(checksums(machine, name));
    found.extend(mtu(machine, name));
    found.extend(packet_steering(machine, name));
    found.push(driver(name));
    found
}

fn kernel(machine: &dyn Machine) -> Finding {
    let why = "5.15: `flowyard steer`; 6.3: UDP with --policy rfs; 6.6: --policy atr";
    let release = machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let Some(now) = version(release) else {
        return Finding::new("kernel for steer", "the version cannot be read", why)
            .warn("mount /proc");
    };
    let missing = VERSIONS.iter().filter(|(needed, _)| now < *needed);
    let missing: Vec<_> =
        missing.map(|((major, minor), what)| format!("{major}.{minor} has {what}")).collect();
    let found = Finding::new("kernel for steer", format!("Linux {release}"), why);
    if missing.is_empty() {
        return found;
    }
    let found = Finding { what: format!("Linux {release}; {}", missing.join("; ")), ..found };
    match now < VERSIONS[0].0 {
        true => found.problem("use Linux 5.15 or later"),
        false => found.warn("use Linux 6.6 or later, or another --policy"),
    }
}

fn rights(machine: &dyn Machine) -> Finding {
    let why = "loading and attaching the programs needs them";
    let status = machine.read("/proc/self/status");
    let Some(have) = status.and_then(|status| cap(&status)) else {
        let what = "the capabilities cannot be read from /proc/self/status";
        return Finding::new("capabilities for steer", what, why).warn("mount /proc");
    };
    let missing = RIGHTS.iter().filter(|(bit, _)| have >> bit & 1 == 0);
    let missing: Vec<_> = missing.map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Finding::new("capabilities for steer", "all are present", why);
    }
    let what = format!("missing in this process: {}", missing.join(", "));
    let names = missing.join(",").to_lowercase();
    Finding::new("capabilities for steer", what, why)
        .problem(format!("run as root, or: setcap {names}=ep \"$(command -v flowyard)\""))
}

/// The kernel's description of its own types (BTF).
fn types(machine: &dyn Machine) -> Finding {
    let why = "--policy rfs reads the kernel's sockets, whose form the kernel has to tell (BTF)";
    let found = |what: &str| Finding::new("types of the kernel", what, why);
    match machine.list("/sys/kernel/btf").iter().any(|name| name == "vmlinux") {
        true => found("the kernel tells them"),
        false => found("/sys/kernel/btf/vmlinux is missing").warn(
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y, or another --policy; in a container, mount /sys",
        ),
    }
}

fn pins(machine: &dyn Machine) -> Finding {
    let why = "--pin keeps the programs and their flows there while `flowyard steer` is restarted";
    let mounts = machine.read("/proc/self/mounts").unwrap_or_default();
    let is_there = mounts.lines().any(|line| line.split(' ').nth(2) == Some("bpf"));
    let what = if is_there { "mounted" } else { "none is mounted" };
    let found = Finding::new("BPF file system", what, why);
    if is_there { found } else { found.warn("mount -t bpf bpf /sys/fs/bpf") }
}

/// A virtual interface whose peer leaves out checksums.
fn checksums(machine: &dyn Machine, name: &str) -> Option<Finding> {
    if super::interface::is_virtual(machine, name)
        && machine.offload(name, Offload::TxChecksum).is_ok_and(|is_on| is_on)
    {
        let why = "a redirect to another CPU loses the remark that a checksum is still missing, and the kernel drops every TCP \
                   segment as corrupt; both ends of a veth have this setting by default";
        let what = "tx checksum offload is on, on a virtual interface";
        return Some(Finding::new(&format!("checksums {name}"), what, why).warn(format!(
            "ethtool -K PEER tx off, for the other end of {name}, inside its namespace"
        )));
    }
    None
}

fn mtu(machine: &dyn Machine, name: &str) -> Option<Finding> {
    let why = "frames of more than a page cannot be received while an XDP program without fragments is attached";
    let mtu: u32 = machine.read(&format!("/sys/class/net/{name}/mtu"))?.trim().parse().ok()?;
    let found = Finding::new(&format!("mtu {name}"), mtu.to_string(), why);
    // The loopback interface has no frames of others.
    Some(if mtu <= MTU || name == "lo" {
        found
    } else {
        found.problem(format!("ip link set {name} mtu {MTU}, or less"))
    })
}

/// RPS and RFS would move frames once more.
fn packet_steering(machine: &dyn Machine, name: &str) -> Vec<Finding> {
    let queues = format!("/sys/class/net/{name}/queues");
    let is_set = |file: &str| {
        let names = machine.list(&queues);
        let mut rx = names.iter().filter(|queue| queue.starts_with("rx-"));
        rx.any(|queue| {
            let text = machine.read(&format!("{queues}/{queue}/{file}")).unwrap_or_default();
            text.chars().any(|c| c.is_ascii_hexdigit() && c != '0')
        })
    };
    let checks = [
        (
            "RPS",
            "rps_cpus",
            "the kernel sends frames on to the CPUs of rps_cpus, whatever CPU `flowyard steer` chose",
        ),
        (
            "RFS",
            "rps_flow_cnt",
            "the kernel sends frames on to the CPU of their reader by a table of its own, and may reorder them",
        ),
    ];
    let check = |(about, file, why): (&str, &str, &str)| {
        let found = |what: &str| Finding::new(&format!("{about} {name}"), what, why);
        match is_set(file) {
            false => found("off"),
            true => found("on")
                .warn(format!("for queue in {queues}/rx-*; do echo 0 > $queue/{file}; done")),
        }
    };
    checks.map(check).into()
}

/// Whether the driver has XDP cannot be read.
fn driver(name: &str) -> Finding {
    let why = "after the driver (generic XDP) every frame costs more, and --policy atr and rfs move no flow";
    let about = format!("XDP {name}");
    if name == "lo" {
        let what = "the loopback interface has no XDP in its driver, and its frames are received where they are sent";
        return Finding::new(&about, what, why)
            .warn("steer an interface that receives from elsewhere");
    }
    let what = "whether the driver has XDP is seen when it is attached: `flowyard steer` then prints a remark, and 'flowyard show steer' \
                shows driver or generic";
    Finding::new(&about, what, why)
}
