//! What the doctor advises must help, and must not break anything else.

use super::*;

/// The advice about something that is not well.
fn advice(machine: &Fake, wanted: &Wanted, about: &str) -> String {
    let found = all(machine, wanted);
    let one = found.into_iter().find(|one| one.about == about);
    one.and_then(|one| one.fix).unwrap_or_default()
}

/// The setting of all interfaces is one of others, too: the larger value of both counts.
#[test]
fn the_mode_of_rp_filter_is_changed_for_the_interface_alone() {
    let file = |of: &str| format!("/proc/sys/net/ipv4/conf/{of}/rp_filter");
    for (all, own) in [("1", "0"), ("1", "1"), ("0", "1")] {
        let strict = well().with(&file("all"), all).with(&file("eth1"), own);
        let wanted = wanted("af_packet");
        let said = advice(&strict, &wanted, "rp_filter eth1");
        assert_eq!(said, "sysctl -w net.ipv4.conf.eth1.rp_filter=2");
        assert_eq!(advice(&strict.with(&file("eth1"), "2"), &wanted, "rp_filter eth1"), "");
    }
}

/// The number of huge pages is that of all of them: those that other programs use stay.
#[test]
fn huge_pages_are_added_to_those_in_use() {
    let wanted =
        Wanted { dpdk: Some(crate::doctor::config::Dpdk::default()), ..wanted("af_packet") };
    let said = |total: u64, free: u64| {
        let text =
            format!("HugePages_Total: {total}\nHugePages_Free: {free}\nHugepagesize: 2048 kB\n");
        let found = dpdk::all(&well().with("/proc/meminfo", &text), &wanted);
        let one = found.into_iter().find(|one| one.about == "huge pages for DPDK");
        one.and_then(|one| one.fix).unwrap_or_default()
    };
    assert!(said(0, 0).starts_with("echo 33 > /proc/sys/vm/nr_hugepages,"), "{}", said(0, 0));
    assert!(said(512, 0).starts_with("echo 545 > "), "{}", said(512, 0));
    assert!(said(512, 12).starts_with("echo 533 > "), "{}", said(512, 12));
}

/// A veth has no combined channels.
#[test]
fn channels_are_changed_as_the_interface_has_them() {
    for queues in [(1, 8), (8, 8)] {
        let (adapter, wanted) = (Fake { queues: Some(queues), ..well() }, wanted("af_xdp"));
        let said = advice(&adapter, &wanted, "queues eth1");
        assert_eq!(said, "ethtool -L eth1 combined 2");
        let said = advice(&Fake { is_apart: true, ..adapter }, &wanted, "queues eth1");
        assert_eq!(said, "ethtool -L eth1 rx 2 tx 2");
    }
}

/// The interrupts of virtio, mlx5 and i40e do not have the name of the interface.
#[test]
fn interrupts_are_found_by_the_list_of_the_device() {
    let table = "  CPU0\n 40:  5  PCI-MSIX-0000:00:03.0  virtio1-input.0\n 41:  5  PCI-MSI  eth1\n";
    let own = "stop irqbalance; echo 2 > /proc/irq/40/smp_affinity_list";
    let by_name = "stop irqbalance; echo 2 > /proc/irq/41/smp_affinity_list";
    for (folder, driver, wanted_advice) in [
        ("device/msi_irqs", "0000:00:03.0", own),
        ("device/../msi_irqs", "virtio1", own),
        // The interrupts of the port above an adapter are not the adapter's.
        ("device/../msi_irqs", "0000:00:03.0", by_name),
    ] {
        let machine = well()
            .with(&format!("/sys/class/net/eth1/device/driver/{driver}"), "")
            .with("/proc/interrupts", table)
            .with(&format!("/sys/class/net/eth1/{folder}/40"), "msix\n")
            .with("/proc/irq/40/smp_affinity_list", "0-3\n")
            .with("/proc/irq/41/smp_affinity_list", "0-3\n");
        let said = advice(&machine, &wanted("af_xdp"), "interrupts eth1");
        assert_eq!(said, wanted_advice, "{folder} {driver}");
    }
}
