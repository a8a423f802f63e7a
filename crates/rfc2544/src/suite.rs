//! The suite: runs the tests of a profile, size by size, with a journal that makes a run resumable.
//!
//! ```text
//!  Profile ─> for each size: Setup ─> Bench::at ─> Measure
//!                 each test: Search ─ trial ─> Journal: known? else measure, write ─> record
//!  ─> Results: the answers, and every trial
//! ```
//!
//! Searches are pure, so a run can be resumed from a journal of the results in their order.
//!
//! Thread-safety: used by one thread.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::latency::Latency;
use crate::line::Load;
use crate::measure::{Measure, MeasureError};
use crate::profile::{Profile, Test};
use crate::search::latency::{Config as Stream, Variation};
use crate::search::recovery::ResetTime;
use crate::search::{
    BackToBack, Bursts, Delay, LossRate, MlrSearch, Recovery, Reset, Rfc2544Latency, bursts,
};
use crate::search::{Rfc8219Latency, Search, Throughput, back_to_back, loss_rate, mlr, throughput};
use crate::setup::{Setup, Waits};
use crate::traffic::{Genome, Mix, Spec};
use crate::trial::{Counts, Shape, Timing, Trial, TrialResult};

mod spread;

pub use spread::Spread;

/// Something that runs trials for a given setup.
pub trait Bench {
    /// Prepares to run trials with this setup.
    ///
    /// # Errors
    /// When the setup cannot be used.
    fn at(&mut self, setup: &Setup) -> Result<Box<dyn Measure + '_>, MeasureError>;
}

/// A record of all trial results, in order.
pub trait Journal {
    /// The next result recorded by an earlier run, if there is one.
    fn recall(&mut self) -> Option<TrialResult>;

    /// Records a result.
    ///
    /// # Errors
    /// When the result cannot be written.
    fn keep(&mut self, result: &TrialResult) -> Result<(), MeasureError>;
}

/// A journal that keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn recall(&mut self) -> Option<TrialResult> {
        None
    }

    fn keep(&mut self, _: &TrialResult) -> Result<(), MeasureError> {
        Ok(())
    }
}

/// The progress of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// The frame size under test.
    pub size: String,
    /// The test in progress.
    pub test: Test,
    /// The trial about to start.
    pub trial: Trial,
    /// Number of trials completed.
    pub trials: u32,
    /// Estimated time that the rest of this test takes.
    pub test_left: Nanos,
    /// The number of completed steps (one test at one size), and of all steps.
    pub steps: (usize, usize),
}

/// The results at one frame size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AtSize {
    /// The size, or the sequence of sizes.
    pub size: Genome,
    /// The highest load that was tried: the line rate or the tester's limit.
    pub max: Load,
    /// RFC 2544 section 26.1.
    pub throughput: Option<throughput::Answer>,
    /// The results of all repetitions, if the throughput was searched more than once; `throughput`
    /// is then the median one.
    pub spread: Option<Spread>,
    /// RFC 2544 section 26.2.
    pub latency: Option<Delay>,
    /// RFC 8219.
    pub variation: Option<Variation>,
    /// RFC 2544 section 26.3.
    pub loss_rate: Option<Vec<loss_rate::Step>>,
    /// RFC 9004.
    pub back_to_back: Option<back_to_back::Answer>,
    /// RFC 2544 section 26.5, in nanoseconds.
    pub recovery_ns: Option<Vec<Nanos>>,
    /// Whether the tester could not send the overload of that test: the device recovered from a smaller one.
    #[serde(default)]
    pub recovery_tester_limit: bool,
    /// RFC 6201.
    pub reset: Option<Vec<ResetTime>>,
    /// RFC 2544 section 21: the shortest interval between bursts without loss.
    pub bursts: Option<Vec<bursts::Answer>>,
    /// MLRsearch.
    pub mlr: Option<Vec<mlr::Found>>,
    /// The long trial.
    pub soak: Option<TrialResult>,
    /// Tests that were skipped, with the reason.
    pub skipped: Vec<(Test, String)>,
}

