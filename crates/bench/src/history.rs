//! The record of ratios to other programs: a line of JSON for each release.
//!
//! ```text
//!  bench engine --peers --json ──> bench history --add ──> bench/history.jsonl ──> table, page
//! ```
//!
//! Thread-safety: plain functions.

use flowyard_rfc2544::document::Machine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::peers::{Peers, Ratio};

/// The ratios of a release.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// When they were measured.
    pub date: String,
    /// Version and commit.
    pub build: String,
    /// The machine.
    pub machine: Machine,
    /// The version of the other programs, if it is known.
    pub peers: Option<String>,
    /// Ratios to other programs, each measured in the same rounds.
    pub ratios: Vec<Ratio>,
    /// What a reader has to know to compare this line with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a line needs of the document that `bench engine --peers --json` prints.
#[derive(Deserialize)]
struct Measured {
    schema: String,
    date: String,
    build: String,
    machine: Machine,
    peers: Option<Peers>,
}

impl Entry {
    /// The line for a document that `bench engine --peers --json` printed.
    ///
    /// # Errors
    /// Why the text is no such document, and how to make one.
    pub fn of(document: &str, note: Option<String>) -> Result<Self, String> {
        const FIX: &str = "give a file that `flowyard bench engine --peers --json` wrote";
        let measured: Measured = serde_json::from_str(document)
            .map_err(|error| format!("the file has no results of a measurement: {error}; {FIX}"))?;
        let Measured { schema, date, build, machine, peers } = measured;
        if !schema.starts_with("flowyard.bench-engine/") {
            return Err(format!("the file is a document of the schema {schema}; {FIX}"));
        }
        let Some(Peers { version, ratios, missing, .. }) = peers else {
            return Err(format!("the file has no ratios to other programs; {FIX}"));
        };
        if ratios.is_empty() {
            return Err(format!("no other program was measured: {}", missing.join("; ")));
        }
        Ok(Self { date, build, machine, peers: version, ratios, note })
    }

    /// The entry as a line.
    ///
    /// # Errors
    /// When a ratio is not a number that JSON has.
    pub fn line(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// The entries of a record, oldest first.
///
/// # Errors
/// The number of the first line that is no entry, and why.
pub fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let entry = |(at, line)| {
        serde_json::from_str(line).map_err(|error| format!("line {at} is no entry: {error}"))
    };
    lines.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(peers: &str) -> String {
        format!(
            "{{\"schema\":\"flowyard.bench-engine/2\",\"date\":\"2026-11-22T00:00:00Z\",\"build\":\"0.1.0 (abc)\",\
             \"machine\":{{\"processor\":\"a\",\"processors\":2,\"kernel\":\"6\",\"load\":\"0\",\"steal_ticks\":0}},\
             \"peers\":{peers}}}"
        )
    }

    #[test]
    fn a_measurement_becomes_a_line_that_is_read_again() {
        let peers = "{\"version\":\"DPDK 22\",\"rates\":[],\"missing\":[],\"ratios\":[{\"flowyard\":\"x\",\"peer\":\"y\",\
                     \"ratio\":1.25,\"least\":1.0,\"most\":1.5,\"rounds\":5}]}";
        let entry = Entry::of(&document(peers), Some("a note".into())).unwrap();
        assert_eq!(entries(&entry.line().unwrap().repeat(2)).unwrap(), [entry.clone(), entry]);
    }

    #[test]
    fn other_documents_are_refused_with_the_fix() {
        let none =
            "{\"version\":null,\"rates\":[],\"missing\":[\"l3fwd is missing\"],\"ratios\":[]}";
        for (text, why) in [
            ("{}", "--peers --json"),
            (&document("null"), "no ratios"),
            (&document(none), "l3fwd is missing"),
            (&document("null").replace("bench-engine", "nic"), "flowyard.nic/2"),
        ] {
            let error = Entry::of(text, None).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(entries("\n{}\n").unwrap_err().starts_with("line 2 is no entry"));
    }
}
