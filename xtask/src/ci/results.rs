//! Reading the output of `cargo test`: the totals, and which tests were ignored and why.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, show, tee};

/// Totals over all test programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) passed: u64,
    failed: u64,
    ignored: u64,
    /// Test programs, and the documentation tests of each crate.
    sets: u64,
}

impl Totals {
    /// Adds up the lines `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    pub(super) fn read(text: &str) -> Self {
        let mut totals = Self::default();
        for line in text.lines().filter(|line| line.starts_with("test result:")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
            totals.passed += number(3);
            totals.failed += number(5);
            totals.ignored += number(7);
            totals.sets += 1;
        }
        totals
    }
}

/// Runs a command that runs tests, and returns what it printed. That no test passed is an error: commands select tests by
/// name, and would succeed without any test after a change of the name.
pub(super) fn run_tests(command: &mut Command) -> Result<String> {
    let name = show(command);
    let text = tee(command)?.checked()?;
    require_passed(&name, &text)?;
    Ok(text)
}

/// That no test passed is an error.
pub(super) fn require_passed(name: &str, text: &str) -> Result<()> {
    ensure!(Totals::read(text).passed > 0, "{name}: no test was run");
    Ok(())
}

/// That there is no test is an error. All of them may be ignored, for what the machine lacks.
pub(super) fn require_found(name: &str, text: &str) -> Result<()> {
    let Totals { passed, ignored, .. } = Totals::read(text);
    ensure!(passed + ignored > 0, "{name}: no test was found");
    Ok(())
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, ignored, sets } = self;
        write!(f, "tests: {passed} passed, {failed} failed, {ignored} ignored, in {sets} sets")
    }
}

/// Names of ignored tests by reason.
pub(super) type Ignored<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// Reads the lines of ignored tests. libtest prints `test NAME ... ignored, REASON`; a program with the
/// harness of `testkit` prints `test NAME ... ignored (REASON)`, and `test [REASON] NAME ... ignored` for a
/// test that runs only on demand.
pub(super) fn ignored(text: &str) -> Ignored<'_> {
    let mut ignored = Ignored::new();
    for line in text.lines() {
        let Some(line) = line.strip_prefix("test ") else { continue };
        let Some((name, rest)) = line.split_once("... ignored") else { continue };
        let name = name.trim();
        let (name, kind) = match name.strip_prefix('[').and_then(|name| name.split_once("] ")) {
            Some((kind, name)) => (name.trim(), kind),
            None => (name, ""),
        };
        let in_brackets = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
        let reason = rest.strip_prefix(", ").or(in_brackets).unwrap_or(kind);
        ignored.entry(reason).or_default().push(name);
    }
    ignored
}

/// The rows of `.ci/expected-ignored`.
pub(super) struct Expected(Vec<Row>);

struct Row {
    reason: String,
    condition: Condition,
}

/// When tests may be ignored for the reason of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    /// The file or folder that the reason names is not there.
    NoShared,
    /// The program that the reason names, as its last word, is not in `PATH`.
    NoProgram,
    Root,
    NotRoot,
    NoNamespaces,
}

const CONDITIONS: [(&str, Condition); 6] = [
    ("always", Condition::Always),
    ("no-shared", Condition::NoShared),
    ("no-program", Condition::NoProgram),
    ("root", Condition::Root),
    ("not-root", Condition::NotRoot),
    ("no-namespaces", Condition::NoNamespaces),
];

impl Expected {
    /// Reads rows of three columns between `|`: the beginning of a reason, a condition, an explanation.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut rows = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let columns: Vec<&str> = line.split('|').map(str::trim).collect();
            let [reason, condition, why] = columns[..] else {
                bail!("not three columns: {line}");
            };
            let Some(condition) = CONDITIONS.iter().find(|row| row.0 == condition) else {
                let known = CONDITIONS.map(|row| row.0).join(", ");
                bail!("no condition '{condition}'; there are: {known}");
            };
            if reason.is_empty() || why.is_empty() {
                bail!("a reason and an explanation are required: {line}");
            }
            rows.push(Row { reason: reason.to_owned(), condition: condition.1 });
        }
        Ok(Self(rows))
    }

    /// Whether tests may be ignored here for this reason.
    pub(super) fn permits(&self, reason: &str, machine: &Machine) -> bool {
        self.rows(reason).any(|row| machine.meets(row.condition, reason))
    }

    /// Whether the machine has what these tests are ignored for the lack of. `false` if no row has the reason.
    pub(super) fn contradicts(&self, reason: &str, machine: &Machine) -> bool {
        self.rows(reason).next().is_some() && !self.permits(reason, machine)
    }

    fn rows<'a>(&'a self, reason: &'a str) -> impl Iterator<Item = &'a Row> {
        self.0.iter().filter(move |row| reason.starts_with(&row.reason))
    }
}

/// What the machine has.
pub(super) struct Machine {
    pub(super) is_root: bool,
    pub(super) has_namespaces: bool,
    has_program: fn(&str) -> bool,
    has_shared: fn(&str) -> bool,
}

