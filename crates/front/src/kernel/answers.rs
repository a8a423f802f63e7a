//! What the yard asks of the program: flows are put, removed and counted, and frames that went up are compared with what has
//! drained.
//!
//! Thread-safety: as of [`Kernel`].

use std::sync::atomic::Ordering;

use flowyard_frame::Nanos;
use flowyard_yard::front::{Entry, Front, Seen};
use rustix::time::{ClockId, clock_gettime};

use super::{BOTH, Kernel, SETTLE_MOST, load, part};
use crate::layout::{self, GATE, PORTS, QUEUES};

impl Front for Kernel {
    fn reaches(&self, port: u16) -> bool {
        let longest = self.longest.get(usize::from(port));
        self.is_known(port) && longest.is_some_and(|most| most.load(Ordering::Acquire) != 0)
    }

    fn put(&self, entries: &[Entry], now: Nanos) -> Option<u32> {
        if entries.len() > BOTH as usize || !entries.iter().all(|entry| self.reaches(entry.port)) {
            return None;
        }
        self.ahead.store(self.time().wrapping_sub(now) as i64, Ordering::Relaxed);
        let mut inner = self.lock();
        let flow = match inner.free.pop_front() {
            Some(flow) => flow,
            None if inner.keys.len() < self.settings.flows as usize => {
                inner.keys.push([None; 2]);
                inner.keys.len() as u32 - 1
            }
            None => return None,
        };
        let mut keys = [None; 2];
        for ((at, key), entry) in (0..).zip(&mut keys).zip(entries) {
            *key = Some(layout::key(&entry.key, &self.settings.mask));
            let answer = layout::answer(entry);
            let words = self.answer(flow, at).iter().zip(answer);
            // Nothing is answered before the time is known.
            words.for_each(|(word, value)| word.store(value, Ordering::Relaxed));
            self.answer(flow, at)
                .iter()
                .take(1)
                .for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            self.counted(flow, at).iter().for_each(|word| word.store(0, Ordering::Release));
        }
        if !inner.enter(&keys, flow * BOTH) {
            inner.free.push_back(flow);
            return None;
        }
        inner.keys[flow as usize] = keys;
        drop(inner);
        // From here on every frame of the flow finds the entry; those before came before this time.
        let since = self.time();
        for at in 0..entries.len() as u32 {
            self.answer(flow, at)
                .iter()
                .take(1)
                .for_each(|word| word.store(since, Ordering::Release));
        }
        Some(flow)
    }

    fn remove(&self, flow: u32) {
        self.lock().leave(flow);
    }

    fn seen(&self, flow: u32, entry: usize) -> Seen {
        let words = self.counted(flow, entry as u32);
        let last = load(words, 2);
        let ahead = self.ahead.load(Ordering::Relaxed);
        let last = if last == 0 { 0 } else { last.wrapping_sub(ahead as u64) };
        Seen { packets: load(words, 0), bytes: load(words, 1), last }
    }

    fn settle(&self) {
        // Runs that began before a flow was removed end in some microseconds; a CPU may be held up for longer.
        let until = self.time() + SETTLE_MOST;
        let gate = |at: usize| {
            let words = part(self.gates.words(), at as u32, GATE);
            (load(words, 2), load(words, 0))
        };
        let ports = self.ports.load(Ordering::Acquire);
        let has = |at: &usize| ports >> (at / QUEUES) & 1 == 1;
        let began: Vec<(usize, u64)> =
            (0..PORTS * QUEUES).filter(has).map(|at| (at, gate(at).1)).collect();
        for (at, entered) in began {
            while entered.wrapping_sub(gate(at).0) as i64 > 0 && self.time() < until {
                std::hint::spin_loop();
            }
        }
    }

    fn free(&self, flow: u32) {
        self.lock().free.push_back(flow);
    }

    fn passed(&self, port: u16, core: u16) -> Option<u64> {
        let queue = *self.settings.queues.get(&(port, core)).filter(|_| self.is_known(port))?;
        let words = part(self.gates.words(), u32::from(port) * QUEUES as u32 + queue, GATE);
        // What is being answered counts as passed.
        let answered = load(words, 1);
        Some(load(words, 0).wrapping_sub(answered))
    }

    fn time(&self) -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    fn drained(&self, time: u64) {
        self.drained.words().iter().take(1).for_each(|word| word.store(time, Ordering::Release));
    }
}
