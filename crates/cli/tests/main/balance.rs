//! Operating a running load balancer: health checks, counters, drain, weights, traces, reload.
#![allow(clippy::disallowed_methods, reason = "tests of real processes wait by the clock")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::common::{flowyard, text};
use crate::yard::{Yard, wait};
use rustix::process::Signal;
use serde_json::Value;

flowyard_testkit::tests! {
    a_backend_that_does_not_answer_is_down_until_it_does,
    a_backup_is_used_while_no_other_backend_is_up,
    a_check_that_cannot_run_is_reported_once,
    checks_run_as_the_user_that_is_left_and_no_faster_than_their_rate,
    what_is_counted_is_shown_and_exported,
    a_flow_is_traced_to_its_backend_and_stays_while_others_come_and_go,
    a_flow_of_no_service_is_traced_through_pass,
    the_reason_of_each_backend_and_its_remedy_are_named,
    unknown_names_are_refused_with_the_known_ones,
    every_drop_of_a_balancer_is_reported_with_its_reason_and_the_fix,
    services_of_ipvs_are_imported_with_what_could_not_be_carried_over,
}

/// A flow of the capture that has frames all the time.
pub(crate) const BULK: &str = "udp 192.0.2.101:53397 > 192.0.2.10:5204";

/// Backends at addresses of this machine, so that health checks can reach them.
pub(crate) const A: &str = "name = \"a\"\naddr = \"127.0.0.1\"";
pub(crate) const B: &str = "name = \"b\"\naddr = \"127.0.0.2\"";
const C: &str = "name = \"c\"\naddr = \"127.0.0.3\"";

/// A load balancer for flows of the capture, which is repeated: the service `bulk` has one flow, `dns`
/// has many.
pub(crate) fn config(check: &str, backends: &[&str]) -> String {
    let mut text = String::from(
        r#"
        [yard]
        cores = 2
        [[port]]
        name = "west"
        kind = "mem"
        in = "captures/yard.pcap"
        repeat = 1000000
        pace = "20000"
        [[port]]
        name = "east"
        kind = "mem"
        core = 1
        [[queue]]
        name = "q"
        order = "atomic"
        consumers = [0, 1]
        [work]
        kind = "balance"
        [balance]
        entries = 251
"#,
    );
    for (name, port) in [("bulk", 5204), ("dns", 53)] {
        text += &format!(
            "[[service]]\nname = \"{name}\"\nvip = \"192.0.2.10\"\nproto = \"udp\"\nport = {port}\nmode = \"dsr\"\n"
        );
        if !check.is_empty() {
            text += &format!("[service.check]\n{check}\n");
        }
        for backend in backends {
            text += &format!(
                "[[service.backend]]\nexit = {{ port = \"east\", next_hop = \"02:00:00:00:01:01\" }}\n{backend}\n"
            );
        }
    }
    text
}

/// Waits until `good` is true of this service in the output of `lb show`, and returns the service.
#[track_caller]
pub(crate) fn service(yard: &Yard, name: &str, good: impl Fn(&Value) -> bool) -> Value {
    wait(name, || {
        let all = yard.json(&["lb", "show", name]);
        Some(all["services"][0].clone()).filter(&good)
    })
}

pub(crate) fn count(of: &Value, name: &str) -> u64 {
    of["counters"][name].as_u64().unwrap()
}