impl Machine {
    pub(super) fn here() -> Self {
        let mut id = std::process::Command::new("id");
        let is_root = shell::output(id.arg("-u")).is_ok_and(|user| user.trim() == "0");
        let mut unshare = std::process::Command::new("unshare");
        let has_namespaces = is_root && shell::succeeds(unshare.args(["--net", "true"]));
        Self { is_root, has_namespaces, has_program: shell::in_path, has_shared }
    }

    fn meets(&self, condition: Condition, reason: &str) -> bool {
        let word = |marker: &str| {
            let mut words = reason.split([' ', ',', ';']);
            words.find_map(|word| word.strip_prefix(marker))
        };
        match condition {
            Condition::Always => true,
            Condition::NoShared => word("../shared")
                .is_some_and(|path| !(self.has_shared)(path.trim_start_matches('/'))),
            Condition::NoProgram => {
                reason.split(' ').next_back().is_some_and(|name| !(self.has_program)(name))
            }
            Condition::Root => self.is_root,
            Condition::NotRoot => !self.is_root,
            Condition::NoNamespaces => !self.has_namespaces,
        }
    }
}

/// Whether a file or folder of the test data beside the repository exists.
fn has_shared(path: &str) -> bool {
    let folder = std::env::var_os("FLOWYARD_SHARED");
    folder.map_or_else(|| shell::root().join("../shared"), Into::into).join(path).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up() {
        let text = "running 2 tests\n\
                    test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured\n";
        let totals = Totals { passed: 15, failed: 2, ignored: 1, sets: 2 };
        assert_eq!(Totals::read(text), totals);
        assert_eq!(totals.to_string(), "tests: 15 passed, 2 failed, 1 ignored, in 2 sets");
    }

    #[test]
    fn a_command_without_a_test_is_an_error() {
        let run = |script: &str| run_tests(Command::new("sh").args(["-c", script]));
        let line = |passed, ignored| {
            format!("test result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured")
        };
        let print = |text: &str| format!("echo '{text}'");
        assert!(run(&print(&(line(0, 0) + "\n" + &line(2, 0)))).is_ok());
        for none in [line(0, 0), line(0, 3), String::new()] {
            let error = run(&print(&none)).unwrap_err().to_string();
            assert!(error.ends_with(": no test was run"), "{error}");
        }
        let failed = run(&format!("{}; false", print(&line(2, 0)))).unwrap_err().to_string();
        assert!(failed.ends_with("exit status 1"), "{failed}");
        assert!(
            require_found("x", &line(0, 3)).is_ok() && require_found("x", &line(0, 0)).is_err()
        );
    }

    #[test]
    fn ignored_tests_by_reason() {
        let text = "test a::b ... ok\ntest c ... ignored, needs os-ken\n\
                    test        d    ... ignored (needs os-ken)\ntest e ... ignored\n\
                    test [a measurement] f::g ... ignored\ntest result: ok. 1 passed";
        let wanted =
            [("", vec!["e"]), ("a measurement", vec!["f::g"]), ("needs os-ken", vec!["c", "d"])];
        assert_eq!(ignored(text), wanted.into());
    }

    #[test]
    fn what_is_expected_depends_on_the_machine() {
        let rows = "# a comment\n\nneeds os-ken | always | x\nneeds ../shared | no-shared | x\n\
                    needs the program | no-program | x\nneeds root | not-root | x\n\
                    needs root and net | no-namespaces | x\n";
        let expected = Expected::parse(rows).unwrap();
        let mut machine = Machine {
            is_root: true,
            has_namespaces: true,
            has_program: |name| name == "ip",
            has_shared: |path| path == "captures",
        };
        let permits = |reason: &str, machine: &Machine| expected.permits(reason, machine);
        assert!(permits("needs os-ken (see X)", &machine));
        assert!(!permits("", &machine));
        assert!(!permits("needs a user", &machine));
        assert!(expected.contradicts("needs the program ip", &machine));
        assert!(!expected.contradicts("needs the program tshark", &machine));
        assert!(!expected.contradicts("needs a kernel module", &machine), "no row");
        assert!(permits("needs ../shared/vectors", &machine));
        assert!(!permits("needs ../shared/captures", &machine));
        assert!(permits("needs the program tshark", &machine));
        assert!(!permits("needs the program ip", &machine));
        assert!(!permits("needs root and network namespaces", &machine));
        machine.has_namespaces = false;
        assert!(permits("needs root and network namespaces", &machine));
        assert!(!permits("needs root", &machine));
        machine.is_root = false;
        assert!(permits("needs root", &machine));
    }

    #[test]
    fn wrong_rows_are_rejected() {
        for row in
            ["needs x | always", "needs x | sometimes | y", "needs x | always | ", "| always | y"]
        {
            assert!(Expected::parse(row).is_err(), "{row}");
        }
        assert!(Expected::read(&shell::root().join(".ci/expected-ignored")).is_ok());
    }
}
