//! `show`, `top` and `trace` with a running instance, and its control socket.
#![allow(clippy::disallowed_methods, reason = "tests of real processes wait by the clock")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;

use crate::common::{flowyard, refused, text};
use crate::yard::{DROPPED, OTHER, Yard, config, wait};
use serde_json::Value;

flowyard_testkit::tests! {
    show_and_top_print_the_state_of_an_instance,
    top_may_wait_for_longer_than_a_connection_is_kept,
    an_idle_core_reports_the_processor_time_that_it_uses,
    a_trace_shows_every_stage_and_the_fix,
    a_drop_by_a_full_queue_is_explained,
    invalid_requests_are_refused_with_the_fix,
    a_socket_has_one_yard_and_outlives_none,
    a_failed_start_leaves_no_socket_and_says_it_once,
    a_second_instance_with_the_same_default_socket_does_not_start,
    a_trace_or_count_ends_when_its_client_goes,
    a_refused_connection_gives_the_reason,
    check_names_cores_that_cannot_be_pinned,
}

fn show_and_top_print_the_state_of_an_instance() {
    let mut yard = Yard::start(&config(), &[]);
    let cores = wait("frames", || {
        let cores = yard.json(&["show", "cores"]);
        (cores["cores"][0]["counters"]["rx_frames"].as_u64()? > 2000).then_some(cores)
    });
    assert_eq!(cores["schema"], "flowyard.show.cores/1");
    assert_eq!(
        (&cores["cores"][1]["alive"], cores["cores"].as_array().unwrap().len()),
        (&Value::Bool(true), 2)
    );
    let queues = yard.json(&["show", "queues"]);
    let names: Vec<_> =
        queues["queues"].as_array().unwrap().iter().map(|q| q["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "west", "east"]);
    assert!(queues["queues"][1]["enqueued"].as_u64().unwrap() > 0);
    let tables = yard.json(&["show", "tables", "--entries", "1"]);
    let tables = &tables["cores"].as_array().unwrap()[0];
    assert_eq!(
        (&tables["core"], &tables["tables"][0]["name"]),
        (&Value::from(0), &Value::from("exact"))
    );
    assert_eq!(tables["tables"][0]["entries"], 2);
    assert_eq!(tables["tables"][0]["listed"].as_array().unwrap().len(), 1);
    assert_eq!(tables["indirection"].as_array().unwrap().len(), 128);
    let flows = yard.json(&["show", "flows", "--seconds", "0.5"]);
    let largest = &flows["cores"][0]["flows"][0];
    assert!(largest["share"].as_f64().unwrap() > 0.01 && largest["flow"].is_string(), "{flows}");
    let drops = wait("drops", || {
        let drops = yard.json(&["show", "drops"]);
        (!drops["last"].as_array()?.is_empty()).then_some(drops)
    });
    assert_eq!(drops["reasons"].as_array().unwrap().len(), 1, "{drops}");
    assert_eq!(
        (&drops["reasons"][0]["reason"], &drops["last"][0]["flow"]),
        (&Value::from("table"), &Value::from(DROPPED))
    );
    assert_eq!(yard.json(&["show", "elephants"])["promoted"], Value::Array(Vec::new()));
    for what in ["cores", "queues", "tables", "drops", "elephants"] {
        assert!(yard.ask(&["show", what]).lines().count() > 3, "{what}");
    }
    let top = yard.ask(&["top", "--once", "--interval", "0.2"]);
    for title in ["Cores", "Queues", "Tables", "Flows split over cores", "Drops", "frames/s"] {
        assert!(top.contains(title), "{title} in {top}");
    }
    let (status, text) = yard.stop();
    assert!(status.success() && text.contains("0 held"), "{text}");
}

/// The control socket closes a connection without a request after 10 s.
fn top_may_wait_for_longer_than_a_connection_is_kept() {
    let yard = Yard::start(&config().replace("pace = \"20000\"", "pace = \"1\""), &[]);
    let top = yard.ask(&["top", "--once", "--interval", "10.5"]);
    assert!(top.contains("Cores"), "{top}");
}

/// A core that waits for a frame a second is not busy, but it uses processor time.
fn an_idle_core_reports_the_processor_time_that_it_uses() {
    let yard = Yard::start(&config().replace("pace = \"20000\"", "pace = \"1\""), &[]);
    let (busy, used, seconds) = wait("a second", || {
        let cores = yard.json(&["show", "cores"]);
        let count = |name: &str| cores["cores"][0]["counters"][name].as_f64();
        let seconds = cores["at_s"].as_f64().filter(|seconds| *seconds > 1.0)?;
        Some((count("busy_ns")? / 1e9, count("cpu_ns")? / 1e9, seconds))
    });
    assert!(used > busy && used < seconds, "{busy} s busy, {used} s used in {seconds} s");
    assert!(used > 0.0 && busy < 0.1, "{busy} s busy, {used} s used in {seconds} s");
    assert!(yard.ask(&["show", "cores"]).contains("processor time"));
}

fn a_trace_shows_every_stage_and_the_fix() {
    let yard = Yard::start(&config(), &[]);
    let trace = yard.json(&["trace", OTHER, "--count", "3", "--seconds", "20"]);
    let frames = trace["frames"].as_array().unwrap();
    assert_eq!(frames.len(), 3, "{trace}");
    for frame in frames {
        let steps = frame["steps"].as_array().unwrap();
        let stages: Vec<_> = steps.iter().map(|step| step["stage"].as_str().unwrap()).collect();
        assert_eq!(stages, ["rx", "steer", "settle", "work", "tx"], "{frame}");
        let text = |at: usize| steps[at]["text"].as_str().unwrap();
        assert!(text(0).contains(OTHER) && text(0).contains("port west"), "{frame}");
        assert_eq!(text(1), "matched an entry of table exact: queue b, mark 7");
        assert!(text(2).contains("queue b"), "{frame}");
        assert!(text(3).ends_with("processed; destination: port east"), "{frame}");
        assert_eq!((text(4), &steps[4]["core"]), ("transmitted by port east", &Value::from(1)));
        let times: Vec<_> = steps.iter().map(|step| step["at_s"].as_f64().unwrap()).collect();
        assert!(times.is_sorted(), "{frame}");
    }
    let text = yard.ask(&["trace", "--drops", "table", "--count", "1", "--seconds", "20"]);
    for part in [
        "frame 1: table",
        "matched an entry of table exact: drop",
        "not enqueued: the table's action is drop",
        "dropped: table",
        "fix: a table entry has the action drop",
        DROPPED,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let none = yard.json(&["trace", "tcp 10.9.9.9:1 > 10.9.9.8:2", "--seconds", "0.2"]);
    assert!(
        none["note"].as_str().unwrap().contains("no frame of this flow was received"),
        "{none}"
    );
    let both = yard.json(&["trace", DROPPED, "--both", "--count", "40", "--seconds", "20"]);
    let outcomes = both["outcomes"].as_object().unwrap();
    assert!(outcomes.contains_key("sent") && outcomes.contains_key("table"), "{outcomes:?}");
    // The flow is dropped by an entry of the exact table, its reverse direction is forwarded.
    for frame in both["frames"].as_array().unwrap() {
        assert_eq!(frame["reverse"] == true, frame["outcome"] == "sent", "{frame}");
    }
}

fn a_drop_by_a_full_queue_is_explained() {
    // Another core works than the one that receives, which would otherwise work at once and receive less.
    // The capture is repeated twice a second or so, because the flow of the last drop is traced.
    let config = config()
        .replace("pace = \"20000\"", "pace = \"200000\"")
        .replace("consumers = [0]", "consumers = [1]")
        .replace("kind = \"forward\"", "kind = \"burn\"\ncost_ns = 200000")
        .replace("order = \"direct\"", "order = \"direct\"\nfull = \"drop\"\nwindow_frames = 64");
    let yard = Yard::start(&config, &[]);
    let trace = yard.json(&["trace", "--drops", "queue_full", "--count", "2", "--seconds", "50"]);
    let frame = &trace["frames"][0];
    assert_eq!(frame["outcome"], "queue_full", "{trace}");
    assert!(
        frame["fix"].as_str().unwrap().starts_with("queue a was full: raise its 'window_frames'")
    );
    let steps = frame["steps"].as_array().unwrap();
    assert_eq!(steps.last().unwrap()["text"], "dropped: queue_full at queue a");
    assert!(
        steps[1]["text"].as_str().unwrap().contains("of the indirection table: queue a"),
        "{frame}"
    );
}

fn invalid_requests_are_refused_with_the_fix() {
    let yard = Yard::start(&config(), &[]);
    let socket = yard.socket();
    let ask = |args: &[&str]| flowyard().args(args).arg("--control").arg(&socket).output().unwrap();
    assert!(refused(&ask(&["trace", "tcp nonsense"])).contains("write a flow as"));
    assert!(
        refused(&ask(&["trace", "--drops", "bad_luck"])).contains("choose one of any, queue_full")
    );
    assert!(refused(&ask(&["top", "--interval", "0"])).contains("--interval"));
    assert!(refused(&ask(&["show", "flows", "--seconds", "0"])).contains("--seconds"));
    let nobody =
        flowyard().args(["show", "cores", "--control", "/nonexistent/sock"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1), "no instance runs: a failure, not wrong use");
    assert!(text(&nobody.stderr).contains("is 'flowyard run' running"));
    let file = yard.config();
    let other = flowyard().args(["show", "queues", "--control"]).arg(&file).output().unwrap();
    assert_eq!(
        refused(&other),
        format!("{} is not a socket; give the --control PATH of 'flowyard run'", file.display())
    );
    // The protocol: lines that are not requests, and several lines at once.
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"nonsense\n{\"ask\":\"cores\",\"x\":1}\n{\"ask\":\"queues\"}\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let lines: Vec<_> = answers.lines().collect();
    assert_eq!(lines.len(), 3, "{answers}");
    assert!(
        lines[0].starts_with("{\"error\":") && lines[2].starts_with("{\"answer\":"),
        "{answers}"
    );
    let mut stream = UnixStream::connect(&socket).unwrap();
    let _cut_off = stream.write_all(&vec![b'x'; 70 << 10]);
    let mut answer = String::new();
    let _reset = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.contains("of at most 65536 bytes"), "{answer}");
    assert!(yard.ask(&["show", "cores"]).contains("responds"), "it still works after all that");
}

fn a_failed_start_leaves_no_socket_and_says_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("yard.toml"), folder.path().join("sock"));
    fs::write(&file, config()).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = flowyard()
        .arg("run")
        .arg(&file)
        .arg("--control")
        .arg(&socket)
        .args(["--metrics", &address, "--log", "error"])
        .output()
        .unwrap();
    let err = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{err}");
    assert_eq!(err.matches("Address already in use").count(), 1, "{err}");
    assert!(err.contains("choose another --metrics ADDRESS"), "{err}");
    assert!(!socket.exists());
}

