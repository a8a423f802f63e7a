//! Bytes of states that are handed over: numbers in the byte order of the machine, and text with its length in front.
//!
//! Both processes run on one machine. A reader never panics: it returns an error at the end.

/// Writes a state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Writes bytes whose number the reader knows.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_ne_bytes())
    }

    /// Writes a number, or none.
    pub fn optional(&mut self, number: Option<u64>) -> &mut Self {
        self.number(u64::from(number.is_some())).number(number.unwrap_or(0))
    }

    /// Writes text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64).bytes(text.as_bytes())
    }

    /// What was written.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Reads a state.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

/// The state ends too early, or has text that is no text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the state of the running process cannot be read; it may be of another version")]
pub struct BadState;

impl From<BadState> for String {
    fn from(bad: BadState) -> Self {
        bad.to_string()
    }
}

impl<'a> Reader<'a> {
    /// Reads `state` from its start.
    #[must_use]
    pub const fn new(state: &'a [u8]) -> Self {
        Self(state)
    }

    /// Whether everything was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// The state has fewer.
    pub const fn bytes(&mut self, count: usize) -> Result<&'a [u8], BadState> {
        let Some((bytes, rest)) = self.0.split_at_checked(count) else { return Err(BadState) };
        self.0 = rest;
        Ok(bytes)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// The state has fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BadState> {
        self.bytes(N)?.try_into().map_err(|_| BadState)
    }

    /// A number.
    ///
    /// # Errors
    /// The state has ended.
    pub fn number(&mut self) -> Result<u64, BadState> {
        self.array().map(u64::from_ne_bytes)
    }

    /// A number that fits into `T`.
    ///
    /// # Errors
    /// The state has ended, or the number does not fit.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, BadState> {
        T::try_from(self.number()?).map_err(|_| BadState)
    }

    /// A number, or none.
    ///
    /// # Errors
    /// The state has ended.
    pub fn optional(&mut self) -> Result<Option<u64>, BadState> {
        let (is_some, number) = (self.number()? != 0, self.number()?);
        Ok(is_some.then_some(number))
    }

    /// Text.
    ///
    /// # Errors
    /// The state has ended, or the bytes are no text.
    pub fn text(&mut self) -> Result<&'a str, BadState> {
        let len = self.small()?;
        std::str::from_utf8(self.bytes(len)?).map_err(|_| BadState)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let bytes = Writer::default()
            .number(7)
            .text("a b")
            .optional(None)
            .optional(Some(0))
            .bytes(&[9])
            .finish();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.number(), reader.text()), (Ok(7), Ok("a b")));
        assert_eq!((reader.optional(), reader.optional()), (Ok(None), Ok(Some(0))));
        assert_eq!((reader.array(), reader.is_empty()), (Ok([9]), true));
        assert_eq!((reader.number(), reader.text()), (Err(BadState), Err(BadState)));
    }

    #[test]
    fn a_length_that_is_too_large_is_refused() {
        let bytes = Writer::default().number(u64::MAX).bytes(b"abc").finish();
        assert_eq!(Reader::new(&bytes).text(), Err(BadState));
        assert_eq!(Reader::new(&bytes).small::<u16>(), Err(BadState));
    }
}
