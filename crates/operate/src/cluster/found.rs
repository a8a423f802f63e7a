//! What a provider has, and the number of its generation.

use std::hash::Hasher;

use flowyard_config::Fragment;
use siphasher::sip::SipHasher24;

use super::Snapshot;

/// What a poll finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Services that have not been returned yet.
    New(Snapshot),
    /// A generation that is not text, or too large, and why.
    Unusable(u64, String),
}

/// The outcome of a poll. One of several queries may have failed, while others have found something new.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Polled {
    /// What is new, if anything is.
    pub found: Option<Found>,
    /// Why a query has failed, if one has.
    pub failed: Option<String>,
}

impl From<Result<Option<Found>, String>> for Polled {
    fn from(done: Result<Option<Found>, String>) -> Self {
        match done {
            Ok(found) => Self { found, failed: None },
            Err(why) => Self { found: None, failed: Some(why) },
        }
    }
}

#[cfg(test)]
impl Polled {
    /// What is new, of a poll all of whose queries have succeeded, or why one has failed.
    pub(super) fn whole(self) -> Result<Option<Found>, String> {
        self.failed.map_or(Ok(self.found), Err)
    }
}

/// What a client without numbers of generations reads: `None` if nothing has changed.
pub(super) type Read = Result<Option<Services>, String>;

/// Services without a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Services {
    Usable(Vec<Fragment>),
    Unusable {
        /// What was read, so that it has a number.
        contents: Vec<u8>,
        /// Why it cannot be used.
        why: String,
    },
}

impl Services {
    /// The services as a generation, whose number is a digest: 48 bits, which a metric has without rounding.
    pub(super) fn numbered(self) -> Found {
        let number = |digest: u64| (digest >> 16).max(1);
        match self {
            Self::Usable(mut fragments) => {
                fragments.sort_unstable();
                let pairs = fragments.iter().map(|one| (one.key.as_bytes(), one.text.as_bytes()));
                let generation = number(digest(pairs));
                Found::New(Snapshot { generation, fragments })
            }
            Self::Unusable { contents, why } => {
                let pair: (&[u8], &[u8]) = (b"", &contents);
                Found::Unusable(number(digest(std::iter::once(pair))), why)
            }
        }
    }
}

/// A digest of keys and values.
pub(super) fn digest<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> u64 {
    let mut hasher = SipHasher24::new();
    for (key, value) in pairs {
        for bytes in [key, value] {
            hasher.write_u64((bytes.len() as u64).to_le());
            hasher.write(bytes);
        }
    }
    hasher.finish()
}
