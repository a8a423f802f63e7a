//! Tables, bars and sparklines as text for a terminal, a log or a mail.
//!
//! ```text
//! policy   frames  load per queue  locality
//! ──────  ───────  ──────────────  ────────────────────
//! rss     1.23 M   ▅▇▄█▅▆▇▅        ███▏         25.1 %
//! ```
//!
//! Columns are separated by two spaces, and there is one thin line under the headings. A table that is too
//! wide wraps its headings and text columns at spaces. If it is still too wide, it becomes several tables with
//! the same first column; if not even two columns fit, or there is one row, every row becomes a block of
//! `heading  value` lines. Numbers are never cut. Control characters in the data (a capture may contain
//! any bytes) never reach the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::table::{Cell, Content, Tone};

mod grid;

pub use crate::outline::paragraph;

/// How text may be written; the caller knows where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// The columns of the terminal; `None` is no limit.
    pub width: Option<usize>,
    /// Whether bold and colour (ANSI SGR) may be used, which only a terminal understands.
    pub colour: bool,
    /// Whether only ASCII may be used.
    pub ascii: bool,
}

impl Style {
    /// No limit, no colour, Unicode: for files and pipes.
    #[must_use]
    pub const fn plain() -> Self {
        Self { width: None, colour: false, ascii: false }
    }

    /// For a terminal of `width` columns, with colour.
    #[must_use]
    pub const fn terminal(width: usize) -> Self {
        Self { width: Some(width), colour: true, ascii: false }
    }

    pub(crate) fn paint(&self, text: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Plain => "",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "1;31",
            Tone::Strong => "1",
            Tone::Dim => "2",
        };
        if !self.colour || code.is_empty() || text.trim().is_empty() {
            return text.to_string();
        }
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// `text` without control characters, and in ASCII if the style requires it.
    pub(crate) fn clean(&self, text: &str) -> String {
        let text = clean(text);
        if !self.ascii || text.is_ascii() {
            return text;
        }
        ascii(&text)
    }
}

/// `text` in ASCII: signs that have an equivalent become that, others a question mark. Control characters stay.
#[must_use]
pub fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_ascii() => out.push(c),
            'µ' | 'μ' => out.push('u'),
            '–' | '—' | '−' | '─' => out.push('-'),
            '×' => out.push('x'),
            '·' | '•' => out.push('*'),
            '…' => out.push_str("..."),
            '≤' => out.push_str("<="),
            '≥' => out.push_str(">="),
            '→' => out.push_str("->"),
            '‘' | '’' => out.push('\''),
            '“' | '”' => out.push('"'),
            '\u{a0}' | '\u{202f}' => out.push(' '),
            _ => out.push('?'),
        }
    }
    out
}

/// `text` without the characters that could control a terminal, break XML or reverse the line.
pub(crate) fn clean(text: &str) -> String {
    let is_bad = |c: char| {
        c.is_control()
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    let replace = |c: char| match c {
        '\n' | '\t' | '\r' => ' ',
        c if is_bad(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(replace).collect()
}

/// A bar of `width` columns of which `share` is filled (0 to 1, clamped; not-a-number is empty). A share above
/// zero is always visible.
///
/// ```
/// use flowyard_report::text::bar;
/// assert_eq!(bar(0.5, 4, false), "██  ");
/// assert_eq!(bar(0.5, 4, true), "##..");
/// ```
#[must_use]
pub fn bar(share: f64, width: usize, ascii: bool) -> String {
    let share = if share > 0.0 { share.min(1.0) } else { 0.0 };
    let eighths = (share * width as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let (full, part) = (eighths / 8, eighths % 8);
    let mut out = String::new();
    if ascii {
        let full = if eighths > 0 { ((eighths + 4) / 8).max(1).min(width) } else { 0 };
        out.extend(std::iter::repeat_n('#', full));
        out.extend(std::iter::repeat_n('.', width - full));
        return out;
    }
    let full = full.min(width);
    out.extend(std::iter::repeat_n('█', full));
    if full < width {
        out.push([' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'][part]);
        out.extend(std::iter::repeat_n(' ', width - full - 1));
    }
    out
}

/// One character for each value, from 0 to the largest. If there are more than `width` values, each character
/// shows the largest of several. Zero is the lowest mark, not-a-number is a space.
///
/// ```
/// use flowyard_report::text::spark;
/// assert_eq!(spark(&[0.0, 4.0, 8.0], 40, false), "▁▅█");
/// assert_eq!(spark(&[0.0, 4.0, 8.0], 40, true), "_=#");
/// ```
#[must_use]
pub fn spark(values: &[f64], width: usize, ascii: bool) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
    let marks = if ascii { ASCII } else { BLOCKS };
    let top = values.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
    let count = values.len().min(width);
    let mut out = String::new();
    for i in 0..count {
        let part = &values[i * values.len() / count..(i + 1) * values.len() / count];
        let value = part.iter().copied().fold(f64::NAN, f64::max);
        out.push(match value {
            v if v.is_nan() => ' ',
            v if v <= 0.0 => marks[0],
            f64::INFINITY => marks[7],
            v => marks[((v / top * 7.0).round() as usize).clamp(1, 7)],
        });
    }
    out
}

/// One character for each tile, fuller for larger values; a space for not-a-number.
fn heat(tiles: &[(f64, String)], ascii: bool) -> String {
    const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
    const ASCII: [char; 5] = ['.', ':', '-', '+', '#'];
    let marks = if ascii { ASCII } else { SHADES };
    let mark = |value: f64| match value {
        v if v.is_nan() => ' ',
        v => marks[((v.clamp(0.0, 1.0) * 4.0).ceil() as usize).min(4)],
    };
    tiles.iter().map(|&(value, _)| mark(value)).collect()
}

const BAR_WIDTH: usize = 12;
const SPARK_WIDTH: usize = 48;
const GAP: &str = "  ";
/// The smallest width to which a text column is reduced.
const NARROWEST: usize = 8;

fn cell_text(cell: &Cell, style: &Style) -> String {
    match &cell.content {
        Content::Text(text) => style.clean(text),
        Content::Spark(values) => spark(values, SPARK_WIDTH, style.ascii),
        Content::Heat(tiles) => heat(tiles, style.ascii),
        Content::Bar { share, label } => {
            // Labels are numbers, right-aligned in the width of "100.0 %".
            format!("{} {:>7}", bar(*share, BAR_WIDTH, style.ascii), style.clean(label))
        }
    }
}

fn pad(text: &str, width: usize, right: bool) -> String {
    let space = " ".repeat(width.saturating_sub(text.width()));
    if right { format!("{space}{text}") } else { format!("{text}{space}") }
}

/// `text` in lines of at most `width` columns, broken at spaces where possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let size = word.width();
        let last = lines.len() - 1;
        if used > 0 && used + 1 + size <= width {
            lines[last].push(' ');
            lines[last].push_str(word);
            used += 1 + size;
            continue;
        }
        if used > 0 {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let size = c.width().unwrap_or(0);
            if used + size > width && used > 0 {
                lines.push(String::new());
                used = 0;
            }
            let last = lines.len() - 1;
            lines[last].push(c);
            used += size;
        }
    }
    lines
}
