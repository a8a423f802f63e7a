use crate::fake::Fake;
use crate::known::Known;
use crate::state::State;

#[test]
fn everything_that_the_machine_tells_is_read() {
    let state = State::read(&Fake::virtio(), "eth0").unwrap();
    assert_eq!(state.driver.value().unwrap().name, "virtio_net");
    assert_eq!((state.numa_node.value(), state.queues()), (Some(&0), Some(4)));
    let rss = state.rss.value().unwrap();
    assert_eq!((rss.table.len(), rss.function.value().unwrap().as_str()), (128, "toeplitz"));
    assert!(rss.key.value().unwrap().starts_with("5a:73:"), "{rss:?}");
    assert_eq!(state.fields["tcp4"], Known::Value("sdfn".to_owned()));
    assert_eq!(state.fields["ipv6"], Known::Value("sd".to_owned()));
    let queues = state.rx_queues.value().unwrap();
    assert_eq!(queues.iter().map(|one| one.packets.value().copied()).max(), Some(Some(103)));
    assert_eq!((state.cpu_of(3), state.cpu_of(4)), (Some(3), None));
    let nodes: Vec<_> = state.cpus.value().unwrap().iter().map(|cpu| cpu.node).collect();
    assert_eq!(nodes, [0, 0, 1, 1]);
    assert!(state.writers.is_empty());
}

#[test]
fn what_is_not_told_is_unknown_with_the_reason() {
    let state = State::read(&Fake::veth(), "eth0").unwrap();
    let unseen = state.unseen();
    let why = |name: &str| {
        let found = unseen.iter().find(|(of, _)| of == name);
        found.map(|(_, why)| why.clone()).unwrap_or_default()
    };
    assert!(why("RSS").starts_with("ETHTOOL_GRSSH: EOPNOTSUPP"), "{unseen:?}");
    assert!(why("hash fields of tcp4").contains("EOPNOTSUPP"), "{unseen:?}");
    assert!(why("NUMA node").contains("ENOENT"), "{unseen:?}");
    assert!(why("interrupts").contains("has no adapter"), "{unseen:?}");
    assert_eq!(state.queues(), Some(4), "the kernel's queues");
    assert!(State::read(&Fake::veth(), "eth1").is_err());
}

#[test]
fn files_of_another_namespace_are_not_believed() {
    let mut fake = Fake::virtio();
    fake.files.insert("/sys/class/net/eth0/ifindex".into(), "7\n".into());
    let state = State::read(&fake, "eth0").unwrap();
    assert!(state.sysfs.why().unwrap().contains("another network namespace"));
    assert!(state.rx_queues.value().is_none() && state.numa_node.value().is_none());
    assert!(state.rss.value().is_some(), "the calls of ethtool are about this namespace");
}

#[test]
fn programs_that_write_are_named() {
    let mut fake = Fake::virtio();
    fake.files.insert("/proc/77/comm".into(), "irqbalance\n".into());
    fake.files.insert("/proc/77/cmdline".into(), "irqbalance\0--foreground\0".into());
    let state = State::read(&fake, "eth0").unwrap();
    assert_eq!((state.writers[0].pid, &*state.writers[0].command), (77, "irqbalance --foreground"));
}
