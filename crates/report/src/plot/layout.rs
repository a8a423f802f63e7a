//! The placement of text: estimated widths (a program that writes SVG cannot measure them), legends in rows,
//! and labels that are thinned, turned or shortened if they do not fit.

/// The font size of titles in pixels. The stylesheet has 14 px, but bold letters are as wide as this.
pub(crate) const TITLE_PX: f64 = 15.6;
/// The font size of other text in pixels, as in the stylesheet.
pub(crate) const TEXT_PX: f64 = 12.0;

/// The estimated width of `text` in pixels at font size `px`. The estimate is wide, because system fonts
/// differ.
pub(crate) fn text_width(text: &str, px: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.32,
        'f' | 't' | 'r' | 'I' | '(' | ')' | '[' | ']' | '/' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.97,
        'A'..='Z' => 0.72,
        c if c.is_ascii() => 0.64,
        c => 0.64 * unicode_width::UnicodeWidthChar::width(c).unwrap_or(0) as f64,
    };
    text.chars().map(em).sum::<f64>() * px
}

/// `text`, shortened with an ellipsis to at most `room` pixels; at least one character remains.
pub(crate) fn shorten(text: &str, room: f64, px: f64) -> String {
    if text_width(text, px) <= room {
        return text.to_string();
    }
    let mut out = String::new();
    let mut used = text_width("…", px);
    for c in text.chars() {
        used += text_width(c.encode_utf8(&mut [0; 4]), px);
        if used > room && !out.is_empty() {
            break;
        }
        out.push(c);
    }
    format!("{}…", out.trim_end())
}

/// `text` in at most `most` lines of `room` pixels; the last line is shortened to fit.
pub(crate) fn lines(text: &str, room: f64, px: f64, most: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while words.peek().is_some() && out.len() < most {
        let is_last = out.len() + 1 == most;
        let mut line = String::new();
        while let Some(word) = words.peek() {
            let longer =
                if line.is_empty() { (*word).to_string() } else { format!("{line} {word}") };
            if !is_last && !line.is_empty() && text_width(&longer, px) > room {
                break;
            }
            line = longer;
            words.next();
        }
        out.push(shorten(&line, room, px));
    }
    out
}

/// The place of one legend entry.
#[derive(Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) series: usize,
    pub(crate) label: String,
    pub(crate) x: f64,
    pub(crate) row: usize,
}

/// The width of the sample in front of a legend label, in pixels.
pub(crate) const SAMPLE: f64 = 24.0;
const MOST_ROWS: usize = 4;

/// The entries from left to right in at most four rows, and the number of those that did not fit.
pub(crate) fn legend(names: &[(usize, &str)], room: f64) -> (Vec<Entry>, usize) {
    let (mut x, mut row) = (0.0, 0);
    let mut out = Vec::new();
    for (i, (series, name)) in names.iter().enumerate() {
        let label = shorten(name, (room - SAMPLE).min(260.0), TEXT_PX);
        let width = SAMPLE + text_width(&label, TEXT_PX) + 14.0;
        // The last row keeps space for "+ n more".
        let is_last_row = row + 1 == MOST_ROWS && i + 1 < names.len();
        let limit = if is_last_row { room - 70.0 } else { room };
        if x > 0.0 && x + width - 14.0 > limit {
            if row + 1 == MOST_ROWS {
                return (out, names.len() - i);
            }
            (x, row) = (0.0, row + 1);
        }
        out.push(Entry { series: *series, label, x, row });
        x += width;
    }
    (out, 0)
}

/// How the category labels under a plot are placed.
#[derive(Debug, PartialEq)]
pub(crate) enum Labels {
    /// Horizontal, every n-th.
    Every(usize),
    /// Turned, every n-th, each at most this many pixels long.
    Turned(usize, f64),
}

/// Chooses the placement of `names` in slots of `slot` pixels. Numbers may be thinned; words are all shown
/// where possible.
pub(crate) fn category_labels(names: &[String], slot: f64) -> Labels {
    let widest = names.iter().map(|n| text_width(n, TEXT_PX)).fold(0.0, f64::max);
    if widest + 6.0 <= slot {
        return Labels::Every(1);
    }
    let counts = names.iter().all(|n| n.chars().any(|c| c.is_ascii_digit()) && n.len() <= 6);
    if counts {
        let fit = ((widest + 8.0) / slot).ceil() as usize;
        // Numbers of queues are often powers of two: thin to every 2nd, 4th, 8th.
        return Labels::Every(fit.max(1).next_power_of_two());
    }
    let every = (15.0 / slot).ceil().max(1.0) as usize;
    Labels::Turned(every, widest.min(130.0))
}

/// Moves labels apart: the returned positions, in the order given, are at least `gap` from each other and
/// within `lo..=hi` where that is possible.
pub(crate) fn spread(wanted: &[f64], gap: f64, lo: f64, hi: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut out = wanted.to_vec();
    let mut least = lo;
    for &i in &order {
        out[i] = wanted[i].max(least);
        least = out[i] + gap;
    }
    let mut most = hi;
    for &i in order.iter().rev() {
        out[i] = out[i].min(most);
        most = out[i] - gap;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_thinned_and_words_turned() {
        let queues: Vec<String> = (0..64).map(|q| q.to_string()).collect();
        assert_eq!(category_labels(&queues, 12.0), Labels::Every(2));
        assert_eq!(category_labels(&queues, 40.0), Labels::Every(1));
        let words = vec!["flow director".to_string(), "signature filter".to_string()];
        assert!(matches!(category_labels(&words, 40.0), Labels::Turned(1, _)));
    }

    #[test]
    fn a_legend_with_too_many_entries_counts_the_rest() {
        let names: Vec<(usize, &str)> = (0..64).map(|i| (i, "queue number")).collect();
        let (entries, more) = legend(&names, 400.0);
        assert_eq!(entries.len() + more, 64);
        assert!(more > 0 && entries.iter().all(|e| e.row < 4));
    }

    proptest! {
        #[test]
        fn labels_end_up_apart(wanted in prop::collection::vec(0.0f64..200.0, 0..10)) {
            let mut placed = spread(&wanted, 14.0, 0.0, 200.0);
            placed.sort_by(f64::total_cmp);
            for pair in placed.windows(2) {
                prop_assert!(pair[1] - pair[0] >= 14.0 - 1e-9, "{placed:?}");
            }
        }

        #[test]
        fn shortened_text_fits(text in "\\PC{0,60}", room in 20.0f64..300.0) {
            let short = shorten(&text, room, 12.0);
            prop_assert!(text_width(&short, 12.0) <= room + 24.0);
            prop_assert!(lines(&text, room, 12.0, 2).len() <= 2);
        }
    }
}
