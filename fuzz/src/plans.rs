//! `plans`: any text as a plan, as `flowyard apply` reads it, and as the journal of a change, as `flowyard undo` reads it.
//! The values of the steps are set on a machine that takes everything.

use std::io;

use crate::{Limits, Line};
use flowyard_host::journal::{self, Contents};
use flowyard_host::ntuple::{Listed, Request, Table};
use flowyard_host::{
    Channels, Coalesce, Counts, Driver, Feature, Machine, Management, Plan, Rss, Step,
};

const SCHEMA: &str = "flowyard.plan/1";

/// JSON becomes a tree of values, each of which has a name and a place in a table. A step of 60 bytes whose values are
/// `0-8191` makes sets of 8192 CPUs, which are sorted and written as lists and masks: 3000 bytes allocated for each
/// byte. The text of an error repeats a part of the input.
pub const LIMITS: Limits = Limits {
    blocks: Line { input: 20_000, byte: 10_000 },
    bytes: Line { input: 50_000, byte: 8000 },
};

/// Reads `bytes` as both.
///
/// # Panics
/// When a parser panics, or when a document that is written again is another one.
pub fn plans(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Plan::parse(text, SCHEMA) {
        Ok(plan) => {
            steps(&plan.interface, &plan.steps);
            let mut value = serde_json::to_value(&plan).expect("a plan is JSON");
            value["schema"] = SCHEMA.into();
            let again = Plan::parse(&value.to_string(), SCHEMA).expect("it was written");
            // Numbers with a fraction may lose their last digit.
            assert_eq!((again.steps, again.made_for), (plan.steps, plan.made_for));
        }
        Err(error) => assert!(!error.is_empty(), "an error without a message"),
    }
    if let Ok(Contents { header, begun, done, .. }) = journal::parse(text) {
        steps(&header.interface, &header.steps);
        assert!(begun.len() + done.len() <= bytes.len());
        let again = serde_json::to_string(&header).expect("a header is JSON");
        assert_eq!(journal::parse(&again).expect("it was written").header, header);
    }
}

fn steps(interface: &str, steps: &[Step]) {
    for step in steps {
        for value in [&step.from, &step.to] {
            assert!(!step.setting.command(interface, value).is_empty());
            let _refused = step.setting.set(&mut Anything, interface, value);
        }
    }
}

/// A machine that takes every change, and that has nothing to read.
struct Anything;

fn nothing<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Machine for Anything {
    fn read(&self, _: &str) -> io::Result<String> {
        nothing()
    }
    fn names(&self, _: &str) -> io::Result<Vec<String>> {
        nothing()
    }
    fn write(&mut self, path: &str, text: &str) -> io::Result<()> {
        assert!(path.starts_with('/') && !text.is_empty());
        Ok(())
    }
    fn management(&self, _: &str) -> Vec<Management> {
        Vec::new()
    }
    fn index(&self, _: &str) -> io::Result<u32> {
        nothing()
    }
    fn name(&self, _: u32) -> io::Result<String> {
        nothing()
    }
    fn namespace(&self) -> io::Result<u64> {
        nothing()
    }
    fn driver(&self, _: &str) -> io::Result<Driver> {
        nothing()
    }
    fn channels(&self, _: &str) -> io::Result<Channels> {
        nothing()
    }
    fn set_channels(&mut self, _: &str, _: Counts) -> io::Result<()> {
        Ok(())
    }
    fn rss(&self, _: &str, _: u32) -> io::Result<Rss> {
        nothing()
    }
    fn set_table(&mut self, _: &str, table: &[u32]) -> io::Result<()> {
        assert!(!table.is_empty());
        Ok(())
    }
    fn set_key(&mut self, _: &str, key: &[u8]) -> io::Result<()> {
        assert!(!key.is_empty());
        Ok(())
    }
    fn fields(&self, _: &str, _: u32) -> io::Result<u64> {
        nothing()
    }
    fn set_fields(&mut self, _: &str, _: u32, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn features(&self, _: &str) -> io::Result<Vec<Feature>> {
        nothing()
    }
    fn coalesce(&self, _: &str) -> io::Result<Coalesce> {
        nothing()
    }
    fn counters(&self, _: &str) -> io::Result<Vec<(String, u64)>> {
        nothing()
    }
    fn rules(&self, _: &str) -> io::Result<Table> {
        nothing()
    }
    fn rule(&self, _: &str, _: u32) -> io::Result<Option<Listed>> {
        nothing()
    }
    fn insert_rule(&mut self, _: &str, _: &Request, _: u32) -> io::Result<u32> {
        nothing()
    }
    fn delete_rule(&mut self, _: &str, _: u32) -> io::Result<()> {
        nothing()
    }
    fn create_context(&mut self, _: &str, _: &[u32], _: &[u8]) -> io::Result<u32> {
        nothing()
    }
    fn delete_context(&mut self, _: &str, _: u32) -> io::Result<()> {
        nothing()
    }
}

#[cfg(test)]
mod tests {
    use super::plans;

    /// The seeds, each line left out, each number changed, and each of their bytes changed.
    #[test]
    fn changed_seeds() {
        for seed in [include_str!("../seeds/plans/plan"), include_str!("../seeds/plans/journal")] {
            let run = |text: &str| plans(text.as_bytes());
            run(seed);
            for part in seed.split_inclusive([',', '\n']) {
                run(&seed.replacen(part, "", 1));
                for to in ["7", "4294967295", "0-8191"] {
                    let changed: String = part
                        .chars()
                        .map(|c| if c.is_ascii_digit() { to.into() } else { c.to_string() })
                        .collect();
                    run(&seed.replacen(part, &changed, 1));
                }
            }
            for at in 0..seed.len() {
                run(seed.get(..at).unwrap_or_default());
                let mut bytes = seed.as_bytes().to_vec();
                bytes[at] ^= 1;
                plans(&bytes);
            }
        }
    }

    /// Steps that ask for much work: large sets of CPUs, long tables.
    #[test]
    fn work_is_linear() {
        for (setting, value) in [
            ("rx-0.rps_cpus", "0-8191".to_owned()),
            ("tx-0.xps_cpus", vec!["0-8191"; 500].join(",")),
            ("irq-4.affinity", "8191,".repeat(2000)),
            ("rss.table", vec!["65535"; 2000].join(" ")),
            ("rss.table", "65535".to_owned()),
            ("rss.key", "6d:".repeat(2000)),
        ] {
            let step =
                format!(r#"{{"setting":"{setting}","from":"{value}","to":"{value}","why":""}}"#);
            for count in [1, 10, 100] {
                let steps = vec![step.as_str(); count].join(",");
                let text =
                    format!(r#"{{"interface":"eth0","index":2,"boot":"a","steps":[{steps}]}}"#);
                plans(text.as_bytes());
            }
        }
    }
}
