//! Polls etcd for changed services below the prefix.
//!
//! ```text
//!  look: count, newest change, record ──as before──> nothing
//!                 └─other──> read all at one revision ──digest as in the record──> the generation of the record
//!                                                      └─other──> write the record, if nobody has since the reading
//! ```
//!
//! A change of a key raises the newest change, and a deletion without one lowers the count, so contents with an equal
//! count and an equal newest change are equal. After an error, and when revisions have gone back, everything is read,
//! because another etcd may answer then.

use flowyard_config::Fragment;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Snapshot;
use super::etcd::{Etcd, EtcdError, Pair, Range, below, only};
use super::found::{self, Found};

/// The most keys of a configuration.
const KEYS: u64 = 100_000;
/// The most attempts to agree on a generation in one poll.
const TRIES: usize = 4;

/// The number of the generation with this digest: the value of `PREFIX/generation`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The number of the generation: the revision at which a node first saw its contents.
    pub(super) revision: u64,
    /// The digest of the contents, in hexadecimal.
    pub(super) digest: String,
}

impl Record {
    /// Reads the record and the revision of its last change; 0 if there is none.
    pub(super) fn of(range: &Range) -> (Option<Self>, u64) {
        let Some(pair) = range.pairs.first() else { return (None, 0) };
        let record = serde_json::from_slice(&pair.value).ok();
        (record.filter(|record: &Self| !record.digest.is_empty()), pair.changed)
    }
}

/// What a look at the prefix finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    count: u64,
    newest: u64,
    record: u64,
}

/// Looks for new contents of a prefix.
#[derive(Clone, Debug)]
pub struct Poller {
    pub(super) etcd: Etcd,
    prefix: String,
    /// What the last look has found; `None` if the next poll reads everything.
    mark: Option<Mark>,
    /// The revision of etcd at the last look.
    revision: u64,
    /// What was returned last.
    last: Option<Found>,
    /// Whether the record is never written.
    only_reads: bool,
    /// Whether a warning that the record cannot be written was logged.
    is_warned: bool,
}

impl Poller {
    /// Nothing has been seen yet.
    #[must_use]
    pub fn new(etcd: Etcd, prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        let (only_reads, is_warned) = (false, false);
        Self { etcd, prefix, mark: None, revision: 0, last: None, only_reads, is_warned }
    }

    /// Writes nothing from now on.
    pub(super) const fn only_read(&mut self) {
        self.only_reads = true;
    }

    /// The prefix, as it stands before keys in messages.
    #[must_use]
    pub fn place(&self) -> String {
        place(&self.prefix)
    }

    pub(super) fn key(&self, below: &str) -> String {
        format!("{}/{below}", self.prefix)
    }

    /// Looks at the prefix, and returns its contents if they are other ones than before.
    ///
    /// # Errors
    /// etcd does not answer as it should. The next poll reads everything.
    pub fn poll(&mut self) -> Result<Option<Found>, EtcdError> {
        let found = self.look();
        if found.is_err() {
            self.mark = None;
        }
        found
    }

    fn look(&mut self) -> Result<Option<Found>, EtcdError> {
        let mut newest = below(&self.key("config/"));
        let how =
            json!({ "limit": 1, "keys_only": true, "sort_order": "DESCEND", "sort_target": "MOD" });
        merge(&mut newest, &how);
        let ranges = [newest, only(&self.key("generation"))];
        let (revision, found) = self.etcd.ranges(&ranges)?;
        let [config, record] = &found[..] else { return Ok(None) };
        let mark = Mark {
            count: config.count,
            newest: config.pairs.first().map_or(0, |pair| pair.changed),
            record: Record::of(record).1,
        };
        let is_back = revision < self.revision;
        self.revision = revision;
        if self.mark == Some(mark) && !is_back {
            return Ok(None);
        }
        let found = self.read()?;
        self.mark = Some(mark);
        if self.last.as_ref() == Some(&found) {
            return Ok(None);
        }
        self.last = Some(found.clone());
        Ok(Some(found))
    }

    /// Reads all services, and agrees with the other nodes on the number of the generation.
    fn read(&mut self) -> Result<Found, EtcdError> {
        let mut all = below(&self.key("config/"));
        merge(&mut all, &json!({ "limit": KEYS }));
        let ranges = [all, only(&self.key("generation"))];
        let mut generation = 0;
        let mut pairs = Vec::new();
        for _ in 0..TRIES {
            let (revision, mut found) = self.etcd.ranges(&ranges)?;
            let (record, changed) = found.pop().map_or((None, 0), |range| Record::of(&range));
            let Range { pairs: read, count } = found.pop().unwrap_or_default();
            if count > KEYS {
                let why = format!(
                    "{}/config/ has {count} keys; at most {KEYS} are possible",
                    self.place()
                );
                return Ok(Found::Unusable(revision, why));
            }
            let digest = digest(&read, self.prefix.len());
            pairs = read;
            generation = match record {
                Some(record) if record.digest == digest => record.revision,
                _ => revision,
            };
            if generation != revision
                || self.only_reads
                || self.agree(&Record { revision, digest }, changed)?
            {
                break;
            }
        }
        Ok(self.snapshot(generation, pairs))
    }

    /// Writes the record if it has not changed since revision `changed`; returns whether this is done with.
    fn agree(&mut self, record: &Record, changed: u64) -> Result<bool, EtcdError> {
        let text = json!(record).to_string();
        match self.etcd.put_if(&self.key("generation"), changed, &text) {
            Err(error @ EtcdError::Refused { .. }) => {
                if !std::mem::replace(&mut self.is_warned, true) {
                    tracing::warn!(
                        "the number of the generation cannot be written, so other nodes may have another one: {error}"
                    );
                }
                Ok(true)
            }
            done => done,
        }
    }

    fn snapshot(&self, generation: u64, pairs: Vec<Pair>) -> Found {
        let mut fragments = Vec::with_capacity(pairs.len());
        for Pair { key, value, .. } in pairs {
            let key = key.get(self.prefix.len() + 1..).unwrap_or_default().to_vec();
            let (key, text) = match (String::from_utf8(key), String::from_utf8(value)) {
                (Ok(key), Ok(text)) => (key, text),
                (key, _) => {
                    let key = key.unwrap_or_else(|error| {
                        String::from_utf8_lossy(error.as_bytes()).escape_debug().to_string()
                    });
                    let why = format!("{}/{key}: this is not text; write TOML", self.place());
                    return Found::Unusable(generation, why);
                }
            };
            fragments.push(Fragment { key, text });
        }
        Found::New(Snapshot { generation, fragments })
    }
}

/// A prefix, as it stands before keys in messages.
#[must_use]
pub fn place(prefix: &str) -> String {
    format!("etcd:{prefix}")
}

/// A digest of keys, without the prefix, and values. Revisions do not count.
fn digest(pairs: &[Pair], prefix: usize) -> String {
    let pairs =
        pairs.iter().map(|pair| (pair.key.get(prefix..).unwrap_or_default(), &pair.value[..]));
    format!("{:016x}", found::digest(pairs))
}

/// Adds the fields of one object to another.
fn merge(into: &mut serde_json::Value, more: &serde_json::Value) {
    if let (Some(into), Some(more)) = (into.as_object_mut(), more.as_object()) {
        into.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}
