//! The checks, beginning with the kernel.
//!
//! What no port of the configuration needs is not checked, or is at most a warning.

use std::io;

use super::config::Wanted;
use super::finding::Finding;
use super::machine::Machine;

mod dpdk;
mod interface;
mod processors;
mod steer;
mod text;

pub(super) use processors::offline;
use text::{cap, limit, mib, option, version};

/// All findings: general ones first, then those of each interface.
pub(super) fn all(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    let mut found = vec![kernel(machine, wanted)];
    found.extend(features(machine, wanted));
    found.extend(rights(machine, wanted));
    found.extend(probes(machine, wanted));
    found.extend(memlock(machine, wanted));
    found.extend(huge_pages(machine, wanted));
    found.extend(dpdk::all(machine, wanted));
    found.extend(processors::all(machine, wanted));
    for port in &wanted.ports {
        if port.kind == steer::KIND {
            found.extend(steer::all(machine, &port.interface));
            continue;
        }
        found.extend(interface::all(machine, wanted, port));
    }
    found
}

/// The first kernel that attaches XDP programs by links, which are removed when their process ends.
const XDP_LINK: (u32, u32) = (5, 9);

fn kernel(machine: &dyn Machine, wanted: &Wanted) -> Finding {
    let why = "since Linux 5.9 the kernel removes an XDP program when its process ends, even if it was killed";
    let Some(release) = machine.read("/proc/sys/kernel/osrelease") else {
        return Finding::new("kernel", "the version cannot be read", why).warn("mount /proc");
    };
    let release = release.trim();
    let found = Finding::new("kernel", format!("Linux {release}"), why);
    match version(release) {
        Some(version) if version < XDP_LINK && wanted.kind("af_xdp") => {
            found.problem("use Linux 5.9 or later, or ports of kind \"af_packet\"")
        }
        Some(version) if version < XDP_LINK => found.warn("use Linux 5.9 or later for AF_XDP"),
        _ => found,
    }
}

/// A kernel option, and the kind of port that needs it.
struct KernelOption {
    name: &'static str,
    kind: &'static str,
    why: &'static str,
}

const OPTIONS: [KernelOption; 5] = [
    KernelOption {
        name: "CONFIG_XDP_SOCKETS",
        kind: "af_xdp",
        why: "ports of kind \"af_xdp\" use AF_XDP sockets",
    },
    KernelOption {
        name: "CONFIG_BPF_SYSCALL",
        kind: "af_xdp",
        why: "ports of kind \"af_xdp\" load a small XDP program",
    },
    KernelOption {
        name: "CONFIG_BPF_JIT",
        kind: "af_xdp",
        why: "the XDP program runs for every frame and is slow if it is interpreted",
    },
    KernelOption {
        name: "CONFIG_PACKET",
        kind: "af_packet",
        why: "ports of kind \"af_packet\" use packet sockets",
    },
    KernelOption {
        name: "CONFIG_TUN",
        kind: "tap",
        why: "ports of kind \"tap\" use TAP interfaces",
    },
];

fn features(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    let needed = || OPTIONS.into_iter().filter(|option| wanted.kind(option.kind));
    if needed().next().is_none() {
        return Vec::new();
    }
    let Some(config) = machine.kernel_config() else {
        let why = "without the kernel's configuration a missing option is noticed only when a port is opened";
        let what = "neither /proc/config.gz nor /boot/config-* can be read";
        return vec![Finding::new("kernel options", what, why)];
    };
    let check = |KernelOption { name, kind, why }: KernelOption| {
        let (value, found) = (option(&config, name), |what| Finding::new(name, what, why));
        match value {
            Some('y') => found("built in".to_owned()),
            Some(_) => found("a module, loaded when it is needed".to_owned()),
            None => found("not in this kernel".to_owned()).problem(format!(
                "use a kernel with {name}=y, or another kind of port than \"{kind}\""
            )),
        }
    };
    needed().map(check).collect()
}

/// A capability that a kind of port needs.
struct Right {
    /// Bit in the capability set (linux/capability.h).
    bit: u32,
    name: &'static str,
    kind: &'static str,
}

const RIGHTS: [Right; 5] = [
    Right { bit: 12, name: "CAP_NET_ADMIN", kind: "af_xdp" },
    Right { bit: 13, name: "CAP_NET_RAW", kind: "af_xdp" },
    Right { bit: 39, name: "CAP_BPF", kind: "af_xdp" },
    Right { bit: 13, name: "CAP_NET_RAW", kind: "af_packet" },
    Right { bit: 12, name: "CAP_NET_ADMIN", kind: "tap" },
];

