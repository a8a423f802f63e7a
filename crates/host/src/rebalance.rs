//! Moves entries of an interface's indirection table from overloaded queues, each while its flows pause.
//!
//! ```text
//!  sampled frames ─> entry, queue ─> flow::learn::rebalance ─> moves
//!                                                               │
//!  is the table still ours? ─> journal on the disk ─> still paused? ─> table set, read back ─> watched
//! ```
//!
//! Invariants: the table is written only while it has the value that this program expects, and after the journal names
//! that value, the new one and the first one. A frame that came to another queue than the table says, because of a rule,
//! counts for that queue and for no entry.
//! Thread-safety: used by one thread. Time is an argument.

use std::io;
use std::path::{Path, PathBuf};

use flowyard_flow::learn::rebalance::{Busy, Limits, Move, Rebalance};
use flowyard_frame::{FlowKey, Nanos};
use flowyard_wire::{Headers, LinkType};

use crate::apply::{Failure, boot, differences, undo_journal};
use crate::card::Card;
use crate::journal::{Header, Journal};
use crate::known::reason;
use crate::machine::Machine;
use crate::plan::Step;
use crate::sample::Sampled;
use crate::setting::{Setting, Settings, settings_of, table, table_text};
use crate::state::State;

#[cfg(test)]
mod tests;
mod watch;

use watch::Watch;

/// Why the entries of an interface are not moved, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum Halt {
    /// The interface has no table whose entries could move. Nothing was changed.
    #[error("{interface} has no indirection table whose entries could move: {why}")]
    NoTable {
        /// The interface.
        interface: String,
        /// The reason.
        why: String,
    },
    /// Another program changed the settings that decide the queue.
    #[error("another program changed what this one relies on: {}; its change was not overwritten", .0.join("; "))]
    Foreign(Vec<String>),
    /// Frames come to other queues than the table says.
    #[error(
        "{elsewhere} of {frames} frames came to other queues than the indirection table says, so moving entries does not \
         move them; `flowyard prove` names the flows, and `ethtool -n` the rules that may be the reason"
    )]
    Elsewhere {
        /// These frames.
        elsewhere: u64,
        /// The frames of the window.
        frames: u64,
    },
    /// The kernel or the disk refuses.
    #[error("{0}")]
    Refused(String),
    /// The table could not be restored.
    #[error(transparent)]
    Undo(#[from] Failure),
}

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub enum News {
    /// A window has passed.
    Window {
        /// Its frames.
        frames: u64,
        /// Load of the busiest queue over the mean; `None` with too few frames.
        imbalance: Option<f64>,
        /// The same with the first table.
        first: Option<f64>,
        /// Entries that are to move as soon as they pause.
        waiting: usize,
    },
    /// Entries moved.
    Moved(Vec<Moved>),
    /// These entries, the busiest first, did not pause, and stay for a time.
    Busy(Vec<Busy>),
}

/// Moves that are in the journal and not yet in the table.
#[derive(Debug)]
struct Prepared {
    moves: Vec<Move>,
    /// Times that the journal was written for them.
    tries: u32,
}

/// Times that the journal is written for moves while entries of them resume, until all of them wait again.
const TRIES: u32 = 3;

/// A move of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The entry.
    pub entry: usize,
    /// The queue that it had.
    pub from: u32,
    /// The queue that it has.
    pub to: u32,
    /// Whether it moved without a pause.
    pub forced: bool,
}

impl From<Move> for Moved {
    fn from(Move { entry, from, to, forced, .. }: Move) -> Self {
        Self { entry, from, to, forced }
    }
}

/// Totals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Windows in which load was measured.
    pub windows: u64,
    /// Received frames that were seen.
    pub frames: u64,
    /// Frames for which the sockets had no room.
    pub lost: u64,
    /// Moves of entries.
    pub moves: u64,
    /// Those without a pause.
    pub forced: u64,
    /// Times that the table was written.
    pub writes: u64,
    /// Times that an entry did not pause, and stayed.
    pub busy: u64,
    /// Frames that were received on the new queue of an entry less than the pause after a frame on its old one, or on
    /// the old one after some on the new one: one of the two could have been overtaken.
    pub could_overtake: u64,
}

