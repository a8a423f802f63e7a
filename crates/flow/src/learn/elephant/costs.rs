//! Estimates whether splitting a flow pays, from the costs per frame.
//!
//! ```text
//!  one core   rx ─ work
//!  split      rx ─ hand off ~> [ hand off ─ work ─ hand off ] x N ~> hand off ─ commit
//!             producer           workers                            consumer
//! ```
//!
//! The rate of a pipeline is that of its slowest stage: `min(producer, N x worker, consumer)`, as in
//! Intel's "Accelerating Elephant Flow" guide, where a pipeline with one worker is slower than none.
//! Stages may share cores, for example when the last worker to finish commits. The rate is therefore
//! also bounded by the number of cores over the sum of all costs. If each stage has its own core,
//! this bound is never the lowest.

/// The costs of a frame, in nanoseconds of a core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Receiving, parsing and steering.
    pub rx_ns: f64,
    /// The work and transmitting.
    pub work_ns: f64,
    /// One side of a hand-off between cores: enqueuing or dequeuing.
    pub handoff_ns: f64,
    /// Committing in order.
    pub commit_ns: f64,
}

/// The spare capacity when everything but one flow is served, in cores (fractions count).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Room {
    /// Of the flow's home core, which receives it; 0 to 1.
    pub home: f64,
    /// Of the workers together.
    pub workers: f64,
    /// Of all cores together, the home core included.
    pub cores: f64,
}

/// The estimated effect of splitting one flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The flow's highest rate on its home core, in frames per second.
    pub single_pps: f64,
    /// The flow's highest rate when split, in frames per second.
    pub split_pps: f64,
    /// The work below which splitting does not pay, in nanoseconds per frame; infinite if it never
    /// pays.
    pub break_even_ns: f64,
    /// The spare capacity for which the estimate was made.
    pub room: Room,
}

impl Estimate {
    /// The rate when split over the rate on the home core; 0 if the costs are unknown, that is, all of them are 0.
    #[must_use]
    pub fn gain(&self) -> f64 {
        let gain = self.split_pps / self.single_pps;
        if gain.is_finite() { gain } else { 0.0 }
    }
}

impl Costs {
    /// The flow's highest rate on its home core, in frames per second.
    #[must_use]
    pub fn single_pps(&self, room: &Room) -> f64 {
        1e9 * room.home / (self.rx_ns + self.work_ns)
    }

    /// The flow's highest rate when split, in frames per second.
    #[must_use]
    pub fn split_pps(&self, room: &Room) -> f64 {
        let [producer, worker, consumer] =
            [self.producer_ns(), self.worker_ns(), self.consumer_ns()];
        let shared = room.cores / (producer + worker + consumer);
        let workers = room.workers / worker;
        1e9 * (room.home / producer).min(workers).min(1.0 / consumer).min(shared)
    }

    /// The least work for which splitting brings `gain` times the rate of one core, in nanoseconds
    /// per frame; infinite if the spare capacity is too small for any work.
    ///
    /// Each bound of [`Self::split_pps`] requires `bound >= gain * home / (rx + work)`, which is
    /// linear in the work.
    #[must_use]
    pub fn break_even_ns(&self, room: &Room, gain: f64) -> f64 {
        let (rx_ns, handoff_ns) = (self.rx_ns, self.handoff_ns);
        let idle = Self { work_ns: 0.0, ..*self };
        let wanted = gain * room.home;
        let producer = gain * self.producer_ns() - rx_ns;
        let consumer = wanted * self.consumer_ns() - rx_ns;
        // n (rx + work) >= wanted (rest + work), for the workers and for all cores.
        let spread = |n: f64, rest: f64| {
            if n > wanted { (wanted * rest - n * rx_ns) / (n - wanted) } else { f64::INFINITY }
        };
        let all = idle.producer_ns() + idle.worker_ns() + idle.consumer_ns();
        let workers = spread(room.workers, 2.0 * handoff_ns);
        producer.max(consumer).max(workers).max(spread(room.cores, all)).max(0.0)
    }

