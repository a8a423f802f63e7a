//! Errors of TOML files in words for the people who write the files.
//!
//! Thread-safety: plain functions.

use toml::de::Error;

/// The line and the column, from 1, where an error is in `text`.
#[must_use]
pub fn place(text: &str, error: &Error) -> (usize, usize) {
    let at = error.span().map_or(0, |span| span.start);
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or(before);
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// What is wrong, without types of the program.
#[must_use]
pub fn words(error: &Error) -> String {
    let message = error.message().trim().replace('\n', " ");
    if let Some((got, wanted)) = mismatch(&message) {
        return format!("must be {}, not {}", noun(wanted), value(got));
    }
    if let Some((key, keys)) =
        message.strip_prefix("unknown field ").and_then(|rest| rest.split_once(", expected "))
    {
        let keys = keys.trim_start_matches("one of ").replace('`', "");
        return format!("there is no key {}; the keys here are {keys}", quoted(key));
    }
    match message.strip_prefix("missing field ") {
        Some(key) => format!("the key {} is missing", quoted(key)),
        None => message,
    }
}

/// What was found and what was expected.
fn mismatch(message: &str) -> Option<(&str, &str)> {
    let rest =
        ["invalid type: ", "invalid value: "].iter().find_map(|front| message.strip_prefix(front));
    rest?.rsplit_once(", expected ")
}

fn quoted(key: &str) -> String {
    format!("'{}'", key.trim_matches('`'))
}

/// What is expected.
fn noun(wanted: &str) -> &str {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" => "text in quotes",
        "a sequence" => "a list, such as [20]",
        "a map" => "a table",
        wanted if wanted.starts_with("struct ") => "a table",
        wanted => wanted,
    }
}

/// What was found.
fn value(got: &str) -> String {
    let (kind, rest) = got.split_once(' ').unwrap_or((got, ""));
    match kind {
        "string" => format!("the text {rest}"),
        "integer" | "boolean" => rest.trim_matches('`').to_owned(),
        "floating" => rest.trim_start_matches("point ").trim_matches('`').to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        _ => got.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only the errors are of interest")]
    struct File {
        cores: u32,
        share: Option<f64>,
        list: Option<Vec<u8>>,
    }

    #[test]
    fn errors_have_a_place_and_no_types_of_the_program() {
        for (text, at, said) in [
            (
                "cores = \"abc\"",
                (1, 9),
                "must be a whole number that is not negative, not the text \"abc\"",
            ),
            ("cores = -1", (1, 9), "must be a whole number that is not negative, not -1"),
            ("\ncores = 1\nshare = true", (3, 9), "must be a number, not true"),
            ("cores = 1\nlist = 20", (2, 8), "must be a list, such as [20], not 20"),
            ("cors = 1", (1, 1), "there is no key 'cors'; the keys here are cores, share, list"),
            ("share = 1.0", (1, 1), "the key 'cores' is missing"),
        ] {
            let error = toml::from_str::<File>(text).expect_err("an error");
            assert_eq!((place(text, &error), words(&error).as_str()), (at, said), "{text}");
        }
    }
}
