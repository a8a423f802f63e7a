//! Tenants, interrupts and capabilities on the command line.

use crate::common::{good, json, refused, run};

flowyard_testkit::tests! {
    explain_names_the_tenant_and_its_queue,
    analyze_reports_tenants_and_interrupts,
    mistakes_in_the_file_are_refused_with_their_place,
    impossible_interrupts_are_refused,
    adapters_have_capabilities_with_sources,
}

const FILE: &str = "docs/examples/tenants.txt";
const FLOW: &str = "tcp 10.0.0.1:40000 > 10.0.0.2:80 vlan 42";

fn explain(mac: &str) -> serde_json::Value {
    json(["explain", FLOW, "--tenants", FILE, "--to-mac", mac, "--json"])["tenants"].clone()
}

fn explain_names_the_tenant_and_its_queue() {
    let web = explain("02:00:00:00:00:01");
    let copies = web["copies"].as_array().unwrap();
    assert_eq!((copies[0]["pool"].as_u64(), copies[0]["tenant"].as_str()), (Some(10), Some("web")));
    assert!(matches!(copies[0]["queue"].as_u64(), Some(20 | 21)), "{web}");
    assert_eq!(copies[1]["tenant"], "ids", "the mirror");
    assert_eq!(explain("02:00:00:00:00:02")["copies"][0]["queue"], 22, "one queue");
    let nobody = explain("02:00:00:00:00:77");
    assert!(nobody["copies"].as_array().unwrap().is_empty() && nobody["why"][0].is_string());
    let text = good(&run(["explain", FLOW, "--tenants", FILE, "--to-mac", "02:00:00:00:00:01"]));
    assert!(text.contains("Tenants: web (pool 10, queue 2"), "{text}");
    let said = refused(&run(["explain", FLOW, "--tenants", FILE, "--to-mac", "nonsense"]));
    assert!(said.contains("six bytes"), "{said}");
}

fn analyze_reports_tenants_and_interrupts() {
    let command = [
        "analyze",
        "captures/yard.pcap",
        "--policy",
        "rss",
        "--tenants",
        FILE,
        "--itr",
        "50us",
        "--vectors",
        "2",
    ];
    let value = json(command.into_iter().chain(["--json"]));
    let tenants = &value["tenants"];
    assert_eq!(
        (tenants["layout"].as_str(), tenants["pools"][0]["pool"].as_u64()),
        (Some("64x2"), Some(0))
    );
    let dropped: u64 =
        tenants["dropped"].as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
    assert!(dropped > 0, "the capture is for no tenant: {tenants}");
    let interrupts = &value["policies"][0]["interrupts"];
    let vectors = interrupts["vectors"].as_array().unwrap();
    assert!((1..=2).contains(&vectors.len()), "{interrupts}");
    // The interval is a multiple of 2.048 us.
    assert_eq!(vectors[0]["interval_ns"], 24 * 2048);
    let queues = interrupts["queues"].as_array().unwrap();
    assert!(queues.iter().all(|queue| queue["longest_wait_ns"].as_u64().unwrap() <= 24 * 2048));
    let text = good(&run(command));
    assert!(text.contains("Interrupts") && text.contains("Tenants"), "{text}");
    for itr in ["off", "ixgbe", "dim-eqe", "dim-cqe"] {
        let value =
            json(["analyze", "captures/yard.pcap", "--policy", "rss", "--itr", itr, "--json"]);
        assert!(value["policies"][0]["interrupts"]["interrupts"].as_u64() > Some(0), "{itr}");
    }
}

fn mistakes_in_the_file_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.txt");
    std::fs::write(&file, "tenant web pool 1\ntenant db pool 99\nlayout round\n").unwrap();
    let name = file.to_str().unwrap();
    let said = refused(&run(["analyze", "captures/yard.pcap", "--tenants", name]));
    assert!(said.contains(":2:16: 99 is too large") && said.contains("1 more"), "{said}");
    let said =
        refused(&run(["analyze", "captures/yard.pcap", "--adapter", "e810", "--tenants", FILE]));
    assert!(said.contains("not modelled") && said.contains("x520"), "{said}");
    let said = refused(&run(["analyze", "captures/yard.pcap", "--tenants", "no such file"]));
    assert!(said.contains("--tenants needs a readable file"), "{said}");
}

fn impossible_interrupts_are_refused() {
    let itr = |args: &[&str]| {
        refused(&run(["analyze", "captures/yard.pcap"].into_iter().chain(args.iter().copied())))
    };
    assert!(itr(&["--itr", "soon"]).contains("is not an interval"));
    assert!(itr(&["--itr", "2s"]).contains("at most 1s"));
    assert!(itr(&["--itr", "50us", "--vectors", "0"]).contains("at least 1"));
    assert!(itr(&["--itr", "50us", "--vectors", "65"]).contains("at most 64 vectors"));
}

fn adapters_have_capabilities_with_sources() {
    let value = json(["adapters", "--json"]);
    let of = |name: &str| {
        let found = value["adapters"].as_array().unwrap().iter().find(|a| a["name"] == name);
        found.unwrap_or_else(|| panic!("{name}"))["capabilities"].clone()
    };
    let (old, new) = (of("82599"), of("e810"));
    assert_eq!((old["pools"].as_u64(), old["fcoe"]["contexts"].as_u64()), (Some(64), Some(512)));
    assert!(!old["sources"].as_array().unwrap().is_empty());
    assert!(new["pools"].is_null() && new["ncsi"] == "Unknown", "{new}");
    let text = good(&run(["adapters"]));
    assert!(text.contains("virtual functions") && text.contains("unknown"), "{text}");
}
