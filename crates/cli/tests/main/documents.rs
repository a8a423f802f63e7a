//! JSON documents of `switch monitor` and `run --check`.

use crate::common::{good, json, run};
use crate::switch::with_state;

flowyard_testkit::tests! {
    a_monitor_prints_a_document_for_each_message,
    a_check_tells_what_a_fullnat_configuration_can_hold,
}

/// Each message is a document in a line of its own.
fn a_monitor_prints_a_document_for_each_message() {
    let switch = with_state();
    let schema = crate::common::json(["schema", "switch-monitor"]);
    let fits = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let faults = crate::schema::faults(&value, &schema);
        assert!(faults.is_empty(), "{faults:?}");
        value
    };
    let said = switch.says("monitor", &["-O", "1.4", "--watch", "--count", "0", "--json"]);
    let all: Vec<_> = said.lines().map(fits).collect();
    assert_eq!(all.len(), 2, "{said}");
    assert!(all.iter().all(|one| one["kind"] == "flow-update" && one["flow"]["what"] == "initial"));
    assert!(all.iter().any(|one| one["flow"]["entry"]["fields"]["in_port"] == "1"), "{said}");
    // A port that is changed while the monitor waits.
    let monitor = std::thread::scope(|scope| {
        let monitor = scope.spawn(|| switch.says("monitor", &["--count", "1", "--json"]));
        while !monitor.is_finished() {
            switch.says("mod-port", &["one", "down"]);
            switch.says("mod-port", &["one", "up"]);
        }
        monitor.join().expect("a monitor")
    });
    let news = fits(&monitor);
    assert_eq!(news["kind"], "port-status", "{news}");
    assert_eq!(
        (news["port"]["what"].as_str(), news["port"]["state"]["name"].as_str()),
        (Some("modified"), Some("one"))
    );
}

fn a_check_tells_what_a_fullnat_configuration_can_hold() {
    let config = "docs/examples/balance.toml";
    let said = good(&run(["run", config, "--check"]));
    assert!(
        said.starts_with(&format!(
            "{config}: the configuration is valid\neach of 2 cores stores up to "
        )),
        "{said}"
    );
    let line = said.lines().find(|line| line.starts_with("service 'cache'")).expect("a service");
    assert!(
        line.ends_with(
            "; its local ports suffice for 129,024: 1 local address x 64,512 ports x 2 backends; further ones are dropped"
        ),
        "{line}"
    );
    assert!(said.lines().any(|line| line.starts_with("service 'web'")), "{said}");
    let value = json(["run", config, "--check", "--json"]);
    crate::schema::expect("run-check", &value);
    assert_eq!(
        (value["config"].as_str(), value["balancer"]["cores"].as_u64()),
        (Some(config), Some(2))
    );
    let services = value["balancer"]["services"].as_array().expect("services");
    let cache = services.iter().find(|one| one["service"] == "cache").expect("a service");
    assert_eq!(cache["local_ports"]["connections"], 129_024);
    assert_eq!(cache["further"], "dropped");
    let forward = json(["run", "docs/examples/elephants.toml", "--check", "--json"]);
    crate::schema::expect("run-check", &forward);
    assert!(forward["balancer"].is_null());
}
