//! Writer of the text format.

use std::fmt::{Display, Write};

/// The page under construction.
#[derive(Default)]
pub(super) struct Page(pub(super) String);

impl Page {
    /// Writes the help text and type of a metric, which precede its samples.
    pub(super) fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible =
            write!(self.0, "# HELP flowyard_{name} {help}\n# TYPE flowyard_{name} {kind}\n");
    }

    /// Writes one sample of the metric `name`.
    pub(super) fn sample(
        &mut self,
        name: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        let _infallible = write!(self.0, "flowyard_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let _infallible = write!(self.0, "{open}{label}=\"{}\"", escape(&text.to_string()));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _infallible = writeln!(self.0, "{close} {value}");
    }
}

/// A label value with the escapes of the format.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page(String::new());
        page.sample("x", &[("queue", &"a\"b\\c\nd"), ("n", &3)], 1.5);
        assert_eq!(page.0, "flowyard_x{queue=\"a\\\"b\\\\c\\nd\",n=\"3\"} 1.5\n");
    }
}
