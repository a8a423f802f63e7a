//! Running programs, and printing lines.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// Prints a line on standard output. A closed pipe is not an error.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line on standard error.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether the program is an executable file in one of the folders of `PATH`.
pub(crate) fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether the command can be started and succeeds. Its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command; an exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| show(command))?;
    if !status.success() {
        bail!("{}: {status}", show(command));
    }
    Ok(())
}

/// The standard output of a command that succeeds.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| show(command))?;
    if !output.status.success() {
        bail!("{}: {}", show(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a command printed, and its exit code.
pub(crate) struct Printed {
    pub(crate) text: String,
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    name: String,
}

impl Printed {
    /// The text, or an error if the exit code is not 0.
    pub(crate) fn checked(self) -> Result<String> {
        match self.code {
            Some(0) => Ok(self.text),
            Some(code) => bail!("{}: exit status {code}", self.name),
            None => bail!("{}: ended by a signal", self.name),
        }
    }
}

/// Runs a command and prints its standard output and standard error line by line while it runs.
/// Returns both, in the order in which they were printed.
pub(crate) fn tee(command: &mut Command) -> Result<Printed> {
    let (reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let name = show(command);
    let mut child = command.spawn().with_context(|| name.clone())?;
    // The command holds the writing end of the pipe: close it here, or reading never ends.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut text = String::new();
    let mut line = Vec::new();
    let mut reader = BufReader::new(reader);
    while reader.read_until(b'\n', &mut line)? > 0 {
        let _ = std::io::stdout().write_all(&line);
        text += &String::from_utf8_lossy(&line);
        line.clear();
    }
    let status = child.wait()?;
    Ok(Printed { text, code: status.code(), name })
}

/// A command line as one would type it, without its environment.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