/// Starts another instance with the same configuration and the same control socket.
fn start_beside(yard: &Yard) -> std::process::Output {
    let mut run = flowyard();
    run.arg("run").arg(yard.config()).arg("--control").arg(yard.socket()).output().unwrap()
}

fn a_socket_has_one_yard_and_outlives_none() {
    let mut yard = Yard::start(&config(), &[]);
    let meta = fs::metadata(yard.socket()).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let second = start_beside(&yard);
    assert!(refused(&second).contains("another running instance uses this control socket"));
    yard.child.kill().unwrap();
    yard.child.wait().unwrap();
    assert!(yard.socket().exists(), "a killed yard cleans nothing up");
    yard.restart(&[]);
    yard.wait_for_log("replacing a stale socket");
    assert!(yard.ask(&["show", "cores"]).contains("responds"));
    let (status, _) = yard.stop();
    assert!(status.success() && !yard.socket().exists());
    fs::write(yard.socket(), "precious").unwrap();
    let third = start_beside(&yard);
    assert!(refused(&third).contains("is not a socket"));
    assert_eq!(fs::read_to_string(yard.socket()).unwrap(), "precious");
}

fn a_second_instance_with_the_same_default_socket_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("yard.toml");
    fs::write(&file, config()).unwrap();
    let default = if rustix::process::geteuid().is_root() {
        // Another name in the folder of all instances of root.
        let name = format!("test-{}", std::process::id());
        let unique = folder.path().join(format!("{name}.toml"));
        fs::rename(&file, &unique).unwrap();
        (unique, std::path::PathBuf::from(format!("/run/flowyard/{name}.sock")))
    } else {
        (file, folder.path().join("flowyard/yard.sock"))
    };
    let (file, socket) = default;
    let run = || {
        let mut run = flowyard();
        run.arg("run").arg(&file).env("XDG_RUNTIME_DIR", folder.path());
        run
    };
    let null = std::process::Stdio::null;
    let mut first = run().stdout(null()).stderr(null()).spawn().unwrap();
    let up = || UnixStream::connect(&socket).ok();
    wait("the default control socket", up);
    let second = run().args(["--log", "error"]).output().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let _killed = fs::remove_file(&socket);
    assert!(refused(&second).contains("another running instance uses this control socket"));
}

