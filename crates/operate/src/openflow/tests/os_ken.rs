//! os-ken asks, and reads the answers: with its Python in `FLOWYARD_OS_KEN_PYTHON`.

use std::io::Write;
use std::process::Command;

use super::*;

#[test]
fn os_ken_reads_every_answer() {
    let Some(python) = std::env::var_os("FLOWYARD_OS_KEN_PYTHON") else {
        let why = "skipped: needs FLOWYARD_OS_KEN_PYTHON, a Python that has os-ken\n";
        let _ = std::io::stderr().write_fmt(format_args!("{why}"));
        return;
    };
    for (version, answers) in [("1", 10), ("4", 21), ("5", 25)] {
        let switch = switch(listening(), true);
        let port = switch.channel.listening()[0].split(':').nth(1).expect("a port").to_owned();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/openflow/tests/ask_os_ken.py");
        let output =
            Command::new(&python).args([script, &port, version]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "version {version}: {said}{why}");
        assert_eq!(said.lines().count(), answers, "version {version}: {said}{why}");
    }
}
