//! Suggestions for misspelt names in error messages.

use strsim::osa_distance;

/// Text for an error message about the unknown name `word`: the closest of the `known` names if it is
/// within two edits (one if `word` is short), otherwise the list of them. Two exchanged letters are one edit.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    /// The largest number of names in the list.
    const MOST: usize = 12;
    // With two edits, a word of three letters is close to almost any other.
    let letters = word.chars().count();
    let most = if letters <= 4 { 1 } else { 2 };
    // Every letter too many is an edit: most names need no comparison, and a long word needs none.
    let alike = known.clone().filter(|name| name.chars().count().abs_diff(letters) <= most);
    match alike.min_by_key(|name| osa_distance(word, name)) {
        Some(name) if osa_distance(word, name) <= most => format!("did you mean '{name}'?"),
        _ if known.clone().next().is_none() => "there are none".into(),
        _ => {
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
        assert_eq!(near("icmp", &["tcp", "udp"]), "choose one of tcp, udp");
        assert_eq!(near("dns", &[]), "there are none");
        let many: Vec<String> = (10..30).map(|n| format!("backend-{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(near("x", &many).ends_with("backend-21 and 8 more"), "{}", near("x", &many));
    }
}
