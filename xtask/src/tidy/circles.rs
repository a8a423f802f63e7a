//! Circles: no more than two files of a crate may depend on each other through any chain of imports.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{self, Graph};
use super::{File, Finding};

const MOST: usize = 2;

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    let sources: BTreeSet<String> = files
        .iter()
        .filter_map(|file| file.crate_source())
        .map(|name| format!("crates/{name}/src/"))
        .chain(["xtask/src/".to_owned()])
        .collect();
    for source in sources {
        let graph = imports::graph(files, &source);
        for circle in circles(&graph).iter().filter(|circle| circle.len() > MOST) {
            let short = |file: &str| file.strip_prefix(&source).unwrap_or(file).to_owned();
            let names: Vec<String> = circle.iter().map(|file| short(file)).collect();
            let mut what = format!(
                "{} files depend on each other, at most {MOST} may: {}. Move what they share into a \
                 file that imports none of them",
                names.len(),
                names.join(", ")
            );
            for from in circle {
                for (to, items) in graph[from].iter().filter(|(to, _)| circle.contains(*to)) {
                    let items: Vec<&str> = items.iter().map(String::as_str).collect();
                    what +=
                        &format!("\n    {} -> {}: {}", short(from), short(to), items.join(", "));
                }
            }
            let first = circle.first().copied().unwrap_or_default();
            findings.push(Finding::new("import-circle", first, 0, what));
        }
    }
}

/// Sets of files in which each depends on each, directly or not. Small graphs: reachability is enough.
fn circles<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a str>> {
    let mut reachable: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for from in graph.keys() {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![*from]);
        while let Some(file) = todo.pop() {
            for to in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(*to) {
                    todo.push(to);
                }
            }
        }
        reachable.insert(from, seen);
    }
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (from, seen) in &reachable {
        if circles.iter().any(|circle| circle.contains(from)) || !seen.contains(from) {
            continue;
        }
        let back = |to: &&&str| reachable.get(**to).is_some_and(|seen| seen.contains(from));
        circles.push(seen.iter().filter(back).copied().collect());
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_files_in_a_circle() {
        let file = |path: &str, text: &str| File {
            path: format!("crates/x/src/{path}"),
            text: text.to_owned(),
        };
        let mut files = vec![
            file("lib.rs", "mod a; mod b; mod c;"),
            file("a.rs", "use crate::b::B; pub struct A;"),
            file("b.rs", "use crate::a::A; pub struct B;"),
            file("c.rs", "use crate::a::A; pub struct C;"),
        ];
        let mut findings = Vec::new();
        check(&files, &mut findings);
        assert!(findings.is_empty());
        files[2].text += "use crate::c::C;";
        check(&files, &mut findings);
        assert_eq!(findings.len(), 1);
        let what = &findings[0].what;
        assert!(what.starts_with("3 files depend on each other, at most 2 may: a.rs, b.rs, c.rs."));
        assert!(what.ends_with("\n    a.rs -> b.rs: B\n    b.rs -> a.rs: A\n    b.rs -> c.rs: C\n    c.rs -> a.rs: A"), "{what}");
    }
}
