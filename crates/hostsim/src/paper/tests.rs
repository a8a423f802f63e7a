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

#[test]
fn port_mapping_is_flat_and_linear_lookup_collapses() {
    let figure = figure("kth-baseline");
    let (of, within) = figure.score();
    assert_eq!(of, within, "{}", figure.table().to_text(&flowyard_report::Style::plain()));
    let flat = ours(&figure, "8100 entries, port-mapping") / ours(&figure, "1 entry, port-mapping");
    assert!((flat - 1.0).abs() < 0.01);
    assert!(ours(&figure, "8100 entries, linear") * 30.0 < ours(&figure, "1 entry, linear"));
}

#[test]
fn break_even_flow_lengths_are_within_a_factor_of_one_and_a_half() {
    let figure = figure("kth-caching");
    let random = ours(&figure, "random flows: break-even, packets");
    let worst = ours(&figure, "worst case: break-even, packets");
    assert!((100.0 / 1.5..150.0).contains(&random), "{random}");
    assert!((10_000.0 / 1.5..15_000.0).contains(&worst), "{worst}");
}

#[test]
fn cores_add_up_and_hyper_threads_do_not() {
    let figure = figure("kth-multicore");
    let one = ours(&figure, "port-mapping, 1 core, without hyper-threading");
    let four = ours(&figure, "port-mapping, 4 cores, without hyper-threading");
    assert!((four / one - 4.0).abs() < 0.1);
    assert!(ours(&figure, "port-mapping, 4 cores, with hyper-threading") < four);
}

#[test]
fn gain_is_linear_until_an_end_is_the_limit_and_the_baseline_is_flat() {
    let figure = figure("dlb-workers");
    let at = |n: usize| ours(&figure, &format!("64 B, hardware queue, {n}+2"));
    let baseline = ours(&figure, "64 B, original, any number of cores");
    assert!(at(1) < baseline, "one worker is slower than none");
    for n in 2..=8 {
        assert!((at(n) / (n as f64 * at(1)) - 1.0).abs() < 0.05, "{n}: {}", at(n));
    }
    assert!(at(10) < 9.5 * at(1), "then the producer is the limit");
    assert!((ours(&figure, "512 B, hardware queue, 8+2") / at(8) - 1.0).abs() < 0.03);
    let mice = self::figure("dlb-mice");
    assert_eq!(mice.score().0, mice.score().1);
    assert!(ours(&mice, "mice, elephant on their core: delivered, %") < 10.0);
}

#[test]
fn the_newer_platform_is_a_fifth_faster_and_fourteen_hours_change_nothing() {
    let figure = figure("lanner-gigabit");
    let gain = ours(&figure, "2 ports, 64 B: i5-2400 over i5-660, %");
    assert!((15.0..25.0).contains(&gain), "{gain}");
    let figure = self::figure("lanner-10g");
    let short = ours(&figure, "i5-2400, 64 B: Gb/s, 30 s");
    assert!((ours(&figure, "i5-2400, 64 B: Gb/s, 14 h") / short - 1.0).abs() < 1e-3);
}