    /// The estimate for this spare capacity; `gain` is the gain at the break-even.
    #[must_use]
    pub fn estimate(&self, room: Room, gain: f64) -> Estimate {
        Estimate {
            single_pps: self.single_pps(&room),
            split_pps: self.split_pps(&room),
            break_even_ns: self.break_even_ns(&room, gain),
            room,
        }
    }

    fn producer_ns(&self) -> f64 {
        self.rx_ns + self.handoff_ns
    }

    fn worker_ns(&self) -> f64 {
        self.handoff_ns + self.work_ns + self.handoff_ns
    }

    fn consumer_ns(&self) -> f64 {
        self.handoff_ns + self.commit_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_guide_in_figures() {
        // The guide has 3.1 million frames per second on one core of 1.8 GHz, and 22 million with 8
        // workers and 2 more cores. One worker is slower than no pipeline.
        let costs = Costs { rx_ns: 40.0, work_ns: 283.0, handoff_ns: 5.0, commit_ns: 40.0 };
        let room = |workers| Room { home: 1.0, workers, cores: workers + 2.0 };
        let rate = |workers| costs.split_pps(&room(workers)) / 1e6;
        assert_eq!((costs.single_pps(&room(1.0)) / 1e5).round(), 31.0);
        assert!(rate(1.0) < rate(2.0) && rate(5.0) < rate(6.0));
        assert_eq!(rate(8.0).round(), 22.0, "the producer is the ceiling");
        assert_eq!(rate(8.0), rate(20.0));
        // With one worker, the flow gains the cost of rx and loses the cost of the hand-offs.
        let slow = Costs { handoff_ns: 25.0, ..costs };
        assert!(slow.estimate(room(1.0), 1.0).gain() < 1.0);
    }

    #[test]
    fn two_cores_that_share_all_stages() {
        let costs = Costs { rx_ns: 30.0, work_ns: 1000.0, handoff_ns: 5.0, commit_ns: 5.0 };
        let two = Room { home: 1.0, workers: 2.0, cores: 2.0 };
        let gain = costs.estimate(two, 1.0).gain();
        assert!((1.9..2.0).contains(&gain), "{gain}");
        // rx + work >= 4 hand-offs and a commit.
        assert_eq!(Costs { rx_ns: 10.0, ..costs }.break_even_ns(&two, 1.0), 15.0);
        let one = Room { home: 1.0, workers: 1.0, cores: 1.0 };
        assert_eq!(costs.break_even_ns(&one, 1.0), f64::INFINITY, "one core has no spare capacity");
        // Mice take half of the home core: the rates are lower, but the gain is about three.
        let half = Room { home: 0.5, workers: 1.5, cores: 1.5 };
        let gain = costs.estimate(half, 1.0).gain();
        assert!((2.8..3.0).contains(&gain), "{gain}");
        let none = Costs { rx_ns: 0.0, work_ns: 0.0, handoff_ns: 0.0, commit_ns: 0.0 };
        assert_eq!(none.estimate(two, 1.0).gain(), 0.0, "nothing is known");
    }

    proptest! {
        /// Compares the closed form with the rates a little below and above it.
        #[test]
        fn the_break_even_is_where_the_gain_is_reached(
            rx_ns in 1.0..200.0, handoff_ns in 0.5..100.0, commit_ns in 0.5..200.0,
            workers in 0.2..16.0, more in 0.0..2.0, home in 0.1..1.0, gain in 1.0..3.0,
        ) {
            let costs = Costs { rx_ns, work_ns: 0.0, handoff_ns, commit_ns };
            let room = Room { home, workers, cores: workers + more };
            let pays = |work_ns| {
                let estimate = Costs { work_ns, ..costs }.estimate(room, gain);
                estimate.gain() >= gain
            };
            let least = costs.break_even_ns(&room, gain);
            if least.is_finite() {
                prop_assert!(pays(least * 1.001 + 0.01));
                prop_assert!(least == 0.0 || !pays((least * 0.999 - 0.01).max(0.0)));
            } else {
                prop_assert!(workers <= gain * home && !pays(1e12));
            }
        }
    }
}
