//! The order of the walls: pairs of ways that differ, and an earlier measurement beside them.

use std::path::Path;

use flowyard_bench::memcached::{Against, Earlier, Pair, Results};

use crate::stop::{Stop, bad_input};

/// Reads the document that `--json` of an earlier measurement wrote.
pub(super) fn read(path: &Path) -> Result<Earlier, Stop> {
    let file = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        bad_input(format!(
            "--against: {file}: {error}; `bench memcached --json` writes the document"
        ))
    })?;
    serde_json::from_str(&text).map_err(|error| {
        bad_input(format!("--against: {file} is no document of `bench memcached --json`: {error}"))
    })
}

fn pairs(pairs: &[Pair]) -> String {
    let told = |pair: &Pair| {
        let Pair { higher, lower, rounds_higher, rounds_lower, .. } = pair;
        format!("{} above {} ({rounds_higher} to {rounds_lower})", higher.name(), lower.name())
    };
    pairs.iter().map(told).collect::<Vec<_>>().join("; ")
}

/// A list with its title, or what to say if it is empty.
fn list(title: &str, all: &[Pair], none: &str) -> String {
    if all.is_empty() { none.to_owned() } else { format!("{title}: {}.", pairs(all)) }
}

/// Sentences about the order of the walls.
pub(super) fn sentences(results: &Results) -> Vec<String> {
    let differ: Vec<Pair> = results.order.iter().filter(|pair| pair.differs).cloned().collect();
    let few =
        if results.rounds < 6 { " Fewer than 6 rounds cannot show a difference." } else { "" };
    let none = format!(
        "No two walls differ by the sign test over the rounds (at most 5 % by chance).{few}"
    );
    let title =
        "Walls that differ (rounds in which each is higher; sign test, at most 5 % by chance)";
    let mut all = vec![list(title, &differ, &none)];
    if let Some(Against { date, same, reversed, once }) = &results.against {
        all.push(format!(
            "Of these, {} differ in the same order in the measurement of {date}, and {} in the opposite order.",
            same.len(),
            reversed.len(),
        ));
        if !reversed.is_empty() {
            all.push(format!("In the opposite order then: {}.", pairs(reversed)));
        }
        if !once.is_empty() {
            all.push(format!("They differ in one of the two measurements only: {}.", pairs(once)));
        }
    }
    all
}
