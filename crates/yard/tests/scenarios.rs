//! Golden scenarios: every file of `scenarios/` is a test, and so is the example in
//! `docs/scenarios.md`. Each is run, and run again with every change that must make it fail.
//!
//! `cargo test -p flowyard-yard --test scenarios -- NAME` runs those whose name contains NAME.

use std::path::{Path, PathBuf};

use flowyard_yard::scenario::Scenario;
use libtest_mimic::{Arguments, Trial};

/// Fewer files are a sign that they were not found.
const LEAST: usize = 30;

/// What to call to see one failure again.
const AGAIN: &str = "cargo test -p flowyard-yard --test scenarios --";

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("scenarios");
    let listed = std::fs::read_dir(&folder).expect("scenarios/ can be listed");
    let mut files: Vec<PathBuf> =
        listed.map(|entry| entry.expect("scenarios/ can be listed").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(files.len() >= LEAST, "only {} files in scenarios/", files.len());

    let mut trials = Vec::new();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("scenarios/{stem}.toml");
        let again = stem.clone();
        two(&mut trials, &stem, move || {
            Scenario::read(&name, &file).map_err(|error| told(&error.to_string(), &again))
        });
    }
    let page = root.join("docs/scenarios.md");
    two(&mut trials, "docs", move || {
        let page = std::fs::read_to_string(&page).map_err(|error| error.to_string())?;
        let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        let example = example.ok_or("docs/scenarios.md shows no ```toml example")?;
        Scenario::parse("docs/scenarios.md (its example)", example)
            .map_err(|error| told(&error.to_string(), "docs"))
    });
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The test itself, and that it can fail.
fn two(
    trials: &mut Vec<Trial>,
    name: &str,
    read: impl Fn() -> Result<Scenario, String> + Clone + Send + 'static,
) {
    let (stem, then) = (name.to_owned(), read.clone());
    trials.push(Trial::test(name, move || Ok(read()?.run().map_err(|what| told(&what, &stem))?)));
    let stem = name.to_owned();
    trials.push(Trial::test(format!("{name}::can_fail"), move || {
        Ok(then()?.mutants().map_err(|what| told(&what, &stem))?)
    }));
}

fn told(what: &str, name: &str) -> String {
    format!("{what}\nagain: {AGAIN} {name}")
}
