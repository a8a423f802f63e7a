//! The guest: Debian's kernel with cls_flower, this program, DPDK's libraries and the drivers that it needs.

use std::path::{Path, PathBuf};

use flowyard_livekit::guest::{self, Extra, Guest, Image};
use flowyard_testkit::harness::Need;
use flowyard_testkit::note;

flowyard_testkit::tests! {
    rules_of_net_tap_take_effect_and_are_removed needs [
        Need::Live,
        Need::Namespaces,
        Need::Program("qemu-system-x86_64"),
        Need::Program("busybox"),
        Need::Program("ethtool"),
        Need::Program("ip"),
        Need::Program("ldd"),
        Need::Program("dpkg"),
        Need::Check(has_kernel),
        Need::Check(has_drivers),
    ],
}

/// What net_tap needs of the kernel, in the order in which it is loaded.
const MODULES: [&str; 7] =
    ["tun", "sch_multiq", "sch_ingress", "cls_flower", "act_gact", "act_mirred", "act_skbedit"];

/// The drivers that DPDK loads at its start.
const DRIVERS: [&str; 3] = ["librte_bus_vdev.so", "librte_mempool_ring.so", "librte_net_tap.so"];

fn cache() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn has_kernel() -> Result<(), String> {
    // Without permission to take minutes, nothing is downloaded.
    if std::env::var_os("FLOWYARD_LIVE").is_none() {
        return Ok(());
    }
    guest::kernel(&cache()).map(drop)
}

/// The folder of DPDK's drivers.
fn drivers() -> Option<PathBuf> {
    let all = std::fs::read_dir("/usr/lib/x86_64-linux-gnu/dpdk").ok()?;
    let mut folders = all.filter_map(|entry| Some(entry.ok()?.path()));
    folders.find(|folder| DRIVERS.iter().all(|name| folder.join(name).exists()))
}

fn has_drivers() -> Result<(), String> {
    drivers().map(drop).ok_or_else(|| "DPDK's drivers as shared libraries".into())
}

fn rules_of_net_tap_take_effect_and_are_removed() {
    let (cache, folder) = (cache(), drivers().unwrap());
    let kernel = guest::kernel(&cache).unwrap();
    let this = std::env::current_exe().unwrap();
    let libraries: Vec<PathBuf> = DRIVERS.iter().map(|name| folder.join(name)).collect();
    let extra = Extra { modules: &MODULES, libraries: &libraries };
    let image = Image::with(&cache, &kernel, &[("rules", &this)], &extra);
    let mut guest = Guest::boot(&image);
    // DPDK keeps files there, and loads no driver from below a folder that everybody may write.
    guest.sh("mkdir -p /var/run && chmod 755 /");
    let (status, output) = guest.run("rules --inside");
    note!("{output}");
    let (_, log) = guest.run("dmesg | tail -5");
    image.delete();
    assert_eq!(status, 0, "{output}\n{log}");
    assert!(output.contains("all rules were tried"), "{output}");
}
