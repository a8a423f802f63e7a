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
    dumps_are_json_that_fits_the_schemas,
    ports_have_names_and_can_be_changed,
    a_file_is_sent_as_a_bundle,
    flows_are_compared_and_replaced,
    groups_tables_and_the_connection_are_changed_and_measured,
    commands_and_addresses_that_do_not_exist_name_what_was_meant,
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
        // The switch does not count frames that could not be sent.
        let basic = [1, 2, 3, 4, 5, 6, 7, u64::MAX];
        vec![PortStats { number: 1, basic, ..PortStats::default() }]
    }
}

pub(crate) struct Switch {
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
    pub(crate) fn says(&self, command: &str, arguments: &[&str]) -> String {
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
    // The others are counted, and a comparison does not take them for missing.
    let (status, note) = switch.fails("dump-flows", &["-O", "1.3"]);
    assert_eq!(status, Some(0));
    assert!(
        note.contains("2 of 3 flows cannot be written in OpenFlow 1.3; -O 1.0 prints"),
        "{note}"
    );
    assert_eq!(switch.fails("dump-flows", &old).1, "");
    assert_eq!(switch.fails("dump-flows", &["udp", "-O", "1.3"]).1, "");
    std::fs::write(&file, &new).expect("written");
    for version in ["1.3", "1.4"] {
        for command in ["diff-flows", "replace-flows"] {
            let (status, error) =
                switch.fails(command, &[file.to_str().expect("text"), "-O", version]);
            assert!(
                status == Some(1) && error.contains("cannot be compared"),
                "{command}: {error}"
            );
        }
    }
    std::fs::write(&file, &dump).expect("written");
    switch.says("diff-flows", &[file.to_str().expect("text"), "-O", "1.0"]);
    assert_eq!(switch.says("dump-flows", &old), dump);
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
    let counters = switch.says("dump-ports", &[]);
    assert!(counters.contains("port 1: rx pkts=1, bytes=3"), "{counters}");
    assert!(counters.contains("drop=6, errs=?; duration"), "{counters}");
    switch.says("add-group", &["group_id=2,type=all,bucket=actions=output:1"]);
    for one in ["1", "group_id=1"] {
        assert_eq!(switch.says("dump-groups", &[one]), group);
        assert!(switch.says("dump-group-stats", &[one]).contains("ref_count=1"));
    }
    for one in ["1", "meter=1"] {
        assert!(switch.says("dump-meters", &[one]).contains("rate=1000"));
        assert!(switch.says("meter-stats", &[one]).contains("flow_count:1"));
    }
    let (status, why) = switch.fails("dump-groups", &["3"]);
    assert!(status == Some(1) && why.contains("the switch has no group 3"), "{why}");
    switch.says("del-groups", &["2"]);
    assert_eq!(switch.says("dump-groups", &[]), group);
    switch.says("del-groups", &["group_id=1"]);
    switch.says("del-meters", &["1"]);
    assert_eq!(switch.says("dump-meters", &[]), "");
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

/// A switch with a group, a meter and two flows, one of which matches a port.
pub(crate) fn with_state() -> Switch {
    let switch = Switch::new();
    switch.says("add-group", &["group_id=1,type=select,bucket=weight:2,actions=output:one"]);
    switch.says("add-meter", &["meter=1,pktps,band=type=dscp_remark,rate=1000,prec_level=1"]);
    switch.says("add-flow", &["priority=7,cookie=0x2a,tcp,in_port=one,actions=meter:1,group:1"]);
    switch.says("add-flow", &["table=1,send_flow_rem,dl_vlan=5,actions=drop"]);
    switch
}

fn dumps_are_json_that_fits_the_schemas() {
    let switch = with_state();
    for (kind, command, arguments) in [
        ("switch-show", "show", &[][..]),
        ("switch-description", "dump-desc", &[]),
        ("switch-flows", "dump-flows", &[]),
        ("switch-flows", "dump-flows", &["--names", "--no-stats", "in_port=one,tcp"]),
        ("switch-aggregate", "dump-aggregate", &["tcp"]),
        ("switch-groups", "dump-groups", &[]),
        ("switch-group-stats", "dump-group-stats", &[]),
        ("switch-meters", "dump-meters", &[]),
        ("switch-meter-stats", "meter-stats", &[]),
        ("switch-ports", "dump-ports-desc", &["one"]),
        ("switch-port-stats", "dump-ports", &["one"]),
        ("switch-tables", "dump-tables", &[]),
        ("switch-table-settings", "dump-table-desc", &["-O", "1.4"]),
        ("switch-table-features", "dump-table-features", &[]),
        ("switch-queues", "queue-stats", &[]),
        ("switch-ping", "ping", &["--count", "2"]),
    ] {
        let text = switch.says(command, &[arguments, &["--json"]].concat());
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let schema = crate::common::json(["schema", kind]);
        let faults = crate::schema::faults(&value, &schema);
        assert!(faults.is_empty(), "{command}: {faults:?}");
        let lines = value.as_object().and_then(|all| all.values().find_map(|one| one.as_array()));
        assert!(kind == "switch-queues" || lines.is_none_or(|list| !list.is_empty()), "{text}");
    }
    let text = switch.says("dump-flows", &["--json", "--names"]);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let flow = &value["flows"][0];
    assert_eq!((flow["kind"].as_str(), flow["cookie"].as_str()), (Some("tcp"), Some("0x2a")));
    assert_eq!(flow["fields"]["in_port"], "one");
    assert_eq!(flow["actions"], serde_json::json!(["meter:1", "group:1"]));
}

fn ports_have_names_and_can_be_changed() {
    let switch = with_state();
    let dump = switch.says("dump-flows", &["--no-stats", "--names", "table=0"]);
    assert_eq!(dump, " cookie=0x2a, table=0, priority=7,tcp,in_port=one actions=meter:1,group:1\n");
    assert!(switch.says("dump-groups", &["--names"]).contains("output:one"));
    assert!(switch.says("dump-ports", &["one"]).contains("port 1: rx pkts=1"));
    assert!(switch.says("dump-ports", &["--names"]).contains("port one: rx pkts=1"));
    assert!(switch.says("dump-ports", &["--no-names"]).contains("port 1: rx pkts=1"));
    let (status, why) = switch.fails("dump-ports", &["--no-names", "--names"]);
    assert_eq!(status, Some(2), "{why}");
    let watch = ["-O", "1.4", "--watch", "--count", "0"];
    let seen = switch.says("monitor", &[&watch[..], &["--names"]].concat());
    assert!(seen.contains("tcp,in_port=one actions="), "{seen}");
    let seen = switch.says("monitor", &watch);
    assert!(seen.contains("tcp,in_port=1 actions="), "{seen}");
    let (status, why) = switch.fails("dump-ports", &["two"]);
    assert_eq!(status, Some(2), "{why}");
    assert!(why.contains("a port's name: one"), "{why}");
    let (status, _) = switch.fails("dump-ports", &["7"]);
    assert_eq!(status, Some(1));
    switch.says("mod-port", &["one", "down"]);
    assert!(switch.says("show", &[]).contains("config: PORT_DOWN,"));
    switch.says("mod-port", &["1", "no-packet-in"]);
    switch.says("mod-port", &["1", "up"]);
    assert!(switch.says("dump-ports-desc", &[]).contains("config: NO_PACKET_IN,"));
    let (status, why) = switch.fails("mod-port", &["one", "no-flood"]);
    assert_eq!(status, Some(2), "{why}");
    assert!(why.contains("-O 1.0"), "{why}");
    switch.says("mod-port", &["-O", "1.0", "one", "no-flood"]);
    assert!(switch.says("show", &["-O", "1.0"]).contains("NO_FLOOD"));
    switch.says("packet-out", &["in_port=one,packet=0200000000010200000000020800,actions=flood"]);
}

fn a_file_is_sent_as_a_bundle() {
    let switch = Switch::new();
    let file = |name: &str, text: &str| {
        let path = switch.folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let wrong = file("wrong", "priority=1,actions=output:one\n\npriority=2,actions=group:9\n");
    for (command, argument) in [("add-flow", format!("@{wrong}")), ("add-flows", wrong.clone())] {
        let (status, why) = switch.fails(command, &[&argument]);
        assert_eq!(status, Some(1), "{why}");
        assert!(
            why.contains("line 3: the switch refused") && why.contains("none of the 2"),
            "{why}"
        );
        assert_eq!(switch.says("dump-flows", &[]), "");
    }
    // Without a bundle, the error says what stays.
    for how in [&["--one-by-one"][..], &["-O", "1.0"]] {
        let wrong = file(
            "wrong",
            "priority=1,actions=output:1\npriority=1,check_overlap,tcp,actions=drop\n",
        );
        let (_, why) = switch.fails("add-flows", &[&[wrong.as_str()], how].concat());
        assert!(why.contains("line 2") && why.contains("the other change is in force"), "{why}");
        assert_eq!(switch.says("dump-flows", &[]).lines().count(), 1);
        switch.says("del-flows", &[]);
    }
    let mixed = file(
        "mixed",
        "add priority=1,actions=drop\npriority=2,actions=drop\ndelete_strict priority=1\n",
    );
    switch.says("add-flows", &[&mixed]);
    assert!(switch.says("dump-flows", &[]).contains("priority=2 "));
    let (status, why) = switch.fails("add-flow", &["@/nowhere/flows"]);
    assert_eq!(status, Some(2), "{why}");
    assert!(why.contains("/nowhere/flows") && why.contains("name a readable file"), "{why}");
}

fn flows_are_compared_and_replaced() {
    let switch = Switch::new();
    let at = switch.channel.listening()[0].trim_start_matches('p').to_owned();
    switch.says("add-flow", &["priority=1,tcp,actions=output:1"]);
    switch.says("add-flow", &["priority=2,udp,cookie=5,actions=output:1"]);
    let file = switch.folder.path().join("wanted");
    let wanted = "priority=1,tcp,actions=output:one\npriority=3,arp,actions=flood\n\
                  priority=2,udp,cookie=6,actions=output:1\n";
    std::fs::write(&file, wanted).expect("written");
    let file = file.display().to_string();
    let diff_with = |first: &str, second: &str, more: &[&str]| {
        let mut flowyard = Command::new(env!("CARGO_BIN_EXE_flowyard"));
        let output = flowyard.args(["switch", "diff-flows", first, second]).args(more).output();
        let output = output.expect("it runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let diff = |first: &str, second: &str| diff_with(first, second, &[]);
    let (status, said) = diff(&at, &file);
    assert_eq!(status, Some(1));
    assert_eq!(
        said,
        "-table=0,cookie=0x5,priority=2,udp actions=output:1\n\
         +table=0,cookie=0x6,priority=2,udp actions=output:1\n\
         +table=0,cookie=0x0,priority=3,arp actions=FLOOD\n"
    );
    let (_, named) = diff_with(&at, &file, &["--names"]);
    assert_eq!(named, said.replace("output:1", "output:one"));
    let (status, said) = diff_with(&at, &file, &["--json"]);
    assert_eq!(status, Some(1));
    let value: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    crate::schema::expect("switch-differences", &value);
    let flows = value["flows"].as_array().expect("flows");
    assert_eq!(flows.len(), 2, "{said}");
    assert_eq!(
        (flows[0]["matching"].as_str(), flows[0]["priority"].as_u64()),
        (Some("udp"), Some(2))
    );
    assert!(flows[0]["first"].is_string() && flows[0]["second"].is_string(), "{said}");
    assert!(flows[1]["first"].is_null() && flows[1]["second"].is_string(), "{said}");
    switch.says("replace-flows", &[&file]);
    assert_eq!(diff(&file, &at), (Some(0), String::new()));
    std::fs::write(&file, "").expect("written");
    switch.says("replace-flows", &[&file]);
    assert_eq!(switch.says("dump-flows", &[]), "");
}

fn groups_tables_and_the_connection_are_changed_and_measured() {
    let switch = with_state();
    switch.says("mod-group", &["--may-create", "group_id=2,type=all,bucket=actions=output:1"]);
    switch.says("mod-group", &["--may-create", "group_id=2,type=all,bucket=actions=drop"]);
    assert!(switch.says("dump-groups", &[]).contains("group_id=2,type=all,bucket=actions=drop"));
    switch.says("insert-buckets", &["group_id=1,command_bucket_id=first,bucket=actions=drop"]);
    switch.says("insert-buckets", &["group_id=1,command_bucket_id=0,bucket=weight:9,flood"]);
    let groups = switch.says("dump-groups", &[]);
    assert!(
        groups.contains(
            "bucket=weight:1,actions=drop,bucket=weight:9,actions=FLOOD,bucket=weight:2,"
        ),
        "{groups}"
    );
    switch.says("remove-buckets", &["group_id=1,command_bucket_id=1"]);
    switch.says("remove-buckets", &["group_id=1"]);
    assert!(
        switch
            .says("dump-groups", &[])
            .contains("group_id=1,type=select,bucket=weight:1,actions=drop\n")
    );
    let (_, why) = switch.fails("remove-buckets", &["group_id=1,command_bucket_id=4"]);
    assert!(why.contains("group 1 has 1 buckets, and none at position 4"), "{why}");
    switch.says("mod-table", &["-O", "1.4", "1", "evict"]);
    switch.says("mod-table", &["-O", "1.4", "1", "vacancy:20,80"]);
    let tables = switch.says("dump-table-desc", &["-O", "1.4"]);
    assert_eq!(
        tables,
        "  table 0: noevict, novacancy\n  table 1: evict, vacancy:20,80 (99 % free)\n  table 2: noevict, novacancy\n"
    );
    let (status, why) = switch.fails("mod-table", &["0", "drop"]);
    assert_eq!(status, Some(2), "{why}");
    assert!(why.contains("priority=0,actions=drop"), "{why}");
    let features = switch.says("dump-table-features", &[]);
    assert!(features.starts_with("  tables 0 to 1:\n"), "{features}");
    assert!(features.contains("next tables: every later table"), "{features}");
    assert_eq!(switch.says("table-features", &[]), features);
    assert_eq!(switch.says("queue-stats", &[]), "  no queues\n");
    assert!(switch.says("dump-desc", &[]).starts_with("manufacturer 'flowyard'"));
    let said = switch.says("ping", &["--count", "2"]);
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(said.contains("64 bytes from unix:") && said.contains("2 answers: least"), "{said}");
    assert_eq!(
        switch.says("dump-tables", &[]),
        "  table 0: active=1, lookup=0, matched=0\n  table 1: active=1, lookup=0, matched=0\n  \
         1 table has no flows and was never looked up (--all prints it)\n"
    );
    assert_eq!(switch.says("dump-tables", &["--all"]).lines().count(), 3);
}

fn commands_and_addresses_that_do_not_exist_name_what_was_meant() {
    let said = |arguments: &[&str]| {
        let mut flowyard = Command::new(env!("CARGO_BIN_EXE_flowyard"));
        let output = flowyard.arg("switch").args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    for (arguments, words) in [
        (&["dump-flow", "br0"][..], "there is no command 'dump-flow'; did you mean 'dump-flows'?"),
        (&["mod-flow", "br0"], "write mod-flows --strict"),
        (&["ofproto/trace", "br0"], "write why FIELDS"),
        (&["set-frags", "br0"], "fragments are processed like other frames"),
        (&["nonsense"], "'flowyard switch --help' lists the commands"),
        (&["tcp:127.0.0.1", "dump-flows"], "flowyard switch dump-flows tcp:127.0.0.1"),
    ] {
        let why = said(arguments);
        assert!(why.contains(words), "{arguments:?}: {why}");
    }
    let why = said(&["show", "br0"]);
    assert_eq!(why.matches("br0").count(), 1, "{why}");
    assert!(why.contains("write tcp:HOST[:PORT]") && !why.contains("ptcp"), "{why}");
    let why = said(&["show", "ptcp:6653"]);
    assert!(why.contains("a switch listens on such an address"), "{why}");
    let mut flowyard = Command::new(env!("CARGO_BIN_EXE_flowyard"));
    let help = flowyard.args(["switch", "why", "--help"]).output().expect("it runs").stdout;
    let help = String::from_utf8(help).expect("text");
    for option in ["--protocols", "--certificate", "--private-key", "--ca-cert", "--timeout"] {
        assert!(!help.contains(option), "{option}: {help}");
    }
    assert!(help.contains("--control"), "{help}");
}
