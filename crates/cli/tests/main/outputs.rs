//! Outputs of `flowyard run` that cannot be opened or written, and the examples in a fresh clone.

use std::path::Path;

use serde_json::Value;

use crate::common::{flowyard, frames_in_whole_capture, refused, root, run, text};

flowyard_testkit::tests! {
    an_output_that_cannot_be_opened_ends_the_start,
    a_capture_that_is_read_is_never_written,
    an_output_that_fails_later_ends_the_run_and_stays_readable,
    results_are_printed_if_their_file_cannot_be_written,
    a_page_has_the_command_line_also_if_that_is_not_unicode,
    the_examples_write_where_they_can,
}

/// A configuration that writes `output`, and whose source does not end within the time of a test.
fn config(folder: &Path, output: &str) -> String {
    let path = folder.join("yard.toml");
    let text = format!(
        r#"
        [[port]]
        name = "west"
        kind = "mem"
        in = "captures/yard.pcap"
        repeat = 1000000
        [[port]]
        name = "east"
        kind = "pcap"
        out = {output:?}
        [[queue]]
        name = "q"
        order = "direct"
        consumers = [0]
        full = "hold"
        [work]
        kind = "forward"
        ports = {{ west = "east" }}
        "#
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn an_output_that_cannot_be_opened_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let nowhere = folder.path().join("none/east.pcap");
    for (output, said) in [
        (nowhere.to_str().unwrap(), "create the folder first"),
        (fifo.to_str().unwrap(), "it exists and is not a regular file"),
        ("/dev/full", "it exists and is not a regular file"),
    ] {
        let config = config(folder.path(), output);
        for more in [&[][..], &["--check"], &["--json"]] {
            let line = refused(&run([&["run", &config, "--control", "none"], more].concat()));
            let place = format!("{config}:10:15: port 'east': {output}: cannot create: ");
            assert!(line.starts_with(&place), "{line}");
            assert!(line.contains(said), "{line}");
        }
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "no file remains but the configuration and the FIFO");
}

fn a_capture_that_is_read_is_never_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let capture = std::fs::read(root().join("captures/yard.pcap")).unwrap();
    let (here, link) = (path("here.pcap"), path("link.pcap"));
    std::fs::write(&here, &capture).unwrap();
    std::fs::hard_link(&here, &link).unwrap();
    let refused_by = |option: &str, args: &[&str]| {
        let line = refused(&run(args));
        let said = format!("{option}: this command reads {here}, and the ");
        assert!(line.starts_with(&said), "{line}");
        assert!(line.ends_with(" would replace it; name another file to write"), "{line}");
        assert!(std::fs::read(&here).unwrap() == capture, "{args:?}");
    };
    let config = config(folder.path(), &link);
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("captures/yard.pcap", &here)).unwrap();
    for more in [&[][..], &["--check"], &["--json"]] {
        let line = refused(&run([&["run", &config, "--control", "none"], more].concat()));
        let place = format!("{config}:10:15: port 'west' receives from this file, and ");
        assert!(line.starts_with(&place), "{line}");
    }
    for output in [&here, &link] {
        refused_by("--html", &["analyze", &here, "--html", output]);
        let plan = ["plan", "lo", "--goal", "balance", "--capture", &here, "-o", output];
        refused_by("--output", &plan);
        refused_by("--pcap-out", &["nic", "run", "--pcap-in", &here, "--pcap-out", output]);
        refused_by("--trace", &["nic", "run", "--pcap-in", &here, "--trace", output]);
        refused_by("--html", &["nic", "figure", "3", "--trace", &here, "--html", output]);
        refused_by("--html", &["predict", "--profile", &here, "--html", output]);
        refused_by("--html", &["figures", "--profile", &here, "--html", output]);
        refused_by("--html", &["bench", "soak", "--replay", &here, "--html", output]);
        refused_by("--state", &["bench", "soak", "--replay", &here, "--state", output]);
        refused_by("--html", &["bench", "history", &here, "--html", output]);
    }
    let new = path("new");
    let twice = ["nic", "run", "--stats", &new, "--pcap-out", &path("./new")];
    let line = refused(&run(twice));
    assert!(line.starts_with("--stats and --pcap-out name one file"), "{line}");
    // A file that the shell has opened.
    let script =
        format!("exec {} analyze - --html {link} < {here}", env!("CARGO_BIN_EXE_flowyard"));
    let ran = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
    assert!(refused(&ran).starts_with("--html: this command reads standard input, and the page "));
    assert!(std::fs::read(&here).unwrap() == capture);
}

fn an_output_that_fails_later_ends_the_run_and_stays_readable() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("east.pcap");
    let config = config(folder.path(), output.to_str().unwrap());
    // The largest file that this process may write replaces a full disk.
    let script = format!(
        "trap '' XFSZ; ulimit -f 900; exec {} run {config} --control none --json",
        env!("CARGO_BIN_EXE_flowyard")
    );
    let ran = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(root())
        .output()
        .expect("a shell");
    let (out, err) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(1), "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    let failed = said["failed"][0].as_str().unwrap();
    assert!(
        failed.starts_with("port east: ") && failed.contains("cannot write (byte "),
        "{failed}"
    );
    assert!(err.trim_end().ends_with(failed), "{err}");
    let frames = frames_in_whole_capture(Path::new(&output));
    let told = format!("; the file has the {frames} frames before that");
    assert!(frames > 100 && failed.ends_with(&told), "{frames} frames; {failed}");
}

fn results_are_printed_if_their_file_cannot_be_written() {
    let plan = ["plan", "lo", "--goal", "balance", "--capture", "captures/yard.pcap"];
    let ran = run([&plan[..], &["-o", "/dev/full", "--json"]].concat());
    let (out, err) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(1), "{err}");
    assert!(err.starts_with("flowyard: /dev/full: cannot write the plan: "), "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["goal"], "balance", "{out}");
}

fn a_page_has_the_command_line_also_if_that_is_not_unicode() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join(std::ffi::OsStr::from_bytes(b"page-\xff.html"));
    let args =
        ["analyze".as_ref(), "captures/yard.pcap".as_ref(), "--html".as_ref(), page.as_os_str()];
    let ran = run(args);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("page-\u{fffd}.html"));
}

fn the_examples_write_where_they_can() {
    let clone = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("captures"), clone.path().join("captures")).unwrap();
    for example in ["forward", "route", "rules", "switch"] {
        let config = root().join(format!("docs/examples/{example}.toml"));
        let ran = flowyard()
            .current_dir(clone.path())
            .args(["run", "--json", "--control", "none"])
            .arg(config)
            .output()
            .unwrap();
        let (out, err) = (text(&ran.stdout), text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(0), "{example}: {err}");
        let said: Value = serde_json::from_str(&out).unwrap();
        assert!(said["total"]["tx_frames"].as_u64() > Some(1000), "{example}: {out}");
        assert_eq!(said["total"]["drops"]["port_failed"], Value::Null, "{example}: {out}");
    }
}
