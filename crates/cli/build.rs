//! Sets `FLOWYARD_VERSION`: the version, and the commit if it is known.
//!
//! Without git or its repository, as in a source archive, the variable `FLOWYARD_COMMIT` names the commit; if
//! that is not set either, the version stands alone.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn main() {
    println!("cargo::rerun-if-env-changed=FLOWYARD_COMMIT");
    // The log of HEAD grows with each commit and each checkout.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])
        && std::path::Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("FLOWYARD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=FLOWYARD_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
}
