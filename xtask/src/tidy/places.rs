//! What belongs to one machine or to another crate: paths of a machine, hosts of package registries,
//! and `#[path]` attributes.

use super::{File, Finding, scan};

/// Folders of one machine. Two pieces each, so that this file does not contain them.
const MACHINE: [[&str; 2]; 4] = [["/wo", "rk/"], ["/ho", "me/"], ["/ro", "ot/"], ["/fa", "rm/"]];

/// Package registries: a mirror's address belongs into the machine's configuration.
const REGISTRIES: [[&str; 2]; 6] = [
    ["static.crates", ".io"],
    ["index.crates", ".io"],
    ["files.python", "hosted"],
    ["registry.npm", "js"],
    ["deb.debi", "an.org"],
    ["artifact", "ory/"],
];

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    for file in files {
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some(found) = MACHINE.iter().find(|path| is_machine_path(line, &path.concat())) {
                let what =
                    format!("'{}' is a path of one machine: name it relatively", found.concat());
                findings.push(Finding::new("machine-path", &file.path, number, what));
            }
            if let Some(found) = REGISTRIES.iter().find(|host| line.contains(&host.concat())) {
                let what = format!("'{}' is a registry's host: leave it out", found.concat());
                findings.push(Finding::new("registry-host", &file.path, number, what));
            }
        }
        if file.is_rust() {
            let code = String::from_utf8_lossy(&scan::code(&file.text)).into_owned();
            for (number, line) in (1..).zip(code.lines()) {
                if line.contains("#[path")
                    || (line.contains("cfg_attr") && line.contains(" path ="))
                {
                    let what = "#[path] reaches into another module tree: share the code in a crate \
                                or a module";
                    findings.push(Finding::new("path-attribute", &file.path, number, what));
                }
            }
        }
    }
}

/// Whether the line has the folder at the beginning of a path, not inside one.
fn is_machine_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "_.-/}~*".contains(c)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn categories(path: &str, text: &str) -> Vec<&'static str> {
        let mut findings = Vec::new();
        check(&[File { path: path.to_owned(), text: text.to_owned() }], &mut findings);
        findings.iter().map(|finding| finding.category).collect()
    }

    #[test]
    fn machine_paths() {
        for text in ["see /wo|rk/main", "(/ho|me/me)", "/ro|ot/x"] {
            assert_eq!(categories("a.md", &text.replace('|', "")), ["machine-path"]);
        }
        for text in ["../wo|rk/main", "src/wo|rk/switch.rs", "{folder}/ho|me/x", "/wo|rk"] {
            assert!(categories("a.md", &text.replace('|', "")).is_empty(), "{text}");
        }
    }

    #[test]
    fn paths_of_modules() {
        assert_eq!(categories("a.rs", "#[path = \"../b.rs\"]\nmod b;"), ["path-attribute"]);
        assert!(categories("a.rs", "// #[path = \"../b.rs\"]\nlet path = 1;").is_empty());
        assert!(categories("a.md", "#[path = \"../b.rs\"]").is_empty());
    }
}
