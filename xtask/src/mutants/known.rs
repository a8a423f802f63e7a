//! Mutants that survive, each with the judgement of a person: the file `.ci/mutants`.
//!
//! ```text
//! # A comment
//! crates/lb/src/a.rs: replace + with - in a
//!   at 3 of: b + c;
//!   equivalent: c is 0 here, because ...
//! ```
//!
//! A judgement is `equivalent` (no test can tell the difference) or `accepted` (a test could, and why there is
//! none). It belongs to the line's text, so it stays when other lines change, and goes when its line does.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::sample::Mutant;

/// The judgements that are allowed.
const JUDGEMENTS: [&str; 2] = ["equivalent: ", "accepted: "];

/// The mutants of the file, by identity.
pub(super) struct Known(BTreeSet<String>);

impl Known {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut known = BTreeSet::new();
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#'));
        let mut lines = lines.filter(|(_, line)| !line.trim().is_empty()).peekable();
        while let Some((number, head)) = lines.next() {
            let place = lines.next().filter(|(_, line)| line.starts_with("  at "));
            let judgement = lines.next().and_then(|(_, line)| line.strip_prefix("  "));
            let is_judged = judgement.is_some_and(|text| {
                JUDGEMENTS
                    .iter()
                    .any(|kind| text.strip_prefix(kind).is_some_and(|why| !why.is_empty()))
            });
            let (Some((_, place)), true, false) = (place, is_judged, head.starts_with(' ')) else {
                bail!(
                    "line {number}: a mutant has three lines: its file and change, '  at COLUMN of: LINE', and \
                     '  equivalent: WHY' or '  accepted: WHY'"
                );
            };
            // More lines of the reason.
            while lines.next_if(|(_, line)| line.starts_with("   ")).is_some() {}
            if !known.insert(format!("{head}\n{place}")) {
                bail!("line {number}: this mutant is listed twice");
            }
        }
        Ok(Self(known))
    }

    pub(super) fn has(&self, mutant: &Mutant) -> bool {
        self.0.contains(&mutant.identity())
    }

    /// Those of these packages that are not in the list of all mutants.
    pub(super) fn stale(&self, all: &[Mutant], packages: &[&str]) -> Vec<&str> {
        let all: BTreeSet<_> = all.iter().map(Mutant::identity).collect();
        let chosen = |entry: &&String| {
            packages.iter().any(|package| entry.starts_with(&format!("crates/{package}/")))
        };
        self.0
            .iter()
            .filter(chosen)
            .filter(|entry| !all.contains(*entry))
            .map(String::as_str)
            .collect()
    }
}

/// A mutant as the file has it, for the judgement to be written.
pub(super) fn entry(mutant: &Mutant) -> String {
    format!("{}\n  accepted: (why)", mutant.identity())
}

#[cfg(test)]
mod tests {
    use super::super::sample::read;
    use super::*;

    fn mutants(source: &'static str) -> Vec<Mutant> {
        let list = "crates/lb/src/a.rs:1:3: replace + with - in a\n\
                    crates/lb/src/a.rs:1:3: replace + with * in a\n";
        read(list, |_| Ok(source.into())).unwrap()
    }

    #[test]
    fn a_judgement_belongs_to_the_text_of_its_line() {
        let all = mutants("b + c\n");
        let text = format!("# Mutants.\n\n{}\n    and more of it\n", entry(&all[0]));
        let known = Known::parse(&text).unwrap();
        assert!(known.has(&all[0]) && !known.has(&all[1]));
        assert!(known.stale(&all, &["lb"]).is_empty());
        let changed = mutants("b + d\n");
        assert!(!known.has(&changed[0]));
        assert_eq!(known.stale(&changed, &["lb"]), [all[0].identity()]);
        assert!(known.stale(&changed, &["wire"]).is_empty(), "another package");
    }

    #[test]
    fn mistakes_in_the_file_are_reported() {
        let all = mutants("b + c\n");
        let good = entry(&all[0]);
        for (wrong, message) in [
            (all[0].identity(), "line 1: a mutant has three lines"),
            (good.replace("accepted: (why)", "accepted: "), "line 1: a mutant has three lines"),
            (good.replace("accepted", "boring"), "line 1: a mutant has three lines"),
            (format!("{good}\n\n{good}"), "line 5: this mutant is listed twice"),
        ] {
            let error = Known::parse(&wrong).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
