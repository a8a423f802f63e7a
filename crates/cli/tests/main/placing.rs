//! What decides about new connections of a running load balancer: limits of backends, and networks of clients.

use serde_json::Value;

use crate::balance::{A, B, config, count, service};
use crate::yard::Yard;

flowyard_testkit::tests! {
    a_full_backend_is_reported_and_gets_no_connections,
    a_network_keeps_its_backend_and_is_shown,
    datagrams_are_placed_one_by_one,
}

fn a_full_backend_is_reported_and_gets_no_connections() {
    let limited = format!("{A}\nmax_connections = 1");
    let yard = Yard::start(&config("", &[&limited, B]), &[]);
    let dns = service(&yard, "dns", |dns| {
        dns["backends"][0]["state"] == "full" && count(&dns["backends"][0], "passed_over") > 0
    });
    let [a, b] = [0, 1].map(|at| &dns["backends"][at]);
    assert_eq!((&a["connections"], &a["max_connections"]), (&1.into(), &1.into()), "{dns}");
    assert!(count(b, "connections") > 0 && b["max_connections"].is_null(), "{dns}");
    assert!(dns["counters"]["drops"]["backend_limit"].is_null(), "{dns}");
    let shown = yard.ask(&["lb", "show"]);
    assert!(shown.contains("full") && shown.contains("1 of 1"), "{shown}");

    let text = config("", &[&limited]);
    let yard = Yard::start(&text, &[]);
    service(&yard, "dns", |dns| !dns["counters"]["drops"]["backend_limit"].is_null());
    let flow = "udp 10.1.1.1:9 > 192.0.2.10:53";
    let trace = yard.json(&["lb", "trace", flow]);
    assert_eq!(
        (&trace["why"], &trace["drop_reason"], &trace["backend"]),
        (&"backend_limit".into(), &"backend_limit".into(), &Value::Null)
    );
    let said = yard.ask(&["lb", "trace", flow]);
    for part in ["has 1 connections and gets no new ones", "raise 'max_connections'"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

fn a_network_keeps_its_backend_and_is_shown() {
    let text = config("", &[A, B]).replace(
        "mode = \"dsr\"",
        "mode = \"dsr\"\nchoice = \"roundrobin\"\npersist = { mask_ipv4 = 24 }",
    );
    let yard = Yard::start(&text, &[]);
    let dns = service(&yard, "dns", |dns| dns["persist"]["kept"].as_u64() > Some(0));
    let persist = &dns["persist"];
    assert_eq!(
        (&persist["seconds"], &persist["mask_ipv4"], &persist["drained"]),
        (&300.into(), &24.into(), &"keep".into())
    );
    assert_eq!((&persist["networks"], &persist["moved"]), (&persist["given"], &0.into()), "{dns}");
    let flow = "udp 192.0.2.111:9 > 192.0.2.10:5204";
    let trace = yard.json(&["lb", "trace", flow]);
    assert_eq!(trace["why"], "network", "{trace}");
    let said = yard.ask(&["lb", "trace", flow]);
    assert!(
        said.contains("the network 192.0.2.0/24 has a backend, which it keeps for 300 s"),
        "{said}"
    );
    let name = trace["backend"].as_str().unwrap();
    yard.ask(&["lb", "drain", &format!("bulk/{name}")]);
    let said = yard.ask(&["lb", "trace", flow]);
    assert!(said.contains("it is drained, but networks keep it"), "{said}");
    let shown = yard.ask(&["lb", "show"]);
    assert!(shown.contains("Networks with a backend") && shown.contains("/24"), "{shown}");
}

fn datagrams_are_placed_one_by_one() {
    let text = config("", &[A, B])
        .replace("mode = \"dsr\"", "mode = \"dsr\"\nchoice = \"roundrobin\"\none_packet = true");
    let yard = Yard::start(&text, &[]);
    let dns = service(&yard, "dns", |dns| {
        [0, 1].iter().all(|at| count(&dns["backends"][at], "in_packets") > 10)
    });
    assert_eq!((&dns["one_packet"], &dns["entries_held"]), (&true.into(), &0.into()), "{dns}");
    assert_eq!(count(&dns, "connections"), 0);
    let flow = "udp 192.0.2.111:9 > 192.0.2.10:5204";
    let said = yard.ask(&["lb", "trace", flow]);
    assert!(
        said.contains("each datagram of the service is placed by itself: a datagram goes to"),
        "{said}"
    );
    let shown = yard.ask(&["lb", "show"]);
    assert!(shown.contains("roundrobin, each datagram"), "{shown}");
}
