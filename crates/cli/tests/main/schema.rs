//! JSON documents match their schemas, and the committed schemas are the ones that `flowyard schema`
//! prints (`UPDATE_SCHEMA=1 cargo test -p flowyard-cli --test main schema` writes them).

use crate::common::{good, json, root, run};
use crate::yard::{Yard, wait};
use serde_json::Value;

flowyard_testkit::tests! {
    the_committed_schemas_are_the_commands,
    every_document_has_a_schema,
    what_analyze_prints_fits_its_schema,
    what_explain_prints_fits_its_schema,
    what_figures_prints_fits_its_schema,
    what_lb_prints_fits_its_schemas,
    what_a_running_instance_prints_fits_its_schemas,
    an_unknown_schema_is_refused_with_the_names,
    the_promised_fields_are_there,
    a_document_that_does_not_fit_is_found,
}

/// Names and documents of all schemas, as `flowyard schema` lists them, and the committed file of each.
fn committed() -> Vec<(String, String)> {
    let list = good(&run(["schema"]));
    let rows = list.lines().skip(2).map(|line| line.split_once(' ').expect("two columns"));
    let file = |document: &str| format!("docs/schema/{}.json", document.trim().replace('/', "."));
    rows.map(|(name, document)| (name.to_owned(), file(document))).collect()
}

fn the_committed_schemas_are_the_commands() {
    let all = committed();
    assert!(all.len() > 10, "{all:?}");
    for (command, file) in &all {
        let printed = good(&run(["schema", command.as_str()]));
        let path = root().join(file);
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &printed).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
        assert!(
            committed == printed,
            "{file} is not what `flowyard schema {command}` prints. If the change only adds fields, \
             update the file with UPDATE_SCHEMA=1; otherwise raise the schema's version first."
        );
    }
}

/// Every name of a document in the program's source is one that `flowyard schema` lists, and the
/// reverse.
fn every_document_has_a_schema() {
    let mut found = std::collections::BTreeSet::new();
    let mut folders = vec![root().join("crates/cli/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            // A name is a whole string: "flowyard.NAME/VERSION".
            for rest in text.split("\"flowyard.").skip(1) {
                let name = rest.split('"').next().unwrap();
                let version = name.split_once('/').map(|(_, version)| version.parse::<u32>());
                if matches!(version, Some(Ok(_))) {
                    found.insert(format!("flowyard.{name}"));
                }
            }
        }
    }
    let list = good(&run(["schema"]));
    let listed = list.lines().skip(2).filter_map(|line| line.split_whitespace().nth(1));
    assert_eq!(found, listed.map(str::to_owned).collect());
}

/// Checks `value` against `schema`, for the part of JSON Schema that our schemas use. A field that is not
/// declared is a fault, and an unknown keyword panics, so that nothing is accepted by accident.
///
/// The crate jsonschema would do this, but needs 33 more crates and half a minute to build.
fn check(value: &Value, schema: &Value, root: &Value, at: &str, faults: &mut Vec<String>) {
    let Some(keywords) = schema.as_object() else { return };
    for (keyword, wanted) in keywords {
        if let Some(fault) = keyword_fault(keyword, value, wanted, at) {
            faults.push(format!("{at}: {fault}"));
        }
    }
    let found = |one: &Value| {
        let mut faults = Vec::new();
        check(value, one, root, at, &mut faults);
        faults
    };
    if let Some(path) = keywords.get("$ref").and_then(Value::as_str) {
        faults.extend(found(root.pointer(&path[1..]).expect("a definition")));
    }
    if let Some(any) = keywords.get("anyOf").and_then(Value::as_array) {
        let tried: Vec<Vec<String>> = any.iter().map(found).collect();
        if tried.iter().all(|faults| !faults.is_empty()) {
            faults.extend(tried.into_iter().flatten());
        }
    }
    if let Some(kinds) = keywords.get("oneOf").and_then(Value::as_array) {
        let count = kinds.iter().filter(|one| found(one).is_empty()).count();
        if count != 1 {
            faults.push(format!("{at}: {value} is {count} of the kinds"));
        }
    }
    // Fields and items are declared by what these refer to.
    if !["$ref", "anyOf", "oneOf"].iter().any(|elsewhere| keywords.contains_key(*elsewhere)) {
        check_fields(value, keywords, root, at, faults);
        check_items(value, keywords, root, at, faults);
    }
}

