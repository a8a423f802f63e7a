//! `flowyard apply`, `undo` and `confirm`: changes the settings of an interface as a plan says, and back.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_host::journal::{self, Journal};
use flowyard_host::{Failure, Here, Undone, apply, dangers, undo, undo_journal};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::nanos;
use crate::stop::{Stop, bad_input};
use crate::{live, output, plan, prove};

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.changed/1";

/// Where journals are, unless `--journal` names another folder.
pub(crate) const FOLDER: &str = "/var/lib/flowyard";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard apply plan.json
  flowyard apply plan.json --prove 5 --confirm-within 60s

With --confirm-within the change is undone unless another shell runs `flowyard confirm IFACE` in that time, or if
this command is ended before. After a kill or a power failure `flowyard undo IFACE` restores the settings. The
command needs CAP_NET_ADMIN, and permission to write the files of sysfs and procfs that the plan names.

The exit status is 0 if the change was applied (and confirmed), 1 if it failed and was undone, 2 if the plan is
refused; then nothing was changed.")]
pub(crate) struct Apply {
    /// The plan, as `flowyard plan -o FILE` writes it
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    /// Undo the change unless it is confirmed within this time, such as 60s
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    confirm_within: Option<Duration>,

    /// Compare the live traffic of this many seconds with the prediction, as `flowyard prove` does, and undo the
    /// change if flows come elsewhere
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    prove: Option<u32>,

    /// Apply the plan also if it moves or interrupts the connection from which this command is run (that of SSH, or
    /// one of a process that started it), or interrupts the default route
    #[arg(long)]
    allow_management: bool,

    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// Folder of the journals, from which changes are undone
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    journal: PathBuf,

    /// Print JSON (schema flowyard.changed/1) instead of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard undo eth0
  flowyard undo eth0 --forget

The newest change is undone. A setting that another program has changed since then is reported and left as it
is; the exit status is then 1.")]
pub(crate) struct Undo {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// Delete the newest journal and leave the settings as they are
    #[arg(long)]
    forget: bool,

    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard confirm eth0")]
pub(crate) struct Confirm {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    #[command(flatten)]
    common: Common,
}

/// What was changed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Changed {
    /// The interface.
    interface: String,
    /// `applied`, `unchanged` (the plan has no steps), `undone`, `obsolete` (the machine was restarted, or the
    /// interface made again, so there was nothing to undo), `forgotten` or `confirmed`.
    outcome: String,
    /// The settings that were changed, and read back.
    settings: Vec<String>,
    /// The journal; after an undo it does not exist any more. `null` if nothing was changed.
    journal: Option<String>,
}

impl Common {
    /// A plan that does not fit is bad input; all else is a failure. Of the journal, the folder is named.
    fn stop(&self, failure: Failure) -> Stop {
        match failure {
            Failure::Journal(error) => self.unusable(&error),
            failure => stop(failure),
        }
    }

    /// A journal cannot be read or written.
    fn unusable(&self, error: &std::io::Error) -> Stop {
        use std::io::ErrorKind::{
            NotADirectory, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
            StorageFull,
        };
        let fix = match error.kind() {
            PermissionDenied => {
                "; run the command as root, which changes of the settings need too, or name another folder with --journal DIR"
            }
            NotADirectory | NotFound | QuotaExceeded | ReadOnlyFilesystem | StorageFull => {
                "; name another folder with --journal DIR"
            }
            _ => "",
        };
        let folder = self.journal.display();
        Stop::Failed(anyhow::anyhow!("the journal in {folder}: {error}{fix}"))
    }

