use super::*;
use crate::compliance::judge;
use crate::dut::YardSpec;
use crate::line::Line;
use crate::trial::SECOND;
use crate::virtual_bench::YardBench;

/// A run short enough for a test: one frame size, short trials, a slow yard.
fn small() -> (Profile, YardSpec) {
    let line = Line::MBIT_10;
    let profile = Profile {
        sizes: vec![Genome::fixed(512)],
        short: SECOND / 5,
        full: SECOND,
        latency: 2 * SECOND,
        latency_repeats: 3,
        burst: SECOND,
        burst_repeats: 2,
        ..Profile::rfc2544(line)
    };
    (profile, YardSpec { frame_ns: 400_000, ring_frames: 64, ..YardSpec::new(line) })
}

struct Written(Vec<TrialResult>, usize);

impl Journal for Written {
    fn recall(&mut self) -> Option<TrialResult> {
        self.1 += 1;
        self.0.get(self.1 - 1).cloned()
    }

    fn keep(&mut self, result: &TrialResult) -> Result<(), MeasureError> {
        self.0.push(result.clone());
        Ok(())
    }
}

#[test]
fn the_whole_suite_and_its_resumption() {
    let (profile, spec) = small();
    let mut journal = Written(Vec::new(), 0);
    let mut seen = Vec::new();
    let mut watch = |progress: &Progress| seen.push((progress.test, progress.steps));
    let first = run(&profile, &mut YardBench(spec), &mut journal, &mut watch).unwrap();
    assert_eq!(seen.len(), first.trials.len());
    let at = &first.sizes[0];
    // One core serves two directions: 1 s / (2 * 400 us), plus the frames that rings and queues
    // buffer during the trial of 1 s.
    let pps = at.throughput.unwrap().load.unwrap().pps();
    assert!((1240.0..1250.0 + 420.0 / 2.0).contains(&pps), "{pps}");
    assert_eq!(at.latency.as_ref().unwrap().samples_ns.len(), 3, "one tagged frame a trial");
    assert!(at.variation.as_ref().unwrap().tl_ns[0] >= 400_000);
    assert!(at.loss_rate.as_ref().unwrap()[0].counts.lost() > 0);
    assert!(at.back_to_back.as_ref().unwrap().mean > 64.0);
    assert_eq!(at.recovery_ns.as_ref().unwrap().len(), 1);
    let reset = at.reset.as_ref().unwrap()[0];
    // A throughput found with trials of 1 s is more than the yard sustains for 16 s. It loses
    // frames throughout the trial, so only the time stamps show the reset.
    assert!((50_000_000..70_000_000).contains(&reset.by_time_ns), "{reset:?}");
    assert!(at.skipped.is_empty(), "{:?}", at.skipped);

    // A run that was stopped half-way and resumed gives the same results and measures only the
    // rest.
    let half = journal.0.len() / 2;
    let mut resumed = Written(journal.0[..half].to_vec(), 0);
    let mut count = 0;
    let mut watch = |_: &Progress| count += 1;
    let second = run(&profile, &mut YardBench(spec), &mut resumed, &mut watch).unwrap();
    assert_eq!(second, first);
    assert_eq!(count, journal.0.len() - half);

    // The journal of a run with other arguments is refused.
    let other = Profile { full: 2 * SECOND, ..profile };
    let mut wrong = Written(journal.0, 0);
    let error = run(&other, &mut YardBench(spec), &mut wrong, &mut |_: &crate::suite::Progress| {})
        .unwrap_err();
    assert!(error.to_string().contains("other arguments"), "{error}");
}

#[test]
fn both_ways_of_timing_a_reset_agree() {
    let (profile, spec) = small();
    let setup = setup(&profile, &profile.sizes[0]);
    let mut bench = YardBench(spec);
    let mut measure = bench.at(&setup).unwrap();
    let mut search = Reset::new(Load::from_pps(500.0), 16 * SECOND, 1, 2);
    while let Some(trial) = search.next_trial() {
        search.record(&measure.measure(&trial).unwrap());
    }
    let reset = search.answer()[0];
    // 50 ms are 25 frames per port, with a tolerance of one frame.
    assert!((24..=26).contains(&(reset.lost / 2)), "{reset:?}");
    assert!(reset.by_time_ns.abs_diff(reset.by_frames_ns) <= 2 * 2_000_000, "{reset:?}");
}

#[test]
fn the_verdict_follows_from_what_was_run() {
    let (profile, spec) = small();
    let results =
        run(&profile, &mut YardBench(spec), &mut NoJournal, &mut |_: &crate::suite::Progress| {})
            .unwrap();
    let verdict = judge(&results);
    assert!(verdict.verdict.starts_with("not compliant"), "{}", verdict.verdict);
    let unmet: Vec<_> =
        verdict.points.iter().filter(|p| p.must && !p.met).map(|p| &p.section[..]).collect();
    assert_eq!(unmet, ["26.2", "26.4"], "three repetitions, and bursts of a second");
    // The same results with the complete profile.
    let full = Results { profile: Profile::rfc2544(Line::MBIT_10), ..results };
    assert!(
        judge(&full).verdict.starts_with("conditionally compliant"),
        "{}",
        judge(&full).verdict
    );
}
