//! Where text goes: widths by estimate (SVG as a string cannot measure), legends in rows, labels
//! that do not fit are thinned, turned or shortened.

/// Font sizes in pixels, as in the stylesheet.
/// The title is 14 px in the stylesheet; its bold letters are as wide as this.
pub(crate) const TITLE_PX: f64 = 15.6;
pub(crate) const TEXT_PX: f64 = 12.0;

/// The estimated width of `text` in pixels at font size `px`. Errs on the wide side: system fonts differ.
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

/// `text`, shortened with an ellipsis to at most `room` pixels; at least one character stays.
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

/// `text` in at most `most` lines of `room` pixels; the last is shortened.
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

/// One legend entry's place.
#[derive(Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) series: usize,
    pub(crate) label: String,
    pub(crate) x: f64,
    pub(crate) row: usize,
}

/// Pixels of the sample in front of a legend label.
pub(crate) const SAMPLE: f64 = 24.0;
const MOST_ROWS: usize = 4;

/// Entries from left to right in at most four rows, and how many found no room.
pub(crate) fn legend(names: &[(usize, &str)], room: f64) -> (Vec<Entry>, usize) {
    let (mut x, mut row) = (0.0, 0);
    let mut out = Vec::new();
    for (i, (series, name)) in names.iter().enumerate() {
        let label = shorten(name, (room - SAMPLE).min(260.0), TEXT_PX);
        let width = SAMPLE + text_width(&label, TEXT_PX) + 14.0;
        // The last row keeps room for "+ n more".
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

/// How category labels under a plot are written.
#[derive(Debug, PartialEq)]
pub(crate) enum Labels {
    /// Level, every n-th.
    Every(usize),
    /// Turned, every n-th, each at most this many pixels long.
    Turned(usize, f64),
}

/// Chooses for `names` in slots of `slot` pixels: numbers may be thinned, words should all be read.
pub(crate) fn category_labels(names: &[String], slot: f64) -> Labels {
    let widest = names.iter().map(|n| text_width(n, TEXT_PX)).fold(0.0, f64::max);
    if widest + 6.0 <= slot {
        return Labels::Every(1);
    }
    let counts = names.iter().all(|n| n.chars().any(|c| c.is_ascii_digit()) && n.len() <= 6);
    if counts {
        let fit = ((widest + 8.0) / slot).ceil() as usize;
        // Queues come in powers of two: thin to every 2nd, 4th, 8th.
        return Labels::Every(fit.max(1).next_power_of_two());
    }
    let every = (15.0 / slot).ceil().max(1.0) as usize;
    Labels::Turned(every, widest.min(130.0))
}

/// Moves labels apart: sorted positions come back at least `gap` from each other and within
/// `lo..=hi` where that is possible, in the order given.
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
    fn a_legend_with_too_many_says_how_many_more() {
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
