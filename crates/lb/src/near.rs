//! Suggestions for misspelt names in error messages.

/// Text for an error message about the unknown name `word`: the closest of the `known` names if it is
/// within two edits, otherwise the list of them.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    /// The largest number of names in the list.
    const MOST: usize = 12;
    match known.clone().min_by_key(|name| distance(word, name)) {
        None => "there are none".into(),
        Some(name) if distance(word, name) <= 2 => format!("did you mean '{name}'?"),
        Some(_) => {
            let names: Vec<_> = known.clone().take(MOST).collect();
            let more = match known.count().saturating_sub(MOST) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("choose one of {}{more}", names.join(", "))
        }
    }
}

/// Edit distance (Levenshtein) of two short words.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, b) in b.chars().enumerate() {
            let best = (corner + usize::from(a != b)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_meant_or_all_are_named() {
        let near = |word: &str, known: &[&str]| nearest(word, known.iter().copied());
        assert_eq!(near("wbe", &["mail", "web"]), "did you mean 'web'?");
        assert_eq!(near("dns", &["mail", "web"]), "choose one of mail, web");
        assert_eq!(near("dns", &[]), "there are none");
        let many: Vec<String> = (10..30).map(|n| format!("backend-{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(near("x", &many).ends_with("backend-21 and 8 more"), "{}", near("x", &many));
    }
}