/// One trial in the table of all trials.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The frame size.
    pub size: Genome,
    /// The test that the trial belongs to.
    pub test: Test,
    /// The trial that was run.
    pub trial: Trial,
    /// Its frame counters.
    pub counts: Counts,
    /// The time, relative to the start, at which the trial ended early because a frame was lost.
    #[serde(default)]
    pub stopped_at: Option<Nanos>,
    /// A fault of the tester; the trial is then not valid for the device.
    pub fault: Option<String>,
    /// How well the tester kept its schedule.
    pub timing: Timing,
    /// Latency of all good frames: minimum, median, 99th percentile, maximum.
    pub latency_ns: [Nanos; 4],
    /// Frames counted by multiplying a repeated cycle.
    pub repeated_frames: u64,
}

/// The results of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// The profile of the run.
    pub profile: Profile,
    /// The results for each frame size.
    pub sizes: Vec<AtSize>,
    /// Every trial.
    pub trials: Vec<Row>,
    /// Frames that the device dropped in all trials, by its own reasons.
    pub drops: Vec<(String, u64)>,
}

/// Whom a run tells what it does.
pub trait Watch {
    /// A trial begins.
    fn begins(&mut self, step: &Progress);

    /// A test has ended. These are the results until now.
    fn measured(&mut self, _results: &Results) {}
}

impl<F: FnMut(&Progress)> Watch for F {
    fn begins(&mut self, step: &Progress) {
        self(step);
    }
}

/// Runs `profile` on `bench`.
///
/// # Errors
/// When a trial cannot be run, or the journal belongs to a run with other arguments.
pub fn run(
    profile: &Profile,
    bench: &mut dyn Bench,
    journal: &mut dyn Journal,
    watch: &mut dyn Watch,
) -> Result<Results, MeasureError> {
    let (sizes, trials, drops) = (Vec::new(), Vec::new(), Vec::new());
    let mut results = Results { profile: profile.clone(), sizes, trials, drops };
    for (at, size) in profile.sizes.iter().enumerate() {
        let setup = setup(profile, size);
        let mut measure = bench.at(&setup)?;
        let mut runner = Runner {
            profile,
            measure: &mut *measure,
            journal,
            watch,
            results: &mut results,
            size: size.clone(),
            test: Test::Throughput,
            steps: (at * profile.tests.len(), profile.sizes.len() * profile.tests.len()),
        };
        let found = runner.size(&setup)?;
        results.sizes.push(found);
    }
    Ok(results)
}

/// The setup of `profile` at `size`.
#[must_use]
pub fn setup(profile: &Profile, size: &Genome) -> Setup {
    let traffic = Spec {
        sizes: size.clone(),
        flows: profile.flows,
        mix: profile.mix.clone(),
        addresses: profile.addresses,
        family: profile.family,
        broadcast_every: profile.broadcast_every,
        seed: profile.seed,
    };
    let Waits { settle, residue, rest } = profile.waits;
    let cover = profile.cover;
    Setup { cover, settle, residue, rest, ..Setup::new(profile.line, profile.topology, traffic) }
}

/// Runs the tests of one frame size.
struct Runner<'a> {
    profile: &'a Profile,
    measure: &'a mut (dyn Measure + 'a),
    journal: &'a mut dyn Journal,
    watch: &'a mut dyn Watch,
    results: &'a mut Results,
    size: Genome,
    test: Test,
    steps: (usize, usize),
}

