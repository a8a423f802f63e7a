//! `explain` compared with published hashes, and with its own answers to related questions.

use std::collections::HashMap;

use crate::common::{csv, good, json, refused, run};
use crate::yard::{DROPPED, OTHER, Yard, config};
use flowyard_testkit::harness::{self, Need};
use serde_json::Value;

flowyard_testkit::tests! {
    microsofts_vectors needs [Need::Shared(RSS)],
    flow_director_vectors needs [Need::Shared(FDIR)],
    the_filter_memory_sets_the_bucket,
    rules_decide_where_they_match,
    a_packet_finds_the_tables_as_they_were_when_it_came,
    an_expected_queue_holds_or_says_why_not,
    the_rule_of_a_fix_steers_the_flow_there,
    a_chosen_port_lands_where_it_was_chosen_for,
    places_say_which_of_them_decides,
    a_rule_set_says_where_each_rule_can_live,
    a_yard_is_a_place,
}

const RSS: &str = "vectors/rss_microsoft.csv";
const FDIR: &str = "vectors/fdir_82599.csv";

const FLOW: &str = "tcp 10.0.0.1:40000 > 10.0.0.2:11211";

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("{text}"))
}

#[track_caller]
fn hex_of(value: &Value) -> u64 {
    hex(value.as_str().unwrap_or_else(|| panic!("{value} is no hash")))
}

