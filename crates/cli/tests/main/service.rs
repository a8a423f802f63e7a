//! An instance as a service: privileges, logs, metrics, notifications to systemd, and the doctor.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use crate::common::{flowyard, refused};
use crate::yard::{DROPPED, Yard, config, wait};
use flowyard_testkit::harness::Need;
use rustix::process::Signal;
use serde_json::Value;

flowyard_testkit::tests! {
    no_capability_is_left_in_any_thread,
    root_writes_a_capture_into_a_folder_that_is_anothers needs [Need::Root],
    as_root_an_instance_changes_to_the_given_user needs [Need::Root],
    as_root_an_instance_changes_to_the_user_flowyard needs [Need::Root, Need::Check(mounts)],
    a_user_without_the_rights_that_the_run_needs_later_is_refused needs [Need::Root],
    logs_are_lines_of_json_and_a_reload_is_logged,
    logs_for_the_journal_have_its_levels_and_off_is_off,
    metrics_have_the_format_that_prometheus_reads,
    systemd_is_notified_of_ready_reloading_alive_and_stopping,
    the_unit_uses_what_the_program_has,
    the_doctor_reports_problems_with_their_fix_and_its_status,
    the_doctors_commands_fix_a_veth needs [
        Need::Namespaces,
        Need::Program("ip"),
        Need::Program("ethtool"),
        Need::Program("python3"),
    ],
}

fn no_capability_is_left_in_any_thread() {
    let yard = Yard::start(&config(), &["--metrics", "0"]);
    yard.wait_for_log("running");
    let tasks = fs::read_dir(format!("/proc/{}/task", yard.child.id())).unwrap();
    let mut threads = 0;
    for task in tasks {
        let status = match fs::read_to_string(task.unwrap().path().join("status")) {
            Ok(status) => status,
            // A thread may end before its file is opened (ENOENT) or read (ESRCH).
            Err(error) if matches!(error.raw_os_error(), Some(2 | 3)) => continue,
            Err(error) => panic!("{error}"),
        };
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let sets = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"].map(value);
        assert_eq!((sets, value("NoNewPrivs:")), ([0; 4], 1));
        threads += 1;
    }
    assert!(threads >= 5, "cores, control, metrics and the first: {threads}");
}

fn root_writes_a_capture_into_a_folder_that_is_anothers() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("yard.toml");
    let out = folder.path().join("out.pcap");
    let text = format!(
        "[[port]]\nname = \"p\"\nkind = \"pcap\"\nin = \"captures/yard.pcap\"\nout = {out:?}\n\
         [[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n[work]\nkind = \"forward\"\n"
    );
    fs::write(&config, text).unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_534), None).unwrap();
    let ran = flowyard()
        .arg("run")
        .arg(&config)
        .args(["--control", "none", "--user", "root"])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", crate::common::text(&ran.stderr));
    assert!(fs::metadata(&out).unwrap().len() > 1_000_000, "{}", crate::common::text(&ran.stdout));
}

fn as_root_an_instance_changes_to_the_given_user() {
    let yard = Yard::start(&config(), &["--user", "nobody"]);
    yard.wait_for_log("running");
    let status = fs::read_to_string(format!("/proc/{}/status", yard.child.id())).unwrap();
    let line = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    };
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let nobody = passwd.lines().find(|line| line.starts_with("nobody:")).unwrap();
    let uid = nobody.split(':').nth(2).unwrap();
    assert_eq!(line("Uid:"), [uid; 4].join("\t"));
    assert_eq!((line("CapEff:"), line("Groups:")), ("0".repeat(16), String::new()));
    let unknown = flowyard()
        .arg("run")
        .arg(yard.config())
        .args(["--control", "none", "--user", "x y z"])
        .output();
    assert!(crate::common::text(&unknown.unwrap().stderr).contains("no user 'x y z'"));
}

/// Whether root may mount files in a namespace of its own here.
fn mounts() -> Result<(), String> {
    let tried = std::process::Command::new("unshare").args(["-m", "true"]).output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if can { Ok(()) } else { Err("mount namespaces".into()) }
}

/// `flowyard run` as root on a system that has the user flowyard.
fn with_the_user_flowyard(folder: &std::path::Path, args: &[&str]) -> std::process::Command {
    let passwd = folder.join("passwd");
    let mut users = fs::read_to_string("/etc/passwd").unwrap();
    users.push_str("flowyard:x:4242:4243::/:/bin/false\n");
    fs::write(&passwd, users).unwrap();
    let script = "mount --bind \"$0\" /etc/passwd && exec \"$@\"";
    let mut run = std::process::Command::new("unshare");
    run.args(["-m", "sh", "-c", script]).arg(passwd);
    run.args([env!("CARGO_BIN_EXE_flowyard"), "run"]).arg(folder.join("yard.toml"));
    run.args(["--control", "none"]).args(args).current_dir(crate::common::root());
    run
}

