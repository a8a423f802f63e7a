//! `flowyard bench` in real time in network namespaces: the isolation check, a cable, the faulty device, the
//! kernel's bridge and its forwarding.
//!
//! The results do not depend on the machine's speed: loads are far below what any machine reaches, and a
//! trial that the tester itself spoiled because it did not get the CPU is not a failure.
use std::process::{Command, Output, Stdio};

use flowyard_livekit::{Net, sys};
use serde_json::Value;

flowyard_testkit::tests! {
    interfaces_that_are_not_isolated_are_refused,
    the_generators_count_is_the_number_of_frames_received,
    a_cable_the_bridge_and_the_forwarding_of_the_kernel_lose_nothing,
    a_device_is_reset_and_timed,
    the_faults_of_a_device_are_counted_exactly_in_real_time,
}

/// Runs `flowyard bench` in `net` or in the test's own namespace.
fn bench(net: Option<&Net>, args: &[&str]) -> Output {
    let built = env!("CARGO_BIN_EXE_flowyard").into();
    let mut command = Command::new(std::env::var_os("FLOWYARD_BINARY").unwrap_or(built));
    command.arg("bench").args(args).stdin(Stdio::null());
    if let Some(net) = net {
        sys::within(&mut command, &net.0);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that the arguments were refused with these words.
#[track_caller]
fn refused(output: &Output, words: &str) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}{}", text(&output.stdout));
    assert!(error.contains(words) && error.contains("RFC 6815"), "{error}");
}

/// A cable from t0 to t1, both ports of the tester.
fn looped() -> Net {
    let net = Net::new().unwrap();
    net.sh("ip link add t0 type veth peer name t1; ip link set t0 up; ip link set t1 up");
    net
}

/// A tester and a device with two ports each: t0 to d0, t1 to d1.
fn around() -> (Net, Net) {
    let [tester, device] = [(); 2].map(|()| Net::new().unwrap());
    for port in ["0", "1"] {
        tester.cable(&format!("t{port}"), &device, &format!("d{port}"), 1);
    }
    (tester, device)
}

/// Short trials at a rate that every machine reaches: 1,488 frames of 64 bytes per second and direction.
const GENTLE: [&str; 14] = [
    "rfc2544",
    "--interfaces",
    "t0,t1",
    "--line",
    "1M",
    "--sizes",
    "64",
    "--tests",
    "throughput",
    "--seconds",
    "0.2",
    "--repeat",
    "1",
    "--json",
];

/// Runs trials with the device between t0 and t1, and checks all of them that the tester did not spoil: no frame comes
/// twice or damaged, and every frame that is lost is in a counter that names where. On a busy machine the kernel's
/// backlogs lose some, but not in every trial.
#[track_caller]
fn forwards(net: &Net, args: &[&str]) {
    let gentle = match args.contains(&"--ipv6") {
        true => GENTLE.map(|word| if word == "64" { "84" } else { word }),
        false => GENTLE,
    };
    let output = bench(Some(net), &[&gentle, args].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["time"], "real");
    let trials = document["results"]["trials"].as_array().unwrap();
    let sound: Vec<_> = trials.iter().filter(|row| row["fault"].is_null()).collect();
    assert!(!sound.is_empty(), "the tester spoiled every trial: {trials:#?}");
    let count = |row: &Value, name: &str| row["counts"][name].as_u64().unwrap();
    let mut lost = 0;
    for row in &sound {
        assert!(count(row, "sent") > 0, "{row:#}");
        assert_eq!((count(row, "duplicates"), count(row, "corrupt")), (0, 0), "{row:#}");
        lost += count(row, "sent") - count(row, "good");
    }
    let drops = document["drops"].as_array().unwrap();
    let named: u64 = drops.iter().map(|drop| drop[1].as_u64().unwrap()).sum();
    assert!(lost <= named, "{lost} frames lost, of which counters name {named}: {drops:?}");
    let is_whole = |row: &&&Value| count(row, "sent") == count(row, "good");
    assert!(sound.iter().any(|row| is_whole(&row)), "every trial lost frames: {sound:#?}");
}

