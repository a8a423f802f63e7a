//! The pace of a replay: when a frame of a capture is due.

use std::str::FromStr;

use flowyard_frame::Nanos;

/// The speed at which a capture is replayed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Pace {
    /// As fast as the engine accepts frames.
    #[default]
    Fast,
    /// With the capture's own gaps between frames.
    Capture,
    /// At this many frames per second, at equal intervals.
    Rate(f64),
}

/// A text that is not a pace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{0}' is not a pace; write \"fast\", \"capture\", or frames per second such as \"250000\", \
     \"250k\" or \"1.5M\""
)]
pub struct BadPace(String);

impl FromStr for Pace {
    type Err = BadPace;

    fn from_str(text: &str) -> Result<Self, BadPace> {
        let (number, unit) = match text {
            "fast" => return Ok(Self::Fast),
            "capture" => return Ok(Self::Capture),
            _ => match text.as_bytes().last() {
                Some(b'k') => (&text[..text.len() - 1], 1e3),
                Some(b'M') => (&text[..text.len() - 1], 1e6),
                _ => (text, 1.0),
            },
        };
        match number.parse::<f64>() {
            Ok(rate) if (1e-3..=1e12).contains(&(rate * unit)) => Ok(Self::Rate(rate * unit)),
            _ => Err(BadPace(text.into())),
        }
    }
}

/// The state of a running replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clockwork {
    pace: Pace,
    /// The start time of the replay, and the capture time of its first frame.
    began: Option<(Nanos, Nanos)>,
    /// Number of frames released so far.
    count: u64,
}

impl Clockwork {
    pub(super) const fn new(pace: Pace) -> Self {
        Self { pace, began: None, count: 0 }
    }

    /// Whether every frame is due immediately.
    pub(super) const fn is_fast(&self) -> bool {
        matches!(self.pace, Pace::Fast)
    }

    /// Whether the next frame, captured at `time`, is due at `now`; if so it counts as released. A
    /// capture whose time stamps go back does not stall.
    pub(super) fn due(&mut self, time: Nanos, now: Nanos) -> bool {
        let (start, first) = *self.began.get_or_insert((now, time));
        let since = now.saturating_sub(start);
        let due = match self.pace {
            Pace::Fast => true,
            Pace::Capture => since >= time.saturating_sub(first),
            Pace::Rate(rate) => since as f64 >= self.count as f64 * 1e9 / rate,
        };
        self.count += u64::from(due);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_read() {
        let read = |text: &str| text.parse::<Pace>();
        assert_eq!(read("fast"), Ok(Pace::Fast));
        assert_eq!(read("capture"), Ok(Pace::Capture));
        assert_eq!(read("250k"), Ok(Pace::Rate(250e3)));
        assert_eq!(read("1.5M"), Ok(Pace::Rate(1.5e6)));
        assert_eq!(read("1000"), Ok(Pace::Rate(1e3)));
        for text in ["", "k", "-1", "0", "nan", "inf", "1e300", "slow", "é"] {
            assert!(read(text).unwrap_err().to_string().contains("write \"fast\""), "{text}");
        }
    }

    #[test]
    fn frames_are_due_when_they_should_be() {
        let mut capture = Clockwork::new(Pace::Capture);
        assert!(capture.due(1000, 50));
        assert!(!capture.due(1500, 549) && capture.due(1500, 550));
        assert!(capture.due(1200, 550), "the capture's clock went back");
        let mut rate = Clockwork::new(Pace::Rate(1e6));
        assert!(rate.due(0, 7) && !rate.due(0, 1006) && rate.due(0, 1007) && !rate.due(0, 2006));
        assert!(rate.due(0, 9_000_000) && rate.due(0, 9_000_000), "it catches up");
    }
}
