//! A stand-in for the JSON gateway of etcd: one member with its keys in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::ServerConfig;
use serde_json::{Value, json};

use super::web;

/// A key is written as bytes, with the revision of its last change.
type Keys = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;
/// What another node does, and returns.
type Other = Box<dyn FnOnce() -> u64 + Send>;

#[derive(Default)]
struct Inner {
    keys: Keys,
    revision: u64,
    /// Is sent in place of every answer.
    answer: Option<String>,
    refuses_writes: bool,
    fails_logins: bool,
    /// User, password, and the number in the valid token.
    user: Option<(String, String, u64)>,
    before_put_if: Option<Other>,
    other: Option<u64>,
}

pub(super) struct StandIn {
    url: String,
    inner: Arc<Mutex<Inner>>,
}

impl StandIn {
    pub(super) fn start() -> Self {
        Self::serve(None)
    }

    /// With TLS; the authority is `ca.pem` in `folder`, and another one is `other.pem`.
    pub(super) fn start_tls(folder: &Path) -> Self {
        Self::serve(Some(web::certificate(folder)))
    }

    fn serve(tls: Option<Arc<ServerConfig>>) -> Self {
        let inner = Arc::new(Mutex::new(Inner { revision: 1, ..Inner::default() }));
        let shared = Arc::clone(&inner);
        let url = web::listen(tls, move |stream| talk(stream, &shared));
        Self { url, inner }
    }

    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    pub(super) fn put(&self, key: &str, value: &str) {
        self.put_bytes(key, value.as_bytes());
    }

    pub(super) fn put_bytes(&self, key: &str, value: &[u8]) {
        self.inner.lock().unwrap().put(key.into(), value.into());
    }

    pub(super) fn delete(&self, key: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.keys.remove(key.as_bytes()).unwrap();
        inner.revision += 1;
    }

    pub(super) fn get(&self, key: &str) -> String {
        let inner = self.inner.lock().unwrap();
        String::from_utf8(inner.keys[key.as_bytes()].0.clone()).unwrap()
    }

    pub(super) fn revision(&self) -> u64 {
        self.inner.lock().unwrap().revision
    }

    /// Becomes another etcd.
    pub(super) fn forget(&self) {
        let mut inner = self.inner.lock().unwrap();
        (inner.keys, inner.revision) = (Keys::new(), 1);
    }

    pub(super) fn answer_with(&self, answer: Option<&str>) {
        self.inner.lock().unwrap().answer = answer.map(str::to_owned);
    }

    pub(super) fn refuse_writes(&self, refuses: bool) {
        self.inner.lock().unwrap().refuses_writes = refuses;
    }

    pub(super) fn require(&self, user: &str, password: &str) {
        self.inner.lock().unwrap().user = Some((user.into(), password.into(), 1));
    }

    pub(super) fn expire_tokens(&self) {
        self.inner.lock().unwrap().user.as_mut().unwrap().2 += 1;
    }

    /// Accepts the tokens from before they expired, and no others.
    pub(super) fn accept_old_tokens(&self) {
        self.inner.lock().unwrap().user.as_mut().unwrap().2 -= 1;
    }

    pub(super) fn fail_logins(&self, fails: bool) {
        self.inner.lock().unwrap().fails_logins = fails;
    }

    /// Another node acts before the next put with a condition is handled.
    pub(super) fn before_next_put_if(&self, other: impl FnOnce() -> u64 + Send + 'static) {
        self.inner.lock().unwrap().before_put_if = Some(Box::new(other));
    }

    /// What the other node returned.
    pub(super) fn other(&self) -> Option<u64> {
        self.inner.lock().unwrap().other
    }
}

/// Answers one request.
fn talk(stream: &mut dyn web::Stream, shared: &Mutex<Inner>) {
    let mut request = Vec::new();
    let (head, body) = loop {
        let mut piece = [0; 4096];
        let Ok(read @ 1..) = stream.read(&mut piece) else { return };
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8(request.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            break (head.to_owned(), body.to_owned());
        }
    };
    let body: Value = serde_json::from_str(&body).unwrap();
    let path = head.strip_prefix("POST ").unwrap().split(' ').next().unwrap();
    let token = head.lines().find_map(|line| line.strip_prefix("Authorization: "));
    if body.get("compare").is_some() {
        let other = shared.lock().unwrap().before_put_if.take();
        let seen = other.map(|act| act());
        let mut inner = shared.lock().unwrap();
        inner.other = seen.or(inner.other);
    }
    let answer = shared.lock().unwrap().answer(path, token, &body);
    let _gone = stream.write_all(answer.as_bytes());
    let _gone = stream.flush();
}

