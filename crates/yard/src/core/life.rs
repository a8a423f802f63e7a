//! Life of a core outside the walk: mail, accounting, stopping, dying.

mod handed;

use std::sync::Arc;

use flowyard_flow::table::marked::Named;
use flowyard_flow::table::{Marked, Rules, Wildcard};
use flowyard_frame::{Batch, Edit, FlowKey, Frame, Lanes, To};

use super::parts::{Bin, Handover, LEARNT, MARKED, PROMOTED, RULES, USER, clear, order_behind};
use super::{Core, Entry, Exit, Nanos, Stage};
use crate::counters::{Board, Counters, DropReason};
use crate::mail::Message;
use crate::port::{Closed, refuse};
use crate::reload::{Reload, WorkChange};
use crate::stages::Stages;
use crate::tally::Count;
use crate::work::ControlMessage;

/// Ticks with progress between two publications of the counters.
const PUBLISH_EVERY: u64 = 64;

impl Core {
    /// The number of the core.
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// Its counters, up to date.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        if let Some(settle) = &self.entry.settle {
            counters.settle_moved = settle.counts.moved;
            counters.settle_held = settle.counts.held;
            (counters.hold_frames, counters.hold_moved) = self.entry.hold.counts();
        }
        let (copies, failed) = self.to_ports.copies();
        counters.copies = copies;
        failed.iter().for_each(|(reason, copies)| counters.drops.add(reason.code(), copies));
        for finished in self.exits.iter().map(|exit| exit.tx.finished()) {
            counters.tx_cut += finished.frames;
            counters.tx_segments += finished.segments;
            counters.tx_checksums += finished.checksums;
            counters.tx_coalesced += finished.coalesced;
        }
        counters
    }

    /// Its work.
    #[must_use]
    pub fn work(&self) -> &dyn crate::Work {
        &*self.server.work
    }

    /// Cost of its stages so far.
    #[must_use]
    pub const fn stages(&self) -> Stages {
        self.observers.stopwatch.stages
    }

    /// The counters that table entries name, by number.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        self.entry.tally.counts().collect()
    }

    /// The board with its published counters.
    #[must_use]
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Whether its ports will receive nothing more, and every received frame is in a queue.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let Entry { ports, waiting, hold, .. } = &self.entry;
        ports.is_empty() && waiting.is_empty() && hold.is_empty()
    }

    /// Whether another process has taken over.
    #[must_use]
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.entry.handover == Handover::Left
    }

    /// Whether received frames wait for capacity in a queue, so that it receives no more.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        !self.entry.waiting.is_empty()
    }

    /// Publishes the counters.
    pub fn publish(&self) {
        self.board.publish(&self.counters());
    }

    /// Publishes the counters with the processor time that the core's thread has used.
    pub(crate) fn publish_cpu(&mut self, cpu_ns: u64) {
        self.counters.cpu_ns = cpu_ns;
        self.publish();
    }

    /// Stops receiving; frames inside are transmitted.
    pub fn stop(&mut self) {
        for (port, mut rx) in self.entry.ports.drain(..) {
            rx.close(&mut self.pool);
            self.entry.ended.push((port, rx));
        }
    }

    /// Whether one of its ports failed and transmits no more.
    #[must_use]
    #[inline]
    pub fn has_failed(&self) -> bool {
        // A port that failed refuses frames with this reason, so without any there is nothing to ask.
        self.counters.drops.get(DropReason::PortFailed) > 0
            && self.exits.iter().any(|exit| exit.tx.has_failed())
    }

    /// Closes its ports at the end.
    pub fn close_ports(&mut self) -> Closed {
        self.stop();
        let Self { entry, exits, places, .. } = self;
        let tell =
            |port: u16, text| format!("port {}: {text}", places.ports[usize::from(port)].name);
        let received = entry
            .ended
            .iter()
            .flat_map(|(port, rx)| rx.remarks().into_iter().map(|text| tell(*port, text)));
        let remarks = received.collect();
        let unread = entry.ended.iter().filter_map(|(port, rx)| Some(tell(*port, rx.failure()?)));
        let unsent = exits
            .iter_mut()
            .filter_map(|Exit { port, tx, .. }| tx.close().err().map(|text| tell(*port, text)));
        Closed { remarks, failed: unread.chain(unsent).collect() }
    }

    /// Cleans up after this core died: its frames are completed as dropped, so that frames of other cores do
    /// not wait for them. Its queues then need another consumer, and its ports transmit no more.
    pub fn release(&mut self) {
        self.stop();
        let Self { entry, server, exits, pool, counters, places, observers, .. } = self;
        // In the middle of an enqueue, some of the lanes that waited are in their places already.
        let is_here = |lane: &usize| !entry.batch.frames[*lane].is_absent();
        let lost = entry.waiting.filter(is_here).fold(Lanes::NONE, Lanes::with);
        entry.waiting = Lanes::NONE;
        counters.drops.add(DropReason::CoreDied.code(), lost.count().into());
        observers.dropped_for(&entry.batch, lost, DropReason::CoreDied, To::DROP);
        for frame in entry.hold.drain() {
            counters.drops.add(DropReason::CoreDied.code(), 1);
            pool.put(frame);
        }
        clear(&mut entry.batch, pool); // and frames of which a port that panicked has not told
        if let Some(settle) = &mut entry.settle {
            settle.enqueued(&**places);
        }
        let open = server.open.take().map(|(queue, _)| &places.queues[usize::from(queue)]);
        let all = server.batch.lanes();
        let opened = open.map(|place| (place, &mut *server.batch, all));
        let leaving = exits.iter_mut().filter(|exit| !exit.batch.is_empty());
        let leaving = leaving.map(|exit| {
            let left = std::mem::take(&mut exit.left);
            (&places.ports[usize::from(exit.port)], &mut exit.batch, left)
        });
        for (place, batch, lost) in opened.into_iter().chain(leaving) {
            lost.for_each(|lane| refuse(batch, lane, DropReason::CoreDied));
            observers.dropped_for(batch, lost, DropReason::CoreDied, To::DROP);
            let mut bin = Bin { pool: &mut *pool, drops: &mut counters.drops };
            place.queue.complete(self.id, batch, &self.to_ports, &mut bin);
            batch.frames.iter_mut().for_each(|frame| pool.put_all(std::mem::take(frame)));
            batch.set_len(0);
        }
        if let Some(service) = &server.service {
            service.lose(self.id);
        }
        // Frames that its queues had assigned to it and that it never took go to their other consumers.
        for &queue in &server.queues {
            let queue = &places.queues[usize::from(queue)].queue;
            queue.release(self.id);
            queue.flush(&self.to_ports);
        }
        self.publish();
    }

    /// Reads the mailbox, between batches.
    #[inline]
    pub(super) fn read_mail(&mut self, now: Nanos) -> u32 {
        let mut read = 0;
        while let Ok(message) = self.mailbox.try_recv() {
            // Reports and questions are no progress: they come without frames, too.
            read += u32::from(!matches!(message, Message::Report(_) | Message::Ask(_)));
            self.read(message, now);
        }
        read
    }

    fn read(&mut self, message: Message, now: Nanos) {
        match message {
            Message::Edit(edit) => self.edit(LEARNT, edit),
            Message::Promote(edit) => self.promote(edit),
            Message::Name { number, flow } => self.entry.name(number, flow),
            Message::Entry { index, to } => {
                let _in_range = self.entry.steer.spread.set(index as usize, to);
            }
            Message::Report(report) => {
                if let Some(decider) = &mut self.decider {
                    decider.take(report);
                }
            }
            Message::Reload(reload) => self.reload(&reload, now),
            Message::Ask(ask) => self.answer(*ask, now),
            Message::Control(message) => self.control(&message, now),
            Message::Stop => self.stop(),
            Message::Pause(paused) => self.pause(paused),
            Message::Leave => self.entry.handover = Handover::Left,
        }
    }

    /// Lets the work send frames of its own.
    #[inline]
    pub(super) fn speak(&mut self, now: Nanos) -> u32 {
        if self.entry.handover != Handover::Runs || self.places.is_over() {
            return 0;
        }
        let Self { server, to_ports, .. } = self;
        server.work.speak(now, &mut |port, bytes| to_ports.send(port, bytes, now))
    }

    /// Sends the learners' edits to the cores whose tables they write.
    #[inline]
    pub(super) fn teach(&mut self) {
        for at in 0..self.learners.len() {
            // Taken out and put back, to keep the allocation.
            let mut edits = std::mem::take(&mut self.learners[at].edits);
            for edit in edits.drain(..) {
                for to in 0..self.learners[at].teaches.len() {
                    let to = self.learners[at].teaches[to];
                    if to == self.id {
                        self.edit(LEARNT, edit);
                    } else if !self.mail.offer(to, Message::Edit(edit)) {
                        self.counters.edits_lost += 1;
                    }
                }
            }
            self.learners[at].edits = edits;
        }
    }

    /// Applies one edit to a table of this core.
    fn edit(&mut self, table: usize, edit: Edit) {
        self.refused.clear();
        if let Some(table) = self.entry.steer.table(table) {
            table.apply(&[edit], &mut self.refused);
        }
        self.counters.edits += 1;
        self.counters.edits_refused += self.refused.len() as u64;
    }

    /// Changes the table of promoted flows. Marks do not name a flow any more whose entry goes.
    fn promote(&mut self, edit: Edit) {
        if let Edit::Del(key) = &edit {
            self.entry.unname(key);
        }
        self.edit(PROMOTED, edit);
    }

    /// Gives the work a message.
    fn control(&mut self, message: &ControlMessage, now: Nanos) {
        let Self { server, to_ports, .. } = self;
        server.work.control(message, now, &mut |port, data| to_ports.inject(port, data, now));
    }

    fn reload(&mut self, reload: &Reload, now: Nanos) {
        if let Some(WorkChange(message)) = &reload.work {
            self.control(message, now);
        }
        if let Some(lists) = &reload.lists {
            self.entry.lists = Arc::clone(lists); // together with the entries that name them
        }
        if let Some(marks) = &reload.marks {
            // With the entries that they name: an earlier mark is ignored from here on.
            self.entry.marks = Some(Arc::clone(marks));
            self.entry.renew_marks();
            if let Some(decider) = &mut self.decider {
                decider.reloaded(now);
            }
        }
        for edit in &reload.exact {
            self.edit(USER, *edit);
        }
        if let Some(table) = &reload.rules {
            self.entry.set_rules(Arc::clone(table));
            // Entries copied from the old rules are deleted before the next lookup. No edit of a cache is in the
            // mail: only its own core gets them, and none is left at the end of a tick.
            for learner in self.learners.iter_mut().filter(|learner| learner.stage == Stage::Rules)
            {
                learner.learn.reset(&mut learner.edits);
            }
            self.teach();
        }
        if !reload.spread.is_empty() {
            self.respread(&reload.spread, reload.keep_local);
        }
        if let Some(decider) = &mut self.decider {
            decider.learn_spread(self.entry.steer.spread.entries());
        }
    }

    /// Reports at the end of a window; on the core that decides, decides and carries out.
    #[inline]
    pub(super) fn watch_elephants(&mut self, now: Nanos) {
        if self.observers.sampling.as_ref().is_some_and(|sampling| sampling.is_due(now)) {
            self.report(now);
        }
        if self.decider.as_ref().is_some_and(|it| it.is_ready(now) || !it.unsent.is_empty()) {
            self.decide(now);
        }
    }

    #[cold]
    fn report(&mut self, now: Nanos) {
        let Some(sampling) = &mut self.observers.sampling else { return };
        let (busy, stages) = (self.counters.busy_ns, &self.observers.stopwatch.stages);
        let report = sampling.report(self.id, now, busy, stages, &self.places);
        let to = sampling.reports_to;
        match &mut self.decider {
            Some(decider) if to == self.id => decider.take(report),
            _ => {
                let went = self.mail.offer(to, Message::Report(report));
                self.counters.reports_lost += u64::from(!went);
            }
        }
    }

    #[cold]
    fn decide(&mut self, now: Nanos) {
        let Some(mut decider) = self.decider.take() else { return };
        if decider.is_ready(now) {
            let Self { entry, counters, .. } = self;
            decider.decide(now, counters, &mut |key| entry.is_users(key));
        }
        for (core, message) in std::mem::take(&mut decider.unsent) {
            let waits = decider.unsent.iter().any(|(other, _)| *other == core);
            if core == self.id {
                self.read(message, now);
            } else if waits || !self.mail.offer(core, message.clone()) {
                decider.unsent.push_back((core, message)); // behind earlier messages for that core
            }
        }
        self.decider = Some(decider);
    }

    /// Tells what answers in front of the ports whether a tick, and the core after it, was without frames.
    #[inline(never)]
    fn pass_gate(&mut self, progress: bool) {
        let Some(mut gate) = self.observers.gate.take() else { return };
        gate.ticked(!progress && self.is_clear());
        self.observers.gate = Some(gate);
    }

    /// Whether no frame is in the core, its queues or its ports.
    pub(crate) fn is_clear(&mut self) -> bool {
        let Self { entry, server, exits, places, .. } = self;
        let is_done = |place: &crate::Place| place.queue.head() >= place.queue.tail();
        entry.waiting.is_empty()
            && entry.hold.is_empty()
            && server.open.is_none()
            && server.queues.iter().all(|queue| is_done(&places.queues[usize::from(*queue)]))
            && exits.iter_mut().all(|exit| {
                let place = &places.ports[usize::from(exit.port)];
                exit.left.is_empty() && is_done(place) && exit.tx.is_clear()
            })
    }

    /// Accounts for a tick that began at `now`.
    #[inline]
    pub(super) fn account(&mut self, now: Nanos, progress: bool) {
        self.observers.ticked(progress);
        if self.observers.gate.is_some() {
            self.pass_gate(progress);
        }
        let (began, was_busy) = std::mem::replace(&mut self.last, (now, progress));
        if was_busy {
            self.counters.busy_ns += now.saturating_sub(began);
        }
        if progress {
            self.counters.ticks_busy += 1;
            if self.counters.ticks_busy.is_multiple_of(PUBLISH_EVERY) {
                self.publish();
            }
        } else {
            self.counters.ticks_idle += 1;
            if was_busy {
                self.publish();
            }
        }
    }
}

