//! A test that cannot run must be reported as ignored, with the reason.
//!
//! Test programs with `harness = false` list their tests in `flowyard_testkit::tests!`; the attribute
//! `#[test]` has no effect in them, so that a test with it would never run.

use super::{File, Finding, scan};

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    let (folders, standard) = programs(files);
    for file in files.iter().filter(|file| file.is_rust()) {
        let is_own = folders.iter().any(|folder| file.path.starts_with(folder.as_str()))
            && !standard.contains(&file.path);
        let code = scan::code(&file.text);
        let code = String::from_utf8_lossy(&code);
        for (number, (line, code)) in (1..).zip(file.text.lines().zip(code.lines())) {
            if is_own && code.trim() == "#[test]" {
                let what = "#[test] has no effect where harness = false: list the test in tests!";
                findings.push(Finding::new("harness", &file.path, number, what));
            }
            if line.contains(&["\"skipped", ": needs"].concat()) {
                let what = "a test that returns early counts as passed: declare the requirement in \
                            flowyard_testkit::tests!, which reports it as ignored";
                findings.push(Finding::new("harness", &file.path, number, what));
            }
        }
    }
}

/// The folders, or files, of the test programs that have a harness of their own; and the files of those beside them that
/// have not, which their manifest must name.
fn programs(files: &[File]) -> (Vec<String>, Vec<String>) {
    let (mut folders, mut standard) = (Vec::new(), Vec::new());
    for file in files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        let Some((folder, _)) = file.path.rsplit_once('/') else { continue };
        for target in file.text.split("[[test]]").skip(1) {
            let target = target.split("\n[").next().unwrap_or_default();
            let value = |key: &str| {
                let line = target.lines().find_map(|line| line.strip_prefix(key))?;
                Some(line.trim_start_matches([' ', '=']).trim_matches('"'))
            };
            if value("harness") != Some("false") {
                standard.extend(value("name").map(|name| format!("{folder}/tests/{name}.rs")));
                continue;
            }
            match (value("path"), value("name")) {
                (Some(path), _) => folders.push(format!("{folder}/{}", folder_of(path))),
                (None, Some("main")) => folders.push(format!("{folder}/tests/")),
                (None, Some(name)) => folders.push(format!("{folder}/tests/{name}")),
                (None, None) => {}
            }
        }
    }
    (folders, standard)
}

/// The folder of a program's modules, or the program itself if it has none.
fn folder_of(path: &str) -> &str {
    path.strip_suffix("main.rs").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_attribute_without_effect() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let manifest = "[[test]]\nname = \"main\"\nharness = false\n\n[[test]]\nname = \"loom\"\n\n[dependencies]\n";
        let files = [
            file("crates/a/Cargo.toml", manifest),
            file("crates/a/tests/x.rs", "\n#[test]\nfn f() {}"),
            file("crates/a/tests/loom.rs", "\n#[test]\nfn f() {}"),
            file("crates/a/src/x.rs", "\n#[test]\nfn f() {}"),
            file("crates/b/Cargo.toml", "[[test]]\nname = \"main\"\n"),
            file("crates/b/tests/x.rs", "\n#[test]\nfn f() {}"),
        ];
        let mut findings = Vec::new();
        check(&files, &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!((&*findings[0].path, findings[0].line), ("crates/a/tests/x.rs", 2));
    }
}