/// The state of the mechanism on one interface.
#[derive(Debug)]
pub struct Rebalancer {
    interface: String,
    card: Card,
    /// The settings that decide the queue of a flow, as this program expects them.
    settings: Settings,
    /// The table as it was at the start, and as it is.
    first: Vec<u32>,
    table: Vec<u32>,
    mechanism: Rebalance,
    watch: Watch,
    pause: Nanos,
    header: Header,
    /// The folder of the journal; `None`: nothing is changed.
    folder: Option<PathBuf>,
    journal: Option<Journal>,
    prepared: Option<Prepared>,
    totals: Totals,
    /// Frames of this window with an entry, and those of them that came elsewhere.
    hashed: u64,
    elsewhere: u64,
}

/// Frames of a window that must have come elsewhere to prove that the table does not decide.
const ELSEWHERE: u64 = 100;

impl Rebalancer {
    /// The mechanism for the interface whose state was read. With `folder`, moves are made, and the journal is there;
    /// without, they are only reported.
    ///
    /// # Errors
    /// [`Halt::NoTable`].
    pub fn new(
        machine: &dyn Machine,
        state: &State,
        limits: Limits,
        folder: Option<&Path>,
    ) -> Result<Self, Halt> {
        let interface = state.interface.clone();
        let no_table = |why: String| Halt::NoTable { interface: interface.clone(), why };
        let mut settings = settings_of(state);
        settings.retain(|setting, _| decides_the_queue(setting));
        let card = Card::new(state, &settings);
        if let Some(why) = card.no_rss() {
            return Err(no_table(format!(
                "{why} (RPS has no such table: it is one set of CPUs for each queue)"
            )));
        }
        let found = settings.get(&Setting::Table).and_then(|text| table(text));
        let table = found.ok_or_else(|| no_table("ETHTOOL_GRSSH gives none".to_owned()))?;
        let mechanism = Rebalance::new(table.clone(), limits);
        if let [queue] = mechanism.queues() {
            return Err(no_table(format!(
                "all entries are of queue {queue}; let the table name the queues that are to be used, as in \
                 `ethtool -X {interface} equal N`"
            )));
        }
        let header = Header {
            interface: interface.clone(),
            index: state.index,
            namespace: machine.namespace().ok(),
            boot: boot(machine),
            steps: Vec::new(),
            present: Vec::new(),
            reset: Settings::new(),
        };
        Ok(Self {
            interface,
            card,
            settings,
            first: table.clone(),
            table,
            mechanism,
            watch: Watch::new(limits.pause),
            pause: limits.pause,
            header,
            folder: folder.map(Path::to_owned),
            journal: None,
            prepared: None,
            totals: Totals::default(),
            hashed: 0,
            elsewhere: 0,
        })
    }

    /// Counts a frame that the interface received on `queue`, if the driver stores it.
    pub fn see(&mut self, link: LinkType, seen: &Sampled<'_>, queue: Option<u32>) {
        if !seen.sent {
            let headers = Headers::parse(link, seen.bytes);
            let key = flowyard_flow::parse::key(&headers, seen.bytes, 0);
            self.count(&key, seen.segments.into(), queue, seen.time);
        }
    }

    /// Counts frames of a flow.
    pub fn count(&mut self, key: &FlowKey, frames: u64, queue: Option<u32>, now: Nanos) {
        self.totals.frames += frames;
        let Some(entry) = self.card.entry(key) else {
            self.mechanism.count_fixed(queue.unwrap_or(0), frames, now);
            return;
        };
        self.hashed += frames;
        let expected = self.table[entry];
        let is_old = self.watch.see(entry, queue, frames, now);
        match queue {
            // It is of the entry, and was in the old queue when the table was written.
            Some(queue) if queue != expected && !is_old => {
                self.elsewhere += frames;
                self.mechanism.count_fixed(queue, frames, now);
            }
            _ => self.mechanism.count(entry, frames, now),
        }
    }

