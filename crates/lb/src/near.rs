//! Suggestions for misspelt names in error messages.

use strsim::levenshtein;

/// Text for an error message about the unknown name `word`: the closest of the `known` names if it is
/// within two edits, otherwise the list of them.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    /// The largest number of names in the list.
    const MOST: usize = 12;
    match known.clone().min_by_key(|name| levenshtein(word, name)) {
        None => "there are none".into(),
        Some(name) if levenshtein(word, name) <= 2 => format!("did you mean '{name}'?"),
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
