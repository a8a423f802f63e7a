//! What was changed, on the disk before the change: enough to restore it after the program was killed or the
//! power failed.
//!
//! ```text
//!  IFACE.1.journal   line 1: the interface, the boot, and every step with the value before and after
//!                    "begin 0" "done 0" "begin 1" "made 1 rule-2045" "done 1" ...  "applied" "confirmed" "gone rule-7"
//! ```
//!
//! The first line is complete on the disk before the first change; the others are appended and may be torn. A
//! journal is deleted when its steps have been undone.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::plan::Step;
use crate::setting::{Setting, Settings};

/// The first line of a journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The interface.
    pub interface: String,
    /// The kernel's index of the interface: another interface of the same name has another.
    pub index: u32,
    /// The number of the network namespace in which the interface is; journals of former versions do not name it.
    #[serde(default)]
    pub namespace: Option<u64>,
    /// The boot of the machine (`/proc/sys/kernel/random/boot_id`): a restart forgets all settings.
    pub boot: String,
    /// The steps.
    pub steps: Vec<Step>,
    /// The rules and contexts that were there before the first step. What the steps make is none of these.
    #[serde(default)]
    pub present: Vec<Setting>,
    /// Settings that the driver may reset because the steps change the channels, with the values to restore.
    #[serde(default)]
    pub reset: Settings,
}

/// An open journal, which no other process has open.
#[derive(Debug)]
pub struct Journal {
    /// The file.
    pub path: PathBuf,
    /// What is restored.
    pub header: Header,
    /// Steps that were begun, and those of them that are done.
    pub begun: Vec<usize>,
    /// Steps after which the setting was read back.
    pub done: Vec<usize>,
    /// What the driver chose for steps that let it choose.
    pub made: BTreeMap<usize, Setting>,
    /// Whether the user confirmed the change.
    pub confirmed: bool,
    /// Whether all steps were made, and everything else was as before.
    applied: bool,
    /// Rules that the driver may reset, but that were deleted after the change: known since undoing began.
    gone: Option<Vec<Setting>>,
    file: File,
}

/// What a journal says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// What is restored.
    pub header: Header,
    /// Steps that were begun.
    pub begun: Vec<usize>,
    /// Steps after which the setting was read back.
    pub done: Vec<usize>,
    /// What steps turned out to be: a rule whose location the driver chose.
    pub made: BTreeMap<usize, Setting>,
    /// Whether the user confirmed the change.
    pub confirmed: bool,
    /// Whether all steps were made, and everything else was as before.
    pub applied: bool,
    /// Rules that the driver may reset, but that were deleted after the change: known since undoing began.
    pub gone: Option<Vec<Setting>>,
}

/// Reads the text of a journal, whose last line may be torn.
///
/// # Errors
/// The first line is not the header of a journal.
pub fn parse(text: &str) -> Result<Contents, serde_json::Error> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let header = serde_json::from_str(first)?;
    Ok(progress(rest).of(header))
}

