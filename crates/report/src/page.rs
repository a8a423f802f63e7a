//! A report as plain data: key figures, then sections of text, tables and plots. It becomes a self-contained
//! HTML file ([`Page::to_html`]) or terminal text ([`Page::to_text`]).
//!
//! Text is plain; `` `code` `` in backquotes is formatted as code. Everything is escaped.

use crate::plot::Plot;
use crate::table::{Table, Tone};

/// A key figure at the top of a [`Page`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    pub(crate) name: String,
    pub(crate) figure: String,
    pub(crate) detail: String,
    pub(crate) tone: Tone,
}

impl Card {
    /// A card with a `name` and a `figure`, both formatted for people.
    pub fn new(name: impl Into<String>, figure: impl Into<String>) -> Self {
        let (name, figure) = (name.into(), figure.into());
        Self { name, figure, detail: String::new(), tone: Tone::Plain }
    }

    /// Sets the line under the figure, such as the value it is compared with.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// This card with an emphasis.
    #[must_use]
    pub const fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }
}

/// One part of a section, in the order added.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Block {
    Text(String),
    Code(Vec<String>),
    List(Vec<String>),
    Table(Table),
    Folded(String, Table),
    Plot(Box<Plot>),
    Pair(Vec<Plot>),
    Definitions(Vec<(String, String)>),
    Note(String),
}

/// A heading and its content.
#[derive(Clone, PartialEq, Debug)]
pub struct Section {
    pub(crate) title: String,
    /// The text of links to the section, if it is not the title.
    pub(crate) label: String,
    pub(crate) blocks: Vec<Block>,
}

impl Section {
    /// A section without content.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), label: String::new(), blocks: Vec::new() }
    }

    /// Sets a shorter text for links to this section.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    fn with(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    /// Adds a paragraph.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.with(Block::Text(text.into()))
    }

    /// Adds lines to copy, such as commands.
    #[must_use]
    pub fn code<S: Into<String>>(self, lines: impl IntoIterator<Item = S>) -> Self {
        self.with(Block::Code(lines.into_iter().map(Into::into).collect()))
    }

    /// Adds a bulleted list.
    #[must_use]
    pub fn list<S: Into<String>>(self, items: impl IntoIterator<Item = S>) -> Self {
        self.with(Block::List(items.into_iter().map(Into::into).collect()))
    }

    /// Adds a table.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.with(Block::Table(table))
    }

    /// Adds a table that is collapsed under its `summary` until the reader opens it. On paper and as text it
    /// is open.
    #[must_use]
    pub fn folded(self, summary: impl Into<String>, table: Table) -> Self {
        self.with(Block::Folded(summary.into(), table))
    }

    /// Adds a plot of the full width.
    #[must_use]
    pub fn plot(self, plot: Plot) -> Self {
        self.with(Block::Plot(Box::new(plot)))
    }

    /// Adds plots of half the width, two beside each other if the screen is wide enough.
    #[must_use]
    pub fn plots(self, plots: impl Into<Vec<Plot>>) -> Self {
        self.with(Block::Pair(plots.into()))
    }

    /// Adds terms and their definitions.
    #[must_use]
    pub fn definitions<S: Into<String>, T: Into<String>>(
        self,
        terms: impl IntoIterator<Item = (S, T)>,
    ) -> Self {
        let terms = terms.into_iter().map(|(term, text)| (term.into(), text.into())).collect();
        self.with(Block::Definitions(terms))
    }

    /// Adds a small remark.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        self.with(Block::Note(note.into()))
    }
}

/// A whole report.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Page {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) command: String,
    pub(crate) time: String,
    pub(crate) cards: Vec<Card>,
    pub(crate) sections: Vec<Section>,
    pub(crate) footnotes: Vec<String>,
}

impl Page {
    /// A page without content.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Sets the line under the title: what the report is about.
    #[must_use]
    pub fn subtitle(mut self, subtitle: impl Into<String>) -> Self {
        self.subtitle = subtitle.into();
        self
    }

    /// Sets the command line that makes this page.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.command = command.into();
        self
    }

    /// Sets the time at which the page was made, formatted by the caller: this crate reads no clock.
    #[must_use]
    pub fn time(mut self, time: impl Into<String>) -> Self {
        self.time = time.into();
        self
    }

    /// Adds a key figure.
    #[must_use]
    pub fn card(mut self, card: Card) -> Self {
        self.cards.push(card);
        self
    }

    /// Adds a section.
    #[must_use]
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// Adds a numbered remark at the end.
    #[must_use]
    pub fn footnote(mut self, text: impl Into<String>) -> Self {
        self.footnotes.push(text.into());
        self
    }
}