fn flow(proto: &str, row: &HashMap<String, String>, names: [&str; 4]) -> String {
    let [src, sport, dst, dport] = names.map(|name| row[name].as_str());
    let v6 = src.contains(':');
    let end =
        |ip: &str, port: &str| if v6 { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
    match proto {
        "tcp" | "udp" | "sctp" => format!("{proto} {} > {}", end(src, sport), end(dst, dport)),
        _ => format!("{proto} {src} > {dst}"),
    }
}

/// Microsoft's "Verifying the RSS Hash Calculation", with three sizes of the indirection table.
fn microsofts_vectors() {
    let rows = csv(&harness::shared(RSS));
    assert_eq!(rows.len(), 8);
    for row in rows {
        let names = ["src", "sport", "dst", "dport"];
        let flow = flow("tcp", &row, names);
        for (adapter, index) in [("x520", "idx128"), ("x710", "idx512"), ("e810", "idx2048")] {
            let value = json(["explain", &flow, "--adapter", adapter, "--queues", "16", "--json"]);
            let rss = &value["policies"]["rss"];
            assert_eq!(hex_of(&rss["hash"]), hex(&row["hash_l3l4"]), "{flow} {adapter}");
            let index: u64 = row[index].parse().unwrap();
            assert_eq!(rss["index"], index, "{flow} {adapter}");
            assert_eq!(
                (rss["queue"].as_u64(), rss["core"].as_u64()),
                (Some(index % 16), Some(index % 16))
            );
        }
        // A protocol without ports.
        let bare = self::flow("proto 253", &row, names);
        let value = json(["explain", &bare, "--json"]);
        assert_eq!(hex_of(&value["policies"]["rss"]["hash"]), hex(&row["hash_l3"]), "{bare}");
        // The symmetric key gives both directions the same hash.
        let value = json(["explain", &flow, "--rss-key", "symmetric", "--json"]);
        let there = hex_of(&value["policies"]["rss"]["hash"]);
        assert_eq!(there, hex(&row["sym_key_l3l4"]), "{flow}");
        assert_eq!(there, hex_of(&value["reverse"]["policies"]["rss"]["hash"]), "{flow}");
    }
}

/// The 82599's hashes as computed by its driver, for every row that can be written as a flow.
fn flow_director_vectors() {
    let mut compared = 0;
    for row in csv(&harness::shared(FDIR)) {
        let proto = ["proto 253", "udp", "tcp", "sctp"][hex(&row["flow_type"]) as usize & 3];
        let mut flow = flow(proto, &row, ["src_ip", "src_port", "dst_ip", "dst_port"]);
        let tci = hex(&row["vlan_tci"]);
        assert!(tci < 4096 && row["vm_pool"] == "0", "a flow has a VLAN id and no pool");
        if tci != 0 {
            flow = format!("{flow} vlan {tci}");
        }
        let value = json(["explain", &flow, "--adapter", "82599", "--pballoc", "256k", "--json"]);
        let fdir = &value["policies"]["fdir"];
        for (field, column) in [
            ("bucket_hash", "atr_bucket15"),
            ("bucket", "atr_bucket15"),
            ("signature_hash", "atr_sig15"),
            ("fdirhash", "atr_FDIRHASH_linux"),
            ("perfect_bucket_hash", "perfect_bkt13_full_mask_noflex"),
        ] {
            assert_eq!(hex_of(&fdir[field]), hex(&row[column]), "{flow}: {field}");
        }
        compared += 1;
    }
    assert_eq!(compared, 13);
}

/// In a smaller table, the bucket is given by the low bits of the hash.
fn the_filter_memory_sets_the_bucket() {
    for (pballoc, bits) in [("64k", 13), ("128k", 14), ("256k", 15)] {
        let value = json(["explain", FLOW, "--pballoc", pballoc, "--json"]);
        let fdir = &value["policies"]["fdir"];
        let mask = (1 << bits) - 1;
        assert_eq!(hex_of(&fdir["bucket"]), hex_of(&fdir["bucket_hash"]) & mask, "{pballoc}");
    }
}

fn rules_decide_where_they_match() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.txt");
    std::fs::write(
        &rules,
        "# two\nflow-type tcp4 dst-port 11211 action 9\nflow-type tcp4 dst-port 80 action -1\n",
    )
    .unwrap();
    let policy = format!("fdir={}", rules.display());
    for adapter in ["x520", "x710", "e810"] {
        let ask = |flow: &str| {
            let value =
                json(["explain", flow, "--adapter", adapter, "--policy", &policy, "--json"]);
            value["policies"]["fdir"].clone()
        };
        let hit = ask(FLOW);
        assert_eq!(
            (&hit["stage"], &hit["queue"], &hit["mode"]),
            (&"rule".into(), &9.into(), &"perfect".into())
        );
        assert!(hit["match"].as_str().unwrap().starts_with("rule"), "{adapter}: {hit}");
        let dropped = ask("tcp 10.0.0.1:40000 > 10.0.0.2:80");
        assert_eq!((&dropped["stage"], &dropped["queue"]), (&"dropped".into(), &Value::Null));
        let missed = ask("tcp 10.0.0.1:40000 > 10.0.0.2:81");
        assert_eq!((&missed["stage"], &missed["match"]), (&"rss".into(), &"none".into()));
    }
}

/// Writes a capture of one connection: a packet to the server for each `A`, from it for each `B`.
fn capture(path: &std::path::Path, directions: &str) {
    use flowyard_ports::pcap;
    let ip = |n| std::net::IpAddr::from([10, 0, 0, n]);
    let key = flowyard_frame::FlowKey::five_tuple(6, ip(1), 40000, ip(2), 11211);
    let mut writer =
        pcap::Writer::create(path, pcap::Format::Pcapng, flowyard_wire::LinkType::Ethernet)
            .unwrap();
    for (at, direction) in directions.chars().enumerate() {
        let key = if direction == 'A' { key } else { key.reversed() };
        let flags = match (at, direction) {
            (0, _) => 0x02,
            (_, 'B') if at == 1 => 0x12,
            _ => 0x10,
        };
        let frame = flowyard_testkit::Build::new(&key).flags(flags).pad(60).bytes();
        writer.write(at as u64 * 1_000_000, frame.len() as u32, &frame).unwrap();
    }
    writer.finish().unwrap();
}

