//! Files that commands write at their end. That they can be written is checked before the work begins; results are
//! printed also if they cannot be written in the end.

use std::path::Path;

use flowyard_config::file as inputs;
use flowyard_report::Page;
use flowyard_report::file::{self, WriteError};

use crate::stop::{Stop, bad_input};

/// A file to write.
#[derive(Clone, Copy)]
pub(crate) struct OutFile<'a> {
    path: &'a Path,
    what: &'static str,
}

impl<'a> OutFile<'a> {
    /// A file with these contents, in one word, if there is a path.
    pub(crate) fn new(
        path: Option<&'a impl AsRef<Path>>,
        what: &'static str,
    ) -> Result<Option<Self>, Stop> {
        let Some(path) = path.map(AsRef::as_ref) else { return Ok(None) };
        file::check(path, what).map_err(|error| match error.is_wrong_use() {
            true => bad_input(error),
            false => failed(error),
        })?;
        Ok(Some(Self { path, what }))
    }

    /// Writes the file completely or not at all.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Stop> {
        file::write(self.path, self.what, bytes).map_err(failed)
    }

    /// Writes a page.
    pub(crate) fn write_page(self, page: &Page) -> Result<(), Stop> {
        self.write(page.to_html().as_bytes())
    }
}

/// Refuses files to write, each with its option and its contents in one word, that would replace a file that the command
/// reads, or each other. The paths may be different: links and other spellings are followed.
pub(crate) fn distinct<'a>(
    writes: &[(&str, &str, Option<&'a Path>)],
    reads: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Stop> {
    let reads: Vec<&Path> = reads.into_iter().collect();
    let is_stdin = |path: &Path| path == Path::new("-");
    let opened = |path: &'a Path| if is_stdin(path) { Path::new("/dev/stdin") } else { path };
    let mut earlier: Vec<(&str, &Path)> = Vec::new();
    for &(option, what, path) in writes {
        let Some(path) = path else { continue };
        if let Some(read) = reads.iter().find(|read| inputs::is_same(opened(read), path)) {
            let name = match is_stdin(read) {
                true => "standard input".into(),
                false => read.display().to_string(),
            };
            return Err(bad_input(format!(
                "{option}: this command reads {name}, and the {what} would replace it; name another file to write"
            )));
        }
        if let Some((other, _)) = earlier.iter().find(|(_, one)| inputs::is_same(one, path)) {
            return Err(bad_input(format!(
                "{other} and {option} name one file, {}, and the {what} would replace what is in it; name two files",
                path.display()
            )));
        }
        earlier.push((option, path));
    }
    Ok(())
}

fn failed(error: WriteError) -> Stop {
    Stop::Failed(error.into())
}