impl Inner {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.revision += 1;
        self.keys.insert(key, (value, self.revision));
    }

    fn answer(&mut self, path: &str, token: Option<&str>, body: &Value) -> String {
        if let Some(answer) = &self.answer {
            return answer.clone();
        }
        let (status, said) = match self.handle(path, token, body) {
            Ok(said) => (200, said),
            Err((status, why)) => (status, json!({ "error": why, "message": why })),
        };
        let said = said.to_string();
        // As etcd does: errors in chunks, with a trailer.
        match status {
            200 => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len()),
            _ => format!(
                "HTTP/1.1 {status} No\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{said}\r\n0\r\nX: y\r\n\r\n",
                said.len()
            ),
        }
    }

    fn handle(
        &mut self,
        path: &str,
        token: Option<&str>,
        body: &Value,
    ) -> Result<Value, (u16, &'static str)> {
        if let Some((user, password, valid)) = &self.user {
            let is_login = path == "/v3/auth/authenticate";
            if is_login && self.fails_logins {
                return Err((503, "etcdserver: no leader"));
            }
            if is_login && (body["name"] != **user || body["password"] != **password) {
                return Err((
                    400,
                    "etcdserver: authentication failed, invalid user ID or password",
                ));
            }
            if is_login {
                return Ok(json!({ "token": format!("token.{valid}") }));
            }
            match token {
                None => return Err((400, "etcdserver: user name is empty")),
                Some(token) if token != format!("token.{valid}") => {
                    return Err((401, "etcdserver: invalid auth token"));
                }
                Some(_) => {}
            }
        }
        let header = |inner: &Self| json!({ "revision": inner.revision.to_string() });
        let (first, is_write) =
            (&body["success"][0], body.get("compare").is_some() || path == "/v3/kv/put");
        if is_write && self.refuses_writes {
            return Err((403, "etcdserver: permission denied"));
        }
        match path {
            "/v3/kv/put" => {
                let key = bytes(&body["key"]);
                let old = self.keys.get(&key).map(|(old, _)| BASE64_STANDARD.encode(old));
                self.put(key, bytes(&body["value"]));
                let mut said = json!({ "header": header(self) });
                if let Some(old) = old.filter(|_| body["prev_kv"] == true) {
                    said["prev_kv"] = json!({ "key": body["key"], "value": old });
                }
                Ok(said)
            }
            "/v3/kv/txn" if is_write => {
                let compare = &body["compare"][0];
                let changed = self.keys.get(&bytes(&compare["key"])).map_or(0, |(_, at)| *at);
                let succeeds = compare["mod_revision"].as_str() == Some(&changed.to_string());
                if succeeds {
                    let put = &first["request_put"];
                    self.put(bytes(&put["key"]), bytes(&put["value"]));
                    return Ok(json!({ "header": header(self), "succeeded": true }));
                }
                Ok(json!({ "header": header(self) }))
            }
            "/v3/kv/txn" => {
                let all = body["success"].as_array().unwrap().iter();
                let all: Vec<Value> = all
                    .map(|one| json!({ "response_range": self.range(&one["request_range"]) }))
                    .collect();
                Ok(json!({ "header": header(self), "succeeded": true, "responses": all }))
            }
            _ => Err((404, "Not Found")),
        }
    }

    fn range(&self, range: &Value) -> Value {
        let key = bytes(&range["key"]);
        let end = range.get("range_end").map(bytes);
        let is_in = |at: &Vec<u8>| match &end {
            None => *at == key,
            Some(end) => *at >= key && at < end,
        };
        let mut found: Vec<_> = self.keys.iter().filter(|(at, _)| is_in(at)).collect();
        let count = found.len();
        if range["sort_target"] == "MOD" {
            found.sort_by_key(|(_, (_, changed))| std::cmp::Reverse(*changed));
        }
        found.truncate(range["limit"].as_u64().map_or(count, |limit| limit as usize));
        let keys_only = range["keys_only"] == true;
        let pair = |(key, (value, changed)): (&Vec<u8>, &(Vec<u8>, u64))| {
            let mut pair =
                json!({ "key": BASE64_STANDARD.encode(key), "mod_revision": changed.to_string() });
            if !keys_only && !value.is_empty() {
                pair["value"] = BASE64_STANDARD.encode(value).into();
            }
            pair
        };
        // The gateway leaves out what is empty.
        match count {
            0 => json!({ "header": {} }),
            _ => {
                json!({ "kvs": found.into_iter().map(pair).collect::<Vec<_>>(), "count": count.to_string() })
            }
        }
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()
}
