//! The list of mutants, and a sample of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// A change of one place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Mutant {
    /// As cargo-mutants prints it: `crates/lb/src/a.rs:2:7: replace + with - in a`.
    pub(super) name: String,
    /// The path of the file.
    pub(super) path: String,
    /// The change, and the function.
    pub(super) what: String,
    /// The line that is changed, without indentation.
    pub(super) line: String,
    /// The column of the change in `line`, from 1 on.
    pub(super) column: usize,
    /// The number of the line, from 1 on.
    pub(super) row: usize,
}

impl Mutant {
    /// The package, by its folder in `crates/`.
    pub(super) fn package(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }

    /// What identifies the mutant when lines above it were added or removed.
    pub(super) fn identity(&self) -> String {
        let Self { path, what, line, column, .. } = self;
        format!("{path}: {what}\n  at {column} of: {line}")
    }
}

/// The mutants of a list, a line for each. `text` returns the text of a file.
pub(super) fn read(list: &str, text: impl Fn(&str) -> io::Result<String>) -> Result<Vec<Mutant>> {
    let mut files = BTreeMap::<String, String>::new();
    let mut all = Vec::new();
    for name in list.lines().filter(|line| !line.is_empty()) {
        let mutant = (|| {
            let (place, what) = name.split_once(": ")?;
            let mut parts = place.rsplitn(3, ':');
            let (column, line) = (parts.next()?, parts.next()?);
            Some((parts.next()?, line.parse::<usize>().ok()?, column.parse::<usize>().ok()?, what))
        })();
        let (path, line, column, what) = mutant
            .with_context(|| format!("'{name}' is not a mutant as cargo-mutants lists it"))?;
        if !files.contains_key(path) {
            files.insert(path.into(), text(path).with_context(|| path.to_owned())?);
        }
        let whole = files[path].lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let indented = whole.len() - whole.trim_start().len();
        all.push(Mutant {
            name: name.into(),
            path: path.into(),
            what: what.into(),
            line: whole.trim().into(),
            column: column.saturating_sub(indented),
            row: line,
        });
    }
    Ok(all)
}

/// `count` of the mutants, in the order of the list. Which ones depends on the seed and on their identity: the
/// same ones after changes elsewhere.
pub(super) fn choose(all: &[Mutant], count: usize, seed: u64) -> Vec<Mutant> {
    let rank = |mutant: &&Mutant| Sha256::digest(format!("{seed}\n{}", mutant.identity()));
    let mut ranked: Vec<_> = all.iter().collect();
    ranked.sort_by_cached_key(rank);
    let last = ranked.iter().take(count).map(rank).max();
    all.iter()
        .filter(|mutant| last.as_ref().is_some_and(|last| rank(mutant) <= *last))
        .cloned()
        .collect()
}