fn a_packet_finds_the_tables_as_they_were_when_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pcapng");
    capture(&path, "ABABABABA");
    let ask = |number: usize| {
        let target = format!("{}:{number}", path.display());
        json(["explain", &target, "--consumer", "11211=13", "--json"])
    };
    let rss = ask(1)["policies"]["rss"]["queue"].clone();
    assert_ne!(rss, 13, "else nothing could be seen to change");
    for (number, received, stage) in [
        (1, true, "rss"),
        (2, false, "rss"),
        (3, true, "filter"),
        (4, false, "rss"),
        (9, true, "filter"),
    ] {
        let value = ask(number);
        assert_eq!(value["packet"]["number"], number);
        assert_eq!(value["packet"]["received"], received, "packet {number}");
        assert!(value["packet"]["capture"].as_str().unwrap().ends_with("one.pcapng"));
        let (here, back) = (&value["policies"], &value["reverse"]["policies"]);
        let flow = if received { FLOW } else { "tcp 10.0.0.2:11211 > 10.0.0.1:40000" };
        assert_eq!(value["flow"], flow);
        for policy in ["atr", "yard"] {
            assert_eq!(here[policy]["stage"], stage, "packet {number}, {policy}");
            let queue = if stage == "filter" { &Value::from(13) } else { &here["rss"]["queue"] };
            assert_eq!(&here[policy]["queue"], queue, "packet {number}, {policy}");
        }
        // ATR has sampled the SYN+ACK (packet 2), so the filter is there from packet 3 on.
        let learned = if !received && number > 2 { "filter" } else { "rss" };
        assert_eq!(back["atr"]["stage"], learned, "packet {number}");
        let core = if number == 1 { &here["rps"]["core"] } else { &Value::from(13) };
        let rfs = if received { &here["rfs"]["core"] } else { &back["rfs"]["core"] };
        assert_eq!(rfs, core, "packet {number}, rfs");
    }
    crate::common::refused(&run(["explain", &format!("{}:10", path.display())]));
}

fn an_expected_queue_holds_or_says_why_not() {
    let rss = json(["explain", FLOW, "--json"])["policies"]["rss"]["queue"].as_u64().unwrap();
    for queue in 0..16 {
        let value = json(["explain", FLOW, "--expect-queue", &queue.to_string(), "--json"]);
        let expect = &value["expect"];
        assert_eq!(expect["queue"], queue);
        for policy in ["rss", "fdir", "atr", "rps", "rfs", "yard"] {
            let answer = &expect["policies"][policy];
            assert_eq!(answer["holds"], queue == rss, "{policy} {queue}");
            assert_eq!(answer["why_not"].is_null(), queue == rss, "{policy} {queue}");
            assert_eq!(
                answer["fix"].as_array().unwrap().is_empty(),
                queue == rss,
                "{policy} {queue}"
            );
        }
        if queue == rss {
            continue;
        }
        // The fixes work: the port, and the entry of the table.
        let fixes: Vec<_> = expect["policies"]["rss"]["fix"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fix| fix.as_str().unwrap().to_owned())
            .collect();
        let port = fixes.iter().find_map(|fix| fix.rsplit_once("source port ")).unwrap().1;
        let moved = FLOW.replace("40000", port);
        assert_eq!(json(["explain", &moved, "--json"])["policies"]["rss"]["queue"], queue);
        let index = value["policies"]["rss"]["index"].as_u64().unwrap();
        assert!(fixes.iter().any(|fix| fix.contains(&format!("entry {index} "))), "{fixes:?}");
        let table: Vec<_> =
            (0..128).map(|i| if i == index { queue } else { i % 16 }.to_string()).collect();
        let pointed = json(["explain", FLOW, "--indirection", &table.join(","), "--json"]);
        assert_eq!(pointed["policies"]["rss"]["queue"], queue);
    }
    let text = good(&run(["explain", FLOW, "--expect-queue", "3"]));
    assert!(text.contains("Does the flow get queue 3?") && text.contains("source port"), "{text}");
}

