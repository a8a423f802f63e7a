//! `flowyard nic`: run, profile, sweep, trace and table; captures as input and output; bad input.

use crate::common::{refused, run};

flowyard_testkit::tests! {
    a_run_prints_its_counters,
    both_engines_print_the_same,
    a_profile_names_the_papers_functions_and_the_firmwares,
    a_sweep_has_a_row_for_every_point,
    a_trace_makes_figure_3_and_a_cut_one_is_refused,
    a_table_has_the_papers_numbers_beside_ours,
    captures_arrive_and_what_is_sent_can_be_captured,
    documents_fit_their_schemas,
    bad_input_is_named,
    what_does_not_fit_is_refused,
    a_long_capture_names_the_speed_that_fits,
    the_ideal_firmware_has_one_core,
}

fn text(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SHORT: [&str; 4] = ["--set", "run.measure_us=300", "--set", "run.warmup_us=200"];

fn nic(args: &[&str]) -> std::process::Output {
    run([&["nic"][..], args].concat())
}

fn a_run_prints_its_counters() {
    let said = text(&nic(&[&["run"][..], &SHORT].concat()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let stats = ["--stats", file.to_str().unwrap()];
    text(&nic(&[&["run"][..], &SHORT, &stats].concat()));
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    crate::schema::expect("nic", &json);
    for part in ["Gb/s of 19.142", "received", "cycles of each core", "1.000", "interrupts"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let json = text(&nic(&[&["run", "--json"][..], &SHORT].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "flowyard.nic/1");
    crate::schema::expect("nic", &json);
    assert_eq!(json["errors"], 0);
    assert!(json["udp_gbps"].as_f64().unwrap() > 15.0);
}

fn both_engines_print_the_same() {
    let args = [&["run"][..], &SHORT, &["--set", "chip.cores=3", "--set", "chip.mhz=150"]].concat();
    let fast = text(&nic(&args));
    assert_eq!(fast, text(&nic(&[&args[..], &["--reference"]].concat())));
}

fn a_profile_names_the_papers_functions_and_the_firmwares() {
    let said = text(&nic(&[&["profile", "--firmware", "swonly"][..], &SHORT].concat()));
    for part in ["Send Dispatch and Ordering", "recv_frames", "hottest addresses", "lw", "passes"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

fn a_sweep_has_a_row_for_every_point() {
    let args = ["sweep", "--vary", "chip.cores=2,4", "--vary", "chip.mhz=100,500/3", "--csv"];
    let said = text(&nic(&[&args[..], &SHORT].concat()));
    let rows: Vec<&str> = said.lines().collect();
    assert_eq!(rows.len(), 5, "{said}");
    assert!(rows[0].starts_with("chip.cores,chip.mhz,udp_gbps") && rows[4].starts_with("4,500/3,"));
}

fn documents_fit_their_schemas() {
    let capture = ["run", "--pcap-in", "captures/yard.pcap"];
    for (command, args) in [
        ("nic", &capture[..]),
        ("nic-keys", &["keys"]),
        ("nic-sweep", &[&["sweep", "--vary", "chip.cores=2,4"][..], &SHORT].concat()),
        ("nic-exhibits", &["table", "4", "--measure-us", "200"]),
    ] {
        let said = text(&nic(&[args, &["--json"]].concat()));
        crate::schema::expect(command, &serde_json::from_str(&said).unwrap());
    }
}

fn a_trace_makes_figure_3_and_a_cut_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("accesses.fynt");
    let name = path.to_str().unwrap();
    text(&nic(&[&["trace", "--output", name][..], &SHORT].concat()));
    let figure = text(&nic(&["figure", "3", "--trace", name]));
    assert!(figure.contains("frame metadata: 32768 B: hits"), "{figure}");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let line = refused(&nic(&["figure", "3", "--trace", name]));
    assert!(line.contains("cut short") && line.contains("offset"), "{line}");
    assert!(refused(&nic(&["figure", "7", "--trace", name])).contains("only figure 3"));
}

fn a_table_has_the_papers_numbers_beside_ours() {
    let said = text(&nic(&["table", "4", "--measure-us", "200"]));
    assert!(said.contains("64.00  64.00") && said.contains("+0.0 %"), "{said}");
    let csv = text(&nic(&["table", "4", "--measure-us", "200", "--csv"]));
    assert!(csv.starts_with("exhibit,name,paper,ours,deviation,kind,counts\nTable 4,"), "{csv}");
    assert!(refused(&nic(&["table", "7"])).contains("1 to 6"));
    assert!(refused(&nic(&["figure", "1"])).contains("3, 7 or 8"));
}

fn captures_arrive_and_what_is_sent_can_be_captured() {
    let folder = tempfile::tempdir().unwrap();
    let sent = folder.path().join("sent.pcap");
    let out = sent.to_str().unwrap();
    let args = ["run", "--pcap-in", "captures/yard.pcap", "--pcap-out", out];
    let said = text(&nic(&[&args[..], &SHORT].concat()));
    assert!(said.contains("sent"), "{said}");
    let size = std::fs::metadata(&sent).unwrap().len();
    assert!(size > 100_000, "{size} bytes");
    // The capture takes seconds: it is received faster, so that its frames arrive in the simulated time.
    let line = said.lines().find(|line| line.starts_with("received")).unwrap();
    let count = |at: usize| line.split_whitespace().nth(at).unwrap().parse::<u64>().unwrap();
    assert!(count(1) > 100 && count(2) > 100, "{said}");
    assert!(said.contains("times the speed of the capture"), "{said}");
    // The transmitted frames are a valid capture.
    assert!(text(&run(["analyze", out])).contains("packets"));
}

fn bad_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let wrong = file(
        "wrong.elf",
        b"\x7fELF\x02\x01\x01\0 and nothing that follows is of any interest here at all",
    );
    let stats = folder.path().join("stats.json").display().to_string();
    let toml = file("bad.toml", b"[chip]\ncore = 6\n");
    for (args, parts) in [
        (
            &["run", "--firmware", "nosuch"][..],
            &["nosuch", "a readable ELF file or one of", "rmw"][..],
        ),
        (&["run", "--firmware", &wrong], &["wrong.elf", "64-bit", "offset 0x4"]),
        (&["run", "--set", "host.send_ring=500"], &["host.send_ring = 500", "a power of two"]),
        (&["run", "--set", "chip.cors=8"], &["'chip.cors' is unknown", "chip.cores", "nic keys"]),
        (
            &["run", "--stats", &stats, "--set", "chip.cors=8"],
            &["'chip.cors' is unknown", "chip.cores"],
        ),
        (&["run", "--set", "chip.cores"], &["section.key=value"]),
        (&["run", "--config", &toml], &["bad.toml", "core", "cores"]),
        (&["run", "--peek", "nothing"], &["no variable 'nothing'"]),
        (&["run", "--pcap-in", "nosuch.pcap"], &["nosuch.pcap"]),
        (&["sweep", "--vary", "chip.cores"], &["--vary", "KEY=A,B"]),
        (&["table", "1", "--measure-us", "0"], &["--measure-us"]),
    ] {
        let line = refused(&nic(args));
        for part in parts {
            assert!(line.contains(part), "'{part}' is not in: {line}");
        }
    }
}

/// Keys that have no effect, or with which the run would not end.
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("accesses.fynt");
    let trace = path.to_str().unwrap();
    for (args, part) in [
        (
            &["run", "--pcap-in", "captures/yard.pcap", "--set", "load.receive=false"][..],
            "load.receive = false",
        ),
        (&["run", "--set", "firmware.steer=1"], "firmware.steer: this firmware does not steer"),
        (
            &["run", "--firmware", "steer", "--set", "firmware.filters=4"],
            "set firmware.steer to 2 or 3",
        ),
        (&["trace", "--output", trace, "--set", "host.queues=2"], "host.queues"),
        (&["sweep", "--firmware", "ideal", "--vary", "chip.cores=1,2"], "chip.cores=1"),
    ] {
        let line = refused(&nic(args));
        assert!(line.contains(part), "'{part}' is not in: {line}");
    }
}

/// The capture has two frames, 20 seconds apart.
fn a_long_capture_names_the_speed_that_fits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pcap");
    let word = |value: u32| value.to_le_bytes();
    let mut bytes = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1].map(word).concat();
    for seconds in [0, 20] {
        bytes.extend([seconds, 0, 60, 60].map(word).concat());
        bytes.extend([2; 60]);
    }
    std::fs::write(&path, bytes).unwrap();
    let name = path.to_str().unwrap();
    let line = refused(&nic(&["run", "--pcap-in", name, "--speed", "1"]));
    for part in ["--speed", "long.pcap takes 20.0 s", "at most 10 s", "--speed 2.001 or more"] {
        assert!(line.contains(part), "'{part}' is not in: {line}");
    }
    // Without a limit of the UDP rate, which is that of generated frames.
    let said = text(&nic(&["run", "--pcap-in", name, "--set", "run.measure_us=300"]));
    let udp = said.lines().find(|line| line.starts_with("UDP")).unwrap();
    assert!(!udp.contains(" of ") && udp.contains("Gb/s, "), "{udp}");
}

fn the_ideal_firmware_has_one_core() {
    let said = text(&nic(&[&["run", "--firmware", "ideal"][..], &SHORT].concat()));
    assert!(said.starts_with("1 core of"), "{said}");
    let line = refused(&nic(&["run", "--firmware", "ideal", "--set", "chip.cores=2"]));
    assert!(line.contains("chip.cores=1"), "{line}");
}
