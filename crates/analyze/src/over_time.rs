//! The load of each queue over time: packets in at most 64 equal slices of the capture.
//!
//! The slices get twice as long whenever the capture goes on beyond the last one, so memory does not
//! depend on its duration.

use flowyard_frame::Nanos;

use crate::summary::LoadOverTime;

const SLICES: usize = 64;

/// Packets by slice and queue.
#[derive(Debug)]
pub(crate) struct OverTime {
    queues: usize,
    began: Option<Nanos>,
    /// A slice lasts 2 to the power of this many nanoseconds.
    shift: u32,
    /// Number of slices up to the last packet.
    used: usize,
    /// Slice by slice, the packets of each queue.
    packets: Vec<u32>,
}

impl OverTime {
    pub(crate) fn new(queues: u16) -> Self {
        let queues = usize::from(queues);
        Self { queues, began: None, shift: 10, used: 0, packets: vec![0; queues * SLICES] }
    }

    /// Counts a packet; `now` never decreases.
    #[inline]
    pub(crate) fn add(&mut self, queue: u16, now: Nanos) {
        let since = now.saturating_sub(*self.began.get_or_insert(now));
        while since >> self.shift >= SLICES as u64 {
            self.merge();
        }
        let slice = (since >> self.shift) as usize;
        self.used = self.used.max(slice + 1);
        let packets = &mut self.packets[slice * self.queues + usize::from(queue)];
        *packets = packets.saturating_add(1);
    }

    /// Makes slices of twice the length.
    #[cold]
    fn merge(&mut self) {
        for slice in 0..SLICES / 2 {
            for queue in 0..self.queues {
                let of = |slice: usize| self.packets[slice * self.queues + queue];
                let both = of(2 * slice).saturating_add(of(2 * slice + 1));
                self.packets[slice * self.queues + queue] = both;
            }
        }
        self.packets[SLICES / 2 * self.queues..].fill(0);
        self.used = self.used.div_ceil(2);
        self.shift += 1;
    }

    pub(crate) fn summary(&self) -> LoadOverTime {
        let of = |queue: usize| -> Vec<u32> {
            let slices = (0..self.used).map(|slice| self.packets[slice * self.queues + queue]);
            let slices: Vec<_> = slices.collect();
            if slices.iter().all(|&packets| packets == 0) { Vec::new() } else { slices }
        };
        let slice_s = (1_u64 << self.shift) as f64 / 1e9;
        LoadOverTime { slice_s, packets: (0..self.queues).map(of).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_merged_and_no_packet_is_lost() {
        let mut load = OverTime::new(3);
        for now in 0..1000_u64 {
            load.add(if now < 500 { 0 } else { 2 }, 7_000_000_000 + now * 1_000_000);
        }
        let LoadOverTime { slice_s, packets } = load.summary();
        assert!(packets[1].is_empty() && packets[0].len() == packets[2].len());
        let slices = packets[0].len();
        assert!((32..=64).contains(&slices), "{slices} slices");
        assert!(slice_s * slices as f64 >= 0.999 && slice_s * (slices as f64 - 1.0) < 1.0);
        let sum = |queue: usize| packets[queue].iter().sum::<u32>();
        assert_eq!((sum(0), sum(2)), (500, 500));
        assert_eq!(packets[0].last(), Some(&0), "queue 0 gets nothing at the end");
        assert_eq!(packets[2].first(), Some(&0), "queue 2 gets nothing at the start");
    }
}
