//! Files that commands write at their end. That they can be written is checked before the work begins; results are
//! printed also if they cannot be written in the end.

use std::path::Path;

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

fn failed(error: WriteError) -> Stop {
    Stop::Failed(error.into())
}