impl Entry {
    /// Whether one of the user's entries or rules answers frames of a flow, judged by the 5-tuple.
    fn is_users(&mut self, key: &FlowKey) -> bool {
        let mut batch = Batch::default();
        let lanes = batch.push(Frame::default(), *key).map_or(Lanes::NONE, |lane| Lanes(1 << lane));
        let mut answers = |table: usize| {
            let table = self.steer.table(table);
            table.is_some_and(|table| table.lookup(&mut batch, lanes).is_empty())
        };
        answers(USER) || answers(RULES)
    }

    /// Marks with this number name `flow` from here on. It is left out if it is not among the promoted flows.
    fn name(&mut self, number: u32, flow: Option<Named>) {
        self.named.retain(|one| one.number != number);
        let mut batch = Batch::default();
        if let Some(flow) = flow
            && let Ok(lane) = batch.push(Frame::default(), flow.key)
            && let Some(table) = self.steer.table(PROMOTED)
            && table.lookup(&mut batch, Lanes(1 << lane)).is_empty()
            && batch.actions[lane] == flow.action
        {
            self.named.push(flow);
        }
        self.renew_marks();
    }

    /// No mark names the flow with this key any more.
    fn unname(&mut self, key: &FlowKey) {
        let before = self.named.len();
        self.named.retain(|one| one.key != key.flow());
        if self.named.len() != before {
            self.renew_marks();
        }
    }

    /// Makes the table of marked entries anew.
    fn renew_marks(&mut self) {
        if let Some(marks) = &self.marks {
            let table = Marked::new(Arc::clone(marks)).with_flows(&self.named);
            self.steer.replace(MARKED, Box::new(table));
        }
    }

    /// Replaces the rules.
    pub(crate) fn set_rules(&mut self, table: Arc<Wildcard>) {
        let has = (self.cache.is_some(), !table.is_empty(), self.splits);
        self.steer.set_order(&order_behind(self.marks.is_some(), has));
        let mask = self.cache.unwrap_or(FlowKey::ZERO);
        self.steer.replace(RULES, Box::new(Rules::new(table, &mask)));
    }
}

#[cfg(test)]
mod tests;
