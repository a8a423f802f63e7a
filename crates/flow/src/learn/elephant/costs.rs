//! Does splitting pay? Arithmetic on costs per frame.
//!
//! ```text
//!  one core   rx ─ work
//!  split      rx ─ hand off ~> [ hand off ─ work ─ hand off ] x N ~> hand off ─ commit
//!             producer           workers                            consumer
//! ```
//!
//! A pipeline is as fast as its slowest stage: `min(producer, N x worker, consumer)`, as in Intel's
//! "Accelerating Elephant Flow" guide, where one worker is slower than no pipeline at all. Where
//! stages share cores, as they do when the last worker to finish commits, a fourth bound says that
//! cores do no more than they can: all cores over the sum of all costs. With a core for each stage
//! of its own the fourth never binds.

/// What a frame costs, in nanoseconds of a core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// To receive, parse and steer it.
    pub rx_ns: f64,
    /// To work on it and transmit it.
    pub work_ns: f64,
    /// One side of a hand-off between cores: to enqueue it, or to dequeue it.
    pub handoff_ns: f64,
    /// To commit it in order.
    pub commit_ns: f64,
}

/// What cores have to spare when everything but one flow is served, in cores: parts count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Room {
    /// Of the flow's home core, which receives it: 0 to 1.
    pub home: f64,
    /// For workers.
    pub workers: f64,
    /// Of all cores together, the home core included.
    pub cores: f64,
}

/// What splitting one flow would bring.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The most that its home core does of the flow, in frames per second.
    pub single_pps: f64,
    /// The most that the split does, in frames per second.
    pub split_pps: f64,
    /// The work below which splitting does not pay, in nanoseconds a frame; infinite when it never
    /// does.
    pub break_even_ns: f64,
    /// What there is to spare.
    pub room: Room,
}

impl Estimate {
    /// How many times the rate of its home core.
    #[must_use]
    pub fn gain(&self) -> f64 {
        if self.single_pps > 0.0 { self.split_pps / self.single_pps } else { 0.0 }
    }
}

impl Costs {
    /// The rate of a flow on its home core, in frames per second.
    #[must_use]
    pub fn single_pps(&self, room: &Room) -> f64 {
        1e9 * room.home / (self.rx_ns + self.work_ns)
    }

    /// The rate of a flow that is split, in frames per second.
    #[must_use]
    pub fn split_pps(&self, room: &Room) -> f64 {
        let [producer, worker, consumer] =
            [self.producer_ns(), self.worker_ns(), self.consumer_ns()];
        let shared = room.cores / (producer + worker + consumer);
        let workers = room.workers / worker;
        1e9 * (room.home / producer).min(workers).min(1.0 / consumer).min(shared)
    }

    /// The work from which on splitting brings `gain` times the rate of one core, in nanoseconds a
    /// frame; infinite when there is too little room, so that more work does not help.
    ///
    /// Each bound of [`Self::split_pps`] asks `bound >= gain * home / (rx + work)`: linear in the
    /// work.
    #[must_use]
    pub fn break_even_ns(&self, room: &Room, gain: f64) -> f64 {
        let (rx_ns, handoff_ns) = (self.rx_ns, self.handoff_ns);
        let idle = Self { work_ns: 0.0, ..*self };
        let wanted = gain * room.home;
        let producer = gain * self.producer_ns() - rx_ns;
        let consumer = wanted * self.consumer_ns() - rx_ns;
        // n (rx + work) >= wanted (rest + work): of the workers, and of all cores.
        let spread = |n: f64, rest: f64| {
            if n > wanted { (wanted * rest - n * rx_ns) / (n - wanted) } else { f64::INFINITY }
        };
        let all = idle.producer_ns() + idle.worker_ns() + idle.consumer_ns();
        let workers = spread(room.workers, 2.0 * handoff_ns);
        producer.max(consumer).max(workers).max(spread(room.cores, all)).max(0.0)
    }

    /// What splitting would bring, if it is to bring at least `gain`.
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
        // 3.1 million frames a second on one core of 1.8 GHz, 22 with 8 workers and 2 more cores;
        // with one worker slower than without.
        let costs = Costs { rx_ns: 40.0, work_ns: 283.0, handoff_ns: 5.0, commit_ns: 40.0 };
        let room = |workers| Room { home: 1.0, workers, cores: workers + 2.0 };
        let rate = |workers| costs.split_pps(&room(workers)) / 1e6;
        assert_eq!((costs.single_pps(&room(1.0)) / 1e5).round(), 31.0);
        assert!(rate(1.0) < rate(2.0) && rate(5.0) < rate(6.0));
        assert_eq!(rate(8.0).round(), 22.0, "the producer is the ceiling");
        assert_eq!(rate(8.0), rate(20.0));
        // One worker gains what rx took, and loses what hand-off takes.
        let dear = Costs { handoff_ns: 25.0, ..costs };
        assert!(dear.estimate(room(1.0), 1.0).gain() < 1.0);
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
        assert_eq!(costs.break_even_ns(&one, 1.0), f64::INFINITY, "one core has none to give");
        // Mice take half of the home core: there is less, but it is three times what was there.
        let half = Room { home: 0.5, workers: 1.5, cores: 1.5 };
        let gain = costs.estimate(half, 1.0).gain();
        assert!((2.8..3.0).contains(&gain), "{gain}");
    }

    proptest! {
        /// The closed form against the rates themselves, a little below it and above.
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
