//! A running OpenFlow switch with flows from its configuration: `switch why`, and a reload.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{flowyard, text};
use crate::yard::{Yard, wait};

flowyard_testkit::tests! {
    groups_that_would_copy_a_frame_too_often_are_refused_at_once,
    why_says_which_flows_answer_and_what_is_offloaded,
    drops_by_actions_are_explained_by_why,
    a_changed_switch_is_refused_at_sighup,
    snoop_prints_what_passes,
    an_unreachable_controller_is_logged_and_shown,
}

const SWITCH: &str = r#"
[[port]]
name = "west"
kind = "mem"
in = "captures/yard.pcap"
repeat = 1000000
pace = "20000"
[[port]]
name = "east"
kind = "mem"
[[queue]]
name = "q"
order = "direct"
consumers = [0]
[work]
kind = "switch"
[switch]
flows = [
  "priority=2,tcp,in_port=west,actions=goto_table:1",
  "priority=1,udp,actions=dec_ttl,output:east",
  "priority=1,icmp,actions=output:9",
  "table=1,actions=output:east",
]
"#;

/// Five groups of 256 buckets, each of which names the group before it in all of its buckets.
fn groups_that_would_copy_a_frame_too_often_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("yard.toml");
    let group = |kind: &str, number: u32| {
        let to = if number == 1 { "output:east".into() } else { format!("group:{}", number - 1) };
        let weight = if kind == "select" { "weight:1," } else { "" };
        let buckets = format!(",bucket={weight}actions={to}").repeat(256);
        format!("\"group_id={number},type={kind}{buckets}\"")
    };
    let check = |kind: &str, groups: u32| {
        let list: Vec<String> = (1..=groups).map(|number| group(kind, number)).collect();
        let text = format!("[switch]\ngroups = [{}]\n", list.join(",\n"));
        std::fs::write(&file, SWITCH.replace("[switch]\n", &text)).unwrap();
        flowyard().arg("run").arg(&file).arg("--check").output().unwrap()
    };
    let output = check("all", 5);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("yard.toml:19:1: "), "the place of the second group: {said}");
    assert!(said.contains("a frame could meet more than 4,096 buckets in this chain"), "{said}");
    // A select group sends a frame to one of its buckets, so the frame meets five.
    let output = check("select", 5);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn why_says_which_flows_answer_and_what_is_offloaded() {
    let yard = Yard::start(SWITCH, &[]);
    let mapped = "in_port=west,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=1,tcp_dst=2";
    let why = wait("frames that the cache answered", || {
        let why = yard.json(&["switch", "why", mapped]);
        (why["flows"][0]["offloaded"].as_u64() > Some(0)).then_some(why)
    });
    assert_eq!(
        why["flows"][0]["flow"],
        "table=0,cookie=0x0,priority=2,tcp,in_port=1 actions=goto_table:1"
    );
    assert_eq!(why["flows"].as_array().map(Vec::len), Some(2));
    assert_eq!(why["is_offloaded"], true);
    assert!(why["answer"].as_str().unwrap().contains("the port mapping sends it to port 2"));
    let said = yard.ask(&["switch", "why", "in_port=west,udp"]);
    assert!(said.contains("actions=dec_ttl,output:2 (offloaded:"), "{said}");
    assert!(said.contains("\noutput to port 2 (east)\n"), "{said}");
    assert_eq!(why["outputs"], serde_json::json!(["output to port 2 (east)"]));
    let said = yard.ask(&["switch", "why", "in_port=west,icmp"]);
    assert!(
        said.contains("\nno output: there is no port 9; the ports are 1 (west), 2 (east)\n"),
        "{said}"
    );
    let said = yard.ask(&["switch", "why", "in_port=west,arp"]);
    assert!(said.starts_with("table 0: no flow matches\n"), "{said}");
    assert!(said.contains("can be offloaded: the lookup can be cached"), "{said}");
    assert!(said.contains("0 of 1 core has this lookup in the cache now"), "{said}");
    assert!(said.ends_with("\nresult: dropped (no_flow)\n"), "{said}");
    assert_eq!(why["result"], "port 2 (east)");
    for (flow, wrong) in [
        ("in_port=nord", "a port's name: west, east"),
        ("ip,nw_dst=10.0.0.0/8", "leave out masks"),
        ("in_port=9", "the switch has no such port; its ports are 1 (west), 2 (east)"),
        ("tcp:127.0.0.1", "--control PATH names the instance"),
    ] {
        let mut ask = flowyard();
        let output =
            ask.args(["switch", "why", flow, "--control"]).arg(yard.socket()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(wrong), "{output:?}");
    }
}

