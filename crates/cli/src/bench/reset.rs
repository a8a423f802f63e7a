//! The user's command that resets the device (RFC 6201): begun in the midst of a trial, not waited for.

use std::process::{Child, Stdio};
use std::time::Duration;

use flowyard_rfc2544::tester::Resetter;

/// How long a command may go on after its trial. What it starts for good is to be in the background.
const PATIENCE: Duration = Duration::from_secs(10);

/// The command, and its process while a trial lasts.
pub(super) struct Command {
    text: String,
    child: Option<Child>,
}

impl Command {
    pub(super) const fn new(text: String) -> Self {
        Self { text, child: None }
    }

    fn said(&self, what: impl std::fmt::Display) -> String {
        format!("--reset '{}': {what}", self.text)
    }
}

impl Resetter for Command {
    fn begin(&mut self) -> Result<(), String> {
        let mut command = std::process::Command::new("sh");
        // What it prints is not part of our report.
        command.args(["-c", &self.text]).stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.spawn().map_err(|error| self.said(error))?);
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let step = Duration::from_millis(10);
        for _ in 0..PATIENCE.as_millis() / step.as_millis() {
            match child.try_wait().map_err(|error| self.said(error))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.said(format!("it ended with {status}"))),
                None => std::thread::sleep(step),
            }
        }
        let _ended = (child.kill(), child.wait());
        Err(self
            .said("it was still running 10 s after the trial; end it with '&' to let it run on"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_told_of() {
        let run = |text: &str| {
            let mut command = Command::new(text.into());
            command.begin().and_then(|()| command.end())
        };
        assert_eq!(run("true"), Ok(()));
        assert_eq!(run("sleep 30 &"), Ok(()));
        let said = run("exit 3").unwrap_err();
        assert!(said.starts_with("--reset 'exit 3': it ended with exit status: 3"), "{said}");
    }
}