/// The fault of `value` by a keyword that does not contain other schemas.
fn keyword_fault(keyword: &str, value: &Value, wanted: &Value, at: &str) -> Option<String> {
    let is_fault = match keyword {
        "type" => {
            let is = |name: &Value| match name.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "null" => value.is_null(),
                "number" => value.is_number(),
                "integer" => value.is_u64() || value.is_i64(),
                other => panic!("type {other}"),
            };
            !wanted.as_array().map_or_else(|| is(wanted), |any| any.iter().any(is))
        }
        "const" => value != wanted,
        "enum" => !wanted.as_array().unwrap().contains(value),
        "minimum" if value.is_number() && value.as_f64() < wanted.as_f64() => {
            return Some(format!("{value} is below {wanted}"));
        }
        "maximum" if value.as_f64() > wanted.as_f64() => {
            return Some(format!("{value} is above {wanted}"));
        }
        "minItems" | "maxItems" => {
            let (have, want) =
                (value.as_array().map_or(0, Vec::len) as u64, wanted.as_u64().unwrap());
            let is_fault = if keyword == "minItems" { have < want } else { have > want };
            return is_fault.then(|| format!("{have} items, {keyword} {want}"));
        }
        "$schema" | "title" | "description" | "format" | "$defs" | "required" | "default" => false,
        "minimum" | "maximum" | "properties" | "additionalProperties" | "patternProperties" => {
            false
        }
        "items" | "prefixItems" | "anyOf" | "oneOf" | "$ref" => false,
        other => panic!("{at}: this test does not know the keyword {other}"),
    };
    is_fault.then(|| format!("{value} is not {wanted}"))
}

type Keywords = serde_json::Map<String, Value>;

/// Checks the fields of an object, if `value` is one.
fn check_fields(
    value: &Value,
    keywords: &Keywords,
    root: &Value,
    at: &str,
    faults: &mut Vec<String>,
) {
    let Some(fields) = value.as_object() else { return };
    let declared = keywords.get("properties").and_then(Value::as_object);
    for name in keywords.get("required").and_then(Value::as_array).into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            faults.push(format!("{at}: no {name}"));
        }
    }
    for (name, field) in fields {
        let at = format!("{at}.{name}");
        let others = keywords.get("additionalProperties").filter(|schema| **schema != false);
        let numbered = keywords.get("patternProperties").and_then(|all| all.get(r"^\d+$"));
        let numbered = numbered.filter(|_| name.bytes().all(|digit| digit.is_ascii_digit()));
        match declared.and_then(|all| all.get(name)).or(numbered).or(others) {
            Some(schema) => check(field, schema, root, &at, faults),
            None => faults.push(format!("{at}: not in the schema")),
        }
    }
}

/// Checks the items of an array, if `value` is one.
fn check_items(
    value: &Value,
    keywords: &Keywords,
    root: &Value,
    at: &str,
    faults: &mut Vec<String>,
) {
    // One of several kinds, which is no array.
    if keywords.get("type").is_some_and(|kind| kind == "object") {
        return;
    }
    let first = keywords.get("prefixItems").and_then(Value::as_array);
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        let schema = first.and_then(|first| first.get(n)).or(keywords.get("items"));
        let at = format!("{at}[{n}]");
        check(item, schema.expect("a schema for each item"), root, &at, faults);
    }
}

/// The faults of a document.
pub(crate) fn faults(value: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(value, schema, schema, "document", &mut faults);
    faults
}

/// Checks a document against the schema that `flowyard schema COMMAND` prints.
#[track_caller]
pub(crate) fn expect(command: &str, value: &Value) {
    let schema = json(["schema", command]);
    let faults = faults(value, &schema);
    assert!(faults.is_empty(), "{command}:\n{}", faults.join("\n"));
    assert_eq!(value["schema"], schema["properties"]["schema"]["const"]);
}

