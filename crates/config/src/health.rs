//! `[service.check]`: the health checks of backends.

use std::fmt;
use std::num::NonZeroU16;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use flowyard_frame::Nanos;
use flowyard_lb::check::{Asks, Check, Grpc, Http, Tls};
use flowyard_lb::health::Rules;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Spanned;

use super::{Config, ConfigError, file, hex};

/// `[service.check]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CheckConfig {
    /// The kind of the check.
    pub kind: CheckKind,
    /// The interval between checks, in milliseconds.
    pub interval_ms: Option<Spanned<u64>>,
    /// The time within which a backend must answer, in milliseconds.
    pub timeout_ms: Option<Spanned<u64>>,
    /// The number of consecutive passed checks after which a backend is up.
    pub rise: Option<Spanned<u32>>,
    /// The number of consecutive failed checks after which a backend is down.
    pub fall: Option<Spanned<u32>>,
    /// The port, if it differs from the port of connections.
    pub port: Option<NonZeroU16>,
    /// Whether most nodes decide if a backend is up.
    pub agreed: Option<Spanned<bool>>,
    /// `http`, `https`: the path.
    pub path: Option<Spanned<String>>,
    /// `http`, `https`: the Host header, which is also the name that a certificate must have.
    pub host: Option<Spanned<String>>,
    /// `http`, `https`: the status of a good answer, or a range as `"200-299"`.
    pub status: Option<Spanned<StatusRange>>,
    /// `https`: whether the certificate is verified.
    pub verify: Option<Spanned<bool>>,
    /// `https`: a PEM file with the certificates of the authorities.
    pub ca: Option<Spanned<PathBuf>>,
    /// `udp`: the payload to send; bytes in hexadecimal as `"hex:01 02"`.
    pub send: Option<Spanned<String>>,
    /// `http`, `https`: text that the body must contain. `udp`: the bytes with which the answer
    /// must begin.
    pub expect: Option<Spanned<String>>,
    /// `dns`: the domain name that is asked for.
    pub query: Option<Spanned<String>>,
    /// `dns`: the type of the records.
    #[serde(rename = "type")]
    pub record: Option<Spanned<RecordType>>,
    /// `grpc`: the name of the service that the server is asked about.
    pub service: Option<Spanned<String>>,
    /// `command`: the program and its arguments.
    pub command: Option<Spanned<Vec<String>>>,
}

/// The kind of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckKind {
    /// Opens a TCP connection.
    Tcp,
    /// Requests a page.
    Http,
    /// Requests a page over TLS.
    Https,
    /// Sends a datagram and expects an answer.
    Udp,
    /// Asks a DNS server for a record.
    Dns,
    /// Asks a gRPC server for the health of a service.
    Grpc,
    /// Runs a command, which must exit with 0.
    Command,
}

/// Types of DNS records that a check can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names of RFC 1035, 2782 and 3596")]
#[repr(u16)]
pub enum RecordType {
    A = 1,
    Ns = 2,
    Cname = 5,
    Soa = 6,
    Ptr = 12,
    Mx = 15,
    Txt = 16,
    Aaaa = 28,
    Srv = 33,
}

/// A status as `200`, or a range as `"200-299"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusRange(pub RangeInclusive<u16>);

impl Serialize for StatusRange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{}-{}", self.0.start(), self.0.end()))
    }
}

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = StatusRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status such as 200, or a range as \"200-299\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<StatusRange, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<StatusRange, E> {
                let (least, most) = text.split_once('-').unwrap_or((text, text));
                match (least.trim().parse(), most.trim().parse()) {
                    (Ok(least @ 100..=599), Ok(most @ 100..=599)) if least <= most => {
                        Ok(StatusRange(least..=most))
                    }
                    _ => Err(E::custom("a status is 100 to 599, written as 200 or \"200-299\"")),
                }
            }
        }
        from.deserialize_any(Either)
    }
}

/// A key, its position, the kinds of checks that have it, and their names.
type Key<'a> = (&'a str, Option<Range<usize>>, &'a [CheckKind], &'a str);

/// A number in the permitted range, in the unit in which it is written.
pub(super) fn within<T: Copy + PartialOrd + fmt::Display>(
    config: &Config,
    key: &str,
    given: Option<&Spanned<T>>,
    fits: RangeInclusive<T>,
    default: T,
) -> Result<T, ConfigError> {
    let Some(given) = given else { return Ok(default) };
    let value = *given.get_ref();
    if fits.contains(&value) {
        return Ok(value);
    }
    let fix = format!("write {} to {}", fits.start(), fits.end());
    Err(config.error(given.span(), format!("{key} = {value} is not possible"), fix))
}

