//! Words of a private dialect, which a stranger reads twice, and the standard terms for them.
//!
//! Comments, texts and identifiers count: `so_many` and `SoMany` are the phrase "so many". A phrase
//! may go over the end of a line of a comment. Quotations and standards' terms are in [`PERMITTED`].

use std::collections::HashMap;

use super::{File, Finding};

/// Phrases in lower case, each with a replacement. A phrase matches whole words only.
const PHRASES: &[(&str, &str)] = &[
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("mending", "fixing"),
    ("whoever", "the caller, the core that ..., the thread that ..."),
    ("so many", "N, or the number itself"),
    ("is told", "is notified of, receives, is configured with"),
    ("are told", "are notified of, receive, are configured with"),
    ("was told", "was notified of, received, was configured with"),
    ("were told", "were notified of, received, were configured with"),
    ("be told", "be notified of, receive, be configured with"),
    ("to be had", "available"),
    ("books", "counters, or accounting"),
    ("in vain", "without success; say what failed"),
    ("dear", "expensive"),
    ("as it should be", "correct, passed"),
    ("as they should be", "correct, passed"),
    ("yard of", "a configuration with N cores"),
    ("word of the tables", "the answer of the tables"),
    ("rooms", "crates, modules, buffers: the thing itself"),
    ("lest", "so that ... does not"),
    ("aloud", "leave it out"),
    ("beforehand", "before, in advance"),
    ("goes by", "is determined by, uses"),
    ("somebody else", "name it: another process, another core"),
    ("says so", "reports it, prints it: name what"),
    ("who asks", "the caller, the client"),
];

/// Where a phrase is permitted: file, phrase, reason.
const PERMITTED: &[(&str, &str, &str)] = &[("xtask/src/tidy/words.rs", "", "the list itself")];

pub(super) fn check(files: &[File], findings: &mut Vec<Finding>) {
    let mut by_first_word: HashMap<&str, Vec<(Vec<&str>, &str)>> = HashMap::new();
    for (phrase, better) in PHRASES {
        let words: Vec<&str> = phrase.split(' ').collect();
        by_first_word.entry(words[0]).or_default().push((words, better));
    }
    for file in files.iter().filter(|file| is_prose(&file.path)) {
        let words = words(&file.text);
        for (at, word) in words.iter().enumerate() {
            for (phrase, better) in by_first_word.get(&*word.text).into_iter().flatten() {
                let name = phrase.join(" ");
                if matches(&words[at..], phrase) && !is_permitted(&file.path, &name) {
                    let what = format!("'{name}': write {better}");
                    findings.push(Finding::new("words", &file.path, word.line, what));
                }
            }
        }
    }
}

fn is_prose(path: &str) -> bool {
    let ends = [".rs", ".md", ".toml", ".sh", ".py", ".c", ".h", ".yml"];
    let scripts = [".ci/", "tests/bench/", "tests/conformance/"];
    ends.iter().any(|end| path.ends_with(end))
        || scripts.iter().any(|folder| path.starts_with(folder))
}

fn is_permitted(path: &str, phrase: &str) -> bool {
    PERMITTED.iter().any(|(file, word, _)| *file == path && (word.is_empty() || *word == phrase))
}

/// A word in lower case.
struct Word {
    text: String,
    line: usize,
    /// Whether only a space, `_`, `-`, a change of case, or the end of a comment's line is in front.
    joins: bool,
}

fn matches(words: &[Word], phrase: &[&str]) -> bool {
    words.len() >= phrase.len()
        && words
            .iter()
            .zip(phrase)
            .enumerate()
            .all(|(at, (word, wanted))| word.text == *wanted && (at == 0 || word.joins))
}

/// The words of a text. `SmallYard`, `small_yard` and `small yard` are two words each.
fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let (mut line, mut joins, mut new_line) = (1, false, false);
    let mut word = String::new();
    let mut last_lower = false;
    for c in text.chars().chain(['\n']) {
        let splits = c.is_ascii_uppercase() && last_lower;
        if !word.is_empty() && (splits || !c.is_ascii_alphabetic()) {
            words.push(Word { text: std::mem::take(&mut word), line, joins });
            (joins, new_line) = (true, false);
        }
        last_lower = c.is_ascii_lowercase();
        match c {
            'a'..='z' | 'A'..='Z' => word.push(c.to_ascii_lowercase()),
            '\n' => {
                line += 1;
                new_line = true;
            }
            ' ' | '\t' | '_' | '-' => {}
            '/' | '!' | '#' | '*' if new_line => {} // the mark of a comment
            _ => joins = false,
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let mut findings = Vec::new();
        check(&[File { path: path.to_owned(), text: text.to_owned() }], &mut findings);
        let phrase = |what: &str| what.split('\'').nth(1).unwrap().to_owned();
        findings.iter().map(|finding| (finding.line, phrase(&finding.what))).collect()
    }

    #[test]
    fn phrases_in_prose_and_identifiers() {
        let one = |line: usize, phrase: &str| vec![(line, phrase.to_owned())];
        assert_eq!(found("a.rs", "// It was so many times"), one(1, "so many"));
        assert_eq!(found("a.rs", "\nfn so_many() {}"), one(2, "so many"));
        assert_eq!(found("a.rs", "struct SoMany;"), one(1, "so many"));
        assert_eq!(found("a.rs", "/// it was so\n    /// many times"), one(1, "so many"));
        assert_eq!(found("a.md", "Mend it"), one(1, "mend"));
        assert_eq!(found(".ci/run", "# whoever"), one(1, "whoever"));
    }

    #[test]
    fn other_words_are_left_alone() {
        for text in ["recommend amendment", "so. Many", "so (many)", "a book", "told apart"] {
            assert_eq!(found("a.rs", text), []);
        }
        assert_eq!(found("a.json", "mend"), []);
        assert_eq!(found("xtask/src/tidy/words.rs", "mend"), []);
    }
}
