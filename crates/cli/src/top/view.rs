//! The part of the tables that is on the screen, and the keys that move it.

/// What a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Quit,
    /// Down by this many lines; up if negative.
    Lines(isize),
    /// Down by a screen, or up.
    Page(isize),
    /// To the next title.
    Section,
    Start,
    End,
}

/// The keys in what a terminal sent. Sequences of other keys are skipped.
pub(super) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    const SEQUENCES: [(&[u8], Key); 10] = [
        (b"\x1b[A", Key::Lines(-1)),
        (b"\x1bOA", Key::Lines(-1)),
        (b"\x1b[B", Key::Lines(1)),
        (b"\x1bOB", Key::Lines(1)),
        (b"\x1b[5~", Key::Page(-1)),
        (b"\x1b[6~", Key::Page(1)),
        (b"\x1b[H", Key::Start),
        (b"\x1b[1~", Key::Start),
        (b"\x1b[F", Key::End),
        (b"\x1b[4~", Key::End),
    ];
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        if let Some((sequence, key)) = SEQUENCES.iter().find(|(s, _)| bytes.starts_with(s)) {
            keys.push(*key);
            bytes = &bytes[sequence.len()..];
            continue;
        }
        match first {
            b'q' | b'Q' | 3 => keys.push(Key::Quit), // Ctrl-C arrives as byte 3, because ISIG is off
            b'j' => keys.push(Key::Lines(1)),
            b'k' => keys.push(Key::Lines(-1)),
            b' ' | b'f' => keys.push(Key::Page(1)),
            b'b' => keys.push(Key::Page(-1)),
            b'g' => keys.push(Key::Start),
            b'G' => keys.push(Key::End),
            b'\t' => keys.push(Key::Section),
            0x1b if rest.first().is_some_and(|&byte| byte == b'[' || byte == b'O') => {
                // The rest of an unknown sequence, which ends with a letter or a tilde.
                let end = rest[1..].iter().position(|byte| (0x40..=0x7e).contains(byte));
                bytes = &rest[end.map_or(rest.len(), |end| end + 2)..];
                continue;
            }
            _ => {}
        }
        bytes = rest;
    }
    keys
}

/// A text of lines of which some are on the screen.
#[derive(Default)]
pub(super) struct View {
    lines: Vec<String>,
    /// Lines at which a table begins.
    titles: Vec<usize>,
    first: usize,
}

impl View {
    /// Replaces the text, one for each table. The position on the screen stays.
    pub(super) fn show(&mut self, tables: &[String]) {
        (self.lines, self.titles) = (Vec::new(), Vec::new());
        for table in tables {
            if !self.lines.is_empty() {
                self.lines.push(String::new());
            }
            self.titles.push(self.lines.len());
            self.lines.extend(table.lines().map(str::to_owned));
        }
    }

    /// Moves by a key on a screen with `rows` lines of text.
    pub(super) fn press(&mut self, key: Key, rows: usize) {
        let page = rows.saturating_sub(1).max(1) as isize;
        let by = |lines: isize| self.first.saturating_add_signed(lines);
        self.first = match key {
            Key::Quit => self.first,
            Key::Lines(lines) => by(lines),
            Key::Page(pages) => by(pages * page),
            Key::Start => 0,
            Key::End => usize::MAX,
            Key::Section => {
                let seen = self.first;
                // From the end of the text back to its start.
                let next = self.titles.iter().copied().find(|&title| title > seen);
                next.filter(|_| seen < self.last(rows)).unwrap_or(0)
            }
        }
        .min(self.last(rows));
    }

    /// The largest first line, with the last line at the bottom of the screen.
    const fn last(&self, rows: usize) -> usize {
        self.lines.len().saturating_sub(rows)
    }

    /// The lines on a screen with `rows` lines of text.
    pub(super) fn visible(&self, rows: usize) -> &[String] {
        let first = self.first.min(self.last(rows));
        &self.lines[first..self.lines.len().min(first + rows)]
    }

    /// The line at the bottom: what is seen, and the keys.
    pub(super) fn status(&self, rows: usize) -> String {
        let all = self.lines.len();
        if all <= rows {
            return "q quits".to_owned();
        }
        let first = self.first.min(self.last(rows));
        let last = all.min(first + rows);
        format!(
            "lines {}-{last} of {all}; arrows, PgUp, PgDn scroll; Tab next table; q quits",
            first + 1
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_between_unknown_sequences() {
        let typed = b"j\x1b[A\x1b[1;5C\x1b[6~x \tG\x1bOBq";
        let expected = [
            Key::Lines(1),
            Key::Lines(-1),
            Key::Page(1),
            Key::Page(1),
            Key::Section,
            Key::End,
            Key::Lines(1),
            Key::Quit,
        ];
        assert_eq!(keys(typed), expected);
        assert_eq!(keys(b"\x1b[\x1b"), []);
    }

    #[test]
    fn every_line_can_be_reached_on_a_small_screen() {
        let table = |name: &str| (0..30).map(|i| format!("{name}{i}\n")).collect::<String>();
        let mut view = View::default();
        view.show(&[table("a"), table("b")]);
        assert_eq!((view.visible(23)[0].as_str(), view.visible(23).len()), ("a0", 23));
        view.press(Key::Section, 23);
        assert_eq!(view.visible(23)[0], "b0");
        view.press(Key::Lines(100), 23);
        assert_eq!(view.visible(23).last().unwrap(), "b29");
        assert!(view.status(23).starts_with("lines 39-61 of 61; "), "{}", view.status(23));
        assert!(view.status(23).len() < 80);
        view.press(Key::Section, 23);
        assert_eq!(view.visible(23)[0], "a0", "from the end to the start");
        view.press(Key::Page(1), 23);
        assert_eq!(view.visible(23)[0], "a22");
        // A shorter text, and a larger screen.
        view.show(&[table("a")]);
        assert_eq!(view.visible(23)[0], "a7");
        assert_eq!((view.visible(40).len(), view.status(40).as_str()), (30, "q quits"));
    }
}
