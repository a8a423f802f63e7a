//! A process with the new configuration, which a reload starts and which takes over from this one.
//!
//! ```text
//!  SIGHUP ──keys that need a new process──> start it with the arguments of this one and --take-over
//!                                             ├─ it takes over: this process ends, systemd follows the new one
//!                                             └─ it ends before that: this process goes on as before
//! ```
//!
//! This is done for services of systemd only, which follows the new main process. The parent of any other process would
//! see it end, and a container would end with its first process.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use flowyard_operate::privilege;

/// A process that is to take over. It is left alone when this is dropped.
pub(super) struct Successor(Child);

impl Successor {
    /// Starts it.
    pub(super) fn start() -> io::Result<Self> {
        let mut command = Command::new(program());
        command.args(with_take_over(std::env::args_os().skip(1))).stdin(Stdio::null());
        // They name this process. Without the first, the watchdog would be for another process; without the second, the
        // successor is a main process, too (see `Service::follows`).
        command.env_remove("WATCHDOG_PID").env_remove("SYSTEMD_EXEC_PID");
        privilege::spawn(&mut command).map(Self)
    }

    /// Its process ID.
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&mut self) -> Option<String> {
        match self.0.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Ends it.
    pub(super) fn end(mut self) {
        let (_killed, _waited) = (self.0.kill(), self.0.wait());
    }
}

/// The program of this process: by its path, so that the process has its name, or if the path names another file now, by the
/// descriptor of the kernel.
fn program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    let is_there = |path: &PathBuf| path.exists();
    std::env::current_exe().ok().filter(is_there).unwrap_or(own)
}

/// The arguments of a process that takes over.
fn with_take_over(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let others = arguments.filter(|argument| argument != "--take-over");
    others.chain([OsString::from("--take-over")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_stay_and_take_over_is_there_once() {
        let of = |text: &str| {
            let all = with_take_over(text.split(' ').map(OsString::from));
            all.join(&OsString::from(" ")).into_string().unwrap()
        };
        assert_eq!(of("run y.toml --json"), "run y.toml --json --take-over");
        assert_eq!(of("run --take-over y.toml"), "run y.toml --take-over");
    }
}