fn rights(machine: &dyn Machine, wanted: &Wanted) -> Option<Finding> {
    let needed: Vec<_> = RIGHTS.into_iter().filter(|right| wanted.kind(right.kind)).collect();
    if needed.is_empty() {
        return None;
    }
    let why = "opening the ports needs them; flowyard gives them up when all ports are open";
    let Some(have) = machine.read("/proc/self/status").and_then(|status| cap(&status)) else {
        let what = "the capabilities cannot be read from /proc/self/status";
        return Some(Finding::new("capabilities", what, why).warn("mount /proc"));
    };
    let missing = needed.iter().filter(|right| have >> right.bit & 1 == 0);
    let mut missing: Vec<_> = missing.map(|right| right.name).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Some(Finding::new("capabilities", "all that these ports need are present", why));
    }
    let names = missing.join(",").to_lowercase();
    let what = format!("missing in this process: {}", missing.join(", "));
    Some(Finding::new("capabilities", what, why).problem(format!(
        "run as root or with dist/flowyard@.service, or: setcap {names}=ep \"$(command -v flowyard)\""
    )))
}

/// Features that can only be tried: opens a socket and closes it, loads a program without attaching it.
fn probes(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    if !wanted.kind("af_xdp") {
        return Vec::new();
    }
    let result = |about: &str, tried: io::Result<()>, why: &str, option: &str| match tried {
        Ok(()) => Finding::new(about, "works", why),
        Err(error) => {
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run 'sudo flowyard doctor CONFIG', which shows whether only capabilities are missing".into()
                }
                _ => format!("use a kernel with {option}=y, or ports of kind \"af_packet\""),
            };
            Finding::new(about, format!("does not work: {error}"), why).problem(fix)
        }
    };
    vec![
        result(
            "AF_XDP socket",
            machine.xdp_socket(),
            "ports of kind \"af_xdp\" use such sockets",
            "CONFIG_XDP_SOCKETS",
        ),
        result(
            "XDP program",
            machine.xdp_program(),
            "a program on the interface redirects frames to the sockets",
            "CONFIG_BPF_SYSCALL",
        ),
    ]
}

/// Bit of CAP_IPC_LOCK in the capability set.
const IPC_LOCK: u32 = 14;

fn memlock(machine: &dyn Machine, wanted: &Wanted) -> Option<Finding> {
    if !wanted.kind("af_xdp") {
        return None;
    }
    let why = "the pool is shared with the kernel (UMEM) and counts as locked memory";
    let limits = machine.read("/proc/self/limits")?;
    let soft = limit(&limits, "Max locked memory");
    let free = machine
        .read("/proc/self/status")
        .and_then(|status| cap(&status))
        .is_some_and(|have| have >> IPC_LOCK & 1 == 1);
    Some(match soft {
        _ if free => Finding::new("locked memory", "no limit, because of CAP_IPC_LOCK", why),
        Some(bytes) if bytes < wanted.pool_bytes => {
            let (bytes, pool) = (mib(bytes), mib(wanted.pool_bytes));
            let what = format!("the limit is {bytes}, and the pool needs about {pool}");
            Finding::new("locked memory", what, why)
                .problem("ulimit -l unlimited; in a systemd unit: LimitMEMLOCK=infinity")
        }
        Some(bytes) => Finding::new("locked memory", format!("the limit is {}", mib(bytes)), why),
        None => Finding::new("locked memory", "no limit", why),
    })
}

/// A pool larger than this has frequent TLB misses with 4 KiB pages.
const SMALL: u64 = 64 << 20;

fn huge_pages(machine: &dyn Machine, wanted: &Wanted) -> Option<Finding> {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let why = "with 4 KiB pages, lookups and copies in a large pool take about 12 % longer";
    let text = machine.read(path)?;
    let chosen = text.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    let pool = mib(wanted.pool_bytes);
    let what = format!("transparent huge pages: {chosen}; the pool needs about {pool}");
    let found = Finding::new("huge pages", what, why);
    Some(match chosen.as_str() {
        "always" => found,
        _ if wanted.pool_bytes <= SMALL => found,
        _ => found.warn(format!("echo always > {path}")),
    })
}

#[cfg(test)]
mod tests;
