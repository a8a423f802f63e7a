//! The list of all keys, with defaults and descriptions, and suggestions for misspelt keys.
//!
//! The descriptions are the comments of the fields in `config.rs`, by way of the JSON Schema.

use serde_json::Value;

use super::Config;

/// One key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Key {
    /// `section.key`.
    pub key: String,
    /// The default, as it is written in TOML.
    pub default: String,
    /// What the key means, and where its default comes from.
    pub about: String,
}

impl Key {
    /// Whether the default is printed in the paper. The description of a default of ours has the word "Ours:", also if it
    /// says what the paper has.
    pub(crate) fn is_published(&self) -> bool {
        !self.about.contains("Ours: ") && self.about.contains("Paper")
    }
}

/// All keys, in alphabetical order.
#[must_use]
pub fn keys() -> Vec<Key> {
    let schema = schemars::schema_for!(Config);
    let root = schema.as_value();
    let defaults = toml::Table::try_from(Config::default()).unwrap_or_default();
    let mut keys = Vec::new();
    for (section, about) in properties(root) {
        let section_schema = resolve(root, about);
        for (key, about) in properties(section_schema) {
            let default = defaults.get(section).and_then(|section| section.get(key));
            keys.push(Key {
                key: format!("{section}.{key}"),
                default: default.map_or_else(String::new, ToString::to_string),
                about: text(about).or_else(|| text(resolve(root, about))).unwrap_or_default(),
            });
        }
    }
    keys
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// The schema that `schema` refers to, or `schema` itself.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let path = schema.get("$ref").and_then(Value::as_str);
    path.and_then(|path| root.pointer(path.strip_prefix('#')?)).unwrap_or(schema)
}

/// The description in one line.
fn text(schema: &Value) -> Option<String> {
    let text = schema.get("description")?.as_str()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The three keys whose names are the most similar to `word`.
pub(super) fn nearest(word: &str) -> String {
    let mut names: Vec<String> = keys().into_iter().map(|key| key.key).collect();
    let distance = |name: &String| {
        // A word without a section is compared with the name of the key.
        let own = name.split_once('.').map_or(name.as_str(), |(_, key)| key);
        strsim::levenshtein(word, if word.contains('.') { name } else { own })
    };
    names.sort_by_key(distance);
    names.truncate(3);
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_default_and_a_description() {
        let keys = keys();
        let count: usize = toml::Table::try_from(Config::default())
            .unwrap()
            .values()
            .map(|section| section.as_table().unwrap().len())
            .sum();
        assert_eq!(keys.len(), count);
        for Key { key, default, about } in &keys {
            assert!(!default.is_empty() && about.ends_with('.'), "{key} = {default}: {about}");
            Config::default().set(&format!("{key}={default}")).unwrap();
        }
        let cores = keys.iter().find(|key| key.key == "chip.cores").unwrap();
        assert_eq!(cores.default, "6");
        assert!(cores.about.contains("Paper, abstract"), "{}", cores.about);
    }

    #[test]
    fn each_default_of_the_machine_is_the_papers_or_ours() {
        let machine = keys().into_iter().filter(|key| {
            let section = key.key.split('.').next().unwrap();
            crate::paper::MACHINE.contains(&section)
        });
        let all: Vec<_> = machine.map(|key| (key.is_published(), key)).collect();
        for (is_published, Key { key, about, .. }) in &all {
            assert!(*is_published || about.contains("Ours: "), "{key}: {about}");
        }
        let published = |name| all.iter().find(|(_, key)| key.key == name).unwrap().0;
        assert!(published("chip.cores") && published("mac.preamble_bytes"));
        // Descriptions of ours that mention the paper.
        assert!(!published("assist.dma_latency_ns") && !published("chip.branch"));
    }

    #[test]
    fn a_misspelt_key_is_recognised() {
        assert!(nearest("chip.cors").starts_with("chip.cores, "));
        assert!(nearest("cores").starts_with("chip.cores, "));
        assert!(nearest("load.udp_byte").starts_with("load.udp_bytes, "));
    }
}