#[track_caller]
fn fits(command: &str, args: &[&str]) -> Value {
    let schema = json(["schema", command]);
    // Standard error may have warnings, such as on refused rules.
    let ran = run([&[command], args, &["--json"]].concat());
    assert_eq!(ran.status.code(), Some(0), "{args:?}");
    let value: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let mut faults = Vec::new();
    check(&value, &schema, &schema, command, &mut faults);
    assert!(faults.is_empty(), "{command} {args:?}:\n{}", faults.join("\n"));
    let version = if command == "figures" { 3 } else { 2 };
    assert_eq!(value["schema"], format!("flowyard.{command}/{version}"));
    assert_eq!(value["flowyard"], env!("CARGO_PKG_VERSION"));
    value
}

fn what_analyze_prints_fits_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.txt");
    let text = "flow-type tcp4 dst-port 80 action 3\nflow-type tcp4 src-ip 10.0.0.1 action 4\n\
                flow-type tcp4 dst-port 80 action 3";
    std::fs::write(&rules, text).unwrap();
    let fdir = format!("rss,fdir={},atr,rfs,yard", rules.display());
    let capture = "captures/yard.pcap";
    for args in [
        &[capture][..],
        &[capture, "--policy", &fdir, "--migrate-every", "10ms", "--core-delay", "3=1ms"],
        &[capture, capture, "--adapter", "e810", "--queues", "64", "--local", "all"],
        &[capture, "--adapter", "x722", "--elephant", "0.5"],
        &[capture, "--policy", "rss,rebalance", "--rebalance-pause", "2ms"],
        &[capture, "--adapter", "software", "--consumer", "80=3,443=1"],
    ] {
        let value = fits("analyze", args);
        assert!(value["policies"].as_array().unwrap().len() > 1);
    }
    // The smallest possible capture: only a file header.
    let empty = folder.path().join("empty.pcap");
    let head = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    std::fs::write(&empty, head).unwrap();
    let value = fits("analyze", &[empty.to_str().unwrap()]);
    assert_eq!(value["traffic"]["packets"], 0);
    assert!(value["policies"][0]["imbalance"]["cores"].is_null());
}

fn what_explain_prints_fits_its_schema() {
    let flow = "tcp 10.0.0.1:40000 > 10.0.0.2:11211";
    for args in [
        &[flow][..],
        &[flow, "--expect-queue", "3", "--choose-port", "5"],
        &[flow, "--adapter", "e810", "--expect-queue", "3"],
        &[flow, "--adapter", "x722", "--choose-port", "3"],
        &[flow, "--adapter", "software", "--choose-port", "0"],
        &["esp 10.0.0.1 > 10.0.0.2", "--choose-port", "3"],
        &["udp [2001:db8::1]:4000 > [2001:db8::2]:53"],
        &["captures/yard.pcap:777"],
        &["captures/yard.pcap:1", "--adapter", "virtio"],
    ] {
        fits("explain", args);
    }
}

fn what_figures_prints_fits_its_schema() {
    // A figure with bounds, one simulated by nicsim, one compared with a measurement, one measured.
    let value = fits("figures", &["dlb-mice", "fdir-table", "nic-table-1", "kth-here"]);
    assert_eq!(value["figures"].as_array().unwrap().len(), 4);
    assert!(value["profile"].is_null());
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("here.toml");
    let text = "name = \"here\"\ntitle = \"x\"\n[machine]\nsockets = 1\ncores = 2\nthreads = 1\n\
                [constants.a_ns]\nvalue = 1.5\nhow = \"measured\"\nsource = \"y\"\n";
    std::fs::write(&profile, text).unwrap();
    let value = fits("figures", &["dlb-mice", "--profile", profile.to_str().unwrap()]);
    assert_eq!(value["profile"]["constants"]["a_ns"]["value"], 1.5);
    // An unknown kind is a fault.
    let schema = json(["schema", "figures"]);
    let mut wrong = value;
    wrong["figures"][0]["rows"][0]["kind"] = "guessed".into();
    let mut faults = Vec::new();
    check(&wrong, &schema, &schema, "it", &mut faults);
    assert_eq!(faults, ["it.figures[0].rows[0].kind: \"guessed\" is 0 of the kinds"]);
}

