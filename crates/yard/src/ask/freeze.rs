//! A running engine is paused and its state taken, for another process: see [`crate::handover`].

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::counters::are_drained;
use crate::handover::{CoreState, HandoverError, YardState};
use crate::mail::Message;
use crate::port::CorePorts;
use crate::question::{Answer, Question};

use super::Handle;

/// How long a core may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a core may take to write down its state.
const TAKES: Duration = Duration::from_secs(30);

impl Handle {
    /// The descriptors of all ports, by core. The engine continues to run.
    ///
    /// # Errors
    /// A port cannot be handed over, or a core does not answer.
    pub fn descriptors(&self) -> Result<Vec<CorePorts>, HandoverError> {
        let answers = self.ask(&Question::Descriptors, PATIENCE);
        let each = answers.into_iter().enumerate().map(|(core, answer)| match answer {
            Some(Answer::Descriptors(Some(all))) => Ok(all),
            Some(_) => Err(HandoverError::Port(core)),
            None => Err(HandoverError::Silent(core)),
        });
        each.collect()
    }

    /// Pauses all ports, waits until no frame is inside, and returns the state. If there is an error, the engine is running
    /// again.
    ///
    /// # Errors
    /// The work cannot be handed over, a core does not answer, or frames do not leave within `patience`.
    pub fn freeze(&self, patience: Duration) -> Result<YardState, HandoverError> {
        self.mail.to_all(&Message::Pause(true));
        let frozen = self.drained_state(patience);
        if frozen.is_err() {
            self.resume();
        }
        frozen
    }

    /// Goes on after [`Handle::freeze`]: the other process has not taken over.
    pub fn resume(&self) {
        self.mail.to_all(&Message::Pause(false));
    }

    fn drained_state(&self, patience: Duration) -> Result<YardState, HandoverError> {
        let until = self.now().saturating_add(patience.as_nanos() as u64);
        loop {
            // A core that has answered has read that it is to pause, and its counters are published.
            let alive = self.ask(&Question::Alive, PATIENCE);
            if let Some(core) = alive.iter().position(Option::is_none) {
                return Err(HandoverError::Silent(core));
            }
            if are_drained(&self.boards)
                && let Some(cores) = self.states()?
            {
                let now = self.now();
                let control = self.control.iter().filter_map(|control| control.hand_over(now));
                let control = control.map(|(kind, state)| (kind.to_owned(), state)).collect();
                return Ok(YardState { cores, control });
            }
            if self.now() >= until {
                return Err(HandoverError::Busy(patience));
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// The states of the cores; `None` if frames are inside.
    fn states(&self) -> Result<Option<Vec<Arc<CoreState>>>, HandoverError> {
        let answers = self.ask(&Question::State, TAKES);
        let each = answers.into_iter().enumerate().map(|(core, answer)| match answer {
            Some(Answer::State(state)) => state,
            _ => Err(HandoverError::Silent(core)),
        });
        match each.collect() {
            Err(HandoverError::Busy(_)) => Ok(None),
            states => states.map(Some),
        }
    }

    /// Ends the threads of all cores, which leave their ports open: another process has taken over.
    pub fn leave(&self) {
        self.mail.to_all(&Message::Leave);
    }
}