/// The suggested rule steers the flow to the queue.
fn the_rule_of_a_fix_steers_the_flow_there() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.txt");
    let policy = format!("fdir={}", rules.display());
    for (adapter, flow) in [
        ("x520", FLOW),
        ("x710", "udp 10.0.0.1:4000 > 10.0.0.2:53"),
        ("x710", "tcp [2001:db8::1]:4000 > [2001:db8::2]:80"),
        ("e810", "udp [2001:db8::1]:4000 > [2001:db8::2]:53"),
    ] {
        let value = json(["explain", flow, "--adapter", adapter, "--json"]);
        let other = (value["policies"]["rss"]["queue"].as_u64().unwrap() + 1) % 16;
        let other = other.to_string();
        let value =
            json(["explain", flow, "--adapter", adapter, "--expect-queue", &other, "--json"]);
        let fixes = value["expect"]["policies"]["fdir"]["fix"].as_array().unwrap();
        let rule = fixes.iter().find_map(|fix| fix.as_str()?.split_once("flow-type")).unwrap().1;
        std::fs::write(&rules, format!("flow-type{rule}\n")).unwrap();
        let value = json(["explain", flow, "--adapter", adapter, "--policy", &policy, "--json"]);
        assert_eq!(value["policies"]["fdir"]["queue"].to_string(), other, "{adapter}: {rule}");
    }
}

fn a_chosen_port_lands_where_it_was_chosen_for() {
    for (adapter, flow, port) in [
        ("x520", FLOW, ":40000"),
        ("e810", "udp [2001:db8::1]:40000 > [2001:db8::2]:53", ":40000"),
        ("x722", "sctp 10.0.0.1:40000 > 10.0.0.2:53", ":40000"),
    ] {
        for queue in [0, 7, 15] {
            let wanted = queue.to_string();
            let value =
                json(["explain", flow, "--adapter", adapter, "--choose-port", &wanted, "--json"]);
            let chosen = &value["choose_port"];
            let at = chosen["port"].as_u64().unwrap();
            assert!(at >= 1024 && chosen["ports_that_fit"].as_u64().unwrap() > 3000, "{chosen}");
            let moved = flow.replacen(port, &format!(":{at}"), 1);
            assert_eq!(chosen["flow"], moved);
            let again = json(["explain", &moved, "--adapter", adapter, "--json"]);
            assert_eq!(again["policies"]["rss"]["queue"], queue, "{adapter}, port {at}");
        }
    }
    // ixgbe hashes UDP without ports, so no port changes the queue.
    let flow = "udp 10.0.0.1:4000 > 10.0.0.2:53";
    let rss = json(["explain", flow, "--json"])["policies"]["rss"]["queue"].as_u64().unwrap();
    let other = ((rss + 1) % 16).to_string();
    let value = json(["explain", flow, "--choose-port", &other, "--json"]);
    assert_eq!(
        (&value["choose_port"]["port"], &value["choose_port"]["ports_that_fit"]),
        (&Value::Null, &0.into())
    );
    let why = value["choose_port"]["why"].as_str().unwrap();
    assert!(why.contains("only the addresses of UDP") && why.contains("--udp 4-tuple"), "{why}");
    let value = json(["explain", flow, "--choose-port", &other, "--udp", "4-tuple", "--json"]);
    assert!(value["choose_port"]["port"].is_u64());
    // The port is hashed, but no entry of the table has the queue.
    let args = ["explain", FLOW, "--indirection", "0,1", "--choose-port", "3", "--json"];
    let why = json(args)["choose_port"]["why"].as_str().unwrap().to_owned();
    assert_eq!(why, "no entry of the indirection table has queue 3");
    // Policies without filters were chosen: there is nothing to say about filters.
    let value = json(["explain", FLOW, "--policy", "rss", "--expect-queue", "4", "--json"]);
    assert!(value["policies"]["fdir"].is_null() && value["expect"]["policies"]["fdir"].is_null());
}

