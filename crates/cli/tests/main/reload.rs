//! SIGHUP: what it applies beside tables, and what it refuses with the reason and the fix.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::Signal;

use crate::common::flowyard;
use crate::yard::{Yard, config, wait};

flowyard_testkit::tests! {
    metrics_come_move_and_go,
    keys_that_need_a_process_are_named_with_their_values_and_nothing_changes,
    what_sighup_would_do_is_said_before_it_is_sent,
    an_address_that_is_in_use_is_refused_and_nothing_changes,
    a_switch_gets_other_controllers_and_keeps_its_flows,
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn with_metrics(address: &str) -> String {
    config().replace("cores = 2", &format!("cores = 2\nmetrics = \"{address}\""))
}

/// Writes another configuration, sends SIGHUP, and waits until the log has `text` once more.
fn reload(yard: &Yard, config: &str, text: &str) -> String {
    let count = |log: &str| log.matches(text).count();
    let before = count(&yard.log());
    fs::write(yard.config(), config).unwrap();
    yard.signal(Signal::HUP);
    wait(text, || Some(yard.log()).filter(|log| count(log) > before))
}

fn is_served(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn metrics_come_move_and_go() {
    let mut yard = Yard::start(&config(), &[]);
    let [first, second] = [(); 2].map(|()| free_port());
    let log = reload(&yard, &with_metrics(&first.to_string()), "tables reloaded");
    assert!(log.contains("'metrics' in [yard]"), "{log}");
    assert!(is_served(first));
    reload(&yard, &with_metrics(&format!("127.0.0.1:{second}")), "tables reloaded");
    assert!(is_served(second) && !is_served(first));
    // The same address in other words.
    reload(&yard, &with_metrics(&second.to_string()), "tables reloaded");
    assert!(is_served(second));
    reload(&yard, &config(), "tables reloaded");
    assert!(!is_served(second));
    assert!(yard.stop().0.success());
}

fn keys_that_need_a_process_are_named_with_their_values_and_nothing_changes() {
    let mut yard = Yard::start(&config(), &[]);
    let port = free_port();
    let new = with_metrics(&port.to_string())
        .replace("pace = \"20000\"", "pace = \"30000\"")
        .replace("order = \"direct\"", "order = \"direct\"\nwindow_frames = 77\nfull = \"drop\"")
        .replace("drop = true", "queue = \"a\"");
    let log = reload(&yard, &new, "nothing changed");
    for said in [
        "a reload cannot change 'pace' in [[port]] 'west' (\"20000\" to \"30000\")",
        "'window_frames' in [[queue]] 'a' (1024 to 77)",
        "'full' in [[queue]] 'a' (\"hold\" to \"drop\")",
        "restart to apply them, because port 'west' of kind \"mem\" cannot be taken over",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert!(!log.contains("metrics:") && !is_served(port), "{log}");
    let tables = yard.json(&["show", "tables"]);
    let listed = tables["cores"][0]["tables"][0]["listed"].as_array().unwrap();
    let dropped = listed.iter().find(|entry| entry["flow"] == crate::yard::DROPPED).unwrap();
    assert_eq!(dropped["to"], "drop");
    // A service of systemd would not start a process for this either.
    assert!(!log.contains("a new process was started"), "{log}");
    assert!(yard.stop().0.success());
}

fn what_sighup_would_do_is_said_before_it_is_sent() {
    let yard = Yard::start(&config(), &[]);
    let show = || yard.json(&["show", "reload"]);
    let same = show();
    assert_eq!((&same["does"], &same["changes"]), (&"nothing".into(), &serde_json::json!([])));
    fs::write(yard.config(), with_metrics("9464")).unwrap();
    let one = show();
    let change = serde_json::json!({
        "key": "'metrics' in [yard]", "old": "not set", "new": "\"9464\"", "how": "reload",
    });
    assert_eq!((&one["does"], &one["changes"][0]), (&"reloads".into(), &change));
    fs::write(yard.config(), config().replace("cores = 2", "cores = 3\nseed = 987654321")).unwrap();
    let two = show();
    assert_eq!(two["does"], "refuses");
    assert_eq!(two["changes"][0]["how"], "restart");
    assert_eq!(two["changes"][1]["key"], "'seed' in [yard]");
    assert_eq!(
        (two["changes"][1]["old"].is_null(), two["changes"][1]["new"].is_null()),
        (true, true)
    );
    let text = yard.ask(&["show", "reload"]);
    assert!(text.contains("'cores' in [yard]") && text.contains("restart"), "{text}");
    assert!(text.contains("(secret)") && !text.contains("987654321"), "{text}");
    assert!(text.contains("SIGHUP would be refused and change nothing"), "{text}");
    fs::write(yard.config(), "[yard\n").unwrap();
    let bad = show();
    assert_eq!(bad["does"], "refuses");
    assert!(bad["refused"].as_str().unwrap().contains("yard.toml:1:"), "{bad}");
    assert!(!yard.log().contains("reloaded"), "nothing was applied");
}

fn an_address_that_is_in_use_is_refused_and_nothing_changes() {
    let mut yard = Yard::start(&config(), &[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let new = with_metrics(&port.to_string()).replace("drop = true", "queue = \"a\"");
    let log = reload(&yard, &new, "nothing changed");
    assert!(log.contains(&format!("metrics on 127.0.0.1:{port}")), "{log}");
    let tables = yard.json(&["show", "tables"]);
    let listed = tables["cores"][0]["tables"][0]["listed"].as_array().unwrap();
    let entry = listed.iter().find(|entry| entry["flow"] == crate::yard::DROPPED).unwrap();
    assert_eq!(entry["to"], "drop", "the tables belong to the same generation");
    assert!(yard.stop().0.success());
}

/// A switch that listens at these sockets.
fn switch(more: &str) -> String {
    format!(
        "[[port]]\nname = \"west\"\nkind = \"mem\"\nin = \"captures/yard.pcap\"\nrepeat = 1000000\n\
         pace = \"20000\"\n[[port]]\nname = \"east\"\nkind = \"mem\"\n[[queue]]\nname = \"q\"\n\
         order = \"direct\"\nconsumers = [0]\n[work]\nkind = \"switch\"\n[switch]\n{more}\n\
         flows = [\"priority=2,tcp,actions=output:east\"]\n"
    )
}

fn flows(socket: &Path) -> String {
    let at = format!("unix:{}", socket.display());
    let output = flowyard().args(["switch", "dump-flows", &at]).output().unwrap();
    assert!(output.status.success(), "{}", crate::common::text(&output.stderr));
    crate::common::text(&output.stdout)
}

fn a_switch_gets_other_controllers_and_keeps_its_flows() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, third] = ["1", "2", "3"].map(|name| folder.path().join(name));
    let listens = |all: &[&Path], more: &str| {
        let all: Vec<_> = all.iter().map(|path| format!("punix:{}", path.display())).collect();
        switch(&format!("listen = {all:?}\n{more}"))
    };
    let yard = Yard::start(&listens(&[&first, &second], ""), &[]);
    assert!(flows(&first).contains("tcp"), "{}", flows(&first));
    // A connection to an endpoint that stays goes on.
    let stays = UnixStream::connect(&second).unwrap();
    reload(&yard, &listens(&[&second, &third], "fail = \"standalone\""), "tables reloaded");
    assert!(UnixStream::connect(&first).is_err(), "nobody listens there any more");
    assert!(flows(&second).contains("tcp") && flows(&third).contains("tcp"));
    stays.set_nonblocking(true).unwrap();
    let mut byte = [0; 1024];
    let read = loop {
        match std::io::Read::read(&mut &stays, &mut byte) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == std::io::ErrorKind::WouldBlock,
        }
    };
    assert!(read, "the connection is open");
    // Another controller, which is not there: it is tried, and the old ones stay.
    let dials = format!("controllers = [\"unix:{}\"]", folder.path().join("none").display());
    reload(&yard, &listens(&[&second], &dials), "tables reloaded");
    yard.wait_for_log("the controller cannot be reached");
    let shown = yard.json(&["show", "controllers"]);
    assert!(shown.to_string().contains("none"), "{shown}");
    // An address that cannot be bound changes nothing.
    fs::write(folder.path().join("file"), "").unwrap();
    let file = folder.path().join("file");
    reload(&yard, &listens(&[&second, &file], ""), "nothing changed");
    assert!(flows(&second).contains("tcp"));
    let shown = yard.json(&["show", "controllers"]);
    assert!(shown.to_string().contains("none"), "{shown}");
    let why = yard.ask(&["switch", "why", "in_port=west,tcp"]);
    assert!(why.contains("priority=2,tcp"), "{why}");
}