/// A load balancer with a health check that its backend never passes.
const BALANCER: &str = r#"
    [[port]]
    name = "west"
    kind = "mem"
    in = "captures/yard.pcap"
    repeat = 1000000
    pace = "20000"
    [[queue]]
    name = "q"
    order = "direct"
    consumers = [0]
    [work]
    kind = "balance"
    [balance]
    entries = 251
    [[service]]
    name = "dns"
    vip = "192.0.2.10"
    proto = "udp"
    port = 53
    mode = "dsr"
    mtu = 90
    [service.check]
    kind = "command"
    command = ["test", "$FLOWYARD_BACKEND", "=", "a"]
    interval_ms = 50
    [[service.backend]]
    name = "a"
    addr = "127.0.0.1"
    exit = { port = "west", next_hop = "02:00:00:00:01:01" }
"#;

fn what_lb_prints_fits_its_schemas() {
    let yard = Yard::start(BALANCER, &[]);
    let fits = |command: &str, args: &[&str]| {
        let schema = json(["schema", command]);
        let value = yard.json(args);
        let mut faults = Vec::new();
        check(&value, &schema, &schema, command, &mut faults);
        assert!(faults.is_empty(), "{args:?}:\n{}", faults.join("\n"));
        assert_eq!(value["schema"], format!("flowyard.{}/2", command.replace('-', ".")));
        value
    };
    let checked = |all: &Value| all["services"][0]["backends"][0]["check"]["failure"].is_string();
    wait("a check", || Some(fits("lb-show", &["lb", "show"])).filter(checked));
    fits("lb-trace", &["lb", "trace", "udp 10.0.0.1:1 > 192.0.2.10:53"]);
    fits("lb-trace", &["lb", "trace", "udp 10.0.0.1:1 > 192.0.2.9:53"]);
    // Before its only backend is drained: then there are no new ones.
    for (args, what) in [(&[][..], "connections"), (&["--by", "backend"], "groups")] {
        let schema = json(["schema", "lb-connections"]);
        wait("connections", || {
            let value = yard.json(&[&["lb", "connections"], args].concat());
            let mut faults = Vec::new();
            check(&value, &schema, &schema, "lb-connections", &mut faults);
            assert!(faults.is_empty(), "{}", faults.join("\n"));
            assert_eq!(value["schema"], "flowyard.lb.connections/1");
            (!value[what].as_array()?.is_empty()).then_some(())
        });
    }
    fits("lb-change", &["lb", "drain", "dns/a"]);
    fits("lb-change", &["lb", "set-weight", "dns/a", "5"]);
    fits("lb-show", &["lb", "show"]);
}

fn what_a_running_instance_prints_fits_its_schemas() {
    let mut yard = Yard::start(&crate::yard::config(), &["--json"]);
    let fits = |command: &str, value: &Value| {
        let schema = json(["schema", command]);
        let mut faults = Vec::new();
        check(value, &schema, &schema, command, &mut faults);
        assert!(faults.is_empty(), "{command}:\n{}", faults.join("\n"));
    };
    wait("drops", || {
        let drops = yard.json(&["show", "drops"]);
        fits("show-drops", &drops);
        (!drops["last"].as_array()?.is_empty()).then_some(())
    });
    for what in ["tables", "elephants", "queues", "cores", "reload"] {
        fits(&format!("show-{what}"), &yard.json(&["show", what]));
    }
    fits("show-flows", &yard.json(&["show", "flows", "--seconds", "0.2"]));
    fits("top", &yard.json(&["top", "--interval", "0.2"]));
    fits("trace", &yard.json(&["trace", crate::yard::OTHER, "--count", "2"]));
    let (status, out) = yard.stop();
    assert!(status.success());
    fits("run", &serde_json::from_str(&out).unwrap());
    fits("adapters", &json(["adapters", "--json"]));
    fits("host", &json(["host", "lo", "--json"]));
    let plan = ["plan", "lo", "--goal", "balance", "--capture", "captures/yard.pcap", "--json"];
    fits("plan", &json(plan));
    // The doctor's status depends on the machine.
    let doctor = run(["doctor", "--json"]);
    fits("doctor", &serde_json::from_slice(&doctor.stdout).unwrap());
}