fn places_say_which_of_them_decides() {
    let modelled = json(["explain", FLOW, "--where", "--adapter", "x520", "--json"]);
    let explained = json(["explain", FLOW, "--adapter", "x520", "--json"]);
    assert_eq!(modelled["schema"], "flowyard.where/1");
    assert_eq!(modelled["decides"], "adapter", "{modelled:#}");
    assert_eq!(modelled["places"][0]["queue"], explained["policies"]["rss"]["queue"]);
    let here = json(["explain", FLOW, "--where", "--interface", "lo", "--json"]);
    let places = here["places"].as_array().unwrap();
    let names: Vec<_> = places.iter().map(|one| one["place"].as_str().unwrap()).collect();
    assert_eq!(names, ["adapter", "xdp", "rps", "rfs"], "{here:#}");
    assert_eq!(places[1]["acts"], false, "{here:#}");
    let text = good(&run(["explain", FLOW, "--where", "--interface", "lo"]));
    assert!(text.contains("no 'flowyard steer' answers for it"), "{text}");
    for (args, why) in [
        (&["--rules", "x"][..], "--where"),
        (&["--where", "--rules", "none.txt"], "none.txt"),
        (&["--where", "--expect-queue", "3"], "--where: leave out --expect-queue"),
        (&["--where", "--control", "/proc/self/stat"], "is not a socket"),
    ] {
        let line = refused(&run([&["explain", FLOW], args].concat()));
        assert!(line.contains(why), "{args:?}: {line}");
    }
    let line = refused(&run(["explain", "captures/yard.pcap:3", "--where"]));
    assert!(line.contains("--where: name a flow") && line.contains("not a packet"), "{line}");
}

fn a_rule_set_says_where_each_rule_can_live() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.txt");
    let name = file.to_str().unwrap();
    let text = "flow-type tcp4 dst-port 11211 action 3\nflow-type tcp4 dst-port 80 user-def 0x1234 action 1\n\
                flow-type ether dst 02:00:00:00:00:01 action 2\nflow-type udp4 dst-port 53 action 200\n";
    std::fs::write(&file, text).unwrap();
    let found = json(["explain", FLOW, "--where", "--rules", name, "--adapter", "x520", "--json"]);
    let rules = found["rules"].as_array().unwrap();
    let fits = |at: usize, place: &str| rules[at][place]["fits"].as_bool().unwrap();
    assert_eq!(
        (rules.len(), &rules[0]["matches"], &rules[3]["matches"]),
        (4, &true.into(), &false.into())
    );
    for place in ["adapter", "xdp", "yard"] {
        assert!(fits(0, place), "{place}: {found:#}");
    }
    assert!((0..4).all(|at| !fits(at, "rps")), "{found:#}");
    assert!(!fits(1, "xdp") && !fits(1, "yard"), "{found:#}");
    assert!(fits(2, "xdp") && !fits(2, "yard"), "{found:#}");
    let why = rules[3]["xdp"]["why"].as_str().unwrap();
    assert!(why.contains("there is no queue 200"), "{why}");
    let without =
        json(["explain", FLOW, "--where", "--rules", name, "--adapter", "software", "--json"]);
    let why = without["rules"][0]["adapter"]["why"].as_str().unwrap();
    assert!(why.contains("software has no rules"), "{why}");
    let text = good(&run(["explain", FLOW, "--where", "--rules", name]));
    assert!(
        text.contains("line 1, which matches the flow")
            && text.contains("  rps      no: RPS spreads"),
        "{text}"
    );
}

fn a_yard_is_a_place() {
    let yard = Yard::start(&config(), &[]);
    let of = |flow: &str| {
        let found = yard.json(&["explain", flow, "--where"]);
        let places = found["places"].as_array().unwrap().clone();
        (found["decides"].clone(), places.last().unwrap()["why"].as_str().unwrap().to_owned())
    };
    let (decides, why) = of(OTHER);
    assert_eq!((decides, why.as_str()), ("yard".into(), "table exact of core 0: queue b"));
    assert!(of(DROPPED).1.ends_with(": drop"));
    assert!(of(FLOW).1.contains("no entry for exactly this flow, and no rules"), "{}", of(FLOW).1);
}