fn a_backend_that_does_not_answer_is_down_until_it_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let check = format!(
        "kind = \"tcp\"\nport = {port}\ninterval_ms = 50\ntimeout_ms = 500\nrise = 2\nfall = 2"
    );
    let yard = Yard::start(&config(&check, &[A, B]), &[]);
    // No program listens at the other backend's address.
    let log = yard.wait_for_log("dns/b");
    assert!(log.contains("backend is down") && log.contains("refused"), "{log}");
    assert!(!log.contains("every backend of the service is down"), "{log}");
    let dns = service(&yard, "dns", |dns| dns["up"] == 1);
    let [a, b] = [0, 1].map(|at| &dns["backends"][at]);
    assert_eq!((&a["state"], &a["weight"], &a["share"]), (&"up".into(), &1.0.into(), &1.0.into()));
    assert_eq!(
        (&b["state"], &b["weight"], &b["share"]),
        (&"down".into(), &0.0.into(), &0.0.into())
    );
    assert!(b["since_s"].as_f64().unwrap() > 0.0 && a["check"]["failure"].is_null(), "{dns}");
    assert!(b["check"]["failure"].as_str().unwrap().contains("refused"), "{dns}");
    let shown = yard.ask(&["lb", "show"]);
    for part in
        ["dns/b", "1 of 2", "down", "Health checks that failed most recently", "refused", "ended"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    drop(listener);
    yard.wait_for_log("every backend of the service is down: new connections are dropped");
    let dns = service(&yard, "dns", |dns| !dns["counters"]["drops"]["no_backend"].is_null());
    assert_eq!((&dns["up"], &dns["entries"]), (&0.into(), &0.into()));
    let trace = yard.json(&["lb", "trace", "udp 10.1.1.1:9 > 192.0.2.10:53"]);
    assert_eq!(
        (&trace["why"], &trace["drop_reason"]),
        (&"no_backend".into(), &"no_backend".into())
    );
    assert!(trace["fix"].as_str().unwrap().contains("health checks"), "{trace}");
    let listener = wait("the port", || TcpListener::bind(("127.0.0.1", port)).ok());
    yard.wait_for_log("backend is up");
    yard.wait_for_log("the service is up again (1 of 2 backends)");
    drop(listener);
}

fn a_backup_is_used_while_no_other_backend_is_up() {
    let listen = |address| TcpListener::bind(address).unwrap();
    let first = listen("127.0.0.1:0");
    let port = first.local_addr().unwrap().port();
    let _second = TcpListener::bind(("127.0.0.2", port)).unwrap();
    let check = format!("kind = \"tcp\"\nport = {port}\ninterval_ms = 50\nfall = 2\nrise = 2");
    let backup = format!("{B}\nbackup = true");
    let yard = Yard::start(&config(&check, &[A, &backup]), &[]);
    let states = |wanted: [&str; 2]| {
        service(&yard, "dns", |dns| {
            [0, 1].map(|at| dns["backends"][at]["state"].as_str().unwrap()) == wanted
        })
    };
    let dns = states(["up", "standby"]);
    let backup = &dns["backends"][1];
    assert_eq!((&backup["is_backup"], &backup["weight"]), (&true.into(), &0.0.into()), "{dns}");
    drop(first);
    let log = yard.wait_for_log("new connections of the service go to its backups");
    assert!(!log.contains("every backend of the service is down"), "{log}");
    states(["down", "up"]);
    let flow = "udp 10.1.1.1:9 > 192.0.2.10:53";
    let trace = yard.json(&["lb", "trace", flow]);
    assert_eq!(trace["backend"], "b", "{trace}");
    let said = yard.ask(&["lb", "trace", flow]);
    assert!(said.contains("it is a backup: no other backend accepts new connections"), "{said}");
    let _first = wait("the port", || TcpListener::bind(("127.0.0.1", port)).ok());
    yard.wait_for_log("new connections of the service no longer go to its backups");
    states(["up", "standby"]);
}

fn a_check_that_cannot_run_is_reported_once() {
    let check = "kind = \"command\"\ncommand = [\"/no/such/check\"]\ninterval_ms = 20\nfall = 9";
    let yard = Yard::start(&config(check, &[A]), &[]);
    let log = yard.wait_for_log("backend is down");
    let said = "the check cannot run: '/no/such/check': No such file";
    let told = log.lines().filter(|line| line.contains("this counts as a failed check"));
    assert_eq!(told.count(), 2, "once for each backend: {log}");
    assert!(log.contains(said), "{log}");
}