    /// The sockets had no room for frames: nothing is known of pauses until now.
    pub fn lost(&mut self, frames: u32, now: Nanos) {
        if frames > 0 {
            self.totals.lost += u64::from(frames);
            self.mechanism.missed(now);
        }
    }

    /// Not all frames that have come could be read: prepared moves of entries that do not move without a pause are put off.
    pub fn behind(&mut self, now: Nanos) {
        self.mechanism.missed(now);
    }

    /// Totals since the start.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        let mut totals = self.totals;
        totals.could_overtake = self.watch.could_overtake();
        totals
    }

    /// Whether entries wait for a pause.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.mechanism.is_waiting()
    }

    /// Number of entries that are not in their first queue.
    #[must_use]
    pub fn displaced(&self) -> usize {
        self.first.iter().zip(&self.table).filter(|(first, now)| first != now).count()
    }

    /// The journal, if something was changed.
    #[must_use]
    pub fn journal(&self) -> Option<&Path> {
        self.journal.as_ref().map(|journal| journal.path.as_path())
    }

    /// Ends a window that has passed, and prepares moves of entries that have paused. All frames up to `now` must have been
    /// counted, except if `is_behind`; then no entry moves.
    ///
    /// # Errors
    /// [`Halt`]; then the table is as another program set it, or as this one did last.
    pub fn tick(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        is_behind: bool,
    ) -> Result<Vec<News>, Halt> {
        let mut news = Vec::new();
        if let Some(window) = self.mechanism.decide(now) {
            self.totals.windows += 1;
            self.check(machine)?;
            let (elsewhere, frames) = (self.elsewhere, self.hashed);
            (self.elsewhere, self.hashed) = (0, 0);
            if elsewhere >= ELSEWHERE && elsewhere > frames / 2 {
                return Err(Halt::Elsewhere { elsewhere, frames });
            }
            self.totals.busy += window.busy.len() as u64;
            let mut busy = window.busy;
            busy.sort_by_key(|one| (std::cmp::Reverse(one.packets), one.entry));
            news.extend((!busy.is_empty()).then_some(News::Busy(busy)));
            news.push(News::Window {
                frames: window.packets,
                imbalance: window.imbalance,
                first: window.first,
                waiting: window.waiting,
            });
        }
        if is_behind {
            return Ok(news);
        }
        let moves: Vec<_> = std::iter::from_fn(|| self.mechanism.next(now)).collect();
        if self.folder.is_none() {
            news.extend(self.count_moves(&moves));
        } else if !moves.is_empty() {
            self.prepare(machine, moves, 1)?;
        }
        Ok(news)
    }

    /// Whether moves are prepared. All frames that have come must be counted, and then [`Self::commit`] called.
    #[must_use]
    pub const fn is_prepared(&self) -> bool {
        self.prepared.is_some()
    }

    /// Makes the moves that are prepared. Writing the journal takes time: if entries had frames meanwhile, they wait again,
    /// and the others are prepared once more.
    ///
    /// # Errors
    /// [`Halt`], as for [`Self::tick`].
    pub fn commit(&mut self, machine: &mut dyn Machine, now: Nanos) -> Result<Option<News>, Halt> {
        let Some(Prepared { moves, tries }) = self.prepared.take() else { return Ok(None) };
        let pause = self.pause;
        let paused =
            |one: &Move| one.forced || now.saturating_sub(self.mechanism.last(one.entry)) >= pause;
        let (ready, resumed): (Vec<_>, Vec<_>) = moves.into_iter().partition(paused);
        resumed.iter().for_each(|one| self.mechanism.put_back(one));
        if resumed.is_empty() {
            self.write(machine, &ready)?;
            self.watch.moved(&ready, now);
            return Ok(self.count_moves(&ready));
        }
        if tries == TRIES {
            ready.iter().for_each(|one| self.mechanism.put_back(one));
        } else if !ready.is_empty() {
            self.prepare(machine, ready, tries + 1)?;
        }
        Ok(None)
    }

    fn count_moves(&mut self, moves: &[Move]) -> Option<News> {
        self.totals.moves += moves.len() as u64;
        self.totals.forced += moves.iter().filter(|one| one.forced).count() as u64;
        let moved = || News::Moved(moves.iter().copied().map(Moved::from).collect());
        (!moves.is_empty()).then(moved)
    }

    /// Whether the settings that decide the queue are as this program expects them.
    fn check(&self, machine: &dyn Machine) -> Result<(), Halt> {
        let mut now = Settings::new();
        for setting in self.settings.keys() {
            let value = setting.get(machine, &self.interface);
            let value = value.map_err(|error| {
                Halt::Refused(format!(
                    "{}: {}",
                    self.interface,
                    reason(&format!("reading {setting}"), &error)
                ))
            })?;
            now.insert(setting.clone(), value);
        }
        let different = differences(&self.settings, &now);
        if different.is_empty() { Ok(()) } else { Err(Halt::Foreign(different)) }
    }

    /// The table with these moves.
    fn with(&self, moves: &[Move]) -> Vec<u32> {
        let mut table = self.table.clone();
        for one in moves {
            table[one.entry] = one.to;
        }
        table
    }

    /// Puts moves into the journal.
    fn prepare(&mut self, machine: &dyn Machine, moves: Vec<Move>, tries: u32) -> Result<(), Halt> {
        self.check(machine)?;
        let (from, to) = (table_text(&self.table), table_text(&self.with(&moves)));
        let step = Step { setting: Setting::Table, from, to, why: "rebalance".to_owned() };
        self.record(step).map_err(|error| Halt::Refused(format!("the journal: {error}")))?;
        self.prepared = Some(Prepared { moves, tries });
        Ok(())
    }

    /// Writes the table with these moves, which are in the journal, and reads it back.
    fn write(&mut self, machine: &mut dyn Machine, moves: &[Move]) -> Result<(), Halt> {
        let to = self.with(moves);
        let text = table_text(&to);
        // Another program's change is not overwritten.
        let expected = &self.settings[&Setting::Table];
        if Setting::Table.get(machine, &self.interface).is_ok_and(|now| now != *expected) {
            self.check(machine)?;
        }
        let set = Setting::Table.set(machine, &self.interface, &text);
        set.map_err(|error| {
            Halt::Refused(reason(&format!("setting the table of {}", self.interface), &error))
        })?;
        (self.table, self.totals.writes) = (to, self.totals.writes + 1);
        self.settings.insert(Setting::Table, text);
        self.check(machine)?;
        self.journal
            .as_mut()
            .map_or(Ok(()), |journal| journal.done(journal.header.steps.len() - 1))
            .map_err(|error| Halt::Refused(format!("the journal: {error}")))
    }

    /// Puts a step into the journal; when this returns, it is on the disk.
    fn record(&mut self, step: Step) -> io::Result<()> {
        match (&mut self.journal, &self.folder) {
            (Some(journal), _) => journal.push(step),
            (journal, Some(folder)) => {
                let header = Header { steps: vec![step], ..self.header.clone() };
                let mut new = Journal::create(folder, &header)?;
                new.begin(0)?;
                *journal = Some(new);
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    /// From now on, entries only return to their first queues, each as soon as it pauses.
    pub fn return_all(&mut self, now: Nanos) {
        self.mechanism.return_all(now);
    }

    /// Restores the first table, also of entries that do not pause, and deletes the journal. Returns the number of
    /// entries that returned at once.
    ///
    /// # Errors
    /// [`Halt::Undo`]; then the journal is kept.
    pub fn restore(mut self, machine: &mut dyn Machine) -> Result<usize, Halt> {
        let displaced = self.displaced();
        match self.journal.take() {
            Some(journal) => undo_journal(machine, journal).map(|_| displaced).map_err(Halt::Undo),
            None => Ok(0),
        }
    }
}

/// Whether a setting decides the receive queue of a flow.
const fn decides_the_queue(setting: &Setting) -> bool {
    matches!(setting, Setting::Channels | Setting::Key | Setting::Table | Setting::Fields(_))
}
