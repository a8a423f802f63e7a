//! The scheduler of the twin: which event goes to which port next, and which limit stops it.

use super::{Device, Event, Held, Limit, Schedule};

impl Device {
    /// Schedules events to ports until a limit stops every queue; returns the number of events that were scheduled.
    pub fn schedule(&mut self) -> usize {
        let mut count = 0;
        while self.schedule_one() {
            count += 1;
        }
        count
    }

    /// Schedules one event, of the most urgent queue that can; now and then of the least urgent one, so that it does
    /// not starve.
    fn schedule_one(&mut self) -> bool {
        (0..self.lines.len()).for_each(|queue| self.fill_buffer(queue));
        let mut order: Vec<usize> = (0..self.lines.len()).collect();
        order.sort_by_key(|&queue| self.lines[queue].priority);
        let turn = (self.schedules + 1).is_multiple_of(self.limits.starvation.max(1));
        if turn {
            order.sort_by_key(|&queue| std::cmp::Reverse(self.lines[queue].priority));
        }
        for queue in order {
            let Some((event, port)) = self.candidate(queue) else { continue };
            self.schedules += 1;
            let urgent = self.lines[queue].priority;
            let waits = |line: &super::Line| line.priority < urgent && !line.waiting.is_empty();
            if turn && self.lines.iter().any(waits) {
                self.stop(Limit::Starvation);
            }
            self.move_to(queue, event, port);
            return true;
        }
        false
    }

    /// Moves events of an atomic queue into its buffer, in their order.
    fn fill_buffer(&mut self, queue: usize) {
        if self.lines[queue].schedule != Schedule::Atomic {
            return;
        }
        let mut all: usize = self.lines.iter().map(|line| line.buffer.len()).sum();
        while !self.lines[queue].waiting.is_empty() {
            if self.lines[queue].buffer.len() >= self.limits.queue_atomic
                || all >= self.limits.atomic
            {
                return;
            }
            let event = self.lines[queue].waiting.pop_front();
            self.lines[queue].buffer.extend(event);
            all += 1;
        }
    }

    /// The event of a queue that can be scheduled now, by its place, and its port.
    fn candidate(&mut self, queue: usize) -> Option<(usize, usize)> {
        let line = &self.lines[queue];
        if line.schedule != Schedule::Atomic {
            line.waiting.front()?;
            if line.schedule == Schedule::Ordered && line.results.len() >= self.limits.window {
                self.stop(Limit::Window);
                return None;
            }
            return self.room(queue).map(|port| (0, port));
        }
        line.buffer.front()?;
        let free = self.room(queue);
        let line = &self.lines[queue];
        let (mut pinned, mut found) = (0, None);
        for (at, event) in line.buffer.iter().enumerate() {
            let port = match line.pins.get(&(event.flow & 0xffff)) {
                Some(&(port, _)) => self.has_room(port).then_some(port),
                None => free,
            };
            // An event does not overtake an earlier one of its flow, which is pinned to the same full port.
            if let Some(port) = port {
                found = Some((at, port));
                break;
            }
            pinned += usize::from(line.pins.contains_key(&(event.flow & 0xffff)));
        }
        if found.is_none() && pinned > 0 {
            let full = line.buffer.len() >= self.limits.queue_atomic && !line.waiting.is_empty();
            self.stop(Limit::Pinned);
            if full && free.is_some() {
                self.stop(Limit::Atomic); // other ports have room, and events of other flows wait behind
            }
        }
        found
    }

    fn has_room(&self, port: usize) -> bool {
        // The events of directed ports take no history entry.
        let balanced = (0..self.ports.len()).filter(|&port| !self.is_directed(port));
        let flying: usize = balanced.map(|port| self.ports[port].in_flight()).sum();
        let port = &self.ports[port];
        port.arrived.len() < self.limits.depth
            && port.in_flight() < self.limits.port_history
            && flying < self.limits.history
    }

    /// The linked port with room that has the fewest events.
    fn room(&mut self, queue: usize) -> Option<usize> {
        let linked = |port: &usize| self.ports[*port].links.contains(&queue);
        let ports: Vec<usize> = (0..self.ports.len()).filter(linked).collect();
        let directed = self.lines[queue].schedule == Schedule::Directed;
        let open = |port: &&usize| match directed {
            true => self.ports[**port].arrived.len() < self.limits.depth,
            false => self.has_room(**port),
        };
        let found = ports.iter().filter(open).min_by_key(|port| self.ports[**port].in_flight());
        let found = found.copied();
        if found.is_none() && !ports.is_empty() {
            let deep = |port: &usize| self.ports[*port].arrived.len() >= self.limits.depth;
            let limit = if ports.iter().all(deep) { Limit::Depth } else { Limit::History };
            self.stop(limit);
        }
        found
    }

    fn move_to(&mut self, queue: usize, at: usize, port: usize) {
        let line = &mut self.lines[queue];
        let from = match line.schedule {
            Schedule::Atomic => &mut line.buffer,
            _ => &mut line.waiting,
        };
        let Some(event): Option<Event> = from.remove(at) else { return };
        let mut sequence = None;
        match line.schedule {
            Schedule::Ordered => {
                sequence = Some(line.next);
                line.next += 1;
                line.results.push_back(None);
            }
            Schedule::Atomic => {
                line.pins.entry(event.flow & 0xffff).or_insert((port, 0)).1 += 1;
            }
            Schedule::Unordered | Schedule::Directed => {}
        }
        self.give_back(queue);
        self.ports[port].arrived.push_back(Held { event, queue, sequence });
    }
}
