//! The checks, from the kernel up.
//!
//! A thing that no port of the configuration needs is not looked at, or is no problem.

use std::io;

use super::{Finding, Machine, Wanted};

mod interface;
mod processors;
mod text;

use text::{cap, limit, mib, option, version};

/// All checks, in the order in which they are worth reading.
pub(super) fn all(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    let mut found = vec![kernel(machine, wanted)];
    found.extend(features(machine, wanted));
    found.extend(rights(machine, wanted));
    found.extend(probes(machine, wanted));
    found.extend(memlock(machine, wanted));
    found.extend(huge_pages(machine, wanted));
    found.extend(processors::all(machine, wanted));
    for port in &wanted.ports {
        found.extend(interface::all(machine, wanted, port));
    }
    found
}

/// The first kernel whose XDP programs are links, which go with the process that made them.
const XDP_LINK: (u32, u32) = (5, 9);

fn kernel(machine: &dyn Machine, wanted: &Wanted) -> Finding {
    let why = "since Linux 5.9 an XDP program goes with its process, even a killed one";
    let Some(release) = machine.read("/proc/sys/kernel/osrelease") else {
        return Finding::new("kernel", "its version cannot be read", why).warn("mount /proc");
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

/// Options of the kernel that ports need.
const OPTIONS: [(&str, &str, &str); 5] = [
    ("CONFIG_XDP_SOCKETS", "af_xdp", "ports of kind \"af_xdp\" are AF_XDP sockets"),
    ("CONFIG_BPF_SYSCALL", "af_xdp", "ports of kind \"af_xdp\" load a small XDP program"),
    ("CONFIG_BPF_JIT", "af_xdp", "the XDP program runs for every frame: interpreted it is slow"),
    ("CONFIG_PACKET", "af_packet", "ports of kind \"af_packet\" are packet sockets"),
    ("CONFIG_TUN", "tap", "ports of kind \"tap\" are TAP interfaces"),
];

fn features(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    let needed = || OPTIONS.into_iter().filter(|(_, kind, _)| wanted.kind(kind));
    if needed().next().is_none() {
        return Vec::new();
    }
    let Some(config) = machine.kernel_config() else {
        let why = "what the kernel can is else found out only by trying";
        let what = "neither /proc/config.gz nor /boot/config-* can be read";
        return vec![Finding::new("kernel options", what, why)];
    };
    let check = |(name, kind, why): (&str, &str, &str)| {
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

/// Capabilities by bit (linux/capability.h), for what, and which kind of port.
const RIGHTS: [(u32, &str, &str); 5] = [
    (12, "CAP_NET_ADMIN", "af_xdp"),
    (13, "CAP_NET_RAW", "af_xdp"),
    (39, "CAP_BPF", "af_xdp"),
    (13, "CAP_NET_RAW", "af_packet"),
    (12, "CAP_NET_ADMIN", "tap"),
];

fn rights(machine: &dyn Machine, wanted: &Wanted) -> Option<Finding> {
    let needed: Vec<_> = RIGHTS.into_iter().filter(|(.., kind)| wanted.kind(kind)).collect();
    if needed.is_empty() {
        return None;
    }
    let why = "ports are opened with them; flowyard gives them up when all is open";
    let Some(have) = machine.read("/proc/self/status").and_then(|status| cap(&status)) else {
        let what = "cannot be read from /proc/self/status";
        return Some(Finding::new("capabilities", what, why).warn("mount /proc"));
    };
    let mut missing: Vec<_> =
        needed.iter().filter(|(bit, ..)| have >> bit & 1 == 0).map(|(_, name, _)| *name).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Some(Finding::new("capabilities", "all that these ports need", why));
    }
    let names = missing.join(",").to_lowercase();
    let what = format!("missing here: {}", missing.join(", "));
    Some(Finding::new("capabilities", what, why).problem(format!(
        "run as root or by dist/flowyard@.service, or: setcap {names}=ep \"$(command -v flowyard)\""
    )))
}

/// What is found out only by trying: a socket that is closed at once, a program attached nowhere.
fn probes(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    if !wanted.kind("af_xdp") {
        return Vec::new();
    }
    let told = |about: &str, tried: io::Result<()>, why: &str, module: &str| match tried {
        Ok(()) => Finding::new(about, "tried: it works", why),
        Err(error) => {
            let mend = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "sudo flowyard doctor CONFIG shows whether it is only the rights that are missing".into()
                }
                _ => format!("use a kernel with {module}=y, or ports of kind \"af_packet\""),
            };
            Finding::new(about, format!("tried: {error}"), why).problem(mend)
        }
    };
    vec![
        told(
            "AF_XDP socket",
            machine.xdp_socket(),
            "ports of kind \"af_xdp\" are such sockets",
            "CONFIG_XDP_SOCKETS",
        ),
        told(
            "XDP program",
            machine.xdp_program(),
            "one on the interface hands frames to the sockets",
            "CONFIG_BPF_SYSCALL",
        ),
    ]
}

const IPC_LOCK: u32 = 14;

fn memlock(machine: &dyn Machine, wanted: &Wanted) -> Option<Finding> {
    if !wanted.kind("af_xdp") {
        return None;
    }
    let why = "the pool is shared with the kernel (UMEM), and counts as locked memory";
    let limits = machine.read("/proc/self/limits")?;
    let soft = limit(&limits, "Max locked memory");
    let free = machine
        .read("/proc/self/status")
        .and_then(|status| cap(&status))
        .is_some_and(|have| have >> IPC_LOCK & 1 == 1);
    Some(match soft {
        _ if free => Finding::new("locked memory", "no limit: CAP_IPC_LOCK", why),
        Some(bytes) if bytes < wanted.pool_bytes => {
            let (bytes, pool) = (mib(bytes), mib(wanted.pool_bytes));
            let what = format!("at most {bytes} may be locked, and the pool takes about {pool}");
            Finding::new("locked memory", what, why)
                .problem("ulimit -l unlimited; in a systemd unit: LimitMEMLOCK=infinity")
        }
        Some(bytes) => Finding::new("locked memory", format!("at most {}", mib(bytes)), why),
        None => Finding::new("locked memory", "no limit", why),
    })
}

/// A pool that is larger than this misses the TLB with small pages.
const SMALL: u64 = 64 << 20;

fn huge_pages(machine: &dyn Machine, wanted: &Wanted) -> Option<Finding> {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let why = "in large pools lookups and copies with 4 KiB pages cost some 12 % more";
    let text = machine.read(path)?;
    let chosen = text.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    let pool = mib(wanted.pool_bytes);
    let what = format!("transparent huge pages: {chosen}; the pool takes about {pool}");
    let found = Finding::new("huge pages", what, why);
    Some(match chosen.as_str() {
        "always" => found,
        _ if wanted.pool_bytes <= SMALL => found,
        _ => found.warn(format!("echo always > {path}")),
    })
}

#[cfg(test)]
mod tests;
