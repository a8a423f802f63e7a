//! `flowyard switch` with an OpenFlow agent in this process, whose data plane accepts every change and
//! forwards nothing.

use std::process::{Command, Output};

use crossbeam_channel::{Receiver, never};
use flowyard_openflow::agent::{Agent, Limits};
use flowyard_openflow::change::{Change, Punt};
use flowyard_openflow::port::{Port, PortStats};
use flowyard_operate::openflow::{Channel, Config, Fail, Plane};

flowyard_testkit::tests! {
    flows_are_added_shown_changed_and_deleted,
    the_switchs_own_flows_are_shown_on_request,
    flows_of_1_0_are_dumped_and_added_again,
    groups_meters_and_ports_are_shown,
    errors_name_the_place_and_the_fix,
}

/// A data plane in which every change takes effect at once.
#[derive(Default)]
struct Still(u64);

impl Plane for Still {
    fn now(&self) -> u64 {
        0
    }

    fn apply(&mut self, changes: &[(u64, Change)]) {
        self.0 = changes.last().map_or(self.0, |last| last.0);
    }

    fn in_force(&self) -> u64 {
        self.0
    }

    fn punts(&self) -> Receiver<Punt> {
        never()
    }

    fn port_stats(&mut self) -> Vec<PortStats> {
        vec![PortStats { number: 1, basic: [1, 2, 3, 4, 5, 6, 7, 8], ..PortStats::default() }]
    }
}

struct Switch {
    channel: Channel,
    folder: tempfile::TempDir,
}

impl Switch {
    fn new() -> Self {
        Self::with(Fail::Secure)
    }

    fn with(fail: Fail) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let endpoint = format!("punix:{}", folder.path().join("switch").display());
        let endpoints = vec![endpoint.parse().expect("an endpoint")];
        let config = Config { endpoints, fail, ..Config::default() };
        let limits = Limits { tables: 3, flows: 5000, groups: 4, meters: 4 };
        let agent = Agent::new(0x2a, limits, 2);
        let channel = Channel::start(config, agent, Box::<Still>::default()).expect("a channel");
        channel.with(|agent, now, out| {
            agent.port_add(Port { number: 1, name: "one".into(), ..Port::default() }, now, out);
        });
        Self { channel, folder }
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Output {
        let at = self.channel.listening()[0].trim_start_matches('p').to_owned();
        let mut flowyard = Command::new(env!("CARGO_BIN_EXE_flowyard"));
        flowyard.args(["switch", command, &at]).args(arguments).output().expect("it runs")
    }

