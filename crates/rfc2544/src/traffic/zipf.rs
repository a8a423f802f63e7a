//! Zipf's law: the i-th most popular item (from 0) has the weight 1 / (i + 1)^s.

use flowyard_testkit::Rng;

/// A Zipf distribution over a finite set.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Cumulative probabilities.
    upto: Vec<f64>,
}

impl Zipf {
    /// A distribution over `count` items (at least one) with exponent `s`; 0 is uniform.
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

    /// Draws an item.
    pub fn draw(&self, rng: &mut Rng) -> u16 {
        let point = rng.unit();
        self.upto.partition_point(|&upto| upto <= point).min(self.upto.len() - 1) as u16
    }
}