/// The journals of an interface in `folder`, the oldest first.
///
/// # Errors
/// When the folder cannot be read. A folder that does not exist has no journals.
pub fn list(folder: &Path, interface: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let number = |path: &PathBuf| -> Option<u32> {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix(interface)?.strip_prefix('.')?.strip_suffix(".journal")?.parse().ok()
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found: Vec<_> = paths.filter_map(|path| Some((number(&path)?, path))).collect();
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

impl Journal {
    /// Writes a new journal. When this returns, it is on the disk.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(folder: &Path, header: &Header) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let last = list(folder, &header.interface)?.pop();
        let number = |path: &Path| {
            let stem = path.file_stem()?.to_str()?;
            stem.rsplit('.').next()?.parse::<u32>().ok()
        };
        let mut next = last.as_deref().and_then(number).unwrap_or(0);
        let (path, file) = loop {
            next += 1;
            let path = folder.join(format!("{}.{next}.journal", header.interface));
            match write(&path, header, "", Name::New) {
                // Another process has taken the name since the journals were listed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                written => break (path, written?),
            }
        };
        Ok(Self::new(path, file, Progress::default().of(header.clone())))
    }

    fn new(path: PathBuf, file: File, contents: Contents) -> Self {
        let Contents { header, begun, done, made, confirmed, applied, gone } = contents;
        Self { path, header, begun, done, made, confirmed, applied, gone, file }
    }

    /// Adds a step, of which there are many: the journal then has what it was before as one step, from the first value to
    /// the last, and the new step, which is begun. All steps must change the same setting. When this returns, it is on the
    /// disk; before, the former journal is.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn push(&mut self, step: Step) -> io::Result<()> {
        let Some(first) = self.header.steps.first().filter(|_| !self.begun.is_empty()) else {
            return Err(io::Error::other("no step of the journal is begun"));
        };
        let before = Step { to: step.from.clone(), ..first.clone() };
        let header = Header { steps: vec![before, step], ..self.header.clone() };
        // The new file has the lock before it gets the name.
        self.file = write(&self.path, &header, "begin 0\ndone 0\nbegin 1\n", Name::Own)?;
        (self.header, self.begun, self.done) = (header, vec![0, 1], vec![0]);
        self.made.clear();
        Ok(())
    }

    /// Opens a journal.
    ///
    /// # Errors
    /// When it cannot be read, is not a journal, or another process has it open.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).append(true).open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::WouldBlock,
                "another flowyard applies or undoes this journal now; wait until it has ended",
            ),
            TryLockError::Error(error) => error,
        })?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let contents = parse(&text).map_err(|error| {
            let what = format!("{}: this is not a journal: {error}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(Self::new(path.to_owned(), file, contents))
    }

    /// Appends a line; when this returns, it is on the disk.
    fn append(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.file.sync_data()
    }

    /// Records that a step begins.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn begin(&mut self, step: usize) -> io::Result<()> {
        self.append(&format!("begin {step}"))?;
        self.begun.push(step);
        Ok(())
    }

    /// Records what the driver chose for a step.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn made(&mut self, step: usize, setting: Setting) -> io::Result<()> {
        let written = self.append(&format!("made {step} {setting}"));
        // It is made, whether or not this could be written.
        self.made.insert(step, setting);
        written
    }

    /// The steps, with what the driver chose in the place of `rule-new-N`, `rss.context-new` and `context new` of rules.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = self.header.steps.clone();
        let context = self.made.values().find_map(|setting| match setting {
            Setting::Context(number) => Some(*number),
            _ => None,
        });
        for (number, step) in steps.iter_mut().enumerate() {
            if let Some(setting) = self.made.get(&number) {
                step.setting = setting.clone();
            }
            if let Some(context) = context {
                step.to = step.to.replace(" context new ", &format!(" context {context} "));
            }
        }
        steps
    }

    /// Records that the setting of a step was read back.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn done(&mut self, step: usize) -> io::Result<()> {
        self.append(&format!("done {step}"))?;
        self.done.push(step);
        Ok(())
    }

    /// Records that all steps were made, and that everything else was as before.
    pub(crate) fn applied(&mut self) {
        // If this cannot be written, undoing puts back all rules that it does not find.
        let _written = self.append("applied");
        self.applied = true;
    }

    /// Of the rules that the driver may reset, those that somebody deleted after the change, so that undoing does not put
    /// them back. This is recorded before the channels are restored, because afterwards the driver may have dropped the
    /// others, too. Until the change was complete, it may have dropped any of them.
    pub(crate) fn gone(&mut self, is_absent: impl Fn(&Setting) -> bool) -> Vec<Setting> {
        if self.gone.is_none() {
            let rules = self.header.reset.keys().filter(|setting| setting.absent().is_some());
            let gone: Vec<_> =
                rules.filter(|rule| self.applied && is_absent(rule)).cloned().collect();
            let line = gone.iter().fold("gone".to_owned(), |line, rule| format!("{line} {rule}"));
            // If this cannot be written, an undo that is interrupted puts them back.
            let _written = self.append(&line);
            self.gone = Some(gone);
        }
        self.gone.clone().unwrap_or_default()
    }

    /// Deletes the journal, when its steps have been undone.
    ///
    /// # Errors
    /// When the file cannot be deleted. One that is gone already is no error.
    pub fn delete(self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }
}

/// The name that a journal is written to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    /// One that no file must have.
    New,
    /// That of the journal which is replaced.
    Own,
}

/// Gives a file a name that no other file has.
fn take(temporary: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(temporary, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !path.exists() => {
            // A file system without links. Of two processes at exactly this place, the later one would replace the journal.
            fs::rename(temporary, path)
        }
        linked => linked,
    }
}

