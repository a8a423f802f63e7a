use flowyard_report::exhibit::Kind;

use super::*;

fn figure(name: &str) -> Exhibit {
    make(name, &Context::default()).unwrap().unwrap()
}

fn ours(figure: &Exhibit, row: &str) -> f64 {
    figure.find(row).unwrap_or_else(|| panic!("{}: no row {row}", figure.name)).ours
}

#[test]
fn every_file_has_the_name_of_its_figure() {
    for (name, text, _) in FIGURES {
        let file = Spec::parse(name, text).unwrap();
        assert_eq!(file.name, name);
        assert_eq!(file.command, format!("flowyard figures {name}"));
        assert!((0.0..1.0).contains(&file.tolerance) && !file.notes.is_empty(), "{name}");
    }
    assert!(make("no such figure", &Context::default()).is_none());
}

/// What the files of the figures promise: a row is outside its range exactly if it has a reason. And agreement of
/// a row counts only if nothing in it was fitted to the same paper.
#[test]
fn rows_have_reasons_and_inputs_and_none_with_a_fitted_input_counts() {
    for name in names() {
        let figure = figure(name);
        let wrong: Vec<_> = figure.unexpected().map(|row| (&row.name, row.ours)).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
        for row in &figure.rows {
            let at = format!("{name}: {}", row.name);
            assert!(!row.counts || row.fitted_inputs.is_empty(), "{at}");
            match row.kind {
                Kind::Predicted | Kind::Assumed => assert!(!row.inputs.is_empty(), "{at}"),
                Kind::Fitted => assert!(!row.fitted_inputs.is_empty(), "{at}: fitted by what?"),
                Kind::Computed | Kind::Arithmetic => assert!(!row.counts, "{at}"),
                Kind::Measured | Kind::Copied => panic!("{at}: {:?}", row.kind),
            }
            for input in &row.inputs {
                assert!(figure.inputs.iter().any(|known| known.name == *input), "{at}: {input}");
            }
        }
    }
    // A profile without fitted constants would make the test empty.
    assert!(figure("kth-baseline").rows.iter().all(|row| !row.fitted_inputs.is_empty()));
    assert!(figure("lanner-gigabit").rows.iter().all(|row| row.fitted_inputs.is_empty()));
}

#[test]
fn a_linear_lookup_falls_as_the_slides_say_at_the_sizes_that_were_not_fitted() {
    let figure = figure("kth-baseline");
    // Fitted at 1 and 1,100 entries. A cost that grew with the square would be far below.
    for (entries, slides) in [(100, 360.0), (2100, 45.0), (4100, 24.0), (8100, 13.0)] {
        let ours = ours(&figure, &format!("{entries} entries, linear"));
        assert!((ours / slides - 1.0).abs() < 0.08, "{entries}: {ours}");
    }
}

#[test]
fn cores_add_up() {
    let figure = figure("kth-multicore");
    let one = ours(&figure, "port-mapping, 1 core, without hyper-threading");
    let four = ours(&figure, "port-mapping, 4 cores, without hyper-threading");
    assert!((four / one - 4.0).abs() < 0.01, "{four} {one}");
}

#[test]
fn gain_is_linear_until_an_end_is_the_limit() {
    let figure = figure("dlb-workers");
    let at = |n: usize| ours(&figure, &format!("64 B, hardware queue, {n}+2"));
    let baseline = ours(&figure, "64 B, original, any number of cores");
    assert!(at(1) < baseline, "one worker is slower than none");
    for n in 2..=8 {
        assert!((at(n) / (n as f64 * at(1)) - 1.0).abs() < 0.05, "{n}: {}", at(n));
    }
    assert!(at(10) < 9.5 * at(1), "then the producer is the limit");
    let mice = self::figure("dlb-mice");
    assert_eq!(mice.score.counted, 0, "the cost of a frame is fitted");
    // One core forwards 22 / 7 Mpps of the 148.8 Mpps that arrive, whosever they are.
    let delivered = ours(&mice, "mice, elephant on their core: delivered, %");
    assert!((delivered / (100.0 * 22.0 / 7.0 / 148.81) - 1.0).abs() < 0.02, "{delivered}");
}