impl Config {
    /// The health check that a `[service.check]` describes.
    ///
    /// # Errors
    /// The first setting that is wrong, or a file of certificates that cannot be read.
    pub(super) fn health_check(
        &self,
        spanned: &Spanned<CheckConfig>,
    ) -> Result<Check, ConfigError> {
        let check = spanned.get_ref();
        self.only_what_fits(check)?;
        let rules = Rules::default();
        let ms = |key, given: &Option<Spanned<u64>>, fits, default: Nanos| {
            let ms = within(self, key, given.as_ref(), fits, default / 1_000_000)?;
            Ok::<Nanos, ConfigError>(ms.saturating_mul(1_000_000))
        };
        let rules = Rules {
            interval: ms("interval_ms", &check.interval_ms, 10..=3_600_000, rules.interval)?,
            timeout: ms("timeout_ms", &check.timeout_ms, 1..=60_000, rules.timeout)?,
            rise: within(self, "rise", check.rise.as_ref(), 1..=100, rules.rise)?,
            fall: within(self, "fall", check.fall.as_ref(), 1..=100, rules.fall)?,
        };
        let asks = match check.kind {
            CheckKind::Tcp => Asks::Tcp,
            CheckKind::Http | CheckKind::Https => Asks::Http(self.http(check)?),
            CheckKind::Udp => {
                let Some(send) = &check.send else {
                    let fix = "add 'send = ...' with a request that backends answer";
                    return Err(self.error(spanned.span(), "nothing would be sent", fix));
                };
                let expect = check.expect.as_ref().map(|text| self.bytes(text)).transpose()?;
                Asks::Udp { send: self.bytes(send)?, expect }
            }
            CheckKind::Dns => {
                let Some(query) = &check.query else {
                    let fix = "add 'query = ...' with a name that the servers know";
                    return Err(self.error(spanned.span(), "nothing would be asked for", fix));
                };
                let kind = check.record.as_ref().map_or(RecordType::A, |kind| *kind.get_ref());
                Asks::Dns { name: self.domain(query)?, kind: kind as u16 }
            }
            CheckKind::Grpc => Asks::Grpc(self.grpc(check)?),
            CheckKind::Command => {
                let words = check.command.as_ref().map(Spanned::get_ref);
                match words.filter(|words| words.first().is_some_and(|word| !word.is_empty())) {
                    Some(words) => Asks::Command(words.clone()),
                    None => {
                        let fix = "add 'command = [\"program\", \"word\"]'";
                        return Err(self.error(spanned.span(), "there is no command", fix));
                    }
                }
            }
        };
        let agreed = check.agreed.as_ref().is_some_and(|agreed| *agreed.get_ref());
        if let (Some(key), true, None) = (&check.agreed, agreed, self.sync()) {
            let fix = "write [balance.sync], by which nodes know each other's checks, or leave 'agreed' out";
            return Err(self.error(key.span(), "nodes do not know each other", fix));
        }
        Ok(Check { asks, rules, port: check.port.map(NonZeroU16::get), agreed })
    }

    /// Rejects keys of another kind of check, which would have no effect.
    fn only_what_fits(&self, check: &CheckConfig) -> Result<(), ConfigError> {
        use CheckKind::{Command, Dns, Grpc, Http, Https, Udp};
        fn at<T>(given: Option<&Spanned<T>>) -> Option<Range<usize>> {
            given.map(Spanned::span)
        }
        let fits: [Key<'_>; 11] = [
            ("path", at(check.path.as_ref()), &[Http, Https], "http and https"),
            ("host", at(check.host.as_ref()), &[Http, Https, Grpc], "http, https and grpc"),
            ("status", at(check.status.as_ref()), &[Http, Https], "http and https"),
            ("verify", at(check.verify.as_ref()), &[Https], "https"),
            ("ca", at(check.ca.as_ref()), &[Https], "https"),
            ("send", at(check.send.as_ref()), &[Udp], "udp"),
            ("expect", at(check.expect.as_ref()), &[Http, Https, Udp], "http, https and udp"),
            ("query", at(check.query.as_ref()), &[Dns], "dns"),
            ("type", at(check.record.as_ref()), &[Dns], "dns"),
            ("service", at(check.service.as_ref()), &[Grpc], "grpc"),
            ("command", at(check.command.as_ref()), &[Command], "command"),
        ];
        for (key, at, kinds, names) in fits {
            if let Some(at) = at.filter(|_| !kinds.contains(&check.kind)) {
                let what = format!("'{key}' is for checks of kind {names}");
                return Err(self.error(at, what, "leave it out, or write that kind"));
            }
        }
        Ok(())
    }

