//! The output of the crate: text tables to the character, SVG and HTML by structure, no panic on any data.

use flowyard_report::{Axis, Card, Cell, Column, Page, Plot, Section, Style, Table, Tone, Unit};
use proptest::prelude::*;
use roxmltree::Document;

fn table() -> Table {
    Table::new("Policies")
        .column(Column::text("policy"))
        .column(Column::number("rate").unit("Mpps"))
        .column(Column::text("queues"))
        .column(Column::text("locality"))
        .row([Cell::new("rss"), Cell::new("1.23"), Cell::spark([1.0, 2.0, 4.0]), Cell::share(0.25)])
        .row([
            Cell::new("flow director, signature filters"),
            Cell::new("14.1"),
            Cell::spark([3.0, 3.0]),
            Cell::share(1.0).tone(Tone::Good),
        ])
        .total([Cell::new("both"), Cell::new("15.3")])
        .note("A note.")
}

#[test]
fn a_table_is_aligned_and_has_one_line_under_its_heading() {
    let want = "\
Policies

policy                            rate  queues  locality
                                  Mpps
────────────────────────────────  ────  ──────  ────────────────────
rss                               1.23  ▃▅█     ███           25.0 %
flow director, signature filters  14.1  ██      ████████████   100 %
────────────────────────────────  ────  ──────  ────────────────────
both                              15.3
A note.
";
    assert_eq!(table().to_text(&Style::plain()), want);
}

#[test]
fn a_narrow_table_wraps_words_and_never_numbers() {
    let want = "\
Policies

policy         rate  queues  locality
               Mpps
-------------  ----  ------  --------------------
rss            1.23  :=#     ###.........  25.0 %
flow           14.1  ##      ############   100 %
director,
signature
filters
-------------  ----  ------  --------------------
both           15.3
A note.
";
    let style = Style { width: Some(49), colour: false, ascii: true };
    assert_eq!(table().to_text(&style), want);
}

#[test]
fn a_table_too_narrow_for_its_numbers_becomes_blocks() {
    let want = "\
Policies

policy       rss
rate (Mpps)  1.23
queues       ▃▅█
locality     ███           25.0 %

policy       flow director, signature filters
rate (Mpps)  14.1
queues       ██
locality     ████████████   100 %

policy       both
rate (Mpps)  15.3
A note.
";
    let style = Style { width: Some(25), ..Style::plain() };
    assert_eq!(table().to_text(&style), want);
}

#[test]
fn a_table_too_wide_becomes_several_with_the_same_first_column() {
    let table = Table::new("Load")
        .column(Column::number("queue"))
        .column(Column::number("rss").unit("packets"))
        .column(Column::number("").unit("bytes"))
        .column(Column::number("could reorder").unit("packets"))
        .row(["0", "1,234", "5 MiB", "7"].map(Cell::from))
        .row(["1", "99", "1 KiB", "0"].map(Cell::from));
    let want = "\
Load

queue      rss
       packets  bytes
─────  ───────  ─────
    0    1,234  5 MiB
    1       99  1 KiB

queue  could reorder
             packets
─────  ─────────────
    0              7
    1              0
";
    let style = Style { width: Some(22), ..Style::plain() };
    assert!(!table.fits(&style));
    assert_eq!(table.to_text(&style), want);
    // Headings are broken before anything else.
    let wide = table.to_text(&Style { width: Some(30), ..Style::plain() });
    assert!(wide.starts_with("Load\n\nqueue      rss           could\n"), "{wide}");
    // In blocks, a column without a name says what it continues.
    let blocks = table.to_text(&Style { width: Some(10), ..Style::plain() });
    assert!(blocks.contains("rss (bytes)              5 MiB\n"), "{blocks}");
}

#[test]
fn colour_is_used_on_request_and_the_data_cannot_control_the_terminal() {
    let table = Table::new("t").column(Column::text("a")).row([Cell::new("x\x1b[2J\u{202e}y\n")]);
    let plain = table.to_text(&Style::plain());
    assert!(!plain.contains('\x1b') && !plain.contains('\u{202e}'), "{plain:?}");
    let coloured = table.to_text(&Style::terminal(80));
    assert!(coloured.contains("\x1b[1ma\x1b[0m") && !coloured.contains("\x1b[2J"), "{coloured:?}");
}

fn count(svg: &Document<'_>, class: &str) -> usize {
    let has = |n: &roxmltree::Node<'_, '_>| {
        n.attribute("class").is_some_and(|c| c.split(' ').any(|c| c == class))
    };
    svg.descendants().filter(has).count()
}

fn texts<'a>(svg: &'a Document<'_>) -> Vec<&'a str> {
    svg.descendants()
        .filter(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "text")))
        .filter_map(|n| n.text())
        .collect()
}

