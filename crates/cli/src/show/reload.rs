//! What SIGHUP would do, as text.

use flowyard_operate::protocol::{Reload, ReloadDoes, ReloadHow};
use flowyard_report::{Cell, Column, Style, Table};

/// The changes as a table, and a sentence.
pub(super) fn text(reload: &Reload, style: &Style) -> String {
    let Reload { config, does, refused, fix, changes } = reload;
    let mut text = String::new();
    if !changes.is_empty() {
        let mut table = Table::new("Changes")
            .column(Column::text("key"))
            .column(Column::text("in use"))
            .column(Column::text("new"))
            .column(Column::text("applied by"));
        for change in changes {
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "(secret)".into());
            let how = match change.how {
                ReloadHow::Reload => "SIGHUP",
                ReloadHow::TakeOver => "run --take-over",
                ReloadHow::Restart => "restart",
            };
            let cells = [change.key.clone(), value(&change.old), value(&change.new), how.into()];
            table.push(cells.map(Cell::new));
        }
        text = table.to_text(style) + "\n";
    }
    let says = match does {
        ReloadDoes::Nothing => "SIGHUP would change nothing: the file is the same".into(),
        ReloadDoes::Reloads => "SIGHUP would apply all changes".into(),
        ReloadDoes::TakesOver => {
            "SIGHUP would start a process with this configuration, which takes over".to_owned()
        }
        ReloadDoes::Refuses => {
            let why = refused.as_deref().unwrap_or_default();
            let fix = fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
            format!("SIGHUP would be refused and change nothing: {why}{fix}")
        }
    };
    text + &format!("{config}: {says}\n")
}