/// Writes a journal: a complete file appears under the name, or none. Returns the file, which is locked before it gets
/// the name.
fn write(path: &Path, header: &Header, progress: &str, name: Name) -> io::Result<File> {
    let mut text = serde_json::to_string(header).map_err(io::Error::other)?;
    text.push('\n');
    text.push_str(progress);
    // Another process may be writing a journal, too: its temporary file has another name.
    let unique = RandomState::new().build_hasher().finish();
    let temporary = path.with_extension(format!("{unique:016x}.new"));
    let mut new = File::options().append(true).create_new(true).open(&temporary)?;
    let mut fill = || -> io::Result<()> {
        new.try_lock().map_err(io::Error::from)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        match name {
            Name::Own => fs::rename(&temporary, path),
            Name::New => take(&temporary, path),
        }
    };
    let filled = fill();
    if name == Name::New || filled.is_err() {
        // A file that is left is no journal, and does no harm.
        let _removed = fs::remove_file(&temporary);
    }
    filled?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(new)
}

/// Records that the user confirms the change. The process that applies it has the journal open.
///
/// # Errors
/// When the file cannot be written.
pub fn confirm(path: &Path) -> io::Result<()> {
    let mut file = File::options().append(true).open(path)?;
    file.write_all(b"confirmed\n")?;
    file.sync_data()
}

/// Whether the user confirmed the change.
///
/// # Errors
/// When the file cannot be read.
pub fn is_confirmed(path: &Path) -> io::Result<bool> {
    let text = fs::read_to_string(path)?;
    Ok(progress(text.split_once('\n').map_or("", |(_, rest)| rest)).confirmed)
}

/// What the lines after the first one say.
#[derive(Default)]
struct Progress {
    begun: Vec<usize>,
    done: Vec<usize>,
    made: BTreeMap<usize, Setting>,
    confirmed: bool,
    applied: bool,
    gone: Option<Vec<Setting>>,
}

impl Progress {
    fn of(self, header: Header) -> Contents {
        let Self { begun, done, made, confirmed, applied, gone } = self;
        Contents { header, begun, done, made, confirmed, applied, gone }
    }
}

/// The last line may be torn: it counts only with its end.
fn progress(text: &str) -> Progress {
    let mut all = Progress::default();
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["begin", step] => all.begun.extend(step.parse::<usize>()),
            ["done", step] => all.done.extend(step.parse::<usize>()),
            ["made", step, setting] => {
                let setting = Setting::try_from(setting.to_owned());
                all.made.extend(step.parse::<usize>().ok().zip(setting.ok()));
            }
            ["gone", ref rules @ ..] => {
                let settings = rules.iter().map(|rule| Setting::try_from((*rule).to_owned()));
                all.gone = Some(settings.flatten().collect());
            }
            ["applied"] => all.applied = true,
            _ => all.confirmed |= line == "confirmed",
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            interface: "eth0".to_owned(),
            index: 2,
            namespace: Some(9),
            boot: "5c8a".to_owned(),
            steps: Vec::new(),
            present: Vec::new(),
            reset: Settings::new(),
        }
    }

    /// Several processes that apply plans at the same time have a journal each, which is locked.
    #[test]
    fn journals_that_are_made_at_once_have_a_name_each() {
        let folder = tempfile::tempdir().unwrap();
        let threads = 8;
        let made: Vec<_> = std::thread::scope(|scope| {
            let create = || Journal::create(folder.path(), &header()).unwrap();
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(create)).collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let found = list(folder.path(), "eth0").unwrap();
        assert_eq!(found.len(), threads);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), threads, "nothing else is left");
        for path in &found {
            let taken = Journal::open(path).unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::WouldBlock);
        }
        drop(made);
        for path in found {
            assert_eq!(Journal::open(&path).unwrap().header, header());
        }
    }

    #[test]
    fn a_journal_that_is_gone_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::create(folder.path(), &header()).unwrap();
        fs::remove_file(&journal.path).unwrap();
        journal.delete().unwrap();
    }

    #[test]
    fn a_confirmation_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path(), &header()).unwrap();
        confirm(&journal.path).unwrap();
        journal.begin(0).unwrap();
        let contents = parse(&fs::read_to_string(&journal.path).unwrap()).unwrap();
        assert!(contents.confirmed && contents.begun == [0], "{contents:?}");
    }
}