#[test]
fn bars_are_as_high_as_their_values() {
    let svg = Plot::new(
        "Load",
        Axis::categories("queue", ["a", "b"]),
        Axis::linear("frames", Unit::Count).range(0.0, 100.0),
    )
    .bars("rss", [100.0, 50.0])
    .bars("rfs", [25.0, f64::NAN])
    .limit_y(50.0, "half")
    .to_svg();
    let svg = Document::parse(&svg).expect("well-formed");
    let root = svg.root_element();
    assert_eq!(root.attribute("role"), Some("img"));
    assert_eq!(
        root.attribute("aria-label"),
        Some("Load: plot of frames by queue, series rss, rfs")
    );
    let bars: Vec<(f64, String)> = svg
        .descendants()
        .filter(|n| n.has_children() && n.attribute("class").is_some_and(|c| c.starts_with("bar")))
        .map(|n| {
            let tip = n.children().find_map(|c| c.text()).unwrap_or("").to_string();
            (n.attribute("height").unwrap().parse().unwrap(), tip)
        })
        .collect();
    let full = bars[0].0;
    let want = [(1.0, "rss, queue a: 100"), (0.5, "rss, queue b: 50"), (0.25, "rfs, queue a: 25")];
    assert_eq!(bars.len(), want.len(), "a value that is not a number has no bar");
    for ((height, tip), (part, words)) in bars.iter().zip(want) {
        assert!((height - full * part).abs() < 0.11, "{height} of {full}");
        assert_eq!(tip, words);
    }
    let words = texts(&svg);
    for word in ["Load", "queue", "frames", "half", "0", "100", "n/a", "rss", "rfs"] {
        assert!(words.contains(&word), "{word} in {words:?}");
    }
}

#[test]
fn a_long_series_is_thinned_but_keeps_its_peak() {
    let mut points: Vec<(f64, f64)> = (0..200_000).map(|i| (f64::from(i), 1.0)).collect();
    points[123_457].1 = 1000.0;
    let svg = Plot::new(
        "t",
        Axis::linear("time", Unit::Nanos),
        Axis::linear("frames", Unit::Count).range(0.0, 1000.0),
    )
    .steps("queue", points)
    .to_svg();
    assert!(svg.len() < 60_000, "{} bytes", svg.len());
    let svg = Document::parse(&svg).unwrap();
    let path =
        svg.descendants().find(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "path"))).unwrap();
    let top = svg
        .descendants()
        .filter(|n| n.attribute("class") == Some("grid"))
        .filter_map(|n| n.attribute("y1")?.parse::<f64>().ok())
        .fold(f64::MAX, f64::min);
    let d = path.attribute("d").unwrap();
    let highest = d
        .split(['H', 'V', 'M', ' '])
        .filter_map(|v| v.parse::<f64>().ok())
        .fold(f64::MAX, f64::min);
    assert!(
        (highest - top).abs() < 0.11 || d.contains(&format!("V{top}")),
        "{highest} against {top}"
    );
}

/// On an axis of categories, the x of a point is the index of a category.
#[test]
fn a_line_over_categories_is_drawn() {
    let names: Vec<String> = (4..=15).map(|n| (1 << n).to_string()).collect();
    let points: Vec<_> = (0..12).map(|n| (f64::from(n), f64::from(n) / 12.0)).collect();
    let plot = Plot::new(
        "Hit ratio",
        Axis::categories("bytes in each cache", names),
        Axis::linear("hits", Unit::Share).range(0.0, 1.0),
    );
    let text = plot.line("reads", points).to_svg();
    let svg = Document::parse(&text).unwrap();
    assert!(!text.contains("no data") && text.contains("reads, 32768: "), "{text}");
    // The points are in the middle of their categories, from left to right.
    // The mark in the legend has no title.
    let is_mark = |node: &roxmltree::Node<'_, '_>| node.attribute("class") == Some("mark");
    let marks = svg.descendants().filter(is_mark).filter(roxmltree::Node::has_children);
    let at: Vec<f64> = marks.filter_map(|node| node.attribute("cx")?.parse().ok()).collect();
    assert!(at.len() == 12 && at.is_sorted() && at[0] > 20.0, "{at:?} in {text}");
}

#[test]
fn a_distribution_rises_from_zero_to_one() {
    let samples = vec![f64::NAN, 4.0, 1.0, 2.0, 3.0];
    let plot = Plot::new(
        "cdf",
        Axis::linear("x", Unit::Plain("")).range(0.0, 4.0),
        Axis::linear("share", Unit::Share),
    )
    .cdf("s", samples);
    let svg = plot.to_svg();
    let svg = Document::parse(&svg).unwrap();
    let path =
        svg.descendants().find(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "path"))).unwrap();
    let d = path.attribute("d").unwrap();
    let heights: Vec<f64> =
        d.split('V').skip(1).map(|v| v.split('H').next().unwrap().parse().unwrap()).collect();
    assert_eq!(heights.len(), 4, "four samples, four rises: {d}");
    for pair in heights.windows(2) {
        assert!((pair[0] - pair[1] - (heights[0] - heights[3]) / 3.0).abs() < 0.2, "{heights:?}");
    }
    assert_eq!(count(&svg, "line"), 2, "the line and its legend");
}