    fn report(
        &self,
        interface: &str,
        outcome: &str,
        settings: Vec<String>,
        journal: Option<&Path>,
    ) -> Result<(), Stop> {
        let journal = journal.map(|path| path.display().to_string());
        if !self.json {
            let mut text = format!("{interface}: {outcome}");
            if !settings.is_empty() {
                let _infallible = write!(text, ", {} settings read back", settings.len());
            }
            if let (Some(journal), "applied") = (&journal, outcome) {
                let _infallible = write!(text, "; journal {journal}");
            }
            return output::text(&(text + "\n"));
        }
        let (interface, outcome) = (interface.to_owned(), outcome.to_owned());
        output::json(SCHEMA, Changed { interface, outcome, settings, journal })
    }
}

pub(crate) fn run(args: &Apply) -> Result<(), Stop> {
    let plan = plan::read(&args.plan)?;
    let interface = plan.interface.as_str();
    if plan.steps.is_empty() {
        return args.common.report(interface, "unchanged", Vec::new(), None);
    }
    guard(
        interface,
        &dangers(&Here, &plan),
        args.allow_management,
        "leave these steps out of the plan, or add --allow-management, best with --confirm-within 60s",
    )?;
    let ended = live::flag_of_change()?;
    let journal = apply(&mut Here, &plan, &args.common.journal);
    let journal = journal.map_err(|failure| args.common.stop(failure))?;
    let journal = match args.prove {
        Some(seconds) => proven(interface, seconds, journal)?,
        None => journal,
    };
    if let Some(time) = args.confirm_within {
        let path = journal.path.clone();
        output::note(&format!(
            "{interface}: applied; undone in {} unless `flowyard confirm {interface}` is run",
            humantime::format_duration(time)
        ));
        if !is_confirmed(&path, time, &ended) {
            return unconfirmed(interface, journal);
        }
    }
    // With the locations that the driver chose.
    let settings = journal.steps().iter().map(|step| step.setting.to_string()).collect();
    args.common.report(interface, "applied", settings, Some(&journal.path))
}

/// Refuses to change an interface over which the machine may be managed, unless the user allows it.
pub(crate) fn guard(
    interface: &str,
    dangers: &[String],
    is_allowed: bool,
    advice: &str,
) -> Result<(), Stop> {
    if dangers.is_empty() || is_allowed {
        return Ok(());
    }
    Err(bad_input(format!(
        "{interface}: this concerns the connection over which this machine is managed: {}; {advice}",
        dangers.join("; ")
    )))
}

/// Undoes a change unless live traffic comes where it is predicted.
fn proven(interface: &str, seconds: u32, journal: Journal) -> Result<Journal, Stop> {
    let proof = prove::measure(interface, Duration::from_secs(seconds.into()));
    let why = match proof.map(|proof| (prove::verdict(&proof), proof.differing_flows)) {
        Ok((Ok(()), _)) => return Ok(journal),
        // Without traffic nothing speaks against the change.
        Ok((Err(why), 0)) => {
            output::note(&format!("{interface}: {why}"));
            return Ok(journal);
        }
        Ok((Err(why), _)) => why.to_string(),
        Err(stop) => stop.to_string(),
    };
    undo_journal(&mut Here, journal).map_err(stop)?;
    Err(Stop::Failed(anyhow::anyhow!("{interface}: {why}; the change was undone")))
}

/// Waits until the user confirms the change. A journal that cannot be read confirms nothing: the change is undone then.
fn is_confirmed(path: &Path, time: Duration, ended: &AtomicBool) -> bool {
    let (clock, end) = (crate::clock::new(), nanos(time));
    loop {
        if journal::is_confirmed(path).unwrap_or(false) {
            return true;
        }
        if clock() >= end || ended.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Undoes a change that was not confirmed.
fn unconfirmed(interface: &str, journal: Journal) -> Result<(), Stop> {
    undo_journal(&mut Here, journal).map_err(stop)?;
    Err(Stop::Failed(anyhow::anyhow!("{interface}: not confirmed in time; the change was undone")))
}

/// A plan that does not fit is bad input; all else is a failure.
fn stop(failure: Failure) -> Stop {
    match failure {
        Failure::Different(_) | Failure::NotOurs(_) | Failure::Nothing(..) => bad_input(failure),
        _ => Stop::Failed(failure.into()),
    }
}

/// The newest journal of an interface.
fn newest(interface: &str, common: &Common) -> Result<PathBuf, Stop> {
    let folder = &common.journal;
    let newest = journal::list(folder, interface).map_err(|e| common.unusable(&e))?.pop();
    let folder = folder.display().to_string();
    newest.ok_or_else(|| bad_input(Failure::Nothing(interface.to_owned(), folder)))
}

pub(crate) fn undo_last(args: &Undo) -> Result<(), Stop> {
    let (interface, common) = (args.interface.as_str(), &args.common);
    let path = newest(interface, common)?;
    if args.forget {
        let journal = Journal::open(&path).map_err(|error| common.unusable(&error))?;
        journal.delete().map_err(|error| common.unusable(&error))?;
        return common.report(interface, "forgotten", Vec::new(), Some(&path));
    }
    match undo(&mut Here, interface, &common.journal).map_err(|failure| common.stop(failure))? {
        Undone::Restored(settings) => {
            let settings = settings.iter().map(ToString::to_string).collect();
            common.report(interface, "undone", settings, Some(&path))
        }
        Undone::Obsolete => common.report(interface, "obsolete", Vec::new(), Some(&path)),
    }
}

pub(crate) fn confirm(args: &Confirm) -> Result<(), Stop> {
    let path = newest(&args.interface, &args.common)?;
    journal::confirm(&path).map_err(|error| args.common.unusable(&error))?;
    args.common.report(&args.interface, "confirmed", Vec::new(), Some(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_cannot_be_read_confirms_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("eth0.1.journal");
        let never = AtomicBool::new(false);
        assert!(!is_confirmed(&path, Duration::from_millis(60), &never));
        std::fs::write(&path, "{}\nconfirmed\n").unwrap();
        assert!(is_confirmed(&path, Duration::ZERO, &never));
    }

    #[test]
    fn a_journal_that_may_not_be_written_needs_root() {
        let common = Common { journal: "/var/lib/flowyard".into(), json: false };
        let stop = common.stop(Failure::Journal(std::io::ErrorKind::PermissionDenied.into()));
        assert_eq!(stop.status(), 1);
        let said = stop.to_string();
        assert!(
            said.starts_with("the journal in /var/lib/flowyard: permission denied; "),
            "{said}"
        );
        assert!(
            said.contains("run the command as root") && said.ends_with("--journal DIR"),
            "{said}"
        );
    }
}