fn interfaces_that_are_not_isolated_are_refused() {
    let net = looped();
    // In the machine's own namespace every interface is refused, before it is opened.
    let words = "the machine's own network namespace";
    refused(&bench(None, &["rfc2544", "--interfaces", "lo,lo"]), words);
    refused(&bench(None, &["generate", "--interface", "lo"]), words);
    refused(&bench(None, &["qualify", "--interfaces", "lo,lo"]), words);
    // Interfaces with a default route, for both IP versions.
    for (add, to) in [
        ("ip route add default dev t1", "0.0.0.0"),
        ("echo 0 > /proc/sys/net/ipv6/conf/t1/disable_ipv6; ip -6 route add default dev t1", "::"),
    ] {
        net.sh(add);
        let words = format!("'t1' has the default route to {to}");
        refused(&bench(Some(&net), &["rfc2544", "--interfaces", "t0,t1"]), &words);
        refused(&bench(Some(&net), &["generate", "--interface", "t1"]), &words);
        net.sh("ip route flush default 2> /dev/null; ip -6 route flush default 2> /dev/null; true");
    }
    // --isolated overrides the check.
    net.sh("ip route add default dev t1");
    let args = ["generate", "--interface", "t1", "--seconds", "0.05", "--isolated", "--json"];
    let output = bench(Some(&net), &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn the_generators_count_is_the_number_of_frames_received() {
    let net = looped();
    // Not from /sys, which shows the machine's own namespace.
    let count = |interface: &str, way: &str, what: &str| -> u64 {
        let table = net.sh(&format!("ip -s -j link show {interface}"));
        let links: Value = serde_json::from_str(&table).unwrap();
        links[0]["stats64"][way][what].as_u64().unwrap()
    };
    // The sending end of a veth counts frames that the peer's backlog has dropped.
    let received = || count("t1", "rx", "packets") + count("t0", "tx", "dropped");
    for port in ["af-packet", "af-xdp"] {
        let before = received();
        let args = ["generate", "--interface", "t0", "--port", port, "--seconds", "0.2", "--json"];
        let output = bench(Some(&net), &args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sent = said["frames"].as_u64().unwrap();
        assert!(sent > 0);
        assert_eq!(received() - before, sent, "{port}");
    }
}

fn a_cable_the_bridge_and_the_forwarding_of_the_kernel_lose_nothing() {
    let cable = looped();
    for port in ["mixed", "af-packet", "af-xdp"] {
        forwards(&cable, &["--port", port]);
        forwards(&cable, &["--port", port, "--ipv6"]);
    }
    let (tester, device) = around();
    device.sh("ip link add br0 type bridge; ip link set br0 up");
    device.sh("ip link set d0 master br0; ip link set d1 master br0");
    forwards(&tester, &[]);
    let (tester, device) = around();
    device.sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
    device.sh("for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done");
    for (port, other) in [(0, 1), (1, 0)] {
        device.sh(&format!(
            "ip link set d{port} address 02:00:00:00:02:0{other}; ip addr add 10.0.{port}.1/24 dev d{port}; \
             ip neigh add 10.0.{port}.2 lladdr 02:00:00:00:01:0{port} dev d{port} nud permanent; \
             ip route add 198.19.{}.0/24 via 10.0.{port}.2 dev d{port}",
            65 + port
        ));
    }
    forwards(&tester, &["--cover", "network"]);
}

/// The user's command sets the kernel's bridge down and up again; the reset time (RFC 6201) is measured by
/// frames and by time.
fn a_device_is_reset_and_timed() {
    let (tester, device) = around();
    device.sh("ip link add br0 type bridge; ip link set br0 up");
    device.sh("ip link set d0 master br0; ip link set d1 master br0");
    let inside = device.path();
    let command = format!(
        "nsenter --net={inside} ip link set br0 down; sleep 0.5; nsenter --net={inside} ip link set br0 up"
    );
    let tests = GENTLE.map(|word| if word == "throughput" { "throughput,reset" } else { word });
    let output = bench(Some(&tester), &[&tests[..], &["--reset", &command]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let at = &document["results"]["sizes"][0];
    if at["throughput"]["load"].is_null() {
        flowyard_testkit::harness::ignore("the machine is too busy to pass 1,488 frames a second");
    }
    let time =
        |how: &str| at["reset"][0][how].as_u64().unwrap_or_else(|| panic!("{at:#}")) as f64 / 1e9;
    let (by_time, by_frames) = (time("by_time_ns"), time("by_frames_ns"));
    // Down for half a second plus delays of the machine, in the two seconds after the reset.
    assert!((0.5..2.0).contains(&by_time), "{at:#}");
    assert!((by_frames - by_time).abs() < 0.25 * by_time, "{by_frames} {by_time}");
    let error = "--reset 'exit 3': the command failed with exit status: 3";
    let output = bench(Some(&tester), &[&tests[..], &["--reset", "exit 3"]].concat());
    assert!(!output.status.success() && text(&output.stderr).contains(error), "{output:?}");
}

fn the_faults_of_a_device_are_counted_exactly_in_real_time() {
    let net = Net::new().unwrap();
    for (tester, device) in [("t0", "d0"), ("t1", "d1")] {
        net.sh(&format!(
            "ip link add {tester} type veth peer name {device}; ip link set {tester} up; ip link set {device} up"
        ));
    }
    let args = [
        "qualify",
        "--interfaces",
        "t0,t1",
        "--faulty",
        "d0,d1",
        "--sizes",
        "64",
        "--seconds",
        "0.2",
        "--json",
    ];
    let output = bench(Some(&net), &args);
    let found: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let checks = found["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 8);
    for check in checks {
        assert_eq!(check["passed"], true, "{check:#}");
    }
}
