//! The alerts and the dashboard in `dist` name metrics that a balancer has.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::common::root;
use crate::fleet::{config, serve, service};
use crate::yard::Yard;

flowyard_testkit::tests! {
    alerts_and_the_dashboard_name_metrics_that_exist,
    generations_are_compared_within_a_job,
}

/// Metrics that only a run as root has, because it changes routes: see docs/routes.md.
const OF_ROOT: [&str; 1] = ["flowyard_lb_vip_announced"];

/// The names of metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("flowyard_")).map(str::to_owned).collect()
}

/// The metrics of a balancer with a provider.
fn metrics() -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let (url, _page) = serve(&service("bulk", 5204, &[1]));
    let yard = Yard::start(
        &config(&url, &folder.path().join("state.json")),
        &["--metrics", "127.0.0.1:0"],
    );
    let log = yard.wait_for_log("metrics: http://127.0.0.1:");
    let address = log.split("metrics: http://").nth(1).unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Balancers of several fleets, each of which is a job of Prometheus, have different generations. `promtool test rules`
/// was used to verify this by hand.
fn generations_are_compared_within_a_job() {
    let alerts = fs::read_to_string(root().join("dist/prometheus-alerts.yml")).unwrap();
    let rules: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "))
        .filter(|rule| rule.contains("flowyard_cluster_generation"))
        .collect();
    let one = |of: &str| format!("{of} by (job) (flowyard_cluster_generation)");
    assert_eq!(rules, [format!("{} != {}", one("max"), one("min"))]);
}

fn alerts_and_the_dashboard_name_metrics_that_exist() {
    let metrics = metrics();
    let alerts = fs::read_to_string(root().join("dist/prometheus-alerts.yml")).unwrap();
    let dashboard = fs::read_to_string(root().join("dist/grafana-dashboard.json")).unwrap();
    let _valid: Value = serde_json::from_str(&dashboard).unwrap();
    for (file, text) in [("alerts", alerts), ("dashboard", dashboard)] {
        let named = named(&text);
        assert!(named.len() > 10, "{file}: {named:?}");
        let unknown: Vec<_> = named
            .iter()
            .filter(|name| !metrics.contains(*name) && !OF_ROOT.contains(&name.as_str()))
            .collect();
        assert!(unknown.is_empty(), "{file}: no such metric: {unknown:?}");
    }
}
