//! `--elephants`: its settings, and what was done.

use std::fmt;

use flowyard_frame::FlowKey;
use flowyard_steer::elephants::{Decision, Settings, What};
use schemars::JsonSchema;
use serde::Serialize;

use crate::stop::{Stop, bad_input};

/// What was done about elephants.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct Elephants {
    /// How often a flow got a CPU of its own.
    promoted: u64,
    /// How often a flow returned.
    demoted: u64,
    /// How often nothing was done about an overloaded CPU; the same reason counts once in a dwell time.
    refused: u64,
    /// The flows that had a CPU of their own at the end.
    own: Vec<Own>,
}

/// A flow that has a CPU of its own.
#[derive(Serialize, JsonSchema)]
struct Own {
    /// The flow.
    flow: String,
    /// Its CPU.
    cpu: u32,
}

impl Elephants {
    pub(super) const fn count(&mut self, decision: &Decision) {
        let counter = match decision.what {
            What::Promote { .. } => &mut self.promoted,
            What::Demote { .. } => &mut self.demoted,
            What::Refuse(_) => &mut self.refused,
        };
        *counter += 1;
    }

    /// With the flows that have a CPU of their own now.
    pub(super) fn with(self, own: Vec<(FlowKey, u32)>) -> Self {
        let own = own.into_iter().map(|(flow, cpu)| Own { flow: flow.to_string(), cpu }).collect();
        Self { own, ..self }
    }
}

impl fmt::Display for Elephants {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { promoted, demoted, refused, own } = self;
        writeln!(to, "elephants: {promoted} promoted, {demoted} demoted, {refused} refused")?;
        own.iter().try_for_each(|own| writeln!(to, "CPU {}: only {}", own.cpu, own.flow))
    }
}

/// The settings in a list such as `promote=0.5,dwell_us=5000000`.
pub(super) fn settings(list: &str) -> Result<Settings, Stop> {
    // 0: a quarter of the ring.
    let mut settings = Settings { waiting_frames: 0, ..Settings::default() };
    for part in list.split(',').filter(|part| !part.trim().is_empty()) {
        let wrong = |what: &str| bad_input(format!("--elephants: '{}': {what}", part.trim()));
        let (word, value) =
            part.split_once('=').ok_or_else(|| wrong("write a word, = and a number"))?;
        let (word, value) = (word.trim(), value.trim());
        let whole = || value.parse::<u64>().map_err(|_| wrong("write a whole number after ="));
        let small = || value.parse::<u32>().map_err(|_| wrong("write a whole number after ="));
        let share =
            || value.parse::<f64>().map_err(|_| wrong("write a number from 0 to 1 after ="));
        match word {
            "window_us" => settings.window = whole()?.saturating_mul(1000),
            "sample_every" => settings.sample_every = small()?,
            "samples_min" => settings.samples_min = whole()?,
            "busy_high" => settings.busy_high = share()?,
            "waiting_frames" => settings.waiting_frames = whole()?,
            "busy_low" => settings.busy_low = share()?,
            "promote" => settings.promote = share()?,
            "demote" => settings.demote = share()?,
            "patience" => settings.patience = small()?,
            "dwell_us" => settings.dwell = whole()?.saturating_mul(1000),
            "promoted_max" => settings.promoted_max = small()? as usize,
            _ => {
                return Err(wrong(
                    "this word is not known; 'flowyard steer --help' lists those of --elephants",
                ));
            }
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_yard_are_understood() {
        let given = settings("promote=0.5, dwell_us=7,sample_every=8").unwrap();
        assert_eq!((given.promote, given.dwell, given.sample_every), (0.5, 7000, 8));
        assert_eq!(settings("").unwrap(), Settings { waiting_frames: 0, ..Settings::default() });
        for wrong in ["promote", "promote=much", "patience=-1", "workers=2"] {
            assert!(settings(wrong).is_err(), "{wrong}");
        }
    }
}
