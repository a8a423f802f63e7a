//! Which file of a crate uses items of which other file of the same crate.
//!
//! Paths that begin with `crate`, `super`, `self` or a child module count, in `use` declarations and
//! elsewhere. Three kinds of arrows do not count: from a module to one that it is in, as a module may use
//! what surrounds it; from a module to one in it that it only re-exports (`pub use`); and from code for
//! tests. A name that one module re-exports counts as a use of the module that defines it. What macros
//! generate is not seen.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{File, scan};

/// File -> file -> the names that the first uses of the second.
pub(super) type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<String>>>;

/// A path, without `::`.
type Path = Vec<String>;

/// A module in a file of its own.
struct Module<'a> {
    file: &'a str,
    children: HashSet<String>,
    /// Paths in `use`, and elsewhere.
    paths: Vec<Path>,
    /// Paths in `pub use`.
    exports: Vec<Path>,
}

/// The graph of one crate, whose source files are in the folder `source` (with `/` at the end).
pub(super) fn graph<'a>(files: &'a [File], source: &str) -> Graph<'a> {
    let mut modules: HashMap<Path, Module<'a>> = HashMap::new();
    let mut only_tests: Vec<Path> = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && !file.is_test()) {
        let Some(inner) = file.path.strip_prefix(source) else { continue };
        let at = module_path(inner);
        let code = scan::code(&file.text);
        let mut code = String::from_utf8_lossy(&code).into_owned();
        for name in remove_tests(&mut code) {
            only_tests.push([&at[..], &[name]].concat());
        }
        modules.insert(at, Module::read(&file.path, code));
    }
    modules.retain(|path, _| !only_tests.iter().any(|test| path.starts_with(test)));
    let mut graph = Graph::new();
    for (at, module) in &modules {
        let uses = module.paths.iter().map(|path| (path, false));
        for (path, is_export) in uses.chain(module.exports.iter().map(|path| (path, true))) {
            let Some((target, name)) = resolve(&modules, at, path) else { continue };
            let only_exports = is_export && target.starts_with(at);
            if !at.starts_with(&target) && !only_exports {
                let file = modules[&target].file;
                graph.entry(module.file).or_default().entry(file).or_default().insert(name);
            }
        }
    }
    graph
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`.
fn module_path(inner: &str) -> Path {
    let inner = inner.strip_suffix(".rs").unwrap_or(inner);
    let mut path: Path = inner.split('/').map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

/// The module in which a path of the module `at` ends, and the name that it uses there.
fn resolve(
    modules: &HashMap<Path, Module<'_>>,
    at: &[String],
    path: &[String],
) -> Option<(Path, String)> {
    let (first, mut rest) = path.split_first()?;
    let mut here = match first.as_str() {
        "crate" => Vec::new(),
        "self" => at.to_vec(),
        "super" => at[..at.len().checked_sub(1)?].to_vec(),
        child if modules.get(at)?.children.contains(child) => [at, &path[..1]].concat(),
        _ => return None,
    };
    while let Some((name, after)) = rest.split_first() {
        let next = [&here[..], &rest[..1]].concat();
        match name.as_str() {
            "super" => drop(here.pop()?),
            _ if modules.contains_key(&next) => here = next,
            _ => break,
        }
        rest = after;
    }
    let name = rest.first().cloned().unwrap_or_else(|| "*".to_owned());
    let module = modules.get(&here)?;
    // A name that the module re-exports belongs to the module that defines it.
    let renamed = |path: &&Path| path.len() > 1 && path.last() == Some(&name);
    let export = module.exports.iter().find(renamed).filter(|_| name != "*");
    export.and_then(|path| resolve(modules, &here, path)).or(Some((here, name)))
}

impl<'a> Module<'a> {
    fn read(file: &'a str, mut code: String) -> Self {
        let (mut used, mut exports) = (Vec::new(), Vec::new());
        while let Some((begin, end)) = use_declaration(&code) {
            let is_export = code[..begin].trim_end().ends_with("pub");
            let list = if is_export { &mut exports } else { &mut used };
            flatten(&code[begin + 3..end], &[], list);
            // The `pub` goes with it: otherwise the next declaration would seem to be public.
            let begin = if is_export { code[..begin].trim_end().len() - 3 } else { begin };
            code.replace_range(begin..=end, &" ".repeat(end + 1 - begin));
        }
        let mut children = HashSet::new();
        let words: Vec<(usize, &str)> = words(&code).collect();
        for pair in words.windows(2) {
            let [(_, keyword), (at, name)] = *pair else { continue };
            if keyword == "mod" && code[at + name.len()..].trim_start().starts_with(';') {
                children.insert(name.to_owned());
            }
        }
        used.extend(paths(&code, &children));
        Self { file, children, paths: used, exports }
    }
}

/// The words of a text, each with its position.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + code[at..].find(is_word)?;
        let end = code[begin..].find(|c| !is_word(c)).map_or(code.len(), |len| begin + len);
        at = end;
        Some((begin, &code[begin..end]))
    })
}

/// Where the first `use` declaration begins and where its semicolon is.
fn use_declaration(code: &str) -> Option<(usize, usize)> {
    let (begin, _) = words(code).find(|(at, word)| {
        let before = code[..*at].trim_end().chars().next_back();
        *word == "use" && before.is_none_or(|c| matches!(c, ';' | '{' | '}' | ']' | ')' | 'b'))
    })?;
    Some((begin, begin + code[begin..].find(';')?))
}

/// The paths of a tree such as `a::{b, c::{self, d as e}, f::*}`.
fn flatten(tree: &str, before: &[String], paths: &mut Vec<Path>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let group = group.trim_end().trim_end_matches('}');
        let mut path = before.to_vec();
        path.extend(head.split("::").map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned));
        let (mut depth, mut begin) = (0, 0);
        let ends = group.char_indices().chain([(group.len(), ',')]);
        for (at, c) in ends {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    flatten(&group[begin..at], &path, paths);
                    begin = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let path = tree.split(" as ").next().unwrap_or_default();
    let mut full = before.to_vec();
    full.extend(path.split("::").map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned));
    if full.len() > 1 && full.last().is_some_and(|last| last == "self") {
        full.pop();
    }
    if !tree.is_empty() {
        paths.push(full);
    }
}

/// Paths in expressions and types that begin in this crate.
fn paths(code: &str, children: &HashSet<String>) -> Vec<Path> {
    let mut found = Vec::new();
    let mut end_of_last = 0;
    for (at, word) in words(code) {
        let begins = ["crate", "super", "self"].contains(&word) || children.contains(word);
        let before = code[..at].trim_end();
        let is_inside = at < end_of_last || before.ends_with("::") || before.ends_with(['$', '.']);
        if !begins || is_inside || before.ends_with("(in") {
            continue;
        }
        let mut path = vec![word.to_owned()];
        let mut rest = &code[at + word.len()..];
        while let Some(after) = rest.strip_prefix("::") {
            let Some((0, name)) = words(after).next() else { break };
            path.push(name.to_owned());
            rest = &after[name.len()..];
        }
        end_of_last = code.len() - rest.len();
        if path.len() > 1 {
            found.push(path);
        }
    }
    found
}

/// Blanks items under `#[cfg(test)]`. Returns the names of modules in other files among them.
fn remove_tests(code: &mut String) -> Vec<String> {
    let mut modules = Vec::new();
    while let Some(begin) = code.find("#[cfg(test)]").or_else(|| code.find("#[cfg(all(test")) {
        let item = begin + code[begin..].find(']').unwrap_or(0) + 1;
        let end = end_of_item(code, item);
        let text = code[item..end].trim_start();
        let text = text.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        if let Some(name) = text.strip_prefix("mod ").and_then(|name| name.strip_suffix(';')) {
            modules.push(name.trim().to_owned());
        }
        let blank: String =
            code[begin..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        code.replace_range(begin..end, &blank);
    }
    modules
}

/// Where an item ends: behind its semicolon, its comma (a field), or its closing brace.
fn end_of_item(code: &str, item: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[item..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                if depth < 0 {
                    return item + at;
                }
                if depth == 0 && c == '}' {
                    return item + at + 1;
                }
            }
            ';' | ',' if depth == 0 => return item + at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(sources: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = sources
            .iter()
            .map(|(path, text)| File { path: format!("crates/x/src/{path}"), text: (*text).into() })
            .collect();
        let mut all = Vec::new();
        for (from, targets) in graph(&files, "crates/x/src/") {
            for (to, names) in targets {
                let short = |path: &str| path.replace("crates/x/src/", "");
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                all.push(format!("{} -> {}: {}", short(from), short(to), names.join(" ")));
            }
        }
        all
    }

    #[test]
    fn paths_of_every_kind() {
        let sources = [
            ("lib.rs", "mod a;\nmod b;\nmod d;\npub use a::A;\nuse b::h;"),
            ("a.rs", "pub struct A;\nmod c;\nfn f() { c::g(); crate::b::h::<u8>() }"),
            (
                "a/c.rs",
                "use super::super::b::{self, h as i};\npub(in crate::b) fn g(a: super::A) {}",
            ),
            ("b/mod.rs", "use crate::a::A;\nuse std::fmt;\nfn h<T>() {}"),
            // Through the re-export of lib.rs.
            ("d.rs", "use crate::A;"),
        ];
        // Not a/c.rs -> a.rs, which surrounds it; not lib.rs -> a.rs, which it only re-exports.
        let wanted = [
            "a.rs -> a/c.rs: g",
            "a.rs -> b/mod.rs: h",
            "a/c.rs -> b/mod.rs: * h",
            "b/mod.rs -> a.rs: A",
            "d.rs -> a.rs: A",
            "lib.rs -> b/mod.rs: h",
        ];
        assert_eq!(edges(&sources), wanted);
    }

    #[test]
    fn tests_do_not_count() {
        let sources = [
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod model;\nfn f() {}"),
            (
                "a.rs",
                "#[cfg(test)]\nmod tests { use crate::f; }\nstruct A { #[cfg(test)] b: crate::B, c: u8 }",
            ),
            ("model.rs", "use crate::f;"),
        ];
        assert!(edges(&sources).is_empty());
    }
}
