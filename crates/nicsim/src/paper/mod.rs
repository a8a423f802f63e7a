//! Every table and figure of the paper, from runs made here: the paper's number, ours, the deviation.
//!
//! Numbers of the paper are those of facts that it prints; where it contradicts itself (docs/nic.md,
//! "Where the paper disagrees with itself") the note under the table says so. Nothing is fitted.

pub mod figures;
pub mod tables;

use flowyard_report::{Cell, Plot, Table};
use serde::Serialize;

use crate::config::Config;
use crate::firmware::Builtin;
use crate::run::RunError;
use crate::sweep::{Job, sweep};
use crate::time::Freq;

/// A number of the paper beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// The paper's, if it prints one.
    pub paper: Option<f64>,
    /// Ours.
    pub ours: f64,
}

impl Row {
    fn new(name: impl Into<String>, paper: impl Into<Option<f64>>, ours: f64) -> Self {
        Self { name: name.into(), paper: paper.into(), ours }
    }

    /// Ours over the paper's, less one.
    pub fn deviation(&self) -> Option<f64> {
        self.paper.filter(|&paper| paper != 0.0).map(|paper| self.ours / paper - 1.0)
    }
}

/// A table or figure.
#[derive(Clone, Debug, Serialize)]
pub struct Exhibit {
    /// "Table 5".
    pub name: String,
    /// Its caption.
    pub title: String,
    /// The unit of its numbers, for people.
    pub unit: String,
    /// All numbers.
    pub rows: Vec<Row>,
    /// What to know about it.
    pub notes: Vec<String>,
    /// Its drawing, if it is a figure.
    #[serde(skip)]
    pub plot: Option<Plot>,
}

impl Exhibit {
    fn new(name: &str, title: &str, unit: &str) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            unit: unit.into(),
            rows: Vec::new(),
            notes: Vec::new(),
            plot: None,
        }
    }

    fn row(&mut self, name: impl Into<String>, paper: impl Into<Option<f64>>, ours: f64) {
        self.rows.push(Row::new(name, paper, ours));
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The row of this name.
    pub fn find(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// As a text table.
    pub fn table(&self) -> Table {
        use flowyard_report::Column;
        let title = format!("{}: {}", self.name, self.title);
        let mut table = Table::new(title)
            .column(Column::text(""))
            .column(Column::number("paper").unit(self.unit.clone()))
            .column(Column::number("ours").unit(self.unit.clone()))
            .column(Column::number("deviation"));
        for row in &self.rows {
            let number = |value: f64| Cell::new(decimal(value));
            let none = || Cell::new("-");
            table.push([
                Cell::new(row.name.clone()),
                row.paper.map_or_else(none, number),
                number(row.ours),
                row.deviation().map_or_else(none, |d| Cell::new(format!("{:+.1} %", 100.0 * d))),
            ]);
        }
        for note in &self.notes {
            table = table.note(note.clone());
        }
        table
    }

    /// As CSV: name, paper, ours, deviation.
    pub fn csv(&self) -> String {
        let mut text = String::from("exhibit,name,paper,ours,deviation\n");
        for row in &self.rows {
            let some = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.6}"));
            let name = row.name.replace('"', "\"\"");
            let (paper, deviation) = (some(row.paper), some(row.deviation()));
            text += &format!("{},\"{name}\",{paper},{:.6},{deviation}\n", self.name, row.ours);
        }
        text
    }
}

fn decimal(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// How a study is run.
pub struct Study<'a> {
    /// Host cores to use.
    pub threads: usize,
    /// Measured time of each run, in microseconds.
    pub measure_us: u64,
    /// Told after every run: done, of.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

impl Study<'_> {
    /// The machine that the paper measures with this firmware: 6 x 200 MHz or 6 x 166 MHz (ideal: one
    /// core of 700 MHz, the slowest in steps of 50 that carries line rate: no time is idle).
    fn job(&self, firmware: Builtin) -> Job {
        let mut config = Config::default();
        // Until the transmit buffer has filled: it takes longest where the cores are just fast enough.
        config.run.warmup_us = 1000;
        config.run.measure_us = self.measure_us;
        match firmware {
            Builtin::SwOnly | Builtin::Task => config.chip.mhz = Freq::mhz(200),
            Builtin::Ideal => (config.chip.cores, config.chip.mhz) = (1, Freq::mhz(700)),
            _ => {}
        }
        Job { firmware, config }
    }

    fn run(&self, jobs: &[Job]) -> Result<Vec<crate::run::Outcome>, RunError> {
        sweep(jobs, self.threads, self.progress)
    }

    /// Table `number`, 1 to 6; `None` for any other number.
    ///
    /// # Errors
    /// When a run fails.
    pub fn table(&self, number: u32) -> Option<Result<Exhibit, RunError>> {
        Some(match number {
            1 => self.table1(),
            2 => self.table2(),
            3 => self.table3(),
            4 => self.table4(),
            5 => self.table5(),
            6 => self.table6(),
            _ => return None,
        })
    }

    /// Figure `number`: 3, 7 or 8; `None` for any other number (the others are drawings).
    ///
    /// # Errors
    /// When a run fails.
    pub fn figure(&self, number: u32) -> Option<Result<Exhibit, RunError>> {
        Some(match number {
            3 => self.figure3(),
            7 => self.figure7(),
            8 => self.figure8(),
            _ => return None,
        })
    }

    /// All of them, in the order of the paper.
    ///
    /// # Errors
    /// When a run fails.
    pub fn all(&self) -> Result<Vec<Exhibit>, RunError> {
        let tables = (1..=6).filter_map(|n| self.table(n));
        tables.chain([3, 7, 8].into_iter().filter_map(|n| self.figure(n))).collect()
    }
}
