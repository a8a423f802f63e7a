//! The values of repeated measurements, and the constants that they become: medians with their intervals.

use std::collections::BTreeMap;

use flowyard_hostsim::{Constant, How};
use flowyard_report::exhibit::Interval;

use super::quiet::Speeds;

/// Times that the kernel sets: they do not depend on the speed of a processor.
const SET_BY_KERNEL: [&str; 1] = ["fair_slice_ns"];

/// The values of each constant, one from each round, and what was measured.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<String, (Vec<f64>, String)>);

impl Samples {
    /// Adds the value of a round.
    pub(super) fn add(&mut self, name: &str, value: f64, source: &str) {
        let known = self.0.entry(name.to_owned());
        known.or_insert_with(|| (Vec::new(), source.to_owned())).0.push(value);
    }

    /// The constants. A difference of two measurements that is below zero counts as zero, and so does -0.0. If the speed of
    /// the processors changed, intervals contain what an operation takes at the highest and at the lowest speed.
    pub(super) fn constants(self, speeds: Option<Speeds>) -> BTreeMap<String, Constant> {
        let constant = |(name, (values, source)): (String, (Vec<f64>, String))| {
            let values: Vec<f64> = values.into_iter().map(|value| value.max(0.0) + 0.0).collect();
            let (value, mut interval) = Interval::of(&values)?;
            let is_work = name.ends_with("_ns") && !SET_BY_KERNEL.contains(&&*name);
            if let Some(Interval { low, high, .. }) = &mut interval
                && let Some(speeds) = speeds
                && is_work
            {
                *low = low.min(value * speeds.fast);
                *high = high.max(value * speeds.slow);
            }
            Some((name, Constant { value, how: How::Measured, source, interval }))
        };
        self.0.into_iter().filter_map(constant).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_a_median_with_its_interval() {
        let mut samples = Samples::default();
        for round in 0..15 {
            samples.add("a_ns", 100.0 + f64::from((round * 7) % 15), "a");
            samples.add("b_ns", f64::from(round) - 3.0, "b");
        }
        samples.add("c_ns", 5.0, "c");
        samples.add("d_ns", -0.0, "a stage that no frame passed");
        let constants = samples.constants(None);
        let a = &constants["a_ns"];
        assert_eq!((a.value, a.how, &*a.source), (107.0, How::Measured, "a"));
        // The 4th smallest and the 4th largest of 15 values.
        let interval = a.interval.unwrap();
        assert_eq!((interval.low, interval.high, interval.rounds), (103.0, 111.0, 15));
        assert_eq!(constants["b_ns"].interval.unwrap().low, 0.0);
        assert!(constants["d_ns"].value.is_sign_positive());
        assert_eq!((constants["c_ns"].value, constants["c_ns"].interval), (5.0, None));
    }

    /// The rounds may have been fast or slow by chance, and the next measurement may be the other.
    #[test]
    fn a_speed_that_changes_widens_the_intervals() {
        let mut samples = Samples::default();
        for round in 0..15 {
            for name in ["a_ns", "rps_burst_irqs", "fair_slice_ns"] {
                samples.add(name, 100.0 + f64::from(round), name);
            }
            samples.add("wide_ns", f64::from(round * round), "wide");
        }
        let constants = samples.constants(Some(Speeds { fast: 0.9, slow: 2.0 }));
        let ends = |name: &str| constants[name].interval.map(|all| (all.low, all.high));
        assert_eq!(ends("a_ns"), Some((107.0 * 0.9, 214.0)));
        assert_eq!(ends("rps_burst_irqs"), Some((103.0, 111.0)));
        assert_eq!(ends("fair_slice_ns"), Some((103.0, 111.0)));
        // From the 4th smallest to the 4th largest: wider than the speeds.
        assert_eq!(ends("wide_ns"), Some((9.0, 121.0)));
    }
}