/// The configuration of cargo-mutants that examines only these.
pub(super) fn config(chosen: &[Mutant]) -> String {
    let mut text = String::from("examine_re = [\n");
    for mutant in chosen {
        let mut pattern = String::new();
        for c in mutant.name.chars() {
            // `\<` and `\>` would be the ends of a word.
            if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        let quoted = pattern.replace('\\', "\\\\").replace('"', "\\\"");
        text += &format!("  \"^{quoted}$\",\n");
    }
    text + "]\n"
}

/// A diff that adds exactly the lines of these mutants to their files, as they are. `text` returns the text of a
/// file. With `--in-diff`, cargo-mutants tests no mutants of other lines.
pub(super) fn diff(chosen: &[Mutant], text: impl Fn(&str) -> io::Result<String>) -> Result<String> {
    let mut files = BTreeMap::<&str, BTreeSet<usize>>::new();
    for mutant in chosen {
        files.entry(&mutant.path).or_default().insert(mutant.row);
    }
    let mut diff = String::new();
    for (path, rows) in files {
        let text = text(path).with_context(|| path.to_owned())?;
        diff += &format!("--- a/{path}\n+++ b/{path}\n");
        for (added, row) in rows.into_iter().enumerate() {
            let line = text.lines().nth(row.saturating_sub(1)).unwrap_or_default();
            // The line before it in the old file, which has fewer lines.
            let before = row.saturating_sub(1 + added);
            diff += &format!("@@ -{before},0 +{row},1 @@\n+{line}\n");
        }
    }
    Ok(diff)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn a(b: u8) -> u8 {\n    b + (b << 1)\n}\n";

    fn list(count: usize) -> Vec<Mutant> {
        let line = |n: usize| format!("crates/lb/src/a.rs:2:7: replace + with {n} in a\n");
        read(&(0..count).map(line).collect::<String>(), |_| Ok(SOURCE.into())).unwrap()
    }

    #[test]
    fn a_line_of_the_list() {
        let name = "crates/lb/src/a.rs:2:12: replace << with >> in <impl A for B>::a";
        let all = read(&format!("{name}\n"), |_| Ok(SOURCE.into())).unwrap();
        assert_eq!((all.len(), &*all[0].name, all[0].package()), (1, name, "lb"));
        assert_eq!(
            all[0].identity(),
            "crates/lb/src/a.rs: replace << with >> in <impl A for B>::a\n  at 8 of: b + (b << 1)"
        );
        assert!(read("Found 3 mutants", |_| Ok(SOURCE.into())).is_err());
    }

    #[test]
    fn a_sample_depends_on_the_seed_and_on_nothing_else() {
        let all = list(100);
        let first = choose(&all, 10, 1);
        assert_eq!(first.len(), 10);
        assert_eq!(choose(&all, 10, 1), first);
        assert_ne!(choose(&all, 10, 2), first);
        assert!(first.is_sorted_by_key(|mutant| all.iter().position(|other| other == mutant)));
        let more = choose(&all, 20, 1);
        assert!(
            first.iter().all(|mutant| more.contains(mutant)),
            "a larger sample has the smaller"
        );
        assert_eq!((choose(&all, 0, 1).len(), choose(&all, 500, 1).len()), (0, 100));
        let fewer = choose(&all[50..], 10, 1);
        let kept = first.iter().filter(|mutant| all[50..].contains(mutant));
        assert!(kept.clone().count() > 0 && kept.clone().all(|mutant| fewer.contains(mutant)));
    }

    #[test]
    fn names_are_escaped_for_the_configuration() {
        let mut all = list(1);
        all[0].name = "a.rs:1:1: replace f -> &'b str with \"xyzzy\"".into();
        let text = config(&all);
        assert!(
            text.starts_with("examine_re = [\n  \"^a\\\\.rs\\\\:1\\\\:1\\\\: replace f "),
            "{text}"
        );
        assert!(text.ends_with("with \\\\\\\"xyzzy\\\\\\\"$\",\n]\n"), "{text}");
    }

    #[test]
    fn the_diff_has_the_lines_of_the_sample_and_no_others() {
        let source = "fn a() {\n    b + c;\n    d;\n    e + f;\n}\n";
        let list = "crates/lb/src/a.rs:4:7: replace + with - in a\n\
                    crates/lb/src/a.rs:2:7: replace + with - in a\n\
                    crates/lb/src/a.rs:2:7: replace + with * in a\n\
                    crates/lb/src/b.rs:3:5: replace d with e in a\n";
        let all = read(list, |_| Ok(source.into())).unwrap();
        let diff = diff(&all, |_| Ok(source.into())).unwrap();
        assert_eq!(
            diff,
            "--- a/crates/lb/src/a.rs\n+++ b/crates/lb/src/a.rs\n\
             @@ -1,0 +2,1 @@\n+    b + c;\n\
             @@ -2,0 +4,1 @@\n+    e + f;\n\
             --- a/crates/lb/src/b.rs\n+++ b/crates/lb/src/b.rs\n\
             @@ -2,0 +3,1 @@\n+    d;\n"
        );
    }
}
