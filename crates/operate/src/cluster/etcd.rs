//! Client of etcd by its JSON gateway: JSON over HTTP/1.1, with keys and values in base64.
//!
//! ```text
//!  POST /v3/kv/txn            several ranges at one revision, or a put if a key has not changed
//!  POST /v3/kv/put            a put
//!  POST /v3/auth/authenticate user and password become a token
//! ```
//!
//! A request that an endpoint does not answer goes to the next one. A token that has expired is replaced once for each
//! request.
//!
//! Thread-safety: used by one thread at a time.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flowyard_config::ClusterConfig;
use flowyard_yard::Clock;
use serde_json::{Value, json};

use super::client::Client;
use super::http::{Answer, Request};
use super::login::OpenError;

/// The longest answer, in bytes. Values are 4/3 as long in base64, and a configuration has at most 16 MiB.
const LONGEST: usize = 32 << 20;

/// A request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EtcdError {
    /// There is no answer.
    #[error("{endpoint}: {why}")]
    Unreachable {
        /// The address that was tried last.
        endpoint: String,
        /// The reason.
        why: String,
    },
    /// etcd refuses the request.
    #[error("{endpoint}: etcd refuses this: {why}")]
    Refused {
        /// The address that answered.
        endpoint: String,
        /// The status of HTTP.
        status: u16,
        /// The reason that etcd gives.
        why: String,
    },
    /// The answer is not one of etcd.
    #[error("{endpoint}: this is not an answer of etcd: {why}")]
    Answer {
        /// The address that answered.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
}

impl EtcdError {
    /// Whether another endpoint may have an answer: this one is not there, has no leader, or is something else.
    const fn may_differ_elsewhere(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Answer { .. } => true,
            Self::Refused { status, .. } => *status >= 500,
        }
    }

    /// Whether the token is not valid any more.
    fn needs_login(&self) -> bool {
        match self {
            Self::Refused { status, why, .. } => {
                *status == 401 || why.contains("auth store is old")
            }
            _ => false,
        }
    }
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// The revision of the last change.
    pub(super) changed: u64,
}

/// The answer to a range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Range {
    pub(super) pairs: Vec<Pair>,
    /// The number of keys, of which `pairs` may have a part.
    pub(super) count: u64,
}

/// A connection to etcd, one for each request.
#[derive(Clone, Debug)]
pub struct Etcd {
    client: Client,
    /// The last token that etcd has given, if there is a user.
    token: Option<String>,
}

impl Etcd {
    /// Prepares a client, and reads the files that it needs.
    ///
    /// # Errors
    /// A file cannot be read, or contains something else.
    pub fn new(config: &ClusterConfig, clock: Clock) -> Result<Self, OpenError> {
        Ok(Self { client: Client::new(config, clock)?, token: None })
    }

    /// Reads several ranges at one revision, which is returned.
    pub(super) fn ranges(&mut self, ranges: &[Value]) -> Result<(u64, Vec<Range>), EtcdError> {
        let all: Vec<Value> =
            ranges.iter().map(|range| json!({ "request_range": range })).collect();
        let answer = self.call("/v3/kv/txn", &json!({ "success": all }))?;
        let read = || -> Option<(u64, Vec<Range>)> {
            let responses = answer.get("responses")?.as_array()?;
            let ranges = responses.iter().map(|response| range(response.get("response_range")?));
            Some((number(answer.get("header")?.get("revision")?)?, ranges.collect::<Option<_>>()?))
        };
        let read = read().filter(|(_, found)| found.len() == ranges.len());
        read.ok_or_else(|| self.strange("fields are missing"))
    }

    /// Writes a key, and returns the value that it had.
    pub(super) fn put(&mut self, key: &str, value: &str) -> Result<Option<Vec<u8>>, EtcdError> {
        let body = json!({ "key": encode(key), "value": encode(value), "prev_kv": true });
        let answer = self.call("/v3/kv/put", &body)?;
        let old = answer.get("prev_kv").and_then(|pair| pair.get("value")?.as_str());
        Ok(old.and_then(|old| BASE64_STANDARD.decode(old).ok()))
    }

