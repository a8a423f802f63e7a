//! Polls a document of `[[service]]` tables at a URL.
//!
//! ```text
//!  GET, If-None-Match ──304──> nothing
//!         ├─200──> whole, text ──> the services
//!         └─3xx, 4xx, 5xx──> an error that says what to change
//! ```
//!
//! Many servers make the tag of the date of the last change, in seconds. A document that was changed in the second in which
//! it was read may change again and keep its tag, so it is read again without a condition (RFC 9110 section 8.8.2.2). As
//! dates may be those of another clock, every document is, once a minute.

use flowyard_config::{ClusterConfig, Fragment, Url, file};
use flowyard_frame::Nanos;
use flowyard_yard::Clock;

use super::client::Client;
use super::found::{Read, Services};
use super::http::{Answer, Request};
use super::login::OpenError;

/// The longest time for which a document is read with conditions.
const CONDITIONS: Nanos = 60_000_000_000;

/// A document at a URL.
#[derive(Clone, Debug)]
pub(super) struct Document {
    client: Client,
    /// The address without its query, for messages.
    url: String,
    path: String,
    /// The fields `ETag` and `Last-Modified` of the last document.
    tag: Option<String>,
    modified: Option<String>,
    /// When it was read as a whole.
    whole: Nanos,
}

impl Document {
    pub(super) fn new(config: &ClusterConfig, clock: Clock) -> Result<Self, OpenError> {
        let path = config.url().map_or_else(|| "/".into(), |url| url.path);
        let client = Client::new(config, clock)?;
        Ok(Self { client, url: config.place(), path, tag: None, modified: None, whole: 0 })
    }

    /// Reads the document if it has changed.
    pub(super) fn read(&mut self) -> Read {
        if self.client.now().saturating_sub(self.whole) >= CONDITIONS {
            (self.tag, self.modified) = (None, None);
        }
        let mut fields = vec![("Accept", "*/*".to_owned())];
        fields.extend(self.client.authorization().map(|value| ("Authorization", value)));
        let conditions =
            [("If-None-Match", self.tag.clone()), ("If-Modified-Since", self.modified.clone())];
        fields.extend(conditions.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let request = Request {
            method: "GET",
            path: &self.path,
            fields: &fields,
            body: &[],
            longest: file::LONGEST as usize,
        };
        let answer = self.client.ask(request);
        let answer = answer.and_then(|answer| self.judge(answer));
        answer.map_err(|why| format!("{}: {why}", self.url))
    }

    fn judge(&mut self, answer: Answer) -> Result<Option<Services>, String> {
        let was_read = self.tag.is_some() || self.modified.is_some();
        match answer.status {
            304 if was_read => return Ok(None),
            200 => {}
            status @ (300..=303 | 305..=399) => {
                let to = answer.field("location").filter(|to| !to.contains(char::is_control));
                let to = to.map_or_else(String::new, |to| format!(" to {}", Url::redacted(to)));
                return Err(format!(
                    "the server redirects{to} ({status}), which is not followed: write the final address as 'url' of [cluster]"
                ));
            }
            status @ (401 | 403) => {
                return Err(format!(
                    "the server refuses access ({status}): see 'user', 'password_file' and 'token_file' of [cluster]"
                ));
            }
            status => return Err(format!("the answer has status {status}")),
        }
        if answer.body.len() as u64 > file::LONGEST {
            return Err("the document has more than 16 MiB".into());
        }
        if !answer.is_whole {
            return Err(
                "the answer was cut off, or does not say how long it is (Content-Length)".into()
            );
        }
        if let Some(coding) =
            answer.field("content-encoding").filter(|coding| *coding != "identity")
        {
            return Err(format!(
                "the document is compressed ({}), which was not asked for",
                coding.escape_debug()
            ));
        }
        // They become fields of a request.
        let kept = |name: &str| {
            let value = answer.field(name).filter(|value| !value.contains(char::is_control));
            // An empty value is equal to that of every other document.
            value.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        (self.tag, self.modified) = match (kept("last-modified"), answer.field("date")) {
            (Some(modified), Some(date)) if modified == date => (None, None),
            (modified, _) => (kept("etag"), modified),
        };
        self.whole = self.client.now();
        Ok(Some(match String::from_utf8(answer.body) {
            Ok(text) => Services::Usable(vec![Fragment { key: String::new(), text }]),
            Err(error) => Services::Unusable {
                contents: error.into_bytes(),
                why: format!("{}: this is not text; write TOML", self.url),
            },
        }))
    }
}
