//! Arrows between crates: a crate's dependencies on crates of this workspace must be in its row of
//! the table in ARCHITECTURE.md, column "knows". Development dependencies are free.

use super::{File, Finding};

const PAGE: &str = "ARCHITECTURE.md";

/// A row: the crate, its line, and the names that the last column has.
struct Row<'a> {
    name: &'a str,
    line: usize,
    knows: Vec<&'a str>,
}

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| &*file.text);
    let rows = rows(text(PAGE).unwrap_or_default());
    if rows.is_empty() {
        let what =
            "no table with the columns 'crate' and 'knows': tidy checks the dependencies by it";
        findings.push(Finding::new("arrows", PAGE, 0, what));
        return;
    }
    for row in &rows {
        if text(&format!("crates/{}/Cargo.toml", row.name)).is_none() {
            let what = format!("there is no crate '{}': remove its row", row.name);
            findings.push(Finding::new("arrows", PAGE, row.line, what));
        }
    }
    for file in files {
        let name = file.path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
        let Some((name, "Cargo.toml")) = name else { continue };
        let Some(row) = rows.iter().find(|row| row.name == name) else {
            let what = format!("the crate '{name}' has no row in the table of {PAGE}: add one");
            findings.push(Finding::new("arrows", &file.path, 0, what));
            continue;
        };
        for (line, other) in dependencies(&file.text) {
            if !row.knows.contains(&other) {
                let what = format!(
                    "'{name}' depends on '{other}', but {PAGE} (line {}) says that it knows: {}",
                    row.line,
                    if row.knows.is_empty() { "nothing".into() } else { row.knows.join(", ") }
                );
                findings.push(Finding::new("arrows", &file.path, line, what));
            }
        }
    }
}

/// The rows of the table. The last column is a list of crates, or `nothing`, `all` or `all above`; the
/// latter two may go on with `but A, B and C`.
fn rows(page: &str) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let table = page.lines().enumerate().skip_while(|(_, line)| {
        let cells = cells(line);
        cells.first() != Some(&"crate") || cells.last() != Some(&"knows")
    });
    let table: Vec<_> = table.skip(2).take_while(|(_, line)| line.starts_with('|')).collect();
    let name = |line| cells(line).first().map_or("", |cell| cell.trim_matches('`'));
    for (at, (number, line)) in table.iter().enumerate() {
        let list = cells(line).last().copied().unwrap_or_default();
        let (base, but) = list.split_once(" but ").unwrap_or((list, ""));
        let listed: Vec<&str> = match base {
            "nothing" => Vec::new(),
            "all" => table.iter().map(|(_, line)| name(line)).collect(),
            "all above" => table[..at].iter().map(|(_, line)| name(line)).collect(),
            _ => names(list),
        };
        let but = names(but);
        let knows = listed.into_iter().filter(|name| !but.contains(name)).collect();
        rows.push(Row { name: name(line), line: number + 1, knows });
    }
    rows
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// `a, b and c` with or without backticks.
fn names(list: &str) -> Vec<&str> {
    let words = list.split([',', ' ']).map(|word| word.trim_matches('`'));
    words.filter(|word| !word.is_empty() && *word != "and").collect()
}

/// The crates of this workspace that a manifest depends on, each with its line. Dependencies for tests
/// and for build scripts are left out, those for one target are not.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut applies = false;
    for (number, line) in (1..).zip(manifest.lines()) {
        let line = line.trim();
        if line.starts_with('[') {
            let section = line.trim_matches(['[', ']']);
            let last = section.rsplit('.').next().unwrap_or(section);
            applies = last == "dependencies";
            // [dependencies.flowyard-frame]
            if let Some((_, name)) = section.split_once("dependencies.flowyard-")
                && !section.contains("dev-")
                && !section.contains("build-")
            {
                found.push((number, name));
            }
        } else if let Some(rest) = line.strip_prefix("flowyard-").filter(|_| applies) {
            let end = rest.find(['.', ' ', '=']).unwrap_or(rest.len());
            found.push((number, &rest[..end]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "text\n\n| crate | what | knows |\n|---|---|---|\n| `a` | x | nothing |\n\
                         | `b` | x | a |\n| `c` | x, y | all above but b |\n| `d` | x | all |\n\nend";

    #[test]
    fn the_table() {
        let rows = rows(TABLE);
        let names: Vec<_> =
            rows.iter().map(|row| (row.name, row.line, row.knows.join(" "))).collect();
        let wanted = [("a", 5, ""), ("b", 6, "a"), ("c", 7, "a"), ("d", 8, "a b c d")];
        assert_eq!(names, wanted.map(|(name, line, knows)| (name, line, knows.to_owned())));
    }

    #[test]
    fn which_dependencies_count() {
        let manifest = "[package]\nname = \"flowyard-x\"\n[dependencies]\nflowyard-a.workspace = true\n\
                        flowyard-b = { path = \"b\" }\nserde = \"1\"\n[dev-dependencies]\n\
                        flowyard-c.workspace = true\n[target.'cfg(unix)'.dependencies]\n\
                        flowyard-d = \"1\"\n[dependencies.flowyard-e]\n";
        assert_eq!(dependencies(manifest), [(4, "a"), (5, "b"), (10, "d"), (11, "e")]);
    }

    #[test]
    fn an_arrow_that_the_table_lacks() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let mut files = vec![file(PAGE, TABLE)];
        for name in ["a", "b", "c"] {
            files
                .push(file(&format!("crates/{name}/Cargo.toml"), "[dependencies]\nflowyard-b = 1"));
        }
        let mut findings = Vec::new();
        check(&files, &mut findings);
        let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 4, "{said:#?}"); // a, b and c on b; d is no crate
        assert!(said.contains(
            &"crates/c/Cargo.toml:2: arrows: 'c' depends on 'b', but ARCHITECTURE.md (line 7) says \
              that it knows: a"
                .to_owned()
        ));
    }
}