/// The fix of a drop by actions is a command with the frame's fields, which then shows the flow.
fn drops_by_actions_are_explained_by_why() {
    let yard = Yard::start(
        &SWITCH.replace("priority=1,udp,actions=dec_ttl,output:east", "udp,actions=drop"),
        &[],
    );
    // A core counts a drop before it has an example of it; without one, the fix has no fields.
    let fix = wait("a drop and an example of it", || {
        let drops = yard.json(&["show", "drops"]);
        let reasons = drops["reasons"].as_array()?.clone();
        let work = reasons.into_iter().find(|one| one["reason"] == "work")?;
        let fix = work["fix"].as_str()?;
        (!fix.contains("FIELDS")).then(|| fix.to_owned())
    });
    assert!(fix.starts_with("the actions of its flow entries output it nowhere"), "{fix}");
    let fields = fix.split("switch why ").nth(1).unwrap().split('\'').next().unwrap();
    let said = yard.ask(&["switch", "why", fields]);
    assert!(said.contains("udp actions=drop"), "{fix}: {said}");
    assert!(said.ends_with("\nresult: dropped (work)\n"), "{said}");
    let trace = yard.json(&["trace", "--drops", "work", "--count", "1"]);
    assert!(
        trace["frames"][0]["fix"].as_str().unwrap().contains("switch why in_port=west"),
        "{trace}"
    );
}

fn a_changed_switch_is_refused_at_sighup() {
    let yard = Yard::start(SWITCH, &[]);
    std::fs::write(yard.config(), SWITCH.replace("priority=2", "priority=3")).unwrap();
    let pid = rustix::process::Pid::from_child(&yard.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let said = yard.wait_for_log("a reload cannot change 'flows' in [switch]");
    assert!(said.contains("or change the running switch with 'flowyard switch'"), "{said}");
    let said = yard.ask(&["switch", "why", "in_port=west,tcp"]);
    assert!(said.contains("priority=2,tcp"), "{said}");
}

fn snoop_prints_what_passes() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("switch");
    let listens = format!("[switch]\nlisten = [\"punix:{}\"]\n", socket.display());
    let yard = Yard::start(&SWITCH.replace("[switch]\n", &listens), &[]);
    let at = format!("unix:{}", socket.display());
    wait("the switch", || socket.exists().then_some(()));
    let mut snoop = flowyard();
    snoop
        .args(["switch", "snoop", "--count", "4", "--names", "--json", "--control"])
        .arg(yard.socket());
    let mut snoop = snoop.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut out = snoop.stdout.take().unwrap();
    let add = || {
        let flow = "priority=77,arp,actions=output:2";
        let output = flowyard().args(["switch", "add-flow", &at, flow]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    // Messages before the first look are not kept, so changes are sent until one is printed.
    let done = std::sync::atomic::AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                add();
            }
        });
        let mut said = String::new();
        std::io::Read::read_to_string(&mut out, &mut said).unwrap();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        said
    });
    assert!(snoop.wait().unwrap().success());
    let schema = crate::common::json(["schema", "switch-snoop"]);
    let read = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let faults = crate::schema::faults(&value, &schema);
        assert!(faults.is_empty(), "{faults:?}");
        value
    };
    let all: Vec<_> = said.lines().map(read).collect();
    assert_eq!(all.len(), 4, "{said}");
    let place = format!("punix:{} (unix)", socket.display());
    assert!(all.iter().all(|one| one["connection"] == place && one["xid"].is_u64()), "{said}");
    // Four messages are a whole change: the flow, the barrier and its reply, or parts of two.
    let change = all.iter().find(|one| one["kind"] == "flow-mod").expect("a change");
    let text = change["text"].as_str().unwrap();
    assert!(text.starts_with("flow-mod: add table=0") && text.ends_with("output:east"), "{text}");
}

fn an_unreachable_controller_is_logged_and_shown() {
    // A port that was free a moment ago: nothing listens on it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    drop(listener);
    let config =
        SWITCH.replace("[switch]\n", &format!("[switch]\ncontrollers = [\"{address}\"]\n"));
    let yard = Yard::start(&config, &[]);
    yard.wait_for_log("the controller cannot be reached");
    yard.wait_for_log("Connection refused");
    let shown = yard.json(&["show", "controllers"]);
    let one = &shown["connections"][0];
    assert_eq!(one["connected"], false, "{shown}");
    assert!(one["failed_attempts"].as_u64() > Some(0), "{shown}");
    assert!(one["error"].as_str().unwrap().contains("refused"), "{shown}");
    let said = yard.ask(&["show", "controllers"]);
    assert!(said.contains(&address) && said.contains("not connected"), "{said}");
}