    /// A word of ASCII; `is_good` says whether it is otherwise right.
    fn word(
        &self,
        given: &Spanned<String>,
        what: &str,
        fix: &str,
        is_good: bool,
    ) -> Result<String, ConfigError> {
        let text = given.get_ref();
        let is_plain = text.chars().all(|c| c.is_ascii_graphic());
        match is_good && is_plain && !text.is_empty() {
            true => Ok(text.clone()),
            false => Err(self.error(given.span(), format!("'{text}' is not a {what}"), fix)),
        }
    }

    /// The name of a host in a request, if there is one.
    fn host(&self, check: &CheckConfig) -> Result<Option<String>, ConfigError> {
        let fix = "write its name, as \"web.example\"";
        check.host.as_ref().map(|host| self.word(host, "host", fix, true)).transpose()
    }

    fn grpc(&self, check: &CheckConfig) -> Result<Grpc, ConfigError> {
        let host = self.host(check)?;
        let is_authority = |host: &str| host.chars().all(|c| !"/?#@\\".contains(c));
        if let Some(given) = check.host.as_ref().filter(|host| !is_authority(host.get_ref())) {
            let what = format!("'{}' is not a host", given.get_ref());
            return Err(self.error(given.span(), what, "write its name, as \"web.example\""));
        }
        let fix = "write it as \"package.Service\", or leave it out to ask about the server";
        let service = check.service.as_ref();
        let service = service.map(|service| self.word(service, "service", fix, true));
        Ok(Grpc { service: service.transpose()?.unwrap_or_default(), host })
    }

    fn http(&self, check: &CheckConfig) -> Result<Http, ConfigError> {
        let path = match &check.path {
            None => "/".into(),
            Some(path) => {
                let good = path.get_ref().starts_with('/');
                self.word(path, "path", "write it as \"/health\", blanks as %20", good)?
            }
        };
        let status = check.status.as_ref().map(|status| status.get_ref().0.clone());
        let status = status.unwrap_or(200..=299);
        let tls = match check.kind {
            CheckKind::Https => Some(self.tls(check)?),
            _ => None,
        };
        Ok(Http {
            path,
            host: self.host(check)?,
            least: *status.start(),
            most: *status.end(),
            body: check.expect.as_ref().map(|text| text.get_ref().clone()),
            tls,
        })
    }

    fn tls(&self, check: &CheckConfig) -> Result<Tls, ConfigError> {
        let verify = check.verify.as_ref().is_none_or(|verify| *verify.get_ref());
        let Some(path) = &check.ca else { return Ok(Tls { verify, ca: None }) };
        let name = path.get_ref().display();
        if !verify {
            let fix = "leave 'ca' out, or 'verify = false'";
            return Err(self.error(path.span(), "nothing is verified by this file", fix));
        }
        let pem = file::read(path.get_ref()).map_err(|error| {
            self.error(path.span(), format!("{name}: {error}"), "name a readable file")
        })?;
        let begins = b"-----BEGIN CERTIFICATE-----";
        if !pem.windows(begins.len()).any(|part| part == begins) {
            let what = format!("{name}: there is no certificate in it");
            return Err(self.error(path.span(), what, "name a file with certificates in PEM"));
        }
        Ok(Tls { verify, ca: Some(pem) })
    }

    /// A domain name: labels of 1 to 63 bytes, 253 bytes in all (RFC 1035 section 2.3.4), or the root.
    pub(crate) fn domain(&self, name: &Spanned<String>) -> Result<String, ConfigError> {
        let text = name.get_ref();
        let rest = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_graphic())
        };
        if text == "." || rest.len() <= 253 && rest.split('.').all(is_label) {
            return Ok(text.clone());
        }
        let fix = "write it as \"www.example\", international names in Punycode";
        Err(self.error(name.span(), format!("'{text}' is not a domain name"), fix))
    }

    /// Text, or bytes in hexadecimal after `hex:`.
    fn bytes(&self, text: &Spanned<String>) -> Result<Vec<u8>, ConfigError> {
        let Some(digits) = text.get_ref().strip_prefix("hex:") else {
            return Ok(text.get_ref().clone().into_bytes());
        };
        let what = || format!("'{digits}' are not bytes in hexadecimal");
        hex(digits).ok_or_else(|| self.error(text.span(), what(), "write pairs of digits"))
    }
}

#[cfg(test)]
mod tests;
