//! The `virtual_server` blocks of keepalived (keepalived.conf(5)).
//!
//! ```text
//!  virtual_server 192.0.2.1 80 {     words up to the end of the line or a brace are a statement
//!      lb_algo wrr                   '#' and '!' begin a comment
//!      real_server 10.0.1.1 80 {
//!          weight 1
//!          TCP_CHECK { connect_timeout 3 }
//!      }
//!  }
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};

use crate::health::RecordType;

use super::{
    Backend, Check, ImportError, Imported, Service, choice, mask, no_limits, one_packet,
    persistence, quoted, thresholds, weight,
};

/// The deepest nesting of blocks; keepalived's own has four.
const DEEPEST: usize = 16;

/// A statement, with the block that follows it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Statement {
    line: usize,
    words: Vec<String>,
    block: Option<Vec<Self>>,
}

impl Statement {
    fn key(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    fn value(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    fn wrong(&self, what: impl Into<String>) -> ImportError {
        ImportError { line: self.line, what: what.into() }
    }

    fn number<T: std::str::FromStr>(&self) -> Result<T, ImportError> {
        let text = self.value(1).unwrap_or_default();
        let what = format!("'{text}' is not a number that '{}' can have", self.key());
        text.parse().map_err(|_| self.wrong(what))
    }

    /// A time in seconds, which may have a fraction, in milliseconds.
    fn ms(&self) -> Result<u64, ImportError> {
        let seconds: f64 = self.number()?;
        if !(0.0..=1e6).contains(&seconds) {
            return Err(self.wrong(format!("'{}' has a time of {seconds} s", self.key())));
        }
        Ok((seconds * 1000.0).round() as u64)
    }

    fn block(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// The tokens of a line: words, and braces. Words may be in quotes.
fn tokens(text: &str, line: usize) -> Result<Vec<String>, ImportError> {
    let (mut all, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if quoted => word.push(c),
            '#' | '!' => break,
            '{' | '}' => {
                all.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                all.push(c.into());
            }
            c if c.is_whitespace() => {
                all.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            }
            c => word.push(c),
        }
    }
    if quoted {
        return Err(ImportError { line, what: "a quote is not closed on this line".into() });
    }
    all.extend((!word.is_empty()).then_some(word));
    Ok(all)
}

/// All statements of a file.
fn parse(text: &str) -> Result<Vec<Statement>, ImportError> {
    // The blocks that are open: the innermost one is the last.
    let mut open: Vec<Vec<Statement>> = vec![Vec::new()];
    let wrong = |line, what: &str| Err(ImportError { line, what: what.into() });
    let mut last = 1;
    for (line, text) in (1..).zip(text.lines()) {
        last = line;
        let mut words = Vec::new();
        let end = |words: &mut Vec<String>, block: &mut Vec<Statement>| {
            if !words.is_empty() {
                block.push(Statement { line, words: std::mem::take(words), block: None });
            }
        };
        for token in tokens(text, line)? {
            let Some(block) = open.last_mut() else { return wrong(line, "a '}' too many") };
            match token.as_str() {
                "{" => {
                    end(&mut words, block);
                    if block.last().is_none_or(|before| before.block.is_some()) {
                        return wrong(line, "a '{' without a name before it");
                    }
                    if open.len() > DEEPEST {
                        return wrong(line, "blocks are nested too deeply");
                    }
                    open.push(Vec::new());
                }
                "}" => {
                    end(&mut words, block);
                    let done = open.pop();
                    let Some(owner) = open.last_mut().and_then(|outer| outer.last_mut()) else {
                        return wrong(line, "a '}' without a '{' before it");
                    };
                    owner.block = done;
                }
                _ => words.push(token),
            }
        }
        if let Some(block) = open.last_mut() {
            end(&mut words, block);
        }
    }
    match open.pop() {
        Some(all) if open.is_empty() => Ok(all),
        _ => wrong(last, "a '{' is not closed"),
    }
}

/// The address and port of a service or server.
fn end(statement: &Statement, at: usize) -> Result<(IpAddr, u16), ImportError> {
    let text = statement.value(at).unwrap_or_default();
    let what = format!("'{text}' is not an IP address");
    let addr = text.parse().map_err(|_| statement.wrong(what))?;
    let port = match statement.value(at + 1) {
        None => 0,
        Some(text) => {
            text.parse().map_err(|_| statement.wrong(format!("'{text}' is not a port")))?
        }
    };
    Ok((addr, port))
}

pub(super) fn read(text: &str) -> Result<Imported, ImportError> {
    let (all, mut imported) = (parse(text)?, Imported::default());
    let mut groups: BTreeMap<&str, &[Statement]> = BTreeMap::new();
    for group in all.iter().filter(|statement| statement.key() == "virtual_server_group") {
        groups.insert(group.value(1).unwrap_or_default(), group.block());
    }
    for statement in &all {
        match statement.key() {
            "virtual_server_group" => {}
            "virtual_server" => {
                let ends = ends(&mut imported, statement, &groups)?;
                services(&mut imported, statement, &ends)?;
            }
            "global_defs" => {}
            "include" => imported
                .note(statement.line, "the included files are not read; import each of them"),
            key if key.starts_with("vrrp_") => {
                imported.note(
                    statement.line,
                    format!(
                        "'{key}' is left out: flowyard announces VIPs by routes; see docs/routes.md"
                    ),
                );
            }
            key => imported.note(statement.line, format!("'{key}' is left out")),
        }
    }
    Ok(imported)
}

/// The addresses and ports of a `virtual_server`.
fn ends(
    imported: &mut Imported,
    server: &Statement,
    groups: &BTreeMap<&str, &[Statement]>,
) -> Result<Vec<(IpAddr, u16)>, ImportError> {
    match server.value(1) {
        Some("fwmark") => {
            imported.note(
                server.line,
                "a virtual_server of a firewall mark is left out: flowyard has no firewall marks",
            );
            Ok(Vec::new())
        }
        Some("group") => {
            let name = server.value(2).unwrap_or_default();
            let group = groups.get(name).ok_or_else(|| {
                server.wrong(format!("there is no virtual_server_group '{name}'"))
            })?;
            let mut all = Vec::new();
            for member in *group {
                match member.key() {
                    "fwmark" => imported.note(member.line, "a firewall mark is left out"),
                    key if key.contains('-') => {
                        imported.note(member.line, format!("the range of addresses '{key}' is left out; write a [[service]] for each address"));
                    }
                    _ => all.push(end(member, 0)?),
                }
            }
            Ok(all)
        }
        _ => Ok(vec![end(server, 1)?]),
    }
}

/// A service for each address and port.
fn services(
    imported: &mut Imported,
    server: &Statement,
    ends: &[(IpAddr, u16)],
) -> Result<(), ImportError> {
    let Some(&(vip, port)) = ends.first() else { return Ok(()) };
    let mut service = Service {
        line: server.line,
        vip,
        proto: "tcp",
        port,
        mode: "dnat",
        choice: "roundrobin",
        persist: None,
        one_packet: false,
        mask: None,
        check: None,
        backends: Vec::new(),
    };
    if port == 0 {
        imported.note(server.line, "a service of every port becomes port = \"1-65535\"");
    }
    let mut period = None;
    for statement in server.block() {
        let line = statement.line;
        match statement.key() {
            "lb_algo" | "lvs_sched" => {
                let (near, remark) = choice(statement.value(1).unwrap_or_default());
                service.choice = near;
                remark.into_iter().for_each(|remark| imported.note(line, remark));
            }
            "lb_kind" | "lvs_method" => {
                service.mode = mode(statement)?;
                if statement.words.len() > 2 {
                    imported.note(line, "the type of the tunnel is left out: the mode is \"ipip\"");
                }
            }
            "protocol" => service.proto = protocol(statement)?,
            "delay_loop" => period = Some(statement.ms()?),
            "persistence_timeout" => {
                let seconds = if statement.words.len() > 1 { statement.number()? } else { 360 };
                service.persist = Some(persistence(imported, line, seconds));
            }
            "ops" => service.one_packet = true,
            "persistence_granularity" => {
                service.mask = mask(imported, line, statement.value(1).unwrap_or_default());
            }
            // Below, when the mode of the service is known.
            "real_server" | "sorry_server" => {}
            // They describe what flowyard does in any case.
            "alpha" | "ip_family" => {}
            key => imported.note(line, format!("'{key}' of a virtual_server is left out")),
        }
    }
    one_packet(imported, server.line, &mut service);
    for statement in server.block().iter().filter(|statement| statement.key() == "real_server") {
        real_server(imported, &mut service, statement, period)?;
    }
    for statement in server.block().iter().filter(|statement| statement.key() == "sorry_server") {
        sorry_server(imported, &mut service, statement)?;
    }
    for &(vip, port) in ends {
        imported.services.push(Service { vip, port, ..service.clone() });
    }
    Ok(())
}

fn mode(statement: &Statement) -> Result<&'static str, ImportError> {
    match statement.value(1).unwrap_or_default() {
        "NAT" => Ok("dnat"),
        "DR" => Ok("dsr"),
        "TUN" => Ok("ipip"),
        other => Err(statement.wrong(format!("'{other}' is not NAT, DR or TUN"))),
    }
}

fn protocol(statement: &Statement) -> Result<&'static str, ImportError> {
    match statement.value(1).unwrap_or_default() {
        "TCP" => Ok("tcp"),
        "UDP" => Ok("udp"),
        "SCTP" => Ok("sctp"),
        other => Err(statement.wrong(format!("'{other}' is not TCP, UDP or SCTP"))),
    }
}

/// The server that gets the connections while no other server is up: a backup.
fn sorry_server(
    imported: &mut Imported,
    service: &mut Service,
    server: &Statement,
) -> Result<(), ImportError> {
    let (addr, port) = end(server, 1)?;
    if addr.is_loopback() {
        let what =
            format!("the sorry_server {addr} is left out: a backend cannot be the balancer itself");
        imported.note(server.line, what);
        return Ok(());
    }
    let what = format!(
        "the sorry_server {addr} becomes a backup, which is checked like the other backends"
    );
    imported.note(server.line, what);
    note_port(imported, service, server, (addr, port));
    service.backends.push(Backend { addr, port, weight: 1, backup: true, limit: 0, resume: 0 });
    Ok(())
}

/// Reports a port that the mode of the service does not change.
fn note_port(imported: &mut Imported, service: &Service, server: &Statement, to: (IpAddr, u16)) {
    let (addr, port) = to;
    if port != service.port && port != 0 && service.mode != "dnat" {
        let (key, mode) = (server.key(), service.mode);
        let what = format!(
            "port {port} of {key} {addr} is left out: mode \"{mode}\" does not change the port"
        );
        imported.note(server.line, what);
    }
}

fn real_server(
    imported: &mut Imported,
    service: &mut Service,
    server: &Statement,
    period: Option<u64>,
) -> Result<(), ImportError> {
    let (addr, port) = end(server, 1)?;
    let mut backend = Backend { addr, port, weight: 1, backup: false, limit: 0, resume: 0 };
    for statement in server.block() {
        let line = statement.line;
        match statement.key() {
            "weight" => {
                let wanted = statement.number()?;
                backend.weight = weight(imported, line, wanted);
            }
            "uthreshold" => backend.limit = statement.number()?,
            "lthreshold" => backend.resume = statement.number()?,
            key if key.ends_with("_CHECK") || key.ends_with("_GET") => {
                let Some(check) = check(imported, statement, period)? else { continue };
                match &service.check {
                    None => service.check = Some(check),
                    Some(first) if *first == check => {}
                    Some(_) => imported.note(line, format!("this {key} differs from the first check of the virtual_server, which all its servers get")),
                }
            }
            key => imported.note(line, format!("'{key}' of real_server {addr} is left out")),
        }
    }
    (backend.limit, backend.resume) =
        thresholds(imported, server.line, backend.limit, backend.resume);
    note_port(imported, service, server, (addr, port));
    service.backends.push(backend);
    no_limits(service, server.line, &mut imported.notes);
    Ok(())
}

/// A check; `None` if flowyard has none of its kind, which is reported.
fn check(
    imported: &mut Imported,
    of: &Statement,
    period: Option<u64>,
) -> Result<Option<Check>, ImportError> {
    let kind = match of.key() {
        "TCP_CHECK" => "tcp",
        "HTTP_GET" => "http",
        "SSL_GET" => "https",
        "UDP_CHECK" => "udp",
        "DNS_CHECK" => "dns",
        "MISC_CHECK" => "command",
        other => {
            imported.note(of.line, format!("{other} is left out: flowyard has no such check"));
            return Ok(None);
        }
    };
    let mut check = Check { kind, keys: Vec::new() };
    if kind == "dns" {
        // The defaults of keepalived.
        check.keys.extend([("type", quoted("soa")), ("query", quoted("."))]);
    }
    let mut period = period;
    for statement in of.block() {
        let line = statement.line;
        match (statement.key(), kind) {
            ("connect_port", _) => {
                check.keys.push(("port", statement.number::<u16>()?.to_string()));
            }
            ("connect_timeout" | "misc_timeout", _) => {
                let ms = statement.ms()?.clamp(1, 60_000);
                check.keys.push(("timeout_ms", ms.to_string()));
            }
            ("delay_loop", _) => period = Some(statement.ms()?),
            ("retry" | "nb_get_retry", _) => {
                let times: u32 = statement.number()?;
                check.keys.push(("fall", (times.saturating_add(1)).clamp(1, 100).to_string()));
            }
            ("misc_path", "command") => {
                let words = statement.words[1..].join(" ");
                let words: Vec<_> = words.split_whitespace().map(quoted).collect();
                check.keys.push(("command", format!("[{}]", words.join(", "))));
            }
            ("virtualhost", "http" | "https") => {
                check.keys.push(("host", quoted(statement.value(1).unwrap_or_default())));
            }
            ("type", "dns") => {
                let name = statement.value(1).unwrap_or_default().to_ascii_lowercase();
                match RecordType::deserialize(StrDeserializer::<Error>::new(&name)) {
                    Ok(_) => check.keys.push(("type", quoted(&name))),
                    Err(_) => imported.note(line, format!("records of type '{name}' cannot be asked for; the check asks for type soa")),
                }
            }
            ("name", "dns") => {
                check.keys.push(("query", quoted(statement.value(1).unwrap_or_default())));
            }
            ("url", "http" | "https") => url(imported, statement, &mut check)?,
            (key, _) => imported.note(line, format!("'{key}' of {} is left out", of.key())),
        }
    }
    if let Some(ms) = period {
        check.keys.push(("interval_ms", ms.clamp(10, 3_600_000).to_string()));
    }
    // A key once: the last one counts in keepalived.
    let mut once: BTreeMap<&'static str, String> = BTreeMap::new();
    once.extend(check.keys);
    check.keys = once.into_iter().collect();
    if kind == "command" && !check.keys.iter().any(|(key, _)| *key == "command") {
        return Err(of.wrong("a MISC_CHECK without misc_path"));
    }
    if kind == "https" {
        // keepalived does not verify certificates.
        check.keys.push(("verify", "false".into()));
    }
    Ok(Some(check))
}

fn url(imported: &mut Imported, url: &Statement, check: &mut Check) -> Result<(), ImportError> {
    for statement in url.block() {
        match statement.key() {
            "path" => {
                let path = statement.value(1).unwrap_or("/");
                let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
                check.keys.push(("path", quoted(&path)));
            }
            "status_code" => {
                let text = statement.value(1).unwrap_or_default();
                let range = text.split_once('-').unwrap_or((text, text));
                match (range.0.parse::<u16>(), range.1.parse::<u16>()) {
                    (Ok(least @ 100..=599), Ok(most @ 100..=599))
                        if least <= most && statement.words.len() == 2 =>
                    {
                        let range = match least == most {
                            true => least.to_string(),
                            false => format!("\"{least}-{most}\""),
                        };
                        check.keys.push(("status", range));
                    }
                    _ => imported.note(
                        statement.line,
                        "a list of status codes is left out; write 'status' by hand",
                    ),
                }
            }
            key => imported.note(statement.line, format!("'{key}' of a url is left out")),
        }
    }
    Ok(())
}