fn checks_run_as_the_user_that_is_left_and_no_faster_than_their_rate() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("user");
    let check = format!(
        "kind = \"command\"\ninterval_ms = 10\ntimeout_ms = 10000\n\
         command = [\"sh\", \"-c\", \"id -u > {0}.new && grep NoNewPrivs /proc/self/status >> {0}.new && mv {0}.new {0}\"]",
        file.display()
    );
    let is_root = rustix::process::geteuid().is_root();
    let args: &[&str] = if is_root { &["--user", "nobody"] } else { &[] };
    let text =
        config(&check, &[A, B]).replace("entries = 251", "entries = 251\nchecks_per_second = 4");
    let yard = Yard::start(&text, args);
    let ran = wait("a check", || fs::read_to_string(&file).ok());
    let uid = ran.lines().next().unwrap();
    assert!(!is_root || uid != "0", "{ran}");
    assert!(ran.contains("NoNewPrivs:\t1"), "{ran}");
    let checks = |all: &Value| -> u64 {
        let backends = all["services"].as_array().unwrap().iter();
        let backends = backends.flat_map(|s| s["backends"].as_array().unwrap());
        backends.filter_map(|b| b["check"]["checks"].as_u64()).sum()
    };
    let all =
        wait("more checks", || Some(yard.json(&["lb", "show"])).filter(|all| checks(all) >= 6));
    let most = 4.0 * all["at_s"].as_f64().unwrap() + 1.0;
    assert!(checks(&all) as f64 <= most, "{} of {most}", checks(&all));
}

