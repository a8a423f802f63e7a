//! `flowyard lb connections` of a running balancer.

use crate::balance::{A, B, BULK, config};
use crate::yard::{Yard, wait};
use serde_json::Value;

flowyard_testkit::tests! { connections_are_listed_and_counted }

fn connections_are_listed_and_counted() {
    let yard = Yard::start(&config("", &[A, B]), &[]);
    let entries = |all: &Value| {
        all["cores"]
            .as_array()
            .unwrap()
            .iter()
            .map(|core| core["connections"].as_u64().unwrap())
            .sum::<u64>()
    };
    wait("connections", || Some(yard.json(&["lb", "show"])).filter(|all| entries(all) > 40));
    let bulk = yard.json(&["lb", "connections", "bulk", "--client", "192.0.2.0/24"]);
    let rows = bulk["connections"].as_array().unwrap();
    let one = rows.iter().find(|one| one["client"] == "192.0.2.101:53397").expect("the flow");
    let trace = yard.json(&["lb", "trace", BULK]);
    assert_eq!((&one["vip"], &one["backend"]), (&"192.0.2.10:5204".into(), &trace["backend"]));
    assert_eq!((&one["state"], &one["service"]), (&"datagrams".into(), &"bulk".into()));
    assert!(
        one["expires_in_s"].as_f64().unwrap() > 100.0 && one["idle_s"].as_f64().unwrap() < 20.0,
        "{one}"
    );
    let some = yard.json(&["lb", "connections", "--limit", "7"]);
    let of = |name: &str| some[name].as_u64().unwrap();
    assert_eq!(some["connections"].as_array().unwrap().len(), 7);
    assert!(
        of("selected") > 40
            && of("left_out") == of("selected") - 7
            && of("entries") == of("selected")
    );
    let none = yard.json(&["lb", "connections", "--client", "198.51.100.1"]);
    assert_eq!((&none["selected"], &none["left_out"]), (&0.into(), &0.into()));
    for by in ["service", "backend", "client"] {
        let groups = yard.json(&["lb", "connections", "--by", by]);
        let all = groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["entries"].as_u64().unwrap());
        let all: Vec<_> = all.collect();
        assert!(all.is_sorted_by(|a, b| a >= b) && all.len() > 1, "{groups}");
        assert_eq!(
            all.iter().sum::<u64>() + groups["left_out"].as_u64().unwrap(),
            groups["selected"],
            "{by}: {groups}"
        );
    }
    let text = yard.ask(&["lb", "connections", "bulk"]);
    assert!(
        text.contains("192.0.2.101:53397") && text.contains("entries in the tables are selected"),
        "{text}"
    );
}
