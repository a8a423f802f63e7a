//! The outcome of a run, and the record of the last run of each package.

use anyhow::{Context, Result};

use super::known::Known;
use super::sample::Mutant;
use super::{PACKAGES, Results};

/// The lines of the record between which the table is written.
const BEGIN: &str = "<!-- the last runs, written by cargo xtask mutants --record -->";
const END: &str = "<!-- end of the last runs -->";
const HEAD: &str = "\
| package | seed | mutants | run_tests | caught | timed out | survived, judged | survived, not judged | \
caught or timed out | do not compile |
|---|---|---|---|---|---|---|---|---|---|";

/// Numbers of mutants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Totals {
    /// Those of the package, run_tests or not.
    all: usize,
    caught: usize,
    timed_out: usize,
    known: usize,
    unknown: usize,
    unviable: usize,
}

impl Totals {
    const fn run_tests(self) -> usize {
        self.caught + self.timed_out + self.known + self.unknown
    }

    /// A row of the table: the share of those caught is in tenths of a percent, rounded down.
    fn row(self, name: &str, seed: &str) -> String {
        let Self { all, caught, timed_out, known, unknown, unviable } = self;
        let share = (1000 * (caught + timed_out)).checked_div(self.run_tests());
        let share = share.map_or("-".into(), |share| format!("{}.{} %", share / 10, share % 10));
        let run_tests = self.run_tests();
        format!(
            "| {name} | {seed} | {all} | {run_tests} | {caught} | {timed_out} | {known} | {unknown} | {share} | {unviable} |"
        )
    }
}

/// The numbers of a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    package: &'static str,
    seed: u64,
    totals: Totals,
}

impl Row {
    /// Reads a row of the table; `None` for other lines, and for the row of sums.
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let &["", name, seed, all, _, caught, timed_out, known, unknown, _, unviable, ""] = &*cells
        else {
            return None;
        };
        let package = PACKAGES.into_iter().find(|package| *package == name)?;
        let number = |cell: &str| cell.parse().ok();
        let totals = Totals {
            all: number(all)?,
            caught: number(caught)?,
            timed_out: number(timed_out)?,
            known: number(known)?,
            unknown: number(unknown)?,
            unviable: number(unviable)?,
        };
        Some(Self { package, seed: seed.parse().ok()?, totals })
    }
}

/// The table of these rows, and of their sums.
fn table(rows: &[Row]) -> String {
    let mut sum = Totals::default();
    let mut lines = vec![HEAD.to_owned()];
    for Row { package, seed, totals } in rows {
        sum.all += totals.all;
        sum.caught += totals.caught;
        sum.timed_out += totals.timed_out;
        sum.known += totals.known;
        sum.unknown += totals.unknown;
        sum.unviable += totals.unviable;
        lines.push(totals.row(package, &seed.to_string()));
    }
    lines.push(sum.row("all", ""));
    lines.join("\n")
}

/// The record with the rows of a run in place of the last rows of their packages.
pub(super) fn with_run(record: &str, run: &[Row]) -> Result<String> {
    let (head, rest) = record.split_once(BEGIN).with_context(|| format!("no line {BEGIN}"))?;
    let (last, tail) = rest.split_once(END).with_context(|| format!("no line {END}"))?;
    let last: Vec<_> = last.lines().filter_map(Row::parse).collect();
    let row = |package| {
        let is = |row: &&Row| row.package == package;
        run.iter().find(is).or_else(|| last.iter().find(is)).copied()
    };
    let rows: Vec<_> = PACKAGES.into_iter().filter_map(row).collect();
    Ok(format!("{head}{BEGIN}\n\n{}\n\n{END}{tail}", table(&rows)))
}