impl Runner<'_> {
    /// The result of `trial`: from the journal, or measured now.
    fn trial(&mut self, trial: &Trial, left: Nanos) -> Result<TrialResult, MeasureError> {
        let result = match self.journal.recall() {
            Some(result) if result.trial == *trial => result,
            Some(_) => {
                return Err(MeasureError::Other(
                    "the state file belongs to a run with other arguments; remove it or name another"
                        .into(),
                ));
            }
            None => {
                self.watch.begins(&Progress {
                    size: self.profile.size_name(&self.size),
                    test: self.test,
                    trial: *trial,
                    trials: self.results.trials.len() as u32,
                    test_left: left,
                    steps: self.steps,
                });
                let before = self.measure.drops();
                let mut result = self.measure.measure(trial)?;
                result.drops = since(&before, self.measure.drops());
                self.journal.keep(&result)?;
                result
            }
        };
        for (reason, count) in &result.drops {
            match self.results.drops.iter_mut().find(|(known, _)| known == reason) {
                Some((_, sum)) => *sum += count,
                None => self.results.drops.push((reason.clone(), *count)),
            }
        }
        self.results.trials.push(Row {
            size: self.size.clone(),
            test: self.test,
            trial: *trial,
            counts: result.counts,
            stopped_at: result.stopped_at,
            fault: result.fault(),
            timing: result.timing,
            latency_ns: {
                let Latency { min_ns, p50_ns, p99_ns, max_ns, .. } = result.latency;
                [min_ns, p50_ns, p99_ns, max_ns]
            },
            repeated_frames: result.repeated_frames,
        });
        Ok(result)
    }

    fn search<S: Search>(&mut self, search: &mut S) -> Result<S::Answer, MeasureError> {
        while let Some(trial) = search.next_trial() {
            let left = search.left();
            let result = self.trial(&trial, left)?;
            search.record(&result);
        }
        Ok(search.answer())
    }

    fn size(&mut self, setup: &Setup) -> Result<AtSize, MeasureError> {
        let line = setup.max_load()?;
        let limit = self.profile.limits.iter().find(|(size, _)| *size == self.size);
        let max = limit.map_or(line, |(_, limit)| line.max(*limit)); // the longer interval
        let mut found = AtSize {
            size: self.size.clone(),
            max,
            throughput: None,
            spread: None,
            latency: None,
            variation: None,
            loss_rate: None,
            back_to_back: None,
            recovery_ns: None,
            recovery_tester_limit: false,
            reset: None,
            bursts: None,
            mlr: None,
            soak: None,
            skipped: Vec::new(),
        };
        for test in self.profile.tests.clone() {
            self.test = test;
            if let Err(why) = self.test(test, setup, &mut found)? {
                found.skipped.push((test, why));
            }
            self.steps.0 += 1;
            self.results.sizes.push(found.clone());
            self.watch.measured(self.results);
            self.results.sizes.pop();
        }
        Ok(found)
    }

    /// Runs one test. The inner error is the reason for skipping the test.
    fn test(
        &mut self,
        test: Test,
        setup: &Setup,
        found: &mut AtSize,
    ) -> Result<Result<(), String>, MeasureError> {
        let (profile, max) = (self.profile, found.max);
        let throughput = found.throughput.as_ref().and_then(|answer| answer.load);
        // These mixes define the frame lengths and intervals themselves.
        let is_own = matches!(profile.mix, Mix::Etc | Mix::Replay(_));
        let is_mixed = is_own || self.size.single().is_none();
        match (test, throughput) {
            (Test::Throughput, _) => {
                let config = profile.throughput(max);
                let mut answers = Vec::new();
                for _ in 0..profile.repeats.max(1) {
                    answers.push(self.search(&mut Throughput::new(config))?);
                }
                (found.throughput, found.spread) = spread::of(answers);
            }
            (Test::LossRate, _) => {
                found.loss_rate = Some(self.search(&mut LossRate::new(max, 10, profile.full))?);
            }
            (Test::Mlr, _) => {
                let min = max.part(1, 1000);
                let mut search = MlrSearch::new(profile.goals.clone(), min, max, 1000);
                found.mlr = Some(self.search(&mut search)?);
            }
            (Test::Soak, _) => {
                let trial = soak(profile, max);
                found.soak = Some(self.trial(&trial, trial.duration)?);
            }
            (Test::Bursts, _) => {
                if is_mixed {
                    return Ok(Err("bursts need frames of one size".into()));
                }
                let config = profile.throughput(max);
                let sizes = bursts::SIZES.into_iter();
                let answers = sizes.map(|frames| self.search(&mut Bursts::new(frames, config)));
                found.bursts = Some(answers.collect::<Result<_, _>>()?);
            }
            (_, None) => return Ok(Err("no rate without loss was found".into())),
            (Test::Latency, Some(load)) => self.latency(load, found)?,
            (Test::BackToBack, Some(load)) => {
                if load == max {
                    return Ok(Err(NO_BURSTS.into()));
                }
                if is_mixed {
                    return Ok(Err("mixed sizes must not be used (RFC 9004 section 4)".into()));
                }
                let mut search = BackToBack::new(back_to_back::Config {
                    max,
                    throughput: load,
                    longest: profile.burst,
                    step_frames: 1,
                    repeats: profile.burst_repeats,
                });
                found.back_to_back = Some(self.search(&mut search)?);
            }
            (Test::Recovery, Some(load)) => {
                let mut search = Recovery::new(max, load, profile.full, 1);
                found.recovery_ns = Some(self.search(&mut search)?);
                found.recovery_tester_limit = search.tester_limit();
            }
            (Test::Reset, Some(load)) => {
                let mut search = Reset::new(load, profile.full / 2, 1, setup.topology.senders());
                match self.search(&mut search) {
                    Ok(answer) => found.reset = Some(answer),
                    Err(MeasureError::NoReset(device)) => {
                        return Ok(Err(format!("{device} cannot be reset")));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Ok(()))
    }

    /// Measures latency by RFC 2544 and RFC 8219 from the same streams; the first tagged frame of
    /// each stream is the one for RFC 2544.
    fn latency(&mut self, load: Load, found: &mut AtSize) -> Result<(), MeasureError> {
        let (profile, load) = (self.profile, whole_ns(load));
        let stream = Stream {
            load,
            duration: profile.latency,
            after: profile.latency / 2,
            repeats: profile.latency_repeats,
        };
        let (mut one, mut many) = (Rfc2544Latency::new(stream), Rfc8219Latency::new(stream, 500));
        while let Some(trial) = many.next_trial() {
            let left = many.left();
            let result = self.trial(&trial, left)?;
            many.record(&result);
            let first = result.tagged.first().copied().into_iter().collect();
            one.record(&TrialResult { tagged: first, ..result });
        }
        (found.latency, found.variation) = (Some(one.answer()), Some(many.answer()));
        Ok(())
    }
}

/// Why back-to-back frames are not measured where the line rate is the limit.
const NO_BURSTS: &str = "the throughput equals the line rate: no burst can fill a buffer \
                         (RFC 9004 section 6.1)";

/// The trial of a soak test.
fn soak(profile: &Profile, max: Load) -> Trial {
    let (duration, percent) = profile.soak;
    match (&profile.mix, profile.speed) {
        (Mix::Replay(capture), Some(speed)) => {
            Trial::new(capture.mean_load(speed), duration).shape(Shape::Replay { speed })
        }
        _ => Trial::new(whole_ns(max.part(percent.clamp(1, 100), 100)), duration),
    }
}

/// Frames dropped since `before`, by reason. The counters of a device that was reset may have
/// restarted from 0.
fn since(before: &[(String, u64)], now: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let was =
        |reason: &str| before.iter().find(|(known, _)| known == reason).map_or(0, |(_, n)| *n);
    let mut new = now;
    new.iter_mut().for_each(|(reason, count)| *count = count.saturating_sub(was(reason)));
    new.retain(|(_, count)| *count > 0);
    new
}

/// The load with its interval rounded up to whole nanoseconds; unchanged for intervals below 100
/// ns, where rounding would change the rate too much.
const fn whole_ns(load: Load) -> Load {
    if load.interval_ps < 100_000 {
        load
    } else {
        Load { interval_ps: load.interval_ps.next_multiple_of(1000) }
    }
}

#[cfg(test)]
mod tests;
