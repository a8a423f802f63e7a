//! `config`: any text as each kind of TOML file that the commands read.

use crate::{Limits, Line};
use flowyard_config::Config;
use flowyard_hostsim::profile::Profile;
use flowyard_report::exhibit::Spec;
use flowyard_scenario::Scenario;

/// Each of the five parsers reads the whole text, and the check of a configuration makes its plans. The text of an
/// error repeats a line. A short table of sections makes a few large plans: up to 1000 allocated bytes a byte. A
/// parser of TOML collects the errors of the whole text before it reports the first: at most 40 KB for the first of
/// them, in each of the five parsers, and 200 bytes a byte after that.
pub const LIMITS: Limits = Limits {
    blocks: Line { input: 20_000, byte: 800 },
    bytes: Line { input: 250_000, byte: 3000 },
};

/// Reads `bytes` as each kind of file.
///
/// # Panics
/// When a parser panics, or when an error has no message.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let errors = [
        Config::parse("fuzz.toml", text).err().map(|error| error.to_string()),
        Scenario::parse("fuzz.toml", text).err().map(|error| error.to_string()),
        flowyard_nicsim::Config::parse(text).err().map(|error| error.to_string()),
        Profile::parse("fuzz", text).err().map(|error| error.to_string()),
        Spec::parse("fuzz", text).err().map(|error| error.to_string()),
    ];
    assert!(errors.iter().flatten().all(|error| !error.is_empty()), "an error without a message");
}

#[cfg(test)]
mod tests {
    /// The examples of the repository, each line left out, and each number changed.
    #[test]
    fn changed_examples() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for folder in ["docs/examples", "crates/hostsim/profiles", "figures"] {
            let found = std::fs::read_dir(root.join(folder)).expect("the folder can be read");
            files.extend(found.flatten().map(|entry| entry.path()));
        }
        files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
        assert!(!files.is_empty());
        for path in files {
            let text = std::fs::read_to_string(path).expect("text");
            for line in text.lines().take(60) {
                super::config(text.replacen(line, "", 1).as_bytes());
                let changed = line.replace(|c: char| c.is_ascii_digit(), "7");
                super::config(text.replacen(line, &changed, 1).as_bytes());
            }
        }
    }
}
