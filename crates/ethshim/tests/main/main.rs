//! The rules of flowyard and those of the real `ethtool`, against the same driver.

mod plans;
mod rules;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flowyard_testkit::harness::Need;

flowyard_testkit::tests! {
    mod plans needs [Need::Program("ethtool")],
    mod rules needs [Need::Program("ethtool")],
}

/// The interface that the shim has.
const INTERFACE: &str = "eth9";

/// A driver with its state in a folder of its own.
struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    /// `model`: ixgbe, i40e, ice, or `any`, which takes every rule and chooses locations.
    fn new(model: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("model"), model).unwrap();
        Self { folder }
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap_or_default()
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("FLOWYARD_ETHSHIM", self.folder.path());
        command
    }

    fn ethtool(&self, arguments: &[&str]) -> Output {
        self.command(Path::new("ethtool")).args(arguments).output().unwrap()
    }

    /// `ethtool -N eth9 RULE`.
    fn ethtool_add(&self, rule: &str) -> Output {
        let words: Vec<&str> = ["-N", INTERFACE].into_iter().chain(rule.split(' ')).collect();
        self.ethtool(&words)
    }

    /// What flowyard does, in a process of its own.
    fn flowyard(&self, arguments: &[&str], stdin: &str) -> String {
        let output = self.try_flowyard(arguments, stdin);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn try_flowyard(&self, arguments: &[&str], stdin: &str) -> Output {
        use std::io::Write;
        let mut child = self
            .command(Path::new(env!("CARGO_BIN_EXE_ethrule")))
            .arg(INTERFACE)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

/// The shared library, which cargo builds beside this program.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let library = program.parent().unwrap().join("libflowyard_ethshim.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
