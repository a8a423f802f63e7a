//! The order of the walls: pairs of ways that differ, and an earlier measurement beside them.

use std::path::Path;

use flowyard_bench::memcached::{Against, Earlier, Pair, Results, Way};

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

/// A sentence for each way that is above others.
fn above(pairs: &[Pair]) -> Vec<String> {
    let mut ways: Vec<Way> = Vec::new();
    for pair in pairs {
        if !ways.contains(&pair.higher) {
            ways.push(pair.higher);
        }
    }
    let lower = |pair: &Pair| {
        let Pair { lower, rounds_higher, rounds_lower, .. } = pair;
        format!("{} ({rounds_higher} to {rounds_lower})", lower.name())
    };
    let told = |way: Way| {
        let below = pairs.iter().filter(|pair| pair.higher == way).map(lower);
        format!("\"{}\" is above: {}.", way.name(), below.collect::<Vec<_>>().join("; "))
    };
    ways.into_iter().map(told).collect()
}

/// Sentences about the order of the walls.
pub(super) fn sentences(results: &Results) -> Vec<String> {
    let differ: Vec<Pair> = results.order.iter().filter(|pair| pair.differs).cloned().collect();
    let few = match results.rounds {
        ..6 => " Fewer than 6 rounds cannot show a difference.",
        _ => "",
    };
    let test = "differ by a sign test over the rounds (significant at 5 %)";
    let mut all = vec![if differ.is_empty() {
        format!("No two walls {test}.{few}")
    } else {
        format!("Walls that {test}, with the rounds in which each of the two was higher:")
    }];
    all.extend(above(&differ));
    if let Some(Against { date, same, reversed, once }) = &results.against {
        all.push(format!(
            "Of these, {} differ in the same order in the measurement of {date}, and {} in the opposite order.",
            same.len(),
            reversed.len(),
        ));
        for (pairs, title) in [
            (reversed, "In the opposite order then:"),
            (once, "Walls that differ in one of the two measurements only:"),
        ] {
            if !pairs.is_empty() {
                all.push(title.to_owned());
                all.extend(above(pairs));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_that_is_above_others_has_a_sentence() {
        let pair = |higher, lower, rounds_higher| Pair {
            higher,
            lower,
            rounds_higher,
            rounds_lower: 0,
            p_value: 0.02,
            differs: true,
        };
        let pairs = [
            pair(Way::None, Way::Rps, 6),
            pair(Way::TapAtr, Way::Rfs, 7),
            pair(Way::None, Way::Rfs, 7),
        ];
        let told = above(&pairs);
        assert_eq!(
            told[0],
            "\"kernel, none\" is above: kernel, RPS (6 to 0); kernel, RFS (7 to 0)."
        );
        assert_eq!(told[1], "\"yard and TAP, ATR\" is above: kernel, RFS (7 to 0).");
        assert_eq!(above(&[]), [""; 0]);
    }
}
