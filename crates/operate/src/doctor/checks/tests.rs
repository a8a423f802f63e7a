//! Simulated machines: one without problems, and one for each problem.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::doctor::{Level, Offload, Port, QueueCounts};
use flowyard_ports::live::Carries;

mod advice;

/// Files by path; folders follow from the paths.
#[derive(Clone, Default)]
struct Fake {
    files: BTreeMap<String, String>,
    on: BTreeSet<String>,
    /// In use, and the most.
    queues: Option<(usize, usize)>,
    /// Whether channels that receive and those that transmit are apart.
    is_apart: bool,
    no_xdp: bool,
    config: Option<String>,
    /// The index of every interface, if it is not the one in the files.
    index: Option<u32>,
}

impl Fake {
    fn with(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.into());
        self
    }
}

impl Machine for Fake {
    fn read(&self, path: &str) -> Option<String> {
        self.files.get(path).cloned()
    }

    fn list(&self, path: &str) -> Vec<String> {
        let inside =
            self.files.keys().filter_map(|file| file.strip_prefix(path)?.strip_prefix('/'));
        let names: BTreeSet<_> = inside.filter_map(|rest| rest.split('/').next()).collect();
        names.into_iter().map(Into::into).collect()
    }

    fn index(&self, interface: &str) -> Option<u32> {
        let file = self.read(&format!("/sys/class/net/{interface}/ifindex"));
        self.index.or_else(|| file?.trim().parse().ok())
    }

    fn offload(&self, _: &str, offload: Offload) -> io::Result<bool> {
        Ok(self.on.contains(&format!("{offload:?}")))
    }

    fn queues(&self, _: &str) -> io::Result<QueueCounts> {
        let (now, most) = self.queues.ok_or(io::ErrorKind::Unsupported)?;
        Ok(QueueCounts { now, most, are_combined: !self.is_apart })
    }

