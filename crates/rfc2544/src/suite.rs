//! Suite: the tests of a profile, size by size, with a journal that makes them resumable.
//!
//! ```text
//!  Profile ─> for each size: Setup ─> Bench::at ─> Measure
//!                 each test: Search ─ trial ─> Journal: known? else measure, write ─> told
//!  ─> Results: what was found, and every trial
//! ```
//!
//! Searches are pure, so a journal of results in their order is all that a second run needs.
//!
//! Thread-safety: one thread's.

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

use crate::latency::Latency;
use crate::line::Load;
use crate::profile::{Profile, Test};
use crate::search::latency::{Config as Stream, Variation};
use crate::search::recovery::ResetTime;
use crate::search::{
    BackToBack, Bursts, Delay, LossRate, MlrSearch, Recovery, Reset, Rfc2544Latency, bursts,
};
use crate::search::{Rfc8219Latency, Search, Throughput, back_to_back, loss_rate, mlr, throughput};
use crate::setup::{Setup, Waits};
use crate::tester::{Measure, MeasureError};
use crate::traffic::{Genome, Mix, Spec};
use crate::trial::{Counts, Timing, Trial, TrialResult};

mod spread;

pub use spread::Spread;

/// Where trials are made.
pub trait Bench {
    /// Something that makes trials with this setup.
    ///
    /// # Errors
    /// When it cannot.
    fn at(&mut self, setup: &Setup) -> Result<Box<dyn Measure + '_>, MeasureError>;
}

/// What was measured before, in order, and what is measured now.
pub trait Journal {
    /// The next result that was written down, if there is one.
    fn recall(&mut self) -> Option<TrialResult>;

    /// One more result.
    ///
    /// # Errors
    /// When it cannot be written down.
    fn keep(&mut self, result: &TrialResult) -> Result<(), MeasureError>;
}

/// A journal that remembers nothing.
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

/// How far it is.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// The size under test.
    pub size: String,
    /// What is done.
    pub test: Test,
    /// The trial that comes now.
    pub trial: Trial,
    /// Trials made.
    pub trials: u32,
    /// Time that the rest of this test takes; an estimate.
    pub test_left: Nanos,
    /// Sizes and tests done, and all of them.
    pub steps: (usize, usize),
}

/// What was found at one size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AtSize {
    /// The size, or the sequence of sizes.
    pub size: Genome,
    /// What the line carries.
    pub max: Load,
    /// Section 26.1.
    pub throughput: Option<throughput::Answer>,
    /// What its repetitions were, where it was searched more than once; the answer above is the
    /// middle one.
    pub spread: Option<Spread>,
    /// Section 26.2.
    pub latency: Option<Delay>,
    /// RFC 8219.
    pub variation: Option<Variation>,
    /// Section 26.3.
    pub loss_rate: Option<Vec<loss_rate::Step>>,
    /// RFC 9004.
    pub back_to_back: Option<back_to_back::Answer>,
    /// Section 26.5, in nanoseconds.
    pub recovery_ns: Option<Vec<Nanos>>,
    /// RFC 6201.
    pub reset: Option<Vec<ResetTime>>,
    /// Section 21: the least interval between bursts.
    pub bursts: Option<Vec<bursts::Answer>>,
    /// MLRsearch.
    pub mlr: Option<Vec<mlr::Found>>,
    /// The long run.
    pub soak: Option<TrialResult>,
    /// Tests left out, and why.
    pub left_out: Vec<(Test, String)>,
}

/// One trial in the raw table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The size.
    pub size: Genome,
    /// The test it was made for.
    pub test: Test,
    /// What was asked for.
    pub trial: Trial,
    /// What came of it.
    pub counts: Counts,
    /// When it ended before its time, after the start: a frame was lost, and nothing else was asked.
    #[serde(default)]
    pub cut_at: Option<Nanos>,
    /// What the tester did wrong.
    pub fault: Option<String>,
    /// How well the tester kept its schedule.
    pub timing: Timing,
    /// Latency of every frame: least, median, 99th percentile, greatest.
    pub latency_ns: [Nanos; 4],
    /// Frames counted by repeating a cycle.
    pub repeated_frames: u64,
}

/// Everything that was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The profile.
    pub profile: Profile,
    /// By size.
    pub sizes: Vec<AtSize>,
    /// Every trial.
    pub trials: Vec<Row>,
    /// Frames that the device dropped in all of them, by its own words.
    pub drops: Vec<(String, u64)>,
}