fn what_is_counted_is_shown_and_exported() {
    let yard = Yard::start(&config("", &[A, B]), &["--metrics", "0"]);
    let dns = service(&yard, "dns", |dns| count(dns, "in_packets") > 500);
    let backends = dns["backends"].as_array().unwrap();
    let sum = |name: &str| backends.iter().map(|backend| count(backend, name)).sum::<u64>();
    for name in ["connections", "in_packets", "in_bytes", "out_packets"] {
        assert_eq!(count(&dns, name), sum(name), "{name} {dns}");
    }
    assert!(backends.iter().all(|b| count(b, "in_packets") > 100), "{dns}");
    assert!(count(&dns, "in_bytes") > 60 * count(&dns, "in_packets"), "{dns}");
    assert_eq!(
        (&dns["vip"], &dns["ports"], &dns["proto"]),
        (&"192.0.2.10".into(), &"53".into(), &"udp".into())
    );
    let checksum = dns["checksum"].as_str().unwrap();
    let log = yard.wait_for_log("metrics: http://");
    let address = log.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let value = |start: &str| -> f64 {
        let line = page.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("{start} in {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(value("flowyard_lb_backend_up{service=\"dns\",backend=\"a\"}"), 1.0);
    assert!(value("flowyard_lb_backend_in_packets_total{service=\"dns\",backend=\"a\"}") > 100.0);
    assert!(
        value("flowyard_lb_service_in_bytes_total{service=\"dns\"}")
            >= count(&dns, "in_bytes") as f64
    );
    assert_eq!(value("flowyard_lb_backend_weight{service=\"bulk\",backend=\"b\"}"), 1.0);
    // Limits: the capture has less connections than the tables, so that no entry was replaced.
    let entries = value("flowyard_lb_service_entries{service=\"dns\"}");
    assert!(entries >= value("flowyard_lb_service_entries_unestablished{service=\"dns\"}"));
    let cores = value("flowyard_lb_core_connections{core=\"0\"}")
        + value("flowyard_lb_core_connections{core=\"1\"}");
    assert!(entries > 0.0 && entries <= cores, "{entries} of {cores}");
    assert!(
        value("flowyard_lb_core_connections_unestablished{core=\"0\"}")
            <= value("flowyard_lb_core_connections{core=\"0\"}")
    );
    for limit in ["unestablished", "service", "table", "local_ports"] {
        for counter in ["evicted", "refused"] {
            let name = format!("flowyard_lb_service_{counter}_entries_total");
            assert_eq!(value(&format!("{name}{{service=\"dns\",limit=\"{limit}\"}}")), 0.0);
        }
    }
    assert!(page.contains(&format!("checksum=\"{checksum}\"")), "{page}");
    let rates = yard.ask(&["lb", "show", "dns", "--interval", "0.2"]);
    assert!(rates.contains("per second") && !rates.contains("bulk"), "{rates}");
    assert!(yard.ask(&["top", "--once", "--interval", "0.1"]).contains("Services"));
}

fn a_flow_is_traced_to_its_backend_and_stays_while_others_come_and_go() {
    let mut yard = Yard::start(&config("", &[A, B]), &[]);
    let bulk = || yard.json(&["lb", "trace", BULK]);
    let kept = wait("the flow", || Some(bulk()).filter(|trace| trace["why"] == "connection"));
    let home = kept["backend"].as_str().unwrap().to_owned();
    // A new flow is assigned by the Maglev table.
    let fresh = yard.ask(&["lb", "trace", "udp 10.1.1.1:9 > 192.0.2.10:5204"]);
    let checksum = service(&yard, "bulk", |_| true)["checksum"].as_str().unwrap().to_owned();
    assert!(fresh.contains(&format!("of 251 of the Maglev table {checksum}")), "{fresh}");
    assert!(fresh.contains("no core has an entry for this connection"), "{fresh}");
    let none = yard.ask(&["lb", "trace", "tcp 10.1.1.1:9 > 192.0.2.10:5204"]);
    assert!(none.contains("is a VIP, but no service has tcp port 5204"), "{none}");
    // Drain by hand: the existing flow stays, and new ones go to the other backend.
    let backend = format!("bulk/{home}");
    let drained = yard.json(&["lb", "drain", &backend]);
    assert_eq!((&drained["state"], &drained["weight"]), (&"drained".into(), &0.0.into()));
    assert_eq!(bulk()["backend"], Value::from(home.as_str()));
    assert!(yard.ask(&["lb", "trace", BULK]).contains("keeps this one"));
    for port in 1..40 {
        let trace = yard.json(&["lb", "trace", &format!("udp 10.1.1.1:{port} > 192.0.2.10:5204")]);
        assert_ne!(trace["backend"], Value::from(home.as_str()), "{trace}");
    }
    let set = yard.json(&["lb", "set-weight", "dns/a", "7"]);
    assert_eq!((&set["weight"], &set["manual_weight"]), (&7.0.into(), &7.into()));
    // A reload: a backend comes. The flow stays, and so does what was done by hand.
    let before = yard.json(&["lb", "show"])["generation"].as_u64().unwrap();
    fs::write(yard.config(), config("", &[A, B, C])).unwrap();
    yard.signal(Signal::HUP);
    yard.wait_for_log("tables reloaded");
    let after = yard.json(&["lb", "show"]);
    assert_eq!(after["generation"].as_u64().unwrap(), before + 1, "one generation");
    assert_eq!(bulk()["backend"], Value::from(home.as_str()));
    let at = usize::from(home == "b");
    assert_eq!(after["services"][0]["backends"][at]["state"], "drained");
    assert_eq!(after["services"][1]["backends"][0]["manual_weight"], 7);
    // One that is wrong changes nothing, and says where.
    let wrong = config("", &[A, B, C]).replacen("127.0.0.3", "127.0.0.x", 1);
    let line = 1 + wrong.lines().position(|line| line.contains("127.0.0.x")).unwrap();
    fs::write(yard.config(), wrong).unwrap();
    yard.signal(Signal::HUP);
    let log = yard.wait_for_log("nothing changed");
    assert!(
        log.contains(&format!("yard.toml:{line}:8: '127.0.0.x' is not an IP address")),
        "{log}"
    );
    let again = yard.json(&["lb", "show"]);
    assert_eq!(
        (&again["generation"], &again["services"][0]["checksum"]),
        (&after["generation"], &after["services"][0]["checksum"])
    );
    // Undo.
    assert_eq!(yard.json(&["lb", "drain", &backend, "--undo"])["state"], "up");
    let undone = yard.json(&["lb", "set-weight", "dns/a", "--undo"]);
    assert_eq!((&undone["weight"], &undone["manual_weight"]), (&1.0.into(), &Value::Null));
    // Its backend goes: so does the flow.
    let left: Vec<&str> =
        [A, B, C].into_iter().filter(|b| !b.contains(&format!("\"{home}\""))).collect();
    fs::write(yard.config(), config("", &left)).unwrap();
    yard.signal(Signal::HUP);
    let moved = wait("the flow elsewhere", || {
        let trace = bulk();
        (trace["why"] == "connection" && trace["backend"] != home.as_str()).then_some(trace)
    });
    assert!(moved["backend"].is_string(), "{moved}");
    let (status, text) = yard.stop();
    assert!(status.success() && text.contains("0 held"), "{text}");
}

fn a_flow_of_no_service_is_traced_through_pass() {
    let flow = "tcp 10.1.1.1:9 > 192.0.2.10:5204";
    let yard = Yard::start(&config("", &[A]), &[]);
    let dropped = yard.json(&["lb", "trace", flow]);
    assert_eq!(dropped["drop_reason"], "no_service", "{dropped}");
    let fix = dropped["fix"].as_str().unwrap();
    assert!(fix.starts_with("add a [[service]]") && !fix.contains("lb trace"), "{fix}");
    let passes = "entries = 251\npass = { west = \"east\" }";
    let yard = Yard::start(&config("", &[A]).replace("entries = 251", passes), &[]);
    let passed = yard.json(&["lb", "trace", flow]);
    assert_eq!((&passed["why"], &passed["drop_reason"]), (&"no_service".into(), &Value::Null));
    let steps = passed["steps"].to_string();
    assert!(
        steps.contains("'pass' in [balance] forwards it from port west by port east"),
        "{steps}"
    );
    assert!(steps.contains("received on port east, it is dropped (no_service)"), "{steps}");
    let text = yard.ask(&["lb", "trace", flow]);
    assert!(!text.contains("dropped:") && !text.contains("fix:"), "{text}");
}

fn the_reason_of_each_backend_and_its_remedy_are_named() {
    let heavy = format!("{C}\nweight = 0");
    let yard = Yard::start(&config("", &[A, B, &heavy]), &[]);
    yard.ask(&["lb", "drain", "dns/a"]);
    let set = yard.ask(&["lb", "set-weight", "dns/a", "5"]);
    assert!(set.contains("weight 5 is used after 'flowyard lb drain dns/a --undo'"), "{set}");
    yard.ask(&["lb", "set-weight", "dns/b", "0"]);
    let trace = yard.json(&["lb", "trace", "udp 10.1.1.1:9 > 192.0.2.10:53"]);
    assert_eq!(trace["drop_reason"], "no_backend", "{trace}");
    let steps = trace["steps"].to_string();
    for part in ["a is drained by hand", "b has the weight 0, set by hand", "c has the weight 0"] {
        assert!(steps.contains(part), "{part} in {steps}");
    }
    let fix = trace["fix"].as_str().unwrap();
    for part in ["lb drain dns/a --undo", "lb set-weight dns/b --undo", "lb set-weight dns/c 1"] {
        assert!(fix.contains(part), "{part} in {fix}");
    }
    yard.ask(&["lb", "drain", "dns/a", "--undo"]);
    let log = yard.log();
    assert!(
        log.lines().any(|line| line.contains("drained=false") && line.contains("weight=5")),
        "{log}"
    );
}

fn unknown_names_are_refused_with_the_known_ones() {
    let yard = Yard::start(&config("", &[A, B]), &[]);
    let refused = |args: &[&str]| {
        let output = flowyard().args(args).arg("--control").arg(yard.socket()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        text(&output.stderr)
    };
    for (args, said) in [
        (&["lb", "drain", "bulk/x"][..], "did you mean 'a'?"),
        (&["lb", "drain", "blk/a"], "there is no service 'blk'; did you mean 'bulk'?"),
        (&["lb", "drain", "a"], "write SERVICE/BACKEND, as web/a"),
        (&["lb", "set-weight", "mail/a", "1"], "choose one of bulk, dns"),
        (&["lb", "set-weight", "bulk/a", "1000001"], "must be 0 to 1000000"),
        (&["lb", "show", "mail"], "choose one of bulk, dns"),
        (&["lb", "trace", "icmp 10.0.0.1 > 10.0.0.2"], "has no ports"),
        (&["lb", "trace", "nonsense"], "nonsense"),
        (&["lb", "show", "--interval", "0"], "--interval: must be 0.05"),
        (&["lb", "connections", "dsn"], "there is no service 'dsn'; did you mean 'dns'?"),
        (&["lb", "connections", "dns/x"], "there is no backend 'x'; did you mean 'a'?"),
        (&["lb", "connections", "--client", "10.0.0.0/33"], "a network such as 203.0.113.0/24"),
        (&["lb", "connections", "--limit", "100001"], "write at most 100000"),
        (&["lb", "connections", "--state", "syn"], "possible values: opening, open"),
    ] {
        let error = refused(args);
        assert!(error.contains(said), "{args:?}: {error}");
    }
    assert_eq!(yard.json(&["lb", "show"])["services"][0]["backends"][0]["manually_drained"], false);
    let other = Yard::start(&crate::yard::config(), &[]);
    let output = flowyard().args(["lb", "show", "--control"]).arg(other.socket()).output().unwrap();
    assert!(text(&output.stderr).contains("is not a balancer"), "{}", text(&output.stderr));
}

fn every_drop_of_a_balancer_is_reported_with_its_reason_and_the_fix() {
    // The connection table is full at once, and no service matches the rest of the capture.
    let text = config("", &[A])
        .replace("entries = 251", "entries = 251\nconnections = 2\nfull = \"drop\"");
    let yard = Yard::start(&text, &[]);
    for (reason, said) in [
        ("no_connection", "raise 'connections'"),
        ("no_service", "no [[service]] has this address"),
        ("not_ip", "balancers forward only IP"),
    ] {
        let fix = wait(reason, || {
            let drops = yard.json(&["show", "drops"]);
            let all = drops["reasons"].as_array()?;
            let found = all.iter().find(|drop| drop["reason"] == reason)?;
            Some(found["fix"].as_str()?.to_owned())
        });
        assert!(fix.contains(said), "{reason}: {fix}");
    }
    let reason = "no_connection";
    let trace = yard.json(&["trace", "--drops", reason, "--count", "1", "--seconds", "20"]);
    let frame = &trace["frames"][0];
    assert_eq!(frame["outcome"], reason, "{trace}");
    assert!(frame["fix"].as_str().unwrap().contains("full = \"stateless\""), "{frame}");
    let dns = service(&yard, "dns", |dns| !dns["counters"]["drops"][reason].is_null());
    assert!(dns["backends"][0]["counters"]["drops"].as_object().unwrap().is_empty(), "{dns}");
    let shown = yard.ask(&["lb", "show"]);
    assert!(shown.contains("Dropped") && shown.contains(reason), "{shown}");
}

fn services_of_ipvs_are_imported_with_what_could_not_be_carried_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules");
    let rules = "-A -t 192.0.2.1:80 -s wrr --pe sip\n-a -t 192.0.2.1:80 -r 10.0.1.1:8080 -m -w 2\n";
    fs::write(&file, rules).unwrap();
    let name = file.to_str().unwrap();
    let output = flowyard().args(["lb", "import", name, "--exit", "far"]).output().unwrap();
    assert!(output.status.success());
    let toml = text(&output.stdout);
    assert!(
        toml.contains("vip = \"192.0.2.1\"") && toml.contains("exit = { port = \"far\" }"),
        "{toml}"
    );
    let said = text(&output.stderr);
    assert!(
        said.starts_with(&format!("{name}:1: the persistence engine 'sip' is left out")),
        "{said}"
    );
    assert!(said.ends_with("imported services: 1, backends: 1; notes: 1\n"), "{said}");
    let output = flowyard().args(["lb", "import", name, "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["services"], &document["notes"][0]["line"]), (&1.into(), &1.into()));
    assert!(document["toml"].as_str().unwrap().contains("weight = 2"));
    // Mistakes are wrong use, with the line.
    fs::write(&file, "-A -t 192.0.2.1:80\n-a -t 192.0.2.1:80 -m\n").unwrap();
    let output = flowyard().args(["lb", "import", name]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(":2: the server has no address; write -r"), "{output:?}");
    assert!(output.stdout.is_empty());
}
