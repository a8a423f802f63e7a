//! Refusals: what a driver cannot do is an error at the start, which says how to fix it. The RSS of a device with
//! several queues, its counters, and its removal.

use flowyard_config::Config;
use flowyard_dpdk::{Buffers, Copying, Eal, Error, Port, Rss, Settings};
use flowyard_front::Adapters;
use flowyard_testkit::event_engine::OPTIONS;
use flowyard_yard::{ControlPlane, Parts};

use super::traffic::{log, text};

flowyard_testkit::tests! {
    mistakes_in_the_configuration_are_named,
    what_a_driver_cannot_do_is_an_error_at_the_start,
    the_hash_is_set_and_read_back,
    frames_for_a_removed_device_are_counted_as_port_down,
    rules_that_a_driver_refuses_stay_in_software,
}

fn with(more: &str) -> String {
    let port = format!("[[port]]\nname = \"d\"\nkind = \"dpdk\"\n{more}");
    text(&port, "gen = \"d\", d = \"sink\", sink = \"gen\"")
}

fn mistakes_in_the_configuration_are_named() {
    for (more, wanted) in [
        ("", "this dpdk port has no device"),
        ("device = \"eth0\"", "'eth0' is not a network device of DPDK"),
        (
            "device = \"net_null0\"\ninterface = \"eth0\"",
            "a port of kind \"dpdk\" has no 'interface'",
        ),
        (
            "device = \"net_null0\"\nring_frames = 65536",
            "a queue of 65536 descriptors is not possible",
        ),
        (
            "device = \"net_null0\"\n[[port]]\nname = \"e\"\nkind = \"dpdk\"\ndevice = \"net_null0,size=9\"",
            "another port has the device 'net_null0'",
        ),
    ] {
        let error = Config::parse("y", &with(more)).map(drop).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let text = with("device = \"net_null0\"");
    for (from, to, wanted) in [
        ("\"--no-huge\"", "\"--proc-type=secondary\"", "the option --proc-type is not possible"),
        ("\"--no-huge\"", "\"\"", "an EAL option is empty"),
        (
            "cores = 1",
            "cores = 1\nbuffer_bytes = 9000",
            "buffers of 9000 bytes cannot be lent to DPDK",
        ),
    ] {
        let error =
            Config::parse("y", &text.replacen(from, to, 1)).map(drop).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

fn what_a_driver_cannot_do_is_an_error_at_the_start() {
    for (more, wanted) in [
        ("device = \"net_none0\"", "adding the DPDK device 'net_none0' failed"),
        (
            "device = \"net_virtio_user0,path=/nowhere/x.sock,server=1\"\nmemory = \"yard\"",
            "adding the DPDK device",
        ),
        (
            "device = \"net_ring0\"\nmemory = \"yard\"\n[[port]]\nname = \"e\"\nkind = \"dpdk\"\n\
             device = \"net_virtio_user3,path=/nowhere/x.sock\"",
            "cannot use the yard's memory: another port is a net_virtio_user",
        ),
        ("device = \"net_null0\"\nmtu = 9000", "MTU"),
    ] {
        let config = Config::parse("y", &with(more)).unwrap_or_else(|error| panic!("{error}"));
        let error = config.build(Parts::default()).map(drop).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let other = with("device = \"net_null0\"").replace("384", "385");
    let error = Config::parse("y", &other).unwrap().build(Parts::default()).map(drop);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("DPDK runs already with other options"), "{error}");
}

/// A driver without rules reports it, and the rules that were offered do not keep the port open.
fn rules_that_a_driver_refuses_stay_in_software() {
    let rule = "[[steer.rule]]\nmatch = { dst = \"10.0.0.1\" }\ndrop = true\n";
    let text = with("device = \"net_null10\"") + "[offload]\nrules = true\n" + rule;
    let (to, log) = log();
    let config = Config::parse("y", &text).unwrap_or_else(|error| panic!("{error}"));
    let yard = config.build_logged(Parts::default(), &to).unwrap();
    let adapters = yard.control_plane::<Adapters>().unwrap();
    let state = adapters.states().ports.remove(0);
    assert!(state.accepts.iter().all(|(.., refused)| refused.is_some()), "{state:?}");
    let why = state.entries[0].state.to_string();
    assert!(why.starts_with("in software: net_null refused to accept the rule"), "{why}");
    let told =
        "the adapter has rules for 0 of 1 entries of [steer]; rule 1 is in software: net_null";
    assert!(log.lock().unwrap().iter().any(|line| line.contains(told)), "{log:?}");
    drop(yard);
    adapters.tick(1);
    let queues = open("net_null10", 1).unwrap();
    assert_eq!(queues[0].port().info().driver, "net_null");
}

/// A port with these queues, which copies.
fn open(device: &str, queues: u16) -> Result<Vec<flowyard_dpdk::Queue>, Error> {
    let eal = Eal::start(&OPTIONS.map(str::to_owned), &[]).unwrap();
    let settings = Settings { queues, rx_frames: 512, tx_frames: 512, mtu: 0 };
    Port::open(eal, device, &settings, |_| {
        Ok(Buffers::Copying(std::sync::Arc::new(Copying::new(eal, 4096, 2048)?)))
    })
}

fn the_hash_is_set_and_read_back() {
    let queues = open("net_null7", 4).unwrap();
    let port = queues[0].port();
    let (key, entries) = (40, port.info().table_entries as usize);
    assert!(port.info().hashes && entries >= 64, "{:?}", port.info());
    let rss = Rss {
        key: (1..=key as u8).collect(),
        table: (0..entries).map(|at| (at % 3) as u16).collect(),
    };
    port.set_rss(&rss).unwrap();
    assert_eq!(port.rss(key, entries).unwrap(), rss);
    let error = port.set_rss(&Rss { key: Vec::new(), table: vec![0; 3] }).unwrap_err().to_string();
    assert!(error.contains("setting the indirection table of 'net_null7' failed"), "{error}");
    let error = open("net_null8", 2000).map(drop).unwrap_err().to_string();
    assert!(error.contains("queues, and the port has 2000 cores"), "{error}");
}

fn frames_for_a_removed_device_are_counted_as_port_down() {
    let mut queues = open("net_ring9", 1).unwrap();
    let queue = &mut queues[0];
    assert_eq!(queue.tx_copy(&[&[7; 60], &[8; 60]]), 2);
    let mut got = Vec::new();
    assert_eq!(queue.rx(32, |frame| got.push(frame.piece().unwrap().to_vec())), 2);
    assert_eq!(got, [vec![7; 60], vec![8; 60]]);
    let stats = queue.port().stats().unwrap();
    assert_eq!(stats.frames, (2, 2));
    assert!(queue.port().link().unwrap().is_up);
    assert!(!queue.port().is_removed());
    queue.port().pretend_removed();
    assert!(queue.port().is_removed());
}