#[test]
fn a_page_is_self_contained_and_escapes_everything() {
    let evil = "<script>alert(1)</script>\"'&\u{0}";
    let plot = Plot::new(evil, Axis::categories(evil, [evil]), Axis::linear(evil, Unit::Count))
        .bars(evil, [1.0])
        .limit_y(1.0, evil)
        .note(evil);
    let page = Page::new(evil)
        .subtitle(evil)
        .command(evil)
        .time(evil)
        .card(Card::new(evil, evil).detail(evil))
        .section(
            Section::new(evil)
                .text(evil)
                .note(evil)
                .list([evil])
                .definitions([(evil, evil)])
                .plot(plot.clone())
                .plots([plot])
                .table(
                    Table::new(evil)
                        .column(Column::text(evil).unit(evil))
                        .row([Cell::new(evil), Cell::bar(0.5, evil)])
                        .note(evil),
                ),
        )
        .footnote(evil);
    let html = page.to_html();
    assert!(!html.contains("<script") && !html.contains('\u{0}'));
    assert!(html.contains("&lt;script&gt;alert(1)"));
    for outside in ["src=", "href=\"http", "@import", "url(http", "//fonts"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(!page.to_text(&Style::plain()).contains('\u{0}'));
    // Except for void elements the page is XML: every tag is closed.
    let body = &html[html.find("<body>").unwrap()..html.find("</html>").unwrap()];
    Document::parse(body).expect("balanced tags");
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e6f64..1e6,
        2 => any::<f64>(),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(0.0),
    ]
}

fn any_axis() -> impl Strategy<Value = Axis> {
    let unit = prop_oneof![
        Just(Unit::Count),
        Just(Unit::Nanos),
        Just(Unit::Share),
        Just(Unit::Bytes),
        Just(Unit::Plain("B"))
    ];
    let names = prop::collection::vec("\\PC{0,30}", 0..70);
    let range = prop::option::of((any_number(), any_number()));
    let ticks = prop::collection::vec(any_number(), 0..4);
    ("\\PC{0,80}", 0..3, unit, names, range, ticks).prop_map(
        |(title, kind, unit, names, range, ticks)| {
            let axis = match kind {
                0 => Axis::linear(title, unit),
                1 => Axis::log(title, unit),
                _ => Axis::categories(title, names),
            };
            let axis = axis.ticks_at(ticks);
            if let Some((from, to)) = range { axis.range(from, to) } else { axis }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_plot_is_well_formed_and_has_only_finite_positions(
        title in any::<String>(),
        x in any_axis(),
        y in any_axis(),
        bars in prop::collection::vec(prop::collection::vec(any_number(), 0..70), 0..4),
        points in prop::collection::vec((any_number(), any_number()), 0..90),
        limit in any_number(),
        is_stacked: bool,
    ) {
        let mut plot = Plot::new(title, x, y);
        for (i, values) in bars.into_iter().enumerate() {
            plot = plot.bars(format!("set {i}"), values);
        }
        let samples: Vec<f64> = points.iter().map(|p| p.0).collect();
        plot = plot.line("l", points.clone()).steps("s", points.clone()).points("p", points).cdf("c", samples);
        plot = plot.limit_x(limit, "here").limit_y(limit, "there");
        if is_stacked {
            plot = plot.stacked();
        }
        let svg = plot.to_svg();
        let parsed = Document::parse(&svg).expect("well-formed");
        for node in parsed.descendants() {
            for attribute in node.attributes() {
                let is_place = ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "d"].contains(&attribute.name());
                let value = attribute.value();
                prop_assert!(!is_place || !(value.contains("NaN") || value.contains("inf")), "{value}");
                if ["width", "height"].contains(&attribute.name()) {
                    prop_assert!(!value.starts_with('-'), "{value}");
                }
            }
        }
        for style in [Style::plain(), Style { width: Some(20), colour: true, ascii: true }] {
            prop_assert!(plot.to_text(&style).ends_with('\n'));
        }
    }

    #[test]
    fn any_table_keeps_its_width_and_its_text(
        names in prop::collection::vec("[a-z ]{0,12}", 0..5),
        rows in prop::collection::vec(prop::collection::vec("[a-z0-9 é]{0,30}", 0..7), 0..6),
        width in 1usize..120,
    ) {
        let mut table = Table::new("");
        for (i, name) in names.iter().enumerate() {
            table = table.column(if i % 2 == 0 { Column::text(name) } else { Column::number(name) });
        }
        for row in &rows {
            table.push(row.iter().map(Cell::new));
        }
        let text = table.to_text(&Style { width: Some(width), ..Style::plain() });
        let is_blocks = !text.contains('─');
        let has_rule = rows.iter().any(|r| !r.is_empty()) || !names.is_empty();
        for line in text.lines().filter(|l| *l != "(no rows)") {
            prop_assert!(is_blocks || !has_rule || line.chars().count() <= width, "{line:?} in {width}");
            prop_assert_eq!(line, line.trim_end());
        }
        let letters = |s: &str| s.chars().filter(|c| c.is_alphanumeric()).count();
        let given: usize = rows.iter().flatten().map(|c| letters(c)).sum();
        prop_assert!(letters(&text) >= given, "no letter is lost");
    }
}
