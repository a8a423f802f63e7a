//! Checks for ports of kind `dpdk`: the library, huge pages, and the drivers of adapters.

use super::super::config::{Dpdk, Wanted};
use super::super::finding::Finding;
use super::super::machine::Machine;
use super::text::mib;

/// The version of the library; a configuration with DPDK ports is refused without it.
#[cfg(feature = "dpdk")]
fn library() -> Option<String> {
    Some(flowyard_dpdk::version())
}

#[cfg(not(feature = "dpdk"))]
const fn library() -> Option<String> {
    None
}

/// All findings; none if no port needs DPDK.
pub(super) fn all(machine: &dyn Machine, wanted: &Wanted) -> Vec<Finding> {
    let Some(dpdk) = &wanted.dpdk else { return Vec::new() };
    let why = "ports of kind \"dpdk\" use it";
    let library = match library() {
        Some(version) => Finding::new("DPDK", version, why),
        None => Finding::new("DPDK", "this flowyard was built without it", why)
            .problem(flowyard_ports::port::dpdk::BUILD),
    };
    let mut found = vec![library, huge_pages(machine, wanted, dpdk)];
    let pci = dpdk.devices.iter().filter(|device| flowyard_ports::port::dpdk::is_pci(device));
    found.extend(pci.map(|device| driver(machine, device)));
    found
}

fn huge_pages(machine: &dyn Machine, wanted: &Wanted, dpdk: &Dpdk) -> Finding {
    let why = "DPDK takes its memory from huge pages, unless it has the option --no-huge";
    let found = |what: String| Finding::new("huge pages for DPDK", what, why);
    if dpdk.options.iter().any(|option| option == "--no-huge") {
        return found("not used: --no-huge".into());
    }
    let text = machine.read("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let (free, kib) = (field("HugePages_Free").unwrap_or(0), field("Hugepagesize").unwrap_or(2048));
    let bytes = free * kib * 1024;
    // Descriptions of buffers, rings, and the buffers of drivers that copy.
    let least = (64 << 20) + wanted.pool_bytes / 4;
    let count = least.div_ceil(kib * 1024);
    // The file has the number of all pages, also of those that are in use.
    let used = field("HugePages_Total").unwrap_or(free).saturating_sub(free);
    let fix = format!(
        "echo {} > /proc/sys/vm/nr_hugepages, or add options = [\"--no-huge\", \"-m\", \"{}\"] to [dpdk]",
        used + count,
        least.div_ceil(1 << 20)
    );
    match free {
        0 => found("none is free".into()).problem(fix),
        _ if bytes < least => {
            found(format!("{} are free, about {} are needed", mib(bytes), mib(least))).warn(fix)
        }
        _ => found(format!("{} are free", mib(bytes))),
    }
}

/// Whether the kernel has left a PCI device to DPDK.
fn driver(machine: &dyn Machine, device: &str) -> Finding {
    let address = device.split(',').next().unwrap_or_default();
    let address =
        if address.matches(':').count() == 1 { format!("0000:{address}") } else { address.into() };
    let why = "DPDK drives the adapter in place of the kernel, through vfio-pci";
    let about = format!("driver of {address}");
    let found = |what: String| Finding::new(&about, what, why);
    let folder = |driver: &str| machine.list(&format!("/sys/bus/pci/drivers/{driver}"));
    if ["vfio-pci", "uio_pci_generic", "igb_uio"]
        .iter()
        .any(|driver| folder(driver).contains(&address))
    {
        return found("left to DPDK".into());
    }
    if ["mlx4_core", "mlx5_core"].iter().any(|driver| folder(driver).contains(&address)) {
        return found("shared with the kernel, as this adapter does it".into());
    }
    if machine.list("/sys/bus/pci/devices").contains(&address) {
        return found("the kernel has it".into())
            .problem(format!("dpdk-devbind.py --bind=vfio-pci {address}"));
    }
    found("there is no such device".into())
        .problem("list the adapters with 'dpdk-devbind.py --status-dev net'")
}
