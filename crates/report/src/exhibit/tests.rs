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
    assert_eq!(exhibit.score, Score { counted: 1, agree: 1 });
    assert_eq!(exhibit.rows[0].deviation, Some(0.0625));
    assert_eq!((exhibit.rows[1].kind, exhibit.rows[1].deviation), (Kind::Fitted, None));
    assert_eq!(exhibit.find("c").unwrap().within, None);
    let exhibit = Spec::parse("x", TEXT).unwrap().with(made(12.0, 4.0)).unwrap();
    assert_eq!(exhibit.score, Score { counted: 1, agree: 0 });
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
        let mut made = Made::of(Kind::Predicted);
        made.push("a", ours);
        Spec::parse("x", &text).unwrap().with(made).unwrap()
    };
    let within = |more: &str, paper: f64, ours: f64| row(more, paper, ours).rows[0].within.unwrap();
    assert!(within("", -50.0, -54.0) && !within("", -50.0, -56.0), "a negative number");
    assert!(within("scale = 0.5\ntolerance = 0.05", 10.0, 5.2));
    assert!(!within("scale = 0.5\ntolerance = 0.05", 10.0, 5.3));
    let narrow = "accept = [10.2, 10.8]";
    assert!(within(narrow, 10.0, 10.5) && !within(narrow, 10.0, 10.0));
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
    assert!(exhibit.csv().ends_with("Table 1,\"d\",4.000000,5.000000,0.250000,predicted,true\n"));
}

fn input(name: &str, how: How) -> Input {
    let source = format!("source of {name}");
    Input { name: name.to_owned(), value: 1.0, how, source, interval: None }
}

/// Row `a` is within its range in every case, and row `b` is fitted by the file.
#[test]
fn only_measured_and_predicted_rows_without_fitted_inputs_count() {
    let with = |change: &dyn Fn(&mut Made)| {
        let mut made = Made::default();
        change(&mut made);
        made.push("a", 10.0);
        made.push("b", 2.0);
        Spec::parse("x", TEXT).unwrap().with(made).unwrap()
    };
    let (one, none) = (Score { counted: 1, agree: 1 }, Score::default());
    for kind in Kind::ALL {
        let counts = [Kind::Measured, Kind::Predicted].contains(&kind);
        let exhibit = with(&|made| made.using(kind, [input("p.x", How::Assumed)]));
        assert_eq!(exhibit.score, if counts { one } else { none }, "{kind:?}");
        assert_eq!(exhibit.rows[0].inputs, ["p.x"]);
        let inputs = [input("p.x", How::Assumed), input("p.y", How::Fitted)];
        let exhibit = with(&|made| made.using(kind, inputs.clone()));
        assert_eq!(exhibit.score, none, "{kind:?} with a fitted input");
        assert_eq!(exhibit.rows[0].fitted_inputs, ["p.y"]);
        assert_eq!(exhibit.rows[0].within, Some(true));
    }
}

#[test]
fn the_table_tells_where_each_number_comes_from() {
    let mut made = Made::default();
    made.using(Kind::Predicted, [input("p.x_ns", How::Fitted)]);
    made.push("a", 10.0);
    made.using(Kind::Predicted, [input("p.z", How::Published)]);
    made.push("b", 2.0);
    made.push_against("d", Some((3.0, Spread::of(&[3.0, 1.0, 2.5, 2.0]))), 3.1);
    let exhibit = Spec::parse("x", TEXT).unwrap().with(made).unwrap();
    let row = exhibit.find("d").unwrap();
    let spread = Spread { rounds: 4, least: 1.0, median: 2.25, most: 3.0 };
    assert_eq!((row.reference, row.spread), (Some(Kind::Measured), Some(spread)));
    assert_eq!(exhibit.rows[0].reference, Some(Kind::Copied));
    let text = exhibit.table().to_text(&crate::Style::plain());
    for told in [
        "predicted from fitted x_ns",
        "1.000 to 3.000, 4",
        "p.x_ns to source of p.x_ns",
        "2 inputs. 1 row has a fitted input",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert_eq!(
        exhibit.provenance(),
        "2 predicted, 1 fitted, 1 of the predicted from fitted inputs"
    );
    assert_eq!(exhibit.score, Score { counted: 1, agree: 1 });
}

#[test]
fn errors_of_the_paper_are_beside_the_figure() {
    let text =
        TEXT.replacen("[[row]]", "[[erratum]]\nsays = \"S.\"\nevidence = \"E.\"\n[[row]]", 1);
    let exhibit = Spec::parse("x", &text).unwrap().with(made(10.0, 2.0)).unwrap();
    assert_eq!(exhibit.remarks(), ["Error in the source: S. Evidence: E."]);
}

#[test]
fn the_input_that_moves_the_result_most_is_first() {
    let run = |x: f64, y: f64| {
        let rows = [("a", x), ("b", x * x + y), ("c", 0.0)];
        rows.map(|(name, value)| (name.to_owned(), value)).to_vec()
    };
    let mut made = Made::default();
    made.using(Kind::Predicted, [input("p.y", How::Assumed), input("p.x", How::Fitted)]);
    run(10.0, 1.0).into_iter().for_each(|(name, value)| made.push(name, value));
    let exhibit = Spec::parse("x", TEXT).unwrap().with(made).unwrap();
    let runs = [[run(10.0, 0.5), run(10.0, 2.0)], [run(5.0, 1.0), run(20.0, 1.0)]];
    let found = Sensitivity::of(&exhibit, &runs);
    assert_eq!(found.result, "a", "the first row with a number in the paper");
    let names: Vec<&str> = found.effects.iter().map(|effect| &*effect.input.name).collect();
    assert_eq!(names, ["p.x", "p.y"]);
    assert_eq!(found.effects[0].result, [Some(-0.5), Some(1.0)]);
    let most = found.effects[0].most.clone().unwrap();
    assert_eq!((most.row.as_str(), most.share), ("b", 401.0 / 101.0 - 1.0));
    // Row `c` is zero, so it has no change as a share.
    assert_eq!(found.effects[1].result, [Some(0.0), Some(0.0)]);
    let text = found.table().to_text(&crate::Style::plain());
    assert!(text.contains("-50.0 %") && text.contains("+100.0 %"), "{text}");
}

/// One tolerance for one table: a row may be stricter than its table.
#[test]
fn a_row_that_accepts_more_than_its_table_is_refused() {
    let file = |row: &str| {
        let head = "name = \"x\"\ntitle = \"\"\npaper = \"\"\nplace = \"\"\ncommand = \"\"\nunit = \"\"\ntolerance = 0.2\n";
        Spec::parse("x", &format!("{head}[[row]]\nname = \"a\"\n{row}"))
    };
    for good in [
        "paper = 10.0\ntolerance = 0.1",
        "paper = 10.0\naccept = [8.0, 11.0]",
        "paper = 10.0\nscale = 0.5\naccept = [4.0, 6.0]",
        "paper = -10.0\naccept = [-12.0, -8.0]",
        "paper = 10.0\nbound = \"below\"\ntolerance = 0.0",
        "accept = [0.0, 100.0]",
    ] {
        assert!(file(good).is_ok(), "{good}: {:?}", file(good));
    }
    for lax in [
        "paper = 10.0\ntolerance = 0.3",
        "paper = 10.0\naccept = [7.9, 11.0]",
        "paper = 10.0\naccept = [9.0, 12.1]",
        "paper = 10.0\nscale = 0.5\naccept = [4.0, 6.1]",
    ] {
        let told = file(lax).unwrap_err().to_string();
        assert!(told.contains("row 'a' accepts more"), "{lax}: {told}");
    }
}