    /// Writes a key if its last change was at revision `changed` (0: if it does not exist). Returns whether it did.
    pub(super) fn put_if(
        &mut self,
        key: &str,
        changed: u64,
        value: &str,
    ) -> Result<bool, EtcdError> {
        let key = encode(key);
        let body = json!({
            "compare": [{ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": changed.to_string() }],
            "success": [{ "request_put": { "key": key, "value": encode(value) } }],
        });
        let answer = self.call("/v3/kv/txn", &body)?;
        Ok(answer.get("succeeded").and_then(Value::as_bool).unwrap_or(false))
    }

    /// Sends a request to the endpoint that answered last, or else to the others.
    fn call(&mut self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let mut tries = self.client.count();
        loop {
            tries = tries.saturating_sub(1);
            match self.ask(path, body) {
                Err(error) if error.may_differ_elsewhere() => {
                    self.client.turn();
                    if tries == 0 {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Sends a request to one endpoint, as the user if there is one.
    fn ask(&mut self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let Some(user) = self.client.user() else {
            return self.send(path, body, None);
        };
        if let Some(token) = &self.token {
            match self.send(path, body, Some(token)) {
                Err(error) if error.needs_login() => {}
                done => return done,
            }
        }
        // If this fails, the last token stays: a member may refuse it that is not ready, and others accept it.
        let token = self.log_in(&user)?;
        self.token = Some(token.clone());
        self.send(path, body, Some(&token))
    }

    /// Gets a token for a user and its password.
    fn log_in(&self, (user, password): &(String, String)) -> Result<String, EtcdError> {
        let login = json!({ "name": user, "password": password });
        let answer = self.send("/v3/auth/authenticate", &login, None)?;
        let token = answer.get("token").and_then(Value::as_str);
        // It becomes a field of a request, so it must not contain the end of one.
        let is_token =
            |token: &&str| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let token = token.filter(is_token).ok_or_else(|| self.strange("there is no token"))?;
        Ok(token.to_owned())
    }

    fn send(&self, path: &str, body: &Value, token: Option<&str>) -> Result<Value, EtcdError> {
        let Answer { status, body, .. } =
            self.exchange(path, body.to_string().as_bytes(), token)?;
        let answer = serde_json::from_slice::<Value>(&body);
        if status != 200 {
            let said = answer.ok();
            let said = said.as_ref().and_then(|said| said.get("error").or(said.get("message")));
            // Some errors are plain text.
            let plain = String::from_utf8_lossy(&body);
            let why = said.and_then(Value::as_str).unwrap_or_else(|| plain.trim());
            let why: String = why.chars().filter(|c| !c.is_control()).take(300).collect();
            let endpoint = self.endpoint();
            return Err(EtcdError::Refused { endpoint, status, why: format!("{why} ({status})") });
        }
        answer.map_err(|error| self.strange(&error.to_string()))
    }

    fn exchange(&self, path: &str, body: &[u8], token: Option<&str>) -> Result<Answer, EtcdError> {
        let mut fields = vec![("Content-Type", "application/json".to_owned())];
        fields.extend(token.map(|token| ("Authorization", token.to_owned())));
        let request = Request { method: "POST", path, fields: &fields, body, longest: LONGEST };
        let unreachable = |why| EtcdError::Unreachable { endpoint: self.endpoint(), why };
        self.client.ask(request).map_err(unreachable)
    }

    fn endpoint(&self) -> String {
        self.client.endpoint()
    }

    fn strange(&self, why: &str) -> EtcdError {
        EtcdError::Answer { endpoint: self.endpoint(), why: why.into() }
    }
}

/// The keys that begin with `prefix`, as the body of a range.
pub(super) fn below(prefix: &str) -> Value {
    let mut end = prefix.as_bytes().to_vec();
    // The prefixes here end with '/', which has a successor.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    json!({ "key": encode(prefix), "range_end": BASE64_STANDARD.encode(end) })
}

/// One key, as the body of a range.
pub(super) fn only(key: &str) -> Value {
    json!({ "key": encode(key) })
}

fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

/// A number, which the gateway writes as text.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn range(answer: &Value) -> Option<Range> {
    let bytes = |value: Option<&Value>| match value {
        None => Some(Vec::new()), // the gateway leaves out what is empty
        Some(value) => BASE64_STANDARD.decode(value.as_str()?).ok(),
    };
    let pair = |pair: &Value| {
        Some(Pair {
            key: bytes(pair.get("key"))?,
            value: bytes(pair.get("value"))?,
            changed: number(pair.get("mod_revision")?)?,
        })
    };
    let pairs = match answer.get("kvs") {
        None => Vec::new(),
        Some(all) => all.as_array()?.iter().map(pair).collect::<Option<_>>()?,
    };
    let count = answer.get("count").map_or(Some(0), number)?;
    Some(Range { pairs, count })
}