/// A configuration that forwards a capture into another one in `folder`.
fn writes_a_capture(folder: &std::path::Path) -> String {
    let out = folder.join("out.pcap");
    format!(
        "[[port]]\nname = \"p\"\nkind = \"pcap\"\nin = \"captures/yard.pcap\"\nout = {out:?}\n\
         [[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n[work]\nkind = \"forward\"\n"
    )
}

fn as_root_an_instance_changes_to_the_user_flowyard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(path.join("yard.toml"), config()).unwrap();
    for (args, uid, said) in [
        (&[][..], "4242", "cannot read this file, so SIGHUP will be refused"),
        (&["--user", "root"][..], "0", ""),
    ] {
        let log = path.join("log");
        let mut run = with_the_user_flowyard(path, args);
        run.stdout(std::process::Stdio::null()).stderr(fs::File::create(&log).unwrap());
        let mut child = run.spawn().unwrap();
        let text = || fs::read_to_string(&log).unwrap();
        wait("the instance", || {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{}", text());
            text().contains("running").then_some(())
        });
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!(line("Uid:"), [uid; 4].join("\t"), "{}", text());
        assert_eq!(line("CapEff:"), "0".repeat(16));
        assert!(text().contains(said) && !text().contains("keeps the user root"), "{}", text());
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success(), "{}", text());
    }
    // A capture goes to a folder that the user may write to; to another one, nothing is begun.
    fs::write(path.join("yard.toml"), writes_a_capture(path)).unwrap();
    let refused = with_the_user_flowyard(path, &[]).output().unwrap();
    let log = crate::common::text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{log}");
    let said = format!(
        "{}: the user 'flowyard', to which this instance changes, cannot create files in this folder, in which {} \
         gets its name when the run ends; give that user the permission, or name another user with --user; --user root keeps root",
        path.display(),
        path.join("out.pcap").display()
    );
    assert!(log.contains(&said), "{log}");
    assert!(fs::read_dir(path).unwrap().all(|file| !file.unwrap().path().ends_with("part")));
    let kept = with_the_user_flowyard(path, &["--user", "root"]).output().unwrap();
    assert!(kept.status.success(), "{}", crate::common::text(&kept.stderr));
    std::os::unix::fs::chown(path, Some(4242), None).unwrap();
    let ran = with_the_user_flowyard(path, &[]).output().unwrap();
    assert!(ran.status.success(), "{}", crate::common::text(&ran.stderr));
    assert!(fs::metadata(path.join("out.pcap")).unwrap().len() > 1_000_000);
}

fn a_user_without_the_rights_that_the_run_needs_later_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let config = folder.path().join("yard.toml");
    fs::write(&config, writes_a_capture(folder.path())).unwrap();
    let run = |user: &str| {
        let mut run = flowyard();
        run.arg("run").arg(&config).args(["--control", "none", "--user", user]).output().unwrap()
    };
    let refused = run("nobody");
    let log = crate::common::text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{log}");
    assert!(
        log.contains("the user 'nobody', to which this instance changes, cannot create files"),
        "{log}"
    );
    assert!(!folder.path().join("out.pcap").exists());
    // The folder is open to the user, and one above it is not.
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    std::os::unix::fs::chown(&inner, Some(65_534), None).unwrap();
    fs::write(&config, writes_a_capture(&inner)).unwrap();
    assert_eq!(run("nobody").status.code(), Some(2));
    assert!(run("root").status.success());
    // As nobody with the permission it works.
    std::os::unix::fs::chown(folder.path(), Some(65_534), None).unwrap();
    let ran = run("nobody");
    assert!(ran.status.success(), "{}", crate::common::text(&ran.stderr));
}

fn logs_are_lines_of_json_and_a_reload_is_logged() {
    let mut yard = Yard::start(&config(), &["--log-format", "json"]);
    let lines = |yard: &Yard| -> Vec<Value> {
        yard.log().lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    };
    yard.wait_for_log("running");
    fs::write(yard.config(), config().replace("drop = true", "queue = \"a\"")).unwrap();
    yard.signal(Signal::HUP);
    yard.wait_for_log("tables reloaded");
    let tables = yard.json(&["show", "tables"]);
    let listed = tables["cores"][0]["tables"][0]["listed"].as_array().unwrap();
    assert!(
        listed.iter().any(|entry| entry["flow"] == DROPPED && entry["to"] == "queue a"),
        "{listed:?}"
    );
    fs::write(yard.config(), "nonsense").unwrap();
    yard.signal(Signal::HUP);
    yard.wait_for_log("nothing changed");
    let (status, _) = yard.stop();
    assert!(status.success());
    let log = lines(&yard);
    let told = |text: &str| {
        log.iter().find(|line| line["message"].as_str().is_some_and(|m| m.contains(text)))
    };
    for text in ["running", "draining", "drained", "tables reloaded"] {
        assert_eq!(told(text).unwrap_or_else(|| panic!("{text} in {log:?}"))["level"], "INFO");
    }
    assert_eq!(told("nothing changed").unwrap()["level"], "ERROR");
    assert!(told("drained").unwrap()["received"].as_u64().unwrap() > 0);
}

