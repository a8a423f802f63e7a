//! os-ken as the controller: it asks, and must understand every answer.

use std::process::Command;

use flowyard_testkit::harness::{Need, os_ken_python};

use super::{listening, switch};

flowyard_testkit::tests! {
    os_ken_reads_every_answer needs [Need::OsKen],
}

fn os_ken_reads_every_answer() {
    for (version, answers) in [("1", 10), ("4", 21), ("5", 25)] {
        let switch = switch(listening(), true);
        let port = switch.channel.listening()[0].split(':').nth(1).expect("a port").to_owned();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openflow/ask_os_ken.py");
        let mut command = Command::new(os_ken_python());
        let output = command.args([script, &port, version]).output().expect("Python runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "version {version}: {text}{error}");
        assert_eq!(text.lines().count(), answers, "version {version}: {text}{error}");
    }
}