/// Runs `profile` on `bench`.
///
/// # Errors
/// When a trial cannot be made, or the journal is of another run.
pub fn run(
    profile: &Profile,
    bench: &mut dyn Bench,
    journal: &mut dyn Journal,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Results, MeasureError> {
    let (sizes, trials, drops) = (Vec::new(), Vec::new(), Vec::new());
    let mut results = Results { profile: profile.clone(), sizes, trials, drops };
    for (at, size) in profile.sizes.iter().enumerate() {
        let setup = setup(profile, size);
        let mut measure = bench.at(&setup)?;
        let mut ground = Ground {
            profile,
            measure: &mut *measure,
            journal,
            watch,
            rows: &mut results.trials,
            drops: &mut results.drops,
            size: size.clone(),
            test: Test::Throughput,
            steps: (at * profile.tests.len(), profile.sizes.len() * profile.tests.len()),
        };
        let found = ground.size(&setup)?;
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

/// What the tests of one size stand on.
struct Ground<'a> {
    profile: &'a Profile,
    measure: &'a mut (dyn Measure + 'a),
    journal: &'a mut dyn Journal,
    watch: &'a mut dyn FnMut(&Progress),
    rows: &'a mut Vec<Row>,
    drops: &'a mut Vec<(String, u64)>,
    size: Genome,
    test: Test,
    steps: (usize, usize),
}

impl Ground<'_> {
    /// One trial: from the journal, or made now.
    fn trial(&mut self, trial: &Trial, left: Nanos) -> Result<TrialResult, MeasureError> {
        let result = match self.journal.recall() {
            Some(result) if result.trial == *trial => result,
            Some(_) => {
                return Err(MeasureError::Other(
                    "the state file is of a run with other arguments; remove it or name another"
                        .into(),
                ));
            }
            None => {
                (self.watch)(&Progress {
                    size: self.size.to_string(),
                    test: self.test,
                    trial: *trial,
                    trials: self.rows.len() as u32,
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
            match self.drops.iter_mut().find(|(known, _)| known == reason) {
                Some((_, sum)) => *sum += count,
                None => self.drops.push((reason.clone(), *count)),
            }
        }
        self.rows.push(Row {
            size: self.size.clone(),
            test: self.test,
            trial: *trial,
            counts: result.counts,
            cut_at: result.cut_at,
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
            search.told(&result);
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
            reset: None,
            bursts: None,
            mlr: None,
            soak: None,
            left_out: Vec::new(),
        };
        for test in self.profile.tests.clone() {
            self.test = test;
            if let Err(why) = self.test(test, setup, &mut found)? {
                found.left_out.push((test, why));
            }
            self.steps.0 += 1;
        }
        Ok(found)
    }

    /// One test; the inner error says why it cannot be.
    fn test(
        &mut self,
        test: Test,
        setup: &Setup,
        found: &mut AtSize,
    ) -> Result<Result<(), String>, MeasureError> {
        let (profile, max) = (self.profile, found.max);
        let throughput = found.throughput.as_ref().and_then(|answer| answer.load);
        // Of these, lengths and distances are the mix's own.
        let is_own = matches!(profile.mix, Mix::Etc | Mix::Replay(_));
        let is_mixed = is_own || self.size.single().is_none();
        match (test, throughput) {
            (Test::Throughput, _) => {
                let config = throughput::Config {
                    width_ppm: profile.width_ppm,
                    short: profile.short,
                    full: profile.full,
                    ..throughput::Config::rfc2544(max)
                };
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
                let (duration, percent) = profile.soak;
                let load = match profile.speed {
                    Some(speed) => Load { interval_ps: 10_000 / speed.clamp(1, 10_000) },
                    None => whole_ns(max.part(percent.clamp(1, 100), 100)),
                };
                let trial = Trial::new(load, duration);
                found.soak = Some(self.trial(&trial, duration)?);
            }
            (Test::Bursts, _) => {
                if is_mixed {
                    return Ok(Err("bursts are of frames of one size".into()));
                }
                let config = throughput::Config {
                    width_ppm: profile.width_ppm,
                    short: profile.short,
                    full: profile.full,
                    ..throughput::Config::rfc2544(max)
                };
                let sizes = bursts::SIZES.into_iter();
                let answers = sizes.map(|frames| self.search(&mut Bursts::new(frames, config)));
                found.bursts = Some(answers.collect::<Result<_, _>>()?);
            }
            (_, None) => return Ok(Err("there is no rate without loss".into())),
            (Test::Latency, Some(load)) => self.latency(load, found)?,
            (Test::BackToBack, Some(load)) => {
                if load == max {
                    return Ok(Err("the throughput is the line's rate: no burst fills a buffer \
                                   (RFC 9004 section 6.1)"
                        .into()));
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

    /// Both standards from the same streams: the first tagged frame is RFC 2544's.
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
            many.told(&result);
            let first = result.tagged.first().copied().into_iter().collect();
            one.told(&TrialResult { tagged: first, ..result });
        }
        (found.latency, found.variation) = (Some(one.answer()), Some(many.answer()));
        Ok(())
    }
}

/// What was dropped since `before`, by reason; a device that was reset may have begun anew.
fn since(before: &[(String, u64)], now: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let was =
        |reason: &str| before.iter().find(|(known, _)| known == reason).map_or(0, |(_, n)| *n);
    let mut new = now;
    new.iter_mut().for_each(|(reason, count)| *count = count.saturating_sub(was(reason)));
    new.retain(|(_, count)| *count > 0);
    new
}

/// The load at the next whole nanosecond, or as it is where that would be far off.
const fn whole_ns(load: Load) -> Load {
    if load.interval_ps < 100_000 {
        load
    } else {
        Load { interval_ps: load.interval_ps.next_multiple_of(1000) }
    }
}

#[cfg(test)]
mod tests;
