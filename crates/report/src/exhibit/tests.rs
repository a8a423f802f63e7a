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
    let exhibit = Spec::parse("x", TEXT).unwrap().with(made(10.625, 2.0)).unwrap();
    assert_eq!(exhibit.score(), (1, 1));
    assert_eq!(exhibit.rows[0].deviation, Some(0.0625));
    assert_eq!((exhibit.rows[1].kind, exhibit.rows[1].deviation), (Kind::Fitted, None));
    assert_eq!(exhibit.find("c").unwrap().within, None);
    let exhibit = Spec::parse("x", TEXT).unwrap().with(made(12.0, 4.0)).unwrap();
    assert_eq!(exhibit.score(), (1, 0));
    let text = exhibit.table().to_text(&crate::Style::plain());
    assert!(text.contains("≤ 3") && text.contains("+33.3 %"), "{text}");
}

#[test]
fn a_row_that_nothing_was_computed_for_is_an_error() {
    let spec = Spec::parse("x", TEXT).unwrap();
    let mut made = Made::default();
    made.push("a", 1.0);
    assert!(spec.with(made).unwrap_err().to_string().contains("row 'b'"));
    assert!(Spec::parse("x", "name = 1").is_err());
}

#[test]
fn the_accepted_range_follows_scale_tolerance_and_accept() {
    let row = |more: &str, paper: f64, ours: f64| {
        let head = TEXT.split("[[row]]").next().unwrap();
        let text = format!("{head}[[row]]\nname = \"a\"\npaper = {paper:.1}\n{more}\n");
        let mut made = Made::of(Kind::Simulated);
        made.push("a", ours);
        Spec::parse("x", &text).unwrap().with(made).unwrap()
    };
    let within = |more: &str, paper: f64, ours: f64| row(more, paper, ours).rows[0].within.unwrap();
    assert!(within("", -50.0, -54.0) && !within("", -50.0, -56.0), "a negative number");
    assert!(within("scale = 0.5\ntolerance = 0.2", 10.0, 5.9));
    assert!(!within("scale = 0.5\ntolerance = 0.2", 10.0, 6.1));
    assert!(within("accept = [20, 30]", 10.0, 25.0) && !within("accept = [20, 30]", 10.0, 10.0));
    assert!(within("bound = \"above\"", 10.0, 9.5) && !within("bound = \"above\"", 10.0, 8.5));
    assert!(within("tolerance = 0", 0.0, 0.0) && !within("tolerance = 0", 0.0, 1e-9));
    assert!(!within("", 10.0, f64::NAN));
    // A reason is wanted exactly where the number is outside.
    let reason = "not_met = \"because\"";
    for (more, ours, unexpected) in
        [("", 10.0, 0), ("", 20.0, 1), (reason, 20.0, 0), (reason, 10.0, 1)]
    {
        let exhibit = row(more, 10.0, ours);
        assert_eq!(exhibit.unexpected().count(), unexpected, "{more} {ours}");
    }
    let told = row(reason, 10.0, 20.0).remarks();
    assert_eq!(told, ["Outside the accepted range: a. because"]);
}

#[test]
fn a_number_to_compare_with_may_come_from_the_run() {
    let mut made = made(10.0, 2.0);
    made.push_beside("d", 4.0, 5.0);
    let exhibit = Spec::parse("x", TEXT).unwrap().with(made).unwrap();
    let row = exhibit.find("d").unwrap();
    assert_eq!((row.paper, row.deviation, row.within), (Some(4.0), Some(0.25), Some(false)));
    assert!(exhibit.csv().ends_with("Table 1,\"d\",4.000000,5.000000,0.250000\n"));
}