fn logs_for_the_journal_have_its_levels_and_off_is_off() {
    let mut yard = Yard::start_with(&config(), &[], &[("JOURNAL_STREAM", "8:1")]);
    let log = yard.wait_for_log("running");
    assert!(log.lines().all(|line| line.starts_with("<6>") || line.starts_with("<4>")), "{log}");
    yard.stop();
    let mut quiet = Yard::start(&config(), &["--log", "off"]);
    quiet.stop();
    assert_eq!(quiet.log(), "");
}

/// The samples of a page in Prometheus' text format, by name and labels. Panics on what the format does
/// not allow: a sample without TYPE, a TYPE after its samples, invalid names or numbers.
fn samples(page: &str) -> HashMap<String, f64> {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let (mut types, mut samples) = (HashMap::new(), HashMap::new());
    let mut current = "";
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# ") {
            let (kind, rest) = head.split_once(' ').unwrap();
            let (name, text) = rest.split_once(' ').unwrap();
            assert!(is_name(name) && !text.is_empty(), "{line}");
            match kind {
                "HELP" => assert!(!types.contains_key(name), "{line}"),
                "TYPE" => {
                    assert!(["counter", "gauge"].contains(&text), "{line}");
                    assert_eq!(text == "counter", name.ends_with("_total"), "{line}");
                    assert_eq!(types.insert(name, text), None, "{line}");
                    current = name;
                }
                _ => panic!("{line}"),
            }
            continue;
        }
        let (what, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = what.split_once('{').unwrap_or((what, "}"));
        assert_eq!(name, current, "samples of a metric stand together: {line}");
        let labels = labels.strip_suffix('}').unwrap();
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (name, text) = label.split_once('=').unwrap();
            assert!(
                is_name(name) && text.len() >= 2 && text.starts_with('"') && text.ends_with('"'),
                "{line}"
            );
        }
        assert_eq!(samples.insert(what.to_owned(), value.parse().unwrap()), None, "twice: {line}");
    }
    samples
}

/// The head and body of the metrics server's answer to this request.
fn http(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length: usize = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .unwrap()
        .parse()
        .unwrap();
    assert!(length == body.len() || request.starts_with("HEAD"), "{head}");
    (head.into(), body.into())
}

fn metrics_have_the_format_that_prometheus_reads() {
    // The address is in the configuration, not in --metrics.
    let yard =
        Yard::start(&config().replace("cores = 2", "cores = 2\nmetrics = \"127.0.0.1:0\""), &[]);
    let log = yard.wait_for_log("metrics: http://127.0.0.1:");
    let url = log.split("http://").nth(1).unwrap();
    let address = url.split('/').next().unwrap();
    let get = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let scrape = || {
        let (head, body) = http(address, get);
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
            "{head}"
        );
        samples(&body)
    };
    let dropped = "flowyard_dropped_frames_total{core=\"0\",reason=\"table\"}";
    let before = wait("frames", || Some(scrape()).filter(|now| now[dropped] > 0.0));
    let after = wait("more frames", || Some(scrape()).filter(|now| now[dropped] > before[dropped]));
    for (name, value) in &before {
        let grows = name.contains("_total");
        assert!(!grows || after[name] >= *value, "{name} went back");
    }
    assert!(after["flowyard_rx_frames_total{core=\"0\"}"] > 0.0);
    assert_eq!(after["flowyard_core_up{core=\"1\"}"], 1.0);
    assert_eq!(after["flowyard_table_entries{core=\"0\",table=\"exact\"}"], 2.0);
    assert!(after["flowyard_busy_seconds_total{core=\"0\"}"] > 0.0);
    assert!(after["flowyard_queue_enqueued_frames_total{queue=\"b\",kind=\"queue\"}"] > 0.0);
    assert!(http(address, "GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404"));
    assert!(http(address, "PUT /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405"));
    assert_eq!(http(address, "HEAD /metrics HTTP/1.1\r\n\r\n").1, "");
    // A client that sends nothing delays the next one for a short time only.
    let _silent = TcpStream::connect(address).unwrap();
    scrape();
    let bad = flowyard()
        .arg("run")
        .arg(yard.config())
        .args(["--control", "none", "--metrics", "x"])
        .output();
    assert!(crate::common::text(&bad.unwrap().stderr).contains("--metrics: 'x' is not an address"));
}