fn an_unknown_schema_is_refused_with_the_names() {
    let line = crate::common::refused(&run(["schema", "queues"]));
    assert!(
        line.contains("there is no schema 'queues'; choose one of analyze, explain, run"),
        "{line}"
    );
}

/// The fields that the documentation promises.
fn the_promised_fields_are_there() {
    let value = fits("explain", &["tcp 66.9.149.187:2794 > 161.142.100.80:1766"]);
    let at = |path: &str| value.pointer(path).unwrap_or_else(|| panic!("no {path}")).clone();
    assert_eq!(at("/policies/rss/hash"), "0x51ccc178");
    assert_eq!((at("/policies/rss/index"), at("/policies/rss/queue")), (120.into(), 8.into()));
    assert_eq!(at("/policies/fdir/bucket_hash"), "0x4cf3");
    assert_eq!(at("/policies/fdir/signature_hash"), "0x543b");
    assert_eq!(at("/policies/fdir/match"), "none");
    assert_eq!(at("/reverse/policies/rss/hash"), "0xfde799b2");
    for path in
        ["/policies/atr/stage", "/policies/rps/core", "/policies/rfs/why", "/policies/yard/queue"]
    {
        assert!(!at(path).is_null(), "{path}");
    }
    let adapters = json(["adapters", "--json"]);
    assert_eq!(adapters["schema"], "flowyard.adapters/1");
    assert!(adapters["adapters"].as_array().unwrap().len() >= 10);
    let table = good(&run(["adapters"]));
    for adapter in adapters["adapters"].as_array().unwrap() {
        assert!(table.contains(adapter["name"].as_str().unwrap()));
    }
}

/// `check` finds each kind of fault.
fn a_document_that_does_not_fit_is_found() {
    let schema = json(["schema", "analyze"]);
    let value = json(["analyze", "captures/yard.pcap", "--json"]);
    let faults = |change: &dyn Fn(&mut Value)| {
        let mut changed = value.clone();
        change(&mut changed);
        let mut faults = Vec::new();
        check(&changed, &schema, &schema, "it", &mut faults);
        faults
    };
    assert!(faults(&|_| {}).is_empty());
    for (path, wrong, fault) in [
        ("/schema", "flowyard.analyze/0".into(), "it.schema: "),
        ("/setup/queues", 70_000.into(), "it.setup.queues: 70000 is above"),
        ("/setup/queues", "16".into(), "it.setup.queues: "),
        ("/policies/0/locality", "none".into(), "it.policies[0].locality: "),
        ("/policies/1/filters/adds", Value::Null, "it.policies[1].filters.adds: "),
        ("/policies/2/cores/3/packets", (-1).into(), "it.policies[2].cores[3].packets: "),
        ("/traffic/flow_size_cdf/0/0", Value::Null, "it.traffic.flow_size_cdf[0][0]: "),
        (
            "/elephants/0/policies/rss/final_core",
            0.5.into(),
            "it.elephants[0].policies.rss.final_core: ",
        ),
    ] {
        let found = faults(&|value| *value.pointer_mut(path).expect(path) = wrong.clone());
        assert!(found.iter().any(|found| found.starts_with(fault)), "{path}: {found:?}");
    }
    assert_eq!(
        faults(&|value| value["traffic"]["more"] = 1.into()),
        ["it.traffic.more: not in the schema"]
    );
    let without = faults(&|value| drop(value["setup"].as_object_mut().unwrap().remove("cores")));
    assert_eq!(without, ["it.setup: no \"cores\""]);
}
