//! Outputs of `flowyard run` that cannot be opened or written, and the examples in a fresh clone.

use std::path::Path;

use serde_json::Value;

use crate::common::{flowyard, frames_in_whole_capture, refused, root, run, text};

flowyard_testkit::tests! {
    an_output_that_cannot_be_opened_ends_the_start,
    an_output_that_fails_later_ends_the_run_and_stays_readable,
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
            assert!(line.starts_with(&format!("{output}: cannot create: ")), "{line}");
            assert!(line.contains(said), "{line}");
        }
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "no file remains but the configuration and the FIFO");
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