/// Of the changes that are tried, one puts the wall of RFS where the paper has it, and the figure says why it is not likely.
/// Threads that are not pinned bring it nearer, and bring the adapter without RFS within both of its limits.
#[test]
fn threads_that_are_not_pinned_bring_the_wall_of_rfs_nearer() {
    let figure = figure("fdir-rfs-wall");
    let of = |case: &str, what: &str| ours(&figure, &format!("{case}: {what}"));
    let note = figure.notes.iter().find(|note| note.starts_with("Wall of RFS")).unwrap();
    assert!(note.ends_with("ATR: 2 queues."), "{note}");
    let [pinned, free] = ["as in fdir-memcached", "threads not pinned"];
    let wall = |case| of(case, "RFS, latency's wall");
    assert!((2.4..2.8).contains(&wall(pinned)) && (1.6..2.1).contains(&wall(free)));
    for (what, most) in [("latency's wall", 1.6), ("most responses", 3.0)] {
        assert!(of(free, &format!("RSS, {what}")) < most, "{what}");
    }
    for steering in ["RFS", "RSS"] {
        let ratio = |case| of(case, &format!("{steering}, wall by most"));
        assert!(ratio(free) < 0.62 && 0.6 < ratio(pinned), "{steering}");
    }
    // It is no change that favours RFS: ATR loses more.
    assert!(of(free, "ATR, latency's wall") < 0.7 * of(pinned, "ATR, latency's wall"));
}

/// The controls of the memcached figure: the number of queues alone explains most of the gain of ATR, and without it ATR
/// is slower than a hash over more queues.
#[test]
fn most_of_the_gain_of_atr_is_the_number_of_its_queues() {
    let figure = figure("fdir-memcached");
    let peak = |name: &str| ours(&figure, &format!("{name}: most responses"));
    assert!(peak("control: Flow Director ATR, 8 queues") < peak("16 queues by RSS"));
    assert!(peak("control: RSS, 32 queues") < peak("X520, Flow Director ATR"));
    for both in ["RSS", "ATR"] {
        let row = format!("of the gain of ATR: 32 instead of 8 queues, both with {both}, %");
        let share = ours(&figure, &row);
        assert!((65.0..90.0).contains(&share), "{row}: {share}");
    }
    let note = figure.notes.iter().find(|note| note.starts_with("Controls")).unwrap();
    assert!(note.contains("ATR has 32 queues here, the ConnectX-3 has 8"), "{note}");
    assert!(note.contains("most of the gain in responses is the number of queues"), "{note}");
}

/// On a machine with as many processors as RSS has queues, the controls equal the cases, and nothing is concluded.
#[test]
fn without_more_queues_nothing_is_concluded_from_the_controls() {
    let figure = figure_on("fdir-memcached", "rose-city", [1, 4, 2]).unwrap();
    let note = figure.notes.iter().find(|note| note.starts_with("Controls")).unwrap();
    assert!(note.contains("ATR has 8 queues here, the ConnectX-3 has 8"), "{note}");
    assert!(!note.contains("most of the gain"), "{note}");
}

/// The figure `name` with another machine in the profile `of`: its sockets, cores and threads.
fn figure_on(name: &str, of: &str, machine: [u16; 3]) -> Result<Exhibit, FigureError> {
    let mut profile = crate::profile::Profile::named(of).unwrap();
    let [sockets, cores, threads] = machine;
    profile.machine = crate::machine::Machine { sockets, cores, threads };
    make(name, &Context { given: vec![profile], ..Context::default() }).unwrap()
}

/// A profile that a user gives may have any machine: a figure uses all of its cores, or says what it needs.
#[test]
fn figures_accept_every_machine_or_say_what_they_need() {
    let four = figure_on("kth-multicore", "kth", [1, 4, 2]).unwrap();
    let two_sockets = figure_on("kth-multicore", "kth", [2, 2, 2]).unwrap();
    for (a, b) in four.rows.iter().zip(&two_sockets.rows) {
        assert_eq!((&a.name, a.ours), (&b.name, b.ours));
    }
    let eight = figure_on("kth-multicore", "kth", [2, 4, 2]).unwrap();
    let rate =
        |cores: &str| ours(&eight, &format!("port-mapping, {cores}, without hyper-threading"));
    assert!((rate("8 cores") / rate("1 core") - 8.0).abs() < 0.01);
    for (name, of, machine, needs) in [
        ("kth-multicore", "kth", [1, 4, 1], "2 threads in each core"),
        ("kth-multicore", "kth", [2, 4, 1], "2 threads in each core"),
        ("lanner-gigabit", "lanner", [1, 2, 1], "at least 4 processors"),
    ] {
        let error = figure_on(name, of, machine).unwrap_err().to_string();
        assert!(error.contains(of) && error.contains(needs), "{name}: {error}");
    }
    for machine in [[1, 1, 1], [1, 1, 2], [2, 1, 1], [2, 128, 2]] {
        for (name, of) in
            [("kth-multicore", "kth"), ("lanner-gigabit", "lanner"), ("lanner-10g", "lanner")]
        {
            let _ = figure_on(name, of, machine); // no panic
        }
    }
}
