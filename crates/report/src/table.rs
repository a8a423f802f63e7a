//! A table as plain data, which becomes terminal text ([`crate::text`]) or HTML ([`crate::html`]).
//!
//! Cells hold text that is already formatted for people (see [`crate::num`]); a table aligns them and
//! computes nothing. Rows may be short (missing cells are empty) or long (columns without a name are added).

/// The emphasis of a cell or card. It must not be the only carrier of a meaning, because colour is lost on
/// paper and in a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tone {
    /// No emphasis.
    #[default]
    Plain,
    /// A good result.
    Good,
    /// A result to look at.
    Warn,
    /// A bad result.
    Bad,
    /// A reference value, a total, the best value.
    Strong,
    /// Less important: not measured, not applicable.
    Dim,
}

/// The content of a cell.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Content {
    Text(String),
    Bar { share: f64, label: String },
    Spark(Vec<f64>),
    Heat(Vec<(f64, String)>),
}

/// One cell of a [`Table`].
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    pub(crate) content: Content,
    pub(crate) tone: Tone,
}

impl Cell {
    /// A cell with text, which may be a number.
    pub fn new(text: impl Into<String>) -> Self {
        Self { content: Content::Text(text.into()), tone: Tone::Plain }
    }

    /// A share, 0 to 1, as a bar followed by its percentage.
    #[must_use]
    pub fn share(share: f64) -> Self {
        Self::bar(share, crate::Unit::Share.show(share))
    }

    /// A bar that fills `share` (0 to 1, clamped) of the cell, followed by a label.
    pub fn bar(share: f64, label: impl Into<String>) -> Self {
        Self { content: Content::Bar { share, label: label.into() }, tone: Tone::Plain }
    }

    /// One small column for each value, from 0 to the largest: load per queue, occupancy over time.
    pub fn spark(values: impl Into<Vec<f64>>) -> Self {
        Self { content: Content::Spark(values.into()), tone: Tone::Plain }
    }

    /// One tile for each value, darker for larger values: 0 to 1 (clamped), or not-a-number for "never". The
    /// text of a tile is shown when the pointer is on it.
    pub fn heat(tiles: impl Into<Vec<(f64, String)>>) -> Self {
        Self { content: Content::Heat(tiles.into()), tone: Tone::Plain }
    }

    /// This cell with an emphasis.
    #[must_use]
    pub const fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }
}

impl Default for Cell {
    fn default() -> Self {
        Self::new("")
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// One column of a [`Table`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) is_number: bool,
}

impl Column {
    /// A column of words: aligned left, wrapped if the table is too wide.
    pub fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), unit: String::new(), is_number: false }
    }

    /// A column of numbers: aligned right, never wrapped or cut.
    pub fn number(name: impl Into<String>) -> Self {
        Self { name: name.into(), unit: String::new(), is_number: true }
    }

    /// This column with a unit under its name.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }
}

/// Rows and columns with headings.
///
/// ```
/// use flowyard_report::{Cell, Column, Style, Table};
/// let table = Table::new("Policies")
///     .column(Column::text("policy"))
///     .column(Column::number("frames"))
///     .row(["rss", "12"].map(Cell::from));
/// assert_eq!(table.to_text(&Style::plain()), "Policies\n\npolicy  frames\n──────  ──────\nrss         12\n");
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(crate) total: Vec<Cell>,
    pub(crate) notes: Vec<String>,
}

impl Table {
    /// A table without columns. An empty title is not shown.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// This table with another title.
    #[must_use]
    pub fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Adds a column on the right.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Adds a row at the bottom.
    #[must_use]
    pub fn row(mut self, cells: impl IntoIterator<Item = Cell>) -> Self {
        self.push(cells);
        self
    }

    /// Adds a row at the bottom, for use in loops.
    pub fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Sets the total, which is separated from the rows by a line.
    #[must_use]
    pub fn total(mut self, cells: impl IntoIterator<Item = Cell>) -> Self {
        self.total = cells.into_iter().collect();
        self
    }

    /// Adds a line under the table.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The columns, with unnamed columns added to fit the longest row.
    pub(crate) fn all_columns(&self) -> Vec<Column> {
        let longest = self.rows.iter().chain([&self.total]).map(Vec::len).max().unwrap_or(0);
        let mut columns = self.columns.clone();
        while columns.len() < longest {
            columns.push(Column::text(""));
        }
        columns
    }
}
