//! Popularity by Zipf's law: the i-th most popular (from 0) with weight 1 / (i + 1)^s.

use flowyard_testkit::Rng;

/// Draws from a Zipf law over a finite set.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Cumulative shares.
    upto: Vec<f64>,
}

impl Zipf {
    /// Over `count` things (at least one) with exponent `s`; 0 is uniform.
    #[must_use]
    pub fn new(count: u16, s: f64) -> Self {
        let s = if s.is_finite() { s } else { 1.0 };
        let mut sum = 0.0;
        let sums = (1..=count.max(1)).map(|rank| {
            sum += f64::from(rank).powf(-s);
            sum
        });
        let mut upto: Vec<_> = sums.collect();
        upto.iter_mut().for_each(|value| *value /= sum);
        Self { upto }
    }

    /// The next.
    pub fn draw(&self, rng: &mut Rng) -> u16 {
        let point = rng.unit();
        self.upto.partition_point(|&upto| upto <= point).min(self.upto.len() - 1) as u16
    }
}
