//! `flowyard completions` and `flowyard man`: what a shell and `man` need to know about the arguments.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::outfile::OutFile;
use crate::output;
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard completions bash > ~/.local/share/bash-completion/completions/flowyard
  flowyard completions zsh > /usr/local/share/zsh/site-functions/_flowyard
  flowyard completions fish > ~/.config/fish/completions/flowyard.fish")]
pub(crate) struct Completions {
    /// The shell to write completions for
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard man /usr/local/share/man/man1
  flowyard man . && man ./flowyard-analyze.1")]
pub(crate) struct Man {
    /// Folder in which the pages are written: one for flowyard, and one for each of its commands
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn completions(args: &Completions) -> Result<(), Stop> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "flowyard", &mut text);
    output::text(&String::from_utf8_lossy(&text))
}

pub(crate) fn man(args: &Man) -> Result<(), Stop> {
    let folder = args.folder.display();
    if !args.folder.is_dir() {
        return Err(bad_input(format!("{folder}: this is not a folder; create it first")));
    }
    let mut command = crate::Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, &args.folder)
}

/// Writes the pages of a command and its subcommands.
fn pages(command: &clap::Command, folder: &Path) -> Result<(), Stop> {
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        pages(one, folder)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let path = folder.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)?;
    let file = OutFile::new(Some(&path), "page")?;
    file.map_or(Ok(()), |file| file.write(&text))
}