fn systemd_is_notified_of_ready_reloading_alive_and_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let env = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "100000")];
    let mut yard = Yard::start_with(&config(), &[], &env);
    let wait_for = |wanted: &str| {
        let mut bytes = [0; 1024];
        loop {
            let got = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{wanted}: {error}"));
            let text = String::from_utf8_lossy(&bytes[..got]).into_owned();
            if text.lines().any(|line| line == wanted) {
                return text;
            }
        }
    };
    wait_for("READY=1");
    wait_for("WATCHDOG=1");
    wait_for("WATCHDOG=1");
    yard.signal(Signal::HUP);
    assert!(wait_for("RELOADING=1").contains("MONOTONIC_USEC="));
    wait_for("READY=1");
    let (status, _) = yard.stop();
    wait_for("STOPPING=1");
    assert!(status.success());
}

fn the_unit_uses_what_the_program_has() {
    let unit = fs::read_to_string(crate::common::root().join("dist/flowyard@.service")).unwrap();
    let value = |key: &str| {
        unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap()
    };
    let help = crate::common::good(&crate::common::run(["run", "--help"]));
    let mut words = value("ExecStart").split(' ');
    assert_eq!((words.next(), words.next()), (Some("/usr/bin/flowyard"), Some("run")));
    for flag in words.filter(|word| word.starts_with("--")) {
        assert!(help.contains(flag), "{flag}");
    }
    assert_eq!((value("Type"), value("KillSignal")), ("notify", "SIGTERM"));
    assert_eq!(value("AmbientCapabilities"), value("CapabilityBoundingSet"));
    for hardening in
        ["NoNewPrivileges=yes", "ProtectSystem=strict", "LimitMEMLOCK=infinity", "WatchdogSec="]
    {
        assert!(unit.contains(hardening), "{hardening}");
    }
}

fn the_doctor_reports_problems_with_their_fix_and_its_status() {
    let output = flowyard().args(["doctor", "--interface", "none7", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "flowyard.doctor/2");
    let findings = report["findings"].as_array().unwrap();
    let none7 = findings.iter().find(|one| one["about"] == "interface none7").unwrap();
    assert_eq!(none7["level"], "problem");
    assert!(none7["fix"].as_str().unwrap().starts_with("choose 'interface' from"), "{none7}");
    let problems = findings.iter().filter(|one| one["level"] == "problem").count();
    assert_eq!(report["problems"], problems);
    assert!(crate::common::text(&output.stderr).contains("problem"));
    // A configuration without interfaces needs few checks.
    let output =
        flowyard().args(["doctor", "docs/examples/forward.toml", "--all"]).output().unwrap();
    let text = crate::common::text(&output.stdout);
    assert!(text.contains("kernel: Linux") && text.contains("processors: "), "{text}");
    assert!(!text.contains("CONFIG_XDP_SOCKETS") && !text.contains("fix: ethtool"), "{text}");
    let bad = flowyard().args(["doctor", "/nonexistent.toml"]).output().unwrap();
    assert!(refused(&bad).contains("name a readable file"));
    let bad = flowyard().args(["doctor", "--kind", "token_ring"]).output().unwrap();
    assert!(refused(&bad).contains("possible values: af_xdp, af_packet, tap"));
}

/// Runs the doctor for the veth `va` in a new namespace, then the commands that it printed, then the
/// doctor again.
const VETH: &str = r#"
set -e
mount -t sysfs none /sys
ip link add va numrxqueues 2 numtxqueues 2 type veth peer name vb
ip link set va up; ip link set vb up
"$1" doctor --interface va --kind af_xdp --json > "$2/before" || true
python3 - "$2/before" > "$2/fix" <<'END'
import json, sys
for one in json.load(open(sys.argv[1]))["findings"]:
    if one["about"] == "offload va":
        print(one["fix"].split(";")[0])
END
sh -e "$2/fix"
"$1" doctor --interface va --kind af_xdp --json > "$2/after" || true
"#;

fn the_doctors_commands_fix_a_veth() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["-n", "-m", "sh", "-c", VETH, "sh", env!("CARGO_BIN_EXE_flowyard")])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", crate::common::text(&output.stderr));
    let offloads = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(folder.path().join(name)).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        let all = report["findings"].as_array().unwrap().clone();
        let of = all.iter().filter(|one| one["about"] == "offload va");
        of.map(|one| {
            format!("{} {}", one["level"].as_str().unwrap(), one["what"].as_str().unwrap())
        })
        .collect()
    };
    assert_eq!(offloads("before"), ["problem tx checksum offload is on, on a virtual interface"]);
    assert_eq!(offloads("after"), ["ok no offload that interferes with the port is on"]);
}