    fn xdp_socket(&self) -> io::Result<()> {
        if self.no_xdp { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    }

    fn xdp_program(&self) -> io::Result<()> {
        self.xdp_socket()
    }

    fn kernel_config(&self) -> Option<String> {
        self.config.clone()
    }
}

const CONFIG: &str =
    "CONFIG_XDP_SOCKETS=y\nCONFIG_BPF_SYSCALL=y\nCONFIG_BPF_JIT=y\nCONFIG_PACKET=y\nCONFIG_TUN=m\n";

/// A machine without problems for a configuration with two cores on eth1.
fn well() -> Fake {
    let fake = Fake { queues: Some((2, 8)), config: Some(CONFIG.into()), ..Fake::default() };
    let fake = fake
        .with("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
        .with("/proc/self/status", "CapEff:\t000001ffffffffff\n")
        .with("/proc/self/limits", "Max locked memory  8388608  8388608  bytes\n")
        .with("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")
        .with("/sys/devices/system/cpu/online", "0-3\n")
        .with("/sys/devices/system/cpu/isolated", "2-3\n")
        .with("/proc/net/route", "Iface\tDestination\neth0\t00000000\n")
        .with("/proc/interrupts", "      CPU0\n 30:  5  PCI-MSI  eth1-TxRx-0\n 31:  5  PCI-MSI  eth1-TxRx-1\n 32: 1 PCI-MSI eth10\n")
        .with("/proc/irq/30/smp_affinity_list", "2\n")
        .with("/proc/irq/31/smp_affinity_list", "3\n")
        .with("/proc/irq/32/smp_affinity_list", "0-3\n")
        .with("/proc/sys/net/ipv4/conf/all/rp_filter", "0\n")
        .with("/proc/sys/net/ipv4/conf/eth1/rp_filter", "0\n")
        .with("/dev/net/tun", "");
    let fake = fake.with("/sys/class/net/eth0/operstate", "up\n");
    let fake = fake.with("/sys/class/net/eth0/ifindex", "2\n");
    let fake = fake.with("/sys/class/net/eth1/device/vendor", "0x8086\n");
    let fake = fake
        .with("/sys/class/net/eth1/ifindex", "3\n")
        .with("/sys/class/net/eth1/operstate", "up\n")
        .with("/sys/class/net/eth1/mtu", "1500\n")
        .with("/sys/class/net/eth1/tun_flags", "0x1102\n"); // as a TAP interface
    (2..4).fold(fake, |fake, cpu| {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
        fake.with(&format!("{folder}/cpufreq/scaling_governor"), "performance\n")
            .with(&format!("{folder}/topology/thread_siblings_list"), &format!("{cpu}\n"))
    })
}

fn wanted(kind: &str) -> Wanted {
    Wanted {
        ports: vec![Port {
            interface: "eth1".into(),
            kind: kind.into(),
            queues: 2,
            ..Port::default()
        }],
        cores: 2,
        pin: vec![2, 3],
        pool_bytes: 8 << 20,
        busy: true,
        dpdk: None,
    }
}

/// After `nsenter --net`, /sys shows the interfaces of the namespace before.
#[test]
fn files_of_another_namespace_are_named_as_the_cause() {
    for kind in ["af_xdp", "af_packet", "steer"] {
        let said = |machine: &Fake, name: &str| {
            let mut want = wanted(kind);
            want.ports[0].interface = name.into();
            let found = all(machine, &want);
            let about = format!("interface {name}");
            let one = found.iter().find(|one| one.about == about).unwrap();
            assert_eq!(one.level, Level::Problem, "{kind}");
            (one.what.clone(), one.fix.clone().unwrap())
        };
        let inside = Fake { index: Some(7), ..well() };
        for name in ["eth1", "v0"] {
            let (what, fix) = said(&inside, name);
            assert!(what.contains("/sys shows another network namespace"), "{what}");
            assert!(fix.contains("run the command by `ip netns exec`"), "{fix}");
        }
        let mut outside = well();
        outside.files.remove("/sys/class/net/eth1/ifindex");
        assert!(said(&outside, "eth1").0.contains("is not that of this command"));
        let (what, fix) = said(&well(), "v0");
        assert_eq!(
            (&*what, &*fix),
            ("there is no such interface", "choose 'interface' from eth0, eth1")
        );
    }
}

/// Frames of 9,000 bytes are in several buffers, for which the kernel must be new enough.
#[test]
fn frames_in_several_buffers_need_a_kernel() {
    let mut want = wanted("af_xdp");
    want.ports[0].multi_buffer = true;
    let complaints = |release: &str| {
        let machine = well()
            .with("/sys/class/net/eth1/mtu", "9000")
            .with("/proc/sys/kernel/osrelease", release);
        let about = |one: &&Finding| one.about == "mtu eth1";
        all(&machine, &want).iter().find(about).map(|one| one.level).unwrap()
    };
    assert_eq!(complaints("6.6.1\n"), Level::Ok);
    assert_eq!(complaints("6.5.9\n"), Level::Problem);
}

/// Without the feature, the library is a complaint, too.
#[test]
fn dpdk_needs_huge_pages_and_its_own_driver() {
    let library = if cfg!(feature = "dpdk") { vec![] } else { vec!["Problem DPDK".to_owned()] };
    let with = |options: &[&str], devices: &[&str]| {
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Wanted {
            dpdk: Some(crate::doctor::config::Dpdk {
                options: own(options),
                devices: own(devices),
            }),
            ..wanted("tap")
        }
    };
    let complaints = |machine: &Fake, wanted: &Wanted| {
        let found = dpdk::all(machine, wanted).into_iter().filter(|one| one.level != Level::Ok);
        let words = found.map(|one| format!("{:?} {}", one.level, one.about)).collect::<Vec<_>>();
        assert!(words.starts_with(&library), "{words:?}");
        words[library.len()..].to_vec()
    };
    let pages = |free: u64| format!("HugePages_Free: {free}\nHugepagesize: 2048 kB\n");
    let with_pages = |free| Fake::default().with("/proc/meminfo", &pages(free));
    let null = with(&[], &["net_null0"]);
    assert_eq!(complaints(&with_pages(0), &null), ["Problem huge pages for DPDK"]);
    assert_eq!(complaints(&with_pages(8), &null), ["Warning huge pages for DPDK"]);
    assert_eq!(complaints(&with_pages(512), &null), [""; 0]);
    assert_eq!(complaints(&with_pages(0), &with(&["--no-huge"], &["net_null0"])), [""; 0]);
    let adapter = with(&["--no-huge"], &["03:00.0"]);
    assert_eq!(complaints(&Fake::default(), &adapter), ["Problem driver of 0000:03:00.0"]);
    let left = Fake::default().with("/sys/bus/pci/drivers/vfio-pci/0000:03:00.0/x", "");
    assert_eq!(complaints(&left, &adapter), [""; 0]);
}

/// The findings that did not pass, as `LEVEL ABOUT`.
fn complaints(machine: &Fake, wanted: &Wanted) -> Vec<String> {
    let found = all(machine, wanted);
    for one in &found {
        assert_eq!(one.fix.is_some(), one.level != Level::Ok, "{one:?}");
        assert!(!one.what.is_empty() && !one.why.is_empty(), "{one:?}");
    }
    let bad = found.iter().filter(|one| one.level != Level::Ok);
    bad.map(|one| format!("{:?} {}", one.level, one.about).to_lowercase()).collect()
}

#[test]
fn a_machine_without_problems_has_no_complaints() {
    for kind in ["af_xdp", "af_packet", "tap"] {
        assert_eq!(complaints(&well(), &wanted(kind)), [""; 0], "{kind}");
    }
    assert!(all(&well(), &wanted("af_xdp")).len() >= 17);
}

/// A change of a machine without problems.
type Change = fn(Fake) -> Fake;

/// Kind of port, change, and the only complaint about the changed machine.
const CASES: [(&str, Change, &str); 26] = [
    (
        "tap",
        |mut f| {
            f.files.remove("/sys/class/net/eth1/tun_flags");
            f
        },
        "problem interface eth1",
    ),
    ("tap", |f| f.with("/sys/class/net/eth1/tun_flags", "0x1101"), "problem interface eth1"),
    ("af_xdp", |f| f.with("/proc/sys/kernel/osrelease", "4.19.0"), "problem kernel"),
    ("tap", |f| f.with("/proc/sys/kernel/osrelease", "4.19.0"), "warning kernel"),
    (
        "af_xdp",
        |f| Fake { config: f.config.as_ref().map(|c| c.replace("CONFIG_XDP_SOCKETS=y", "")), ..f },
        "problem config_xdp_sockets",
    ),
    (
        "tap",
        |f| Fake { config: f.config.as_ref().map(|c| c.replace("CONFIG_TUN=m", "")), ..f },
        "problem config_tun",
    ),
    (
        "tap",
        |mut f| {
            f.files.remove("/dev/net/tun");
            f
        },
        "problem tap eth1",
    ),
    (
        "af_packet",
        |f| f.with("/proc/self/status", "CapEff:\t0000000000001000\n"),
        "problem capabilities",
    ),
    ("af_xdp", |f| f.with("/sys/kernel/mm/transparent_hugepage/enabled", "always [never]"), ""),
    ("af_xdp", |f| f.with("/sys/devices/system/cpu/online", "0-2"), "problem processors"),
    ("af_xdp", |f| f.with("/sys/devices/system/cpu/isolated", "3"), "warning isolation"),
    (
        "af_xdp",
        |f| f.with("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2,3"),
        "warning siblings",
    ),
    (
        "af_xdp",
        |f| f.with("/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "powersave"),
        "warning governor",
    ),
    ("af_xdp", |f| f.with("/sys/class/net/eth1/operstate", "down"), "problem interface eth1"),
    ("af_xdp", |f| f.with("/proc/net/route", "eth1 00000000"), "problem uplink eth1"),
    (
        "af_xdp",
        |f| {
            f.with(
                "/proc/net/ipv6_route",
                &format!("{0} 00 {0} 00 fe80 1 1 0 1 eth1", "0".repeat(32)),
            )
        },
        "problem uplink eth1",
    ),
    ("af_xdp", |f| Fake { queues: Some((1, 8)), ..f }, "problem queues eth1"),
    ("af_xdp", |f| Fake { queues: Some((8, 8)), ..f }, "warning queues eth1"),
    ("af_xdp", |f| f.with("/sys/class/net/eth1/mtu", "9000"), "warning mtu eth1"),
    ("af_xdp", |f| f.with("/proc/irq/31/smp_affinity_list", "0-3"), "warning interrupts eth1"),
    ("af_xdp", |f| f.with("/proc/sys/net/ipv4/conf/all/rp_filter", "1"), "warning rp_filter eth1"),
    (
        "af_packet",
        |mut f| {
            f.on.insert("Gro".into());
            f
        },
        "warning offload eth1",
    ),
    (
        "af_xdp",
        |mut f| {
            f.on.insert("Gro".into());
            f
        },
        "",
    ),
    (
        "af_xdp",
        |mut f| {
            f.files.remove("/sys/class/net/eth1/device/vendor");
            f.on.insert("TxChecksum".into());
            f
        },
        "problem offload eth1",
    ),
    (
        "af_packet",
        |mut f| {
            f.files.remove("/sys/class/net/eth1/device/vendor");
            f.on.insert("Tso".into());
            f
        },
        "warning offload eth1",
    ),
    (
        "af_xdp",
        |mut f| {
            f.on.insert("TxChecksum".into());
            f
        },
        "",
    ),
];

#[test]
fn each_fault_is_found_and_nothing_else() {
    for (number, (kind, change, complaint)) in CASES.into_iter().enumerate() {
        let found = complaints(&change(well()), &wanted(kind));
        let one: Vec<_> = [complaint].into_iter().filter(|text| !text.is_empty()).collect();
        assert_eq!(found, one, "case {number}");
    }
}

#[test]
fn a_port_that_computes_checksums_may_have_the_offload() {
    let mut veth = well();
    veth.files.remove("/sys/class/net/eth1/device/vendor");
    veth.on.insert("TxChecksum".into());
    let mut wanted = wanted("af_xdp");
    assert_eq!(complaints(&veth, &wanted), ["problem offload eth1"]);
    wanted.ports[0].completes_checksums = true;
    assert_eq!(complaints(&veth, &wanted), [""; 0]);
}

/// A port that passes on long frames wants the offloads of its interface; one of a TAP says what the kernel leaves to it.
#[test]
fn a_port_that_passes_on_long_frames_may_have_the_offloads() {
    let on = Fake { on: ["Gro", "Tso"].map(String::from).into(), ..well() };
    let mut wanted = wanted("af_packet");
    assert_eq!(complaints(&on, &wanted), ["warning offload eth1"]);
    wanted.ports[0].carries = Carries::ALL;
    assert_eq!(complaints(&on, &wanted), [""; 0]);
    wanted.ports[0].kind = "tap".into();
    let offload = |machine: &Fake| {
        let found = super::all(machine, &wanted)
            .into_iter()
            .find(|one| one.about == "offload eth1")
            .unwrap();
        (found.what, found.fix.is_some())
    };
    let release = |release| well().with("/proc/sys/kernel/osrelease", release);
    let words = |words: &str| format!("the host leaves to the port: {words}");
    assert_eq!(offload(&release("6.2.0")), (words("csum, tso, uso"), false));
    assert_eq!(offload(&release("6.1.9-x")), (words("csum, tso"), true));
}

#[test]
fn without_capabilities_probes_and_limits_complain_too() {
    let poor = Fake { no_xdp: true, ..well() }
        .with("/proc/self/status", "CapEff:\t0000000000000000\n")
        .with("/proc/self/limits", "Max locked memory  65536  65536  bytes\n");
    let found = complaints(&poor, &wanted("af_xdp"));
    let all = ["capabilities", "af_xdp socket", "xdp program", "locked memory"];
    assert_eq!(found, all.map(|about| format!("problem {about}")));
    let found = super::all(&poor, &wanted("af_xdp"));
    let fixes: String = found.iter().filter_map(|one| one.fix.as_deref()).collect();
    assert!(fixes.contains("setcap cap_bpf,cap_net_admin,cap_net_raw=ep"), "{fixes}");
    assert!(fixes.contains("LimitMEMLOCK=infinity"), "{fixes}");
}

#[test]
fn a_missing_interface_is_reported_with_the_existing_ones() {
    let mut nowhere = wanted("af_xdp");
    nowhere.ports[0].interface = "eth7".into();
    let found = all(&well(), &nowhere);
    let last = found.last().unwrap();
    assert_eq!((last.level, last.about.as_str()), (Level::Problem, "interface eth7"));
    assert_eq!(last.fix.as_deref(), Some("choose 'interface' from eth0, eth1"));
}

#[test]
fn an_empty_machine_causes_no_panic() {
    for kind in ["af_xdp", "af_packet", "tap", "pcap"] {
        assert!(!all(&Fake::default(), &wanted(kind)).is_empty());
    }
    assert!(!all(&Fake::default(), &Wanted::default()).is_empty());
}

#[test]
fn a_large_pool_needs_huge_pages_and_too_many_cores_are_reported() {
    let large = Wanted { pool_bytes: 1 << 30, ..wanted("af_packet") };
    let small_pages =
        well().with("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise]");
    assert_eq!(complaints(&small_pages, &large), ["warning huge pages"]);
    let many = Wanted { cores: 9, pin: Vec::new(), ..wanted("tap") };
    assert_eq!(complaints(&well(), &many)[0], "problem processors");
    let free = Wanted { cores: 2, pin: Vec::new(), ..wanted("tap") };
    let found = all(&well(), &free);
    let one = found.iter().find(|one| one.about == "processors").unwrap();
    assert_eq!(one.fix.as_deref(), Some("write pin = [2,3] in [yard]"));
}

#[test]
fn advice_about_isolation_leaves_out_cpus_that_are_not_online() {
    let pinned = Wanted { pin: vec![0, 99], ..wanted("af_packet") };
    let found = all(&well(), &pinned);
    let one = |about: &str| found.iter().find(|one| one.about == about).unwrap();
    assert!(one("processors").what.contains("CPUs 99, which are not online"));
    assert!(
        one("isolation").fix.as_deref().unwrap().ends_with("isolcpus=0 nohz_full=0 rcu_nocbs=0")
    );
    assert_eq!(crate::doctor::offline(&well(), &pinned), [99]);
    assert_eq!(crate::doctor::offline(&Fake::default(), &pinned), [0; 0]);
}

/// A machine without problems for `flowyard steer eth1`.
fn steered() -> Fake {
    well()
        .with("/proc/sys/kernel/osrelease", "6.18.1\n")
        .with("/sys/kernel/btf/vmlinux", "")
        .with("/proc/self/mounts", "bpf /sys/fs/bpf bpf rw 0 0\n")
        .with("/sys/class/net/eth1/queues/rx-0/rps_cpus", "00000000,00000000\n")
        .with("/sys/class/net/eth1/queues/rx-0/rps_flow_cnt", "0\n")
}

#[test]
fn what_the_machine_lacks_for_steering_is_named() {
    let said = |machine: &Fake| {
        let wanted = Wanted { cores: 0, pin: Vec::new(), busy: false, ..wanted("steer") };
        complaints(machine, &wanted)
    };
    assert_eq!(said(&steered()), Vec::<String>::new());
    let file = |path: &str, text: &str| said(&steered().with(path, text));
    let kernel = |release: &str| file("/proc/sys/kernel/osrelease", release);
    assert_eq!(kernel("5.10.0-9\n"), ["problem kernel for steer"]);
    assert_eq!(kernel("6.1.0-18-amd64\n"), ["warning kernel for steer"]);
    let few = file("/proc/self/status", "CapEff:\t0000000000001000\n");
    assert!(few.contains(&"problem capabilities for steer".to_owned()), "{few:?}");
    let queue = "/sys/class/net/eth1/queues/rx-0";
    assert_eq!(file(&format!("{queue}/rps_cpus"), "3\n"), ["warning rps eth1"]);
    assert_eq!(file(&format!("{queue}/rps_flow_cnt"), "4096\n"), ["warning rfs eth1"]);
    assert_eq!(file("/sys/class/net/eth1/mtu", "9000\n"), ["problem mtu eth1"]);
    assert_eq!(file("/proc/self/mounts", "tmp /tmp tmpfs rw 0 0\n"), ["warning bpf file system"]);
    let mut veth = steered();
    veth.files.remove("/sys/class/net/eth1/device/vendor");
    veth.on.insert("TxChecksum".into());
    assert_eq!(said(&veth), ["warning checksums eth1"]);
    let mut without = steered();
    without.files.remove("/sys/kernel/btf/vmlinux");
    assert_eq!(said(&without), ["warning types of the kernel"]);
    let all = all(&kernel_6_1(), &wanted("steer"));
    let kernel = all.iter().find(|one| one.about == "kernel for steer").unwrap();
    assert!(
        kernel.what.contains("6.3 has the tracepoint") && kernel.what.contains("6.6 has"),
        "{kernel:?}"
    );
}

fn kernel_6_1() -> Fake {
    steered().with("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
}
