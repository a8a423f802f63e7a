//! JSON documents with a schema name and version.
//!
//! ```json
//! { "schema": "flowyard.analyze/2", "flowyard": "0.1.0", ...the data's own fields... }
//! ```
//!
//! The number in the schema is raised when a field is renamed, removed or changes its meaning; a new field
//! does not raise it. Numbers that are not finite become `null`, because JSON cannot express them.

use serde::Serialize;

/// The wrapper around every JSON document of flowyard.
#[derive(Serialize, Debug)]
pub struct Document<T: Serialize> {
    /// The schema and its version, `flowyard.<command>/<number>`.
    pub schema: &'static str,
    /// The version of flowyard that wrote it.
    pub flowyard: &'static str,
    /// The content: a struct or a map, whose fields are beside the two above.
    #[serde(flatten)]
    pub data: T,
}

/// Why a document could not be written as JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// `data` is not a struct or a map with string keys, or one of its serializers failed.
    #[error("{schema}: cannot be written as JSON: {source} (the data must be a struct or a map)")]
    Shape {
        /// The schema of the document.
        schema: &'static str,
        /// The message of the serializer.
        source: serde_json::Error,
    },
    /// `data` has a field of the wrapper's name.
    #[error(
        "{schema}: the data has a field {key:?}, which is reserved for the document itself; rename it"
    )]
    Reserved {
        /// The schema of the document.
        schema: &'static str,
        /// `schema` or `flowyard`.
        key: &'static str,
    },
}

impl<T: Serialize> Document<T> {
    /// `data` as a document of `schema`, written by this version of flowyard.
    #[must_use]
    pub const fn new(schema: &'static str, data: T) -> Self {
        Self { schema, flowyard: env!("CARGO_PKG_VERSION"), data }
    }

    /// The document, indented by two spaces, ending with a newline.
    ///
    /// # Errors
    /// [`JsonError`] if the data is not a struct or map, or has a field `schema` or `flowyard`.
    pub fn to_json(&self) -> Result<String, JsonError> {
        let schema = self.schema;
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|source| JsonError::Shape { schema, source })?;
        text.push('\n');
        // A JSON string has no raw newline, so a line that begins with two spaces and a quote is a top-level key.
        for key in ["schema", "flowyard"] {
            let line = format!("  \"{key}\": ");
            if text.lines().filter(|l| l.starts_with(&line)).count() > 1 {
                return Err(JsonError::Reserved { schema, key });
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Serialize)]
    struct Sample {
        frames: u64,
        loss: f64,
        inner: BTreeMap<&'static str, &'static str>,
    }

    #[test]
    fn the_wrapper_comes_first_and_a_newline_last() {
        let inner = BTreeMap::from([("schema", "mine\n  \"schema\": ")]);
        let sample = Sample { frames: 3, loss: f64::NAN, inner };
        let text = Document::new("flowyard.test/1", sample).to_json().unwrap();
        let want = format!(
            "{{\n  \"schema\": \"flowyard.test/1\",\n  \"flowyard\": \"{}\",\n  \"frames\": 3,\n  \
             \"loss\": null,\n  \"inner\": {{\n    \"schema\": \"mine\\n  \\\"schema\\\": \"\n  }}\n}}\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(text, want);
    }

    #[test]
    fn data_that_does_not_fit_is_refused_by_name() {
        let list = Document::new("flowyard.test/1", vec![1, 2]).to_json().unwrap_err();
        assert!(list.to_string().starts_with("flowyard.test/1: cannot be written"), "{list}");
        let clash = Document::new("flowyard.test/1", BTreeMap::from([("schema", 1)]));
        assert!(matches!(clash.to_json(), Err(JsonError::Reserved { key: "schema", .. })));
    }
}