fn a_trace_or_count_ends_when_its_client_goes() {
    let yard = Yard::start(&config(), &[]);
    let began = std::time::Instant::now();
    for (request, again) in [
        (
            r#"{"ask":"trace","flow":"tcp 10.9.9.9:1 > 10.9.9.8:2","count":1,"seconds":600}"#,
            &["trace", OTHER, "--count", "1", "--seconds", "20"][..],
        ),
        (r#"{"ask":"flows","seconds":60}"#, &["show", "flows", "--seconds", "0.1"]),
    ] {
        let mut stream = UnixStream::connect(yard.socket()).unwrap();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let ask = || {
            let mut ask = flowyard();
            ask.args(again).arg("--control").arg(yard.socket()).output().unwrap()
        };
        wait("the request is in progress", || {
            let output = ask();
            text(&output.stderr).contains("is in progress").then_some(())
        });
        drop(stream);
        wait("the request has ended", || ask().status.success().then_some(()));
    }
    assert!(began.elapsed().as_secs() < 50, "{:?}", began.elapsed());
}

fn a_refused_connection_gives_the_reason() {
    let yard = Yard::start(&config(), &[]);
    let mut open = Vec::new();
    wait("16 open connections", || {
        let mut stream = UnixStream::connect(yard.socket()).unwrap();
        let _refused = stream.write_all(b"{\"ask\":\"queues\"}\n");
        let mut start = [0; 9];
        stream.read_exact(&mut start).ok()?;
        // It is refused if the server has not noticed yet that an earlier one was closed.
        open.extend((start == *b"{\"answer\"").then_some(stream));
        (open.len() == 16).then_some(())
    });
    let ask = || {
        let mut ask = flowyard();
        ask.args(["show", "cores", "--control"]).arg(yard.socket()).output().unwrap()
    };
    let said = text(&ask().stderr);
    assert!(said.contains("has too many connections (16); close one"), "{said}");
    drop(open);
    wait("room", || ask().status.success().then_some(()));
}

fn check_names_cores_that_cannot_be_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("yard.toml");
    fs::write(&file, config().replace("cores = 2", "cores = 2\npin = [0, 1999]")).unwrap();
    let checked = flowyard().arg("run").arg(&file).arg("--check").output().unwrap();
    let err = text(&checked.stderr);
    assert!(checked.status.success() && text(&checked.stdout).contains("is valid"), "{err}");
    assert!(err.contains("yard.toml:4:7: CPU 1999 is not online on this machine"), "{err}");
}
