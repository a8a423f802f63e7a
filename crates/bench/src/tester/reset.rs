//! Runs the user's command that resets the device (RFC 6201). It is started in the middle of a trial, and
//! the trial does not wait for its end.

use std::process::{Child, Stdio};
use std::time::Duration;

use flowyard_rfc2544::tester::Resetter;

/// How long the command may run after its trial. Programs that it starts belong in the background.
const PATIENCE: Duration = Duration::from_secs(10);

/// The command, and its process during a trial.
#[derive(Debug)]
pub struct Command {
    text: String,
    child: Option<Child>,
}

impl Command {
    /// A command for `sh`.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self { text, child: None }
    }

    fn error(&self, what: impl std::fmt::Display) -> String {
        format!("--reset '{}': {what}", self.text)
    }
}

impl Resetter for Command {
    fn begin(&mut self) -> Result<(), String> {
        let mut command = std::process::Command::new("sh");
        // Its output must not be mixed with the report.
        command.args(["-c", &self.text]).stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.spawn().map_err(|error| self.error(error))?);
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let step = Duration::from_millis(10);
        for _ in 0..PATIENCE.as_millis() / step.as_millis() {
            match child.try_wait().map_err(|error| self.error(error))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(self.error(format!("the command failed with {status}")));
                }
                None => std::thread::sleep(step),
            }
        }
        let _ended = (child.kill(), child.wait());
        Err(self
            .error("the command was still running 10 s after the trial; if it starts a program, put that into the background with '&'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_is_reported() {
        let run = |text: &str| {
            let mut command = Command::new(text.into());
            command.begin().and_then(|()| command.end())
        };
        assert_eq!(run("true"), Ok(()));
        assert_eq!(run("sleep 30 &"), Ok(()));
        let said = run("exit 3").unwrap_err();
        assert!(
            said.starts_with("--reset 'exit 3': the command failed with exit status: 3"),
            "{said}"
        );
    }
}