    /// The output of a command, which must succeed.
    fn says(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.run(command, arguments);
        assert!(output.status.success(), "{command} {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Exit status and error output of a command.
    fn fails(&self, command: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(command, arguments);
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    }
}

fn flows_are_added_shown_changed_and_deleted() {
    let switch = Switch::new();
    switch
        .says("add-flow", &["table=1,priority=7,tcp,nw_dst=10.0.0.0/8,tp_dst=80,actions=output:1"]);
    switch.says("add-flow", &["priority=1,actions=goto_table:1"]);
    let dump = switch.says("dump-flows", &[]);
    assert_eq!(
        dump,
        " cookie=0x0, duration=0.000s, table=0, n_packets=0, n_bytes=0, priority=1 \
         actions=goto_table:1\n cookie=0x0, duration=0.000s, table=1, n_packets=0, n_bytes=0, \
         priority=7,tcp,nw_dst=10.0.0.0/8,tcp_dst=80 actions=output:1\n"
    );
    // The output of dump-flows can be added again, from a file.
    let file = switch.folder.path().join("flows");
    std::fs::write(&file, format!("# all\n{dump}")).expect("written");
    switch.says("del-flows", &[]);
    assert_eq!(switch.says("dump-flows", &[]), "");
    switch.says("add-flow", &[&format!("@{}", file.display())]);
    assert_eq!(switch.says("dump-flows", &[]), dump);
    switch.says("mod-flows", &["table=1,tcp,actions=drop"]);
    assert!(switch.says("dump-flows", &["table=1"]).ends_with("actions=drop\n"));
    assert!(switch.says("dump-aggregate", &["tcp"]).contains("flow_count=1"));
    switch.says("del-flows", &["--strict", "table=1,priority=7,tcp"]);
    switch.says("del-flows", &["table=0"]);
    assert_eq!(switch.says("dump-flows", &[]).lines().count(), 1);
    assert!(switch.says("dump-tables", &[]).contains("table 1: active=1"));
}

fn the_switchs_own_flows_are_shown_on_request() {
    let switch = Switch::with(Fail::Standalone);
    switch.says("add-flow", &["priority=0,in_port=1,actions=drop"]);
    let shown = switch.says("dump-flows", &[]);
    assert_eq!(shown.lines().count(), 1, "{shown}");
    let shown = switch.says("dump-flows", &["--hidden"]);
    let own = " cookie=0xffffffffffffffff, duration=0.000s, table=0, n_packets=0, n_bytes=0, priority=0 \
               actions=NORMAL (hidden: below all flows)";
    assert_eq!((shown.lines().count(), shown.lines().next_back()), (2, Some(own)), "{shown}");
    let (status, error) = switch.fails("dump-flows", &["--hidden", "-O", "1.0"]);
    assert!(status == Some(2) && error.contains("use -O 1.3"), "{error}");
}

fn flows_of_1_0_are_dumped_and_added_again() {
    let switch = Switch::new();
    let old = ["-O", "1.0"];
    for flow in [
        "priority=3,in_port=1,actions=mod_vlan_vid:5,mod_vlan_pcp:1,enqueue:1:2",
        "priority=2,udp,dl_vlan=5,actions=strip_vlan,mod_tp_dst:7,output:1",
        "priority=1,in_port=2,actions=mod_tp_src:7,output:1",
    ] {
        switch.says("add-flow", &[flow, "-O", "1.0"]);
    }
    let dump = switch.says("dump-flows", &old);
    assert_eq!(dump.lines().count(), 3, "{dump}");
    let file = switch.folder.path().join("flows");
    std::fs::write(&file, &dump).expect("written");
    switch.says("del-flows", &old);
    switch.says("add-flow", &[&format!("@{}", file.display()), "-O", "1.0"]);
    assert_eq!(switch.says("dump-flows", &old), dump);
    // 1.3 shows the flow that it can express.
    let new = switch.says("dump-flows", &["-O", "1.3"]);
    assert!(new.ends_with("actions=pop_vlan,set_field:7->udp_dst,output:1\n"), "{new}");
    assert_eq!(new.lines().count(), 1, "{new}");
    let (status, error) =
        switch.fails("add-flow", &["in_port=1,actions=mod_vlan_vid:5", "-O", "1.3"]);
    assert!(status == Some(1) && error.contains("add dl_vlan or vlan_vid"), "{error}");
}

fn groups_meters_and_ports_are_shown() {
    let switch = Switch::new();
    switch.says("add-group", &["group_id=1,type=select,bucket=weight:2,actions=output:1"]);
    let group = " group_id=1,type=select,bucket=weight:2,actions=output:1\n";
    assert_eq!(switch.says("dump-groups", &[]), group);
    switch.says("add-meter", &["meter=1,kbps,band=type=drop,rate=1000"]);
    assert_eq!(switch.says("dump-meters", &[]), " meter=1,kbps,band=type=drop,rate=1000\n");
    switch.says("add-flow", &["actions=meter:1,group:1"]);
    assert!(switch.says("dump-group-stats", &[]).contains("ref_count=1"));
    assert!(switch.says("meter-stats", &[]).contains("flow_count:1"));
    assert!(switch.says("show", &[]).contains("datapath 000000000000002a, 3 tables"));
    assert!(switch.says("show", &["-O", "1.0"]).contains("1(one)"));
    assert!(switch.says("dump-ports", &[]).contains("port 1: rx pkts=1, bytes=3"));
    switch.says("del-groups", &["group_id=1"]);
    switch.says("del-meters", &[]);
    assert_eq!(switch.says("dump-flows", &[]), "");
    // The monitor starts with the flow that exists already.
    switch.says("add-flow", &["in_port=1,actions=drop"]);
    let seen = switch.says("monitor", &["-O", "1.4", "--watch", "--count", "0"]);
    assert!(
        seen.starts_with("event=INITIAL table=0,cookie=0x0,priority=32768,in_port=1"),
        "{seen}"
    );
}

fn errors_name_the_place_and_the_fix() {
    let switch = Switch::new();
    let (status, why) = switch.fails("add-flow", &["in_prt=1,actions=drop"]);
    assert_eq!(status, Some(2), "{why}");
    assert!(why.contains("column 1") && why.contains("in_port"), "{why}");
    let (status, why) = switch.fails("add-flow", &["actions=group:9"]);
    assert_eq!(status, Some(1), "{why}");
    assert!(why.contains("no such group"), "{why}");
    let file = switch.folder.path().join("flows");
    std::fs::write(&file, "actions=drop\n\nactions=group:9\n").expect("written");
    let (_, why) = switch.fails("add-flow", &[&format!("@{}", file.display())]);
    assert!(why.contains("line 3"), "{why}");
    let mut flowyard = Command::new(env!("CARGO_BIN_EXE_flowyard"));
    let output = flowyard.args(["switch", "show", "unix:/nowhere"]).output().expect("it runs");
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(why.contains("is the switch running"), "{why}");
}
