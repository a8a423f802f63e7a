//! Reading the output of `cargo test`.

use std::fmt;

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

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, ignored, sets } = self;
        write!(f, "tests: {passed} passed, {failed} failed, {ignored} ignored, in {sets} sets")
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn totals_add_up() {
        let text = "running 2 tests\n\
                    test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured\n";
        let totals = Totals { passed: 15, failed: 2, ignored: 1, sets: 2 };
        assert_eq!(Totals::read(text), totals);
        assert_eq!(totals.to_string(), "tests: 15 passed, 2 failed, 1 ignored, in 2 sets");
    }
}
