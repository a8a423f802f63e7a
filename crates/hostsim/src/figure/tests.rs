use super::*;

const TEXT: &str = "name = \"x\"\ntitle = \"X\"\npaper = \"P\"\nplace = \"Table 1\"\ncommand = \"c\"\n\
    unit = \"Mpps\"\ntolerance = 0.1\n[[row]]\nname = \"a\"\npaper = 10\n[[row]]\nname = \"b\"\npaper = 3\n\
    bound = \"below\"\nkind = \"fitted\"\n";

fn made(a: f64, b: f64) -> Made {
    let mut made = Made::default();
    made.push("a", a);
    made.push("b", b);
    made.push("c", 1.0);
    made
}

#[test]
fn rows_meet_by_name_and_bounds_are_kept_or_not() {
    let figure = File::parse("x", TEXT).unwrap().with(made(10.625, 2.0)).unwrap();
    assert_eq!(figure.score(), (2, 2));
    assert_eq!(figure.rows[0].deviation, Some(0.0625));
    assert_eq!((figure.rows[1].kind, figure.rows[1].deviation), (Kind::Fitted, None));
    assert_eq!(figure.find("c").unwrap().within, None);
    let figure = File::parse("x", TEXT).unwrap().with(made(12.0, 4.0)).unwrap();
    assert_eq!(figure.score(), (2, 0));
    let text = figure.table().to_text(&flowyard_report::Style::plain());
    assert!(text.contains("≤ 3") && text.contains("+33.3 %"), "{text}");
}

#[test]
fn a_row_that_nothing_was_computed_for_is_an_error() {
    let file = File::parse("x", TEXT).unwrap();
    let mut made = Made::default();
    made.push("a", 1.0);
    assert!(file.with(made).unwrap_err().to_string().contains("row 'b'"));
    assert!(File::parse("x", "name = 1").is_err());
}
