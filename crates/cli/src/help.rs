//! Help texts: paragraphs are as wide as the terminal, and lines of examples are never broken, so that they can
//! be copied.

use std::io::{ErrorKind, IsTerminal, Write, stdout};
use std::process::ExitCode;

use clap::Command;

use crate::output;

/// Stands for a blank in a line that must not be broken. clap breaks lines only at blanks.
const FIXED: char = '\u{a0}';

/// The command with the texts behind the options of all its subcommands laid out: the lines of a paragraph are
/// joined, and those that begin with a blank (examples, lists) are kept as they are.
pub(crate) fn laid_out(command: Command) -> Command {
    let text = command.get_after_help().map(|text| layout(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(laid_out)
}

fn layout(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_kept = line.starts_with(' ') || line.is_empty();
        match lines.last_mut() {
            Some(last)
                if !is_kept
                    && !last.is_empty()
                    && !last.starts_with(FIXED)
                    && !last.ends_with(':') =>
            {
                last.push(' ');
                last.push_str(line);
            }
            _ if is_kept => lines.push(line.replace(' ', &FIXED.to_string())),
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// Prints a help text or the version.
pub(crate) fn print(error: &clap::Error) -> ExitCode {
    let text = error.render();
    let wants_colour = stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    let text = if wants_colour { text.ansi().to_string() } else { text.to_string() };
    let text = text.replace(FIXED, " ");
    // Help that was not asked for goes to standard error, with the status of wrong use.
    let done = match error.use_stderr() {
        true => std::io::stderr().write_all(text.as_bytes()),
        false => output::print(text.as_bytes()),
    };
    // A closed pipe, as in `flowyard --help | head`, is not a failure.
    if let Err(error) = done.or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    }) {
        return crate::report(&format!("standard output cannot be written: {error}"), 1);
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn examples_are_not_broken_and_paragraphs_are_joined() {
        let text =
            "Examples:\n  flowyard a b\n  flowyard c\n\nOne line\nand another.\n\nA list:\n  x";
        let laid = layout(text).replace(FIXED, "_");
        let want =
            "Examples:\n__flowyard_a_b\n__flowyard_c\n\nOne line and another.\n\nA list:\n__x";
        assert_eq!(laid, want);
    }

    /// At 60 columns, every line of an example is in the help text as it is in the source.
    #[test]
    fn every_example_can_be_copied() {
        fn check(command: &mut Command, count: &mut usize) {
            let source = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let mut laid = laid_out(command.clone()).term_width(60);
            let help = laid.render_help().to_string().replace(FIXED, " ");
            for example in source.lines().filter(|line| line.starts_with("  flowyard ")) {
                let is_there = help.lines().any(|line| line == example);
                assert!(is_there, "{example}\n{help}");
                *count += 1;
            }
            for name in
                command.get_subcommands().map(|one| one.get_name().to_owned()).collect::<Vec<_>>()
            {
                if let Some(one) = command.find_subcommand_mut(&name) {
                    check(one, count);
                }
            }
        }
        let mut count = 0;
        check(&mut crate::Cli::command(), &mut count);
        assert!(count > 40, "{count} examples");
    }
}