/// The outcome of a run.
pub(super) struct Report<'a> {
    /// By package, without packages of which no mutant was chosen.
    pub(super) rows: Vec<Row>,
    /// Survivors without a judgement.
    pub(super) unknown: Vec<&'a Mutant>,
    /// Mutants without a result.
    pub(super) untested: Vec<&'a Mutant>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        seed: u64,
        all: &[Mutant],
        chosen: &'a [Mutant],
        results: &Results,
        known: &Known,
    ) -> Self {
        let mut report = Self { rows: Vec::new(), unknown: Vec::new(), untested: Vec::new() };
        for package in PACKAGES {
            let is = |mutant: &&Mutant| mutant.package() == package;
            let mut totals = Totals { all: all.iter().filter(is).count(), ..Totals::default() };
            let mut of_package = chosen.iter().filter(is).peekable();
            if of_package.peek().is_none() {
                continue;
            }
            for mutant in of_package {
                if results.caught.contains(&mutant.name) {
                    totals.caught += 1;
                } else if results.timed_out.contains(&mutant.name) {
                    totals.timed_out += 1;
                } else if results.unviable.contains(&mutant.name) {
                    totals.unviable += 1;
                } else if !results.missed.contains(&mutant.name) {
                    report.untested.push(mutant);
                } else if known.has(mutant) {
                    totals.known += 1;
                } else {
                    totals.unknown += 1;
                    report.unknown.push(mutant);
                }
            }
            report.rows.push(Row { package, seed, totals });
        }
        report
    }

    /// The table of this run.
    pub(super) fn text(&self) -> String {
        table(&self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{known, sample};
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_run_replaces_the_last_rows_of_its_packages() {
        let totals = Totals { all: 90, caught: 7, timed_out: 1, unknown: 1, ..Totals::default() };
        let run = [Row { package: "wire", seed: 7, totals }];
        let record = format!("# Mutants\n\n{BEGIN}\nold\n{END}\n\nmore\n");
        let first = with_run(&record, &run).unwrap();
        assert!(first.starts_with("# Mutants\n\n<!--") && first.ends_with(" -->\n\nmore\n"));
        assert!(!first.contains("old"));
        assert!(
            first.contains("\n| wire | 7 | 90 | 9 | 7 | 1 | 0 | 1 | 88.8 % | 0 |\n"),
            "{first}"
        );
        let other = Row { package: "frame", seed: 8, totals: Totals { unknown: 2, ..totals } };
        let second = with_run(&first, &[other]).unwrap();
        assert!(second.contains(
            "|\n| frame | 8 | 90 | 10 | 7 | 1 | 0 | 2 | 80.0 % | 0 |\n| wire | 7 | 90 | 9 | 7 | 1 | 0 | 1 | 88.8 % | 0 |\n\
             | all |  | 180 | 19 | 14 | 2 | 0 | 3 | 84.2 % | 0 |\n"
        ), "{second}");
        let wire =
            Row { seed: 9, totals: Totals { all: 90, unviable: 4, ..Totals::default() }, ..run[0] };
        let third = with_run(&second, &[wire]).unwrap();
        assert!(third.contains("\n| wire | 9 | 90 | 0 | 0 | 0 | 0 | 0 | - | 4 |\n"), "{third}");
        assert!(with_run("nothing", &run).is_err());
    }

    #[test]
    fn survivors_with_a_judgement_do_not_fail_a_run() {
        let source = "fn a() {\n    b + c;\n}\n";
        let list: String = ["+", "-", "*", "/", "%", "^"]
            .map(|sign| format!("crates/lb/src/a.rs:2:7: replace + with {sign} in a\n"))
            .concat();
        let all = sample::read(&list, |_| Ok(source.into())).unwrap();
        let name = |n: usize| BTreeSet::from([all[n].name.clone()]);
        let results = Results {
            caught: name(0),
            missed: name(1).into_iter().chain(name(2)).collect(),
            timed_out: name(3),
            unviable: name(4),
        };
        let known = Known::parse(&format!("{}\n", known::entry(&all[1]))).unwrap();
        let report = Report::new(1, &all, &all[..5], &results, &known);
        assert_eq!(report.unknown, [&all[2]]);
        let totals = Totals { all: 6, caught: 1, timed_out: 1, known: 1, unknown: 1, unviable: 1 };
        assert_eq!(report.rows, [Row { package: "lb", seed: 1, totals }]);
        assert!(report.untested.is_empty());
        let text = report.text();
        assert!(text.ends_with("| all |  | 6 | 4 | 1 | 1 | 1 | 1 | 50.0 % | 1 |"), "{text}");
        let report = Report::new(1, &all, &all, &results, &known);
        assert_eq!(report.untested, [&all[5]]);
    }
}
