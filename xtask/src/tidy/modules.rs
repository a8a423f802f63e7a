//! The section "Modules" of ARCHITECTURE.md lists every module at the top of each crate, and no other: it
//! is the page by which a reader finds the file of a line.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, Finding};

const PAGE: &str = "ARCHITECTURE.md";

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    let page = files.iter().find(|file| file.path == PAGE).map_or("", |file| &*file.text);
    let listed = listed(page);
    let mut found = BTreeSet::new();
    for file in files {
        let Some((krate, module)) = module(&file.path) else { continue };
        if found.insert((krate, module)) && !listed.contains_key(&(krate, module)) {
            let what = format!("module '{module}' is not in {PAGE}, section Modules: add a line");
            findings.push(Finding::new("modules", &file.path, 0, what));
        }
    }
    for ((krate, module), line) in listed {
        if !found.contains(&(krate, module)) {
            let what = format!("the crate '{krate}' has no module '{module}': remove the line");
            findings.push(Finding::new("modules", PAGE, line, what));
        }
    }
}

/// The crate and the top module of a source file; `None` for the root of a crate and for tests.
fn module(path: &str) -> Option<(&str, &str)> {
    let (krate, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    let rest = rest.strip_prefix("src/").filter(|rest| rest.ends_with(".rs"))?;
    let module = rest.split('/').next()?.trim_end_matches(".rs");
    (!matches!(module, "lib" | "main" | "tests")).then_some((krate, module))
}

/// The modules that the page lists, with their lines: below `### CRATE`, lines that begin with "- `NAME`".
fn listed(page: &str) -> BTreeMap<(&str, &str), usize> {
    let mut listed = BTreeMap::new();
    let section = page.lines().zip(1..).skip_while(|(line, _)| *line != "## Modules");
    let mut krate = "";
    for (line, number) in section {
        if let Some(name) = line.strip_prefix("### ") {
            krate = name;
        } else if let Some((name, _)) = line.strip_prefix("- `").and_then(|l| l.split_once('`')) {
            listed.insert((krate, name), number);
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_and_a_superfluous_module_are_found() {
        let page = "## Modules\n\n### pool\n\n- `arena`: memory (`part`)\n- `gone`: nothing\n";
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            file(PAGE, page),
            file("crates/pool/src/lib.rs", ""),
            file("crates/pool/src/arena.rs", ""),
            file("crates/pool/src/arena/part.rs", ""),
            file("crates/pool/src/new.rs", ""),
        ];
        let mut findings = Vec::new();
        check(&files, &mut findings);
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("'new'") && found[1].contains("'gone'"), "{found:?}");
    }
}
