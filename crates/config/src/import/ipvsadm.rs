//! The rules that `ipvsadm -S -n` prints (ipvsadm(8)), one in a line.
//!
//! ```text
//!  -A -t 192.0.2.1:80 -s wrr
//!  -a -t 192.0.2.1:80 -r 10.0.1.1:8080 -m -w 2
//! ```

use std::net::{IpAddr, SocketAddr};

use super::{
    Backend, ImportError, Imported, Service, choice, mask, no_limits, one_packet, persistence,
    thresholds, weight,
};

/// A service as a rule names it.
type Key = (&'static str, IpAddr, u16);

/// The words of a line.
struct Words<'a> {
    line: usize,
    rest: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn wrong(&self, what: impl Into<String>) -> ImportError {
        ImportError { line: self.line, what: what.into() }
    }

    /// The value of an option.
    fn value(&mut self, option: &str) -> Result<&'a str, ImportError> {
        let next = self.rest.next();
        next.ok_or_else(|| self.wrong(format!("'{option}' has no value")))
    }

    fn number(&mut self, option: &str) -> Result<u32, ImportError> {
        let text = self.value(option)?;
        text.parse().map_err(|_| self.wrong(format!("'{text}' after '{option}' is not a number")))
    }

    /// An address with a port, as `192.0.2.1:80` or `[2001:db8::1]:80`.
    fn end(&mut self, option: &str) -> Result<(IpAddr, u16), ImportError> {
        let text = self.value(option)?;
        if let Ok(end) = text.parse::<SocketAddr>() {
            return Ok((end.ip(), end.port()));
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        let what = format!(
            "'{text}' is not an address with a port; use 'ipvsadm -S -n', which prints numbers"
        );
        bare.parse().map(|addr| (addr, 0)).map_err(|_| self.wrong(what))
    }
}

pub(super) fn read(text: &str) -> Result<Imported, ImportError> {
    let mut imported = Imported::default();
    // What belongs to a firewall mark is left out together with it.
    for (line, text) in (1..).zip(text.lines()) {
        let mut words = Words { line, rest: text.split_whitespace().peekable() };
        match words.rest.next() {
            None => {}
            Some(word) if word.starts_with('#') => {}
            Some("-A" | "--add-service") => add_service(&mut imported, &mut words)?,
            Some("-a" | "--add-server") => add_server(&mut imported, &mut words)?,
            Some(word) => {
                return Err(
                    words.wrong(format!("'{word}' is not expected; lines begin with -A or -a"))
                );
            }
        }
    }
    Ok(imported)
}

/// The service that a rule names; `None` for a firewall mark, which is reported.
fn key(
    imported: &mut Imported,
    words: &mut Words<'_>,
    is_server: bool,
) -> Result<Option<Key>, ImportError> {
    let option = words.value("the rule")?;
    let proto = match option {
        "-t" | "--tcp-service" => "tcp",
        "-u" | "--udp-service" => "udp",
        "--sctp-service" => "sctp",
        "-f" | "--fwmark-service" => {
            let mark = words.number(option)?;
            if !is_server {
                let text = format!(
                    "the service of firewall mark {mark} and its servers are left out: flowyard has no firewall marks; write a [[service]] for each address and port"
                );
                imported.note(words.line, text);
            }
            return Ok(None);
        }
        other => {
            return Err(words.wrong(format!(
                "'{other}' is not a kind of service; write -t, -u or --sctp-service"
            )));
        }
    };
    let (vip, port) = words.end(option)?;
    Ok(Some((proto, vip, port)))
}

fn add_service(imported: &mut Imported, words: &mut Words<'_>) -> Result<(), ImportError> {
    let Some((proto, vip, port)) = key(imported, words, false)? else { return Ok(()) };
    let line = words.line;
    let mut service = Service {
        line,
        vip,
        proto,
        port,
        mode: "",
        choice: "least",
        persist: None,
        one_packet: false,
        mask: None,
        check: None,
        backends: Vec::new(),
    };
    if port == 0 {
        imported.note(line, "a service of every port becomes port = \"1-65535\"");
    }
    while let Some(option) = words.rest.next() {
        match option {
            "-s" | "--scheduler" => {
                let (near, remark) = choice(words.value(option)?);
                service.choice = near;
                remark.into_iter().for_each(|remark| imported.note(line, remark));
            }
            "-p" | "--persistent" => {
                let is_value = words.rest.peek().is_some_and(|word| !word.starts_with('-'));
                let seconds = if is_value { words.number(option)? } else { 300 };
                service.persist = Some(persistence(imported, line, seconds.into()));
            }
            "-M" | "--netmask" => {
                let text = words.value(option)?;
                service.mask = mask(imported, line, text);
            }
            "-o" | "--ops" => service.one_packet = true,
            "-b" | "--sched-flags" => {
                let flags = words.value(option)?;
                imported.note(line, format!("the flags '{flags}' of the scheduler are left out"));
            }
            "--pe" => {
                let engine = words.value(option)?;
                imported.note(line, format!("the persistence engine '{engine}' is left out"));
            }
            other => return Err(words.wrong(format!("'{other}' is not an option of a service"))),
        }
    }
    one_packet(imported, line, &mut service);
    imported.services.push(service);
    Ok(())
}

fn add_server(imported: &mut Imported, words: &mut Words<'_>) -> Result<(), ImportError> {
    let key = key(imported, words, true)?;
    let line = words.line;
    let (mut end, mut mode, mut heavy) = (None, "dsr", 1);
    let (mut limit, mut resume) = (0, 0);
    while let Some(option) = words.rest.next() {
        match option {
            "-r" | "--real-server" => end = Some(words.end(option)?),
            "-g" | "--gatewaying" => mode = "dsr",
            "-i" | "--ipip" => mode = "ipip",
            "-m" | "--masquerading" => mode = "dnat",
            "-w" | "--weight" => {
                let wanted = words.number(option)?;
                heavy = weight(imported, line, wanted);
            }
            "-x" | "--u-threshold" => limit = words.number(option)?,
            "-y" | "--l-threshold" => resume = words.number(option)?,
            "--tun-type" => match words.value(option)? {
                "gue" => mode = "gue",
                "ipip" => mode = "ipip",
                other => {
                    imported.note(line, format!("tunnels of type '{other}' do not exist in flowyard; the mode is \"ipip\""));
                    mode = "ipip";
                }
            },
            "--tun-port" => {
                let port = words.number(option)?;
                if port != 6080 {
                    imported.note(
                        line,
                        format!("the port {port} of GUE is left out: flowyard sends to port 6080"),
                    );
                }
            }
            "--tun-nocsum" | "--tun-csum" | "--tun-remcsum" => {
                imported.note(line, format!("the option {option} of GUE is left out"));
            }
            other => return Err(words.wrong(format!("'{other}' is not an option of a server"))),
        }
    }
    let (addr, port) = end.ok_or_else(|| words.wrong("the server has no address; write -r"))?;
    let Some((proto, vip, of)) = key else { return Ok(()) };
    (limit, resume) = thresholds(imported, line, limit, resume);
    let mut services = imported.services.iter_mut();
    let service = services.find(|s| (s.proto, s.vip, s.port) == (proto, vip, of));
    let service =
        service.ok_or_else(|| words.wrong("there is no -A line of this service before"))?;
    if service.mode.is_empty() {
        service.mode = mode;
    }
    if service.mode != mode {
        let (first, name) = (service.mode, service.name());
        imported.note(line, format!("server {addr} is left out: it has mode \"{mode}\", and service '{name}' has mode \"{first}\" by its first server"));
        return Ok(());
    }
    service.backends.push(Backend { addr, port, weight: heavy, backup: false, limit, resume });
    no_limits(service, line, &mut imported.notes);
    if port != of && !matches!(mode, "dnat") && port != 0 {
        imported.note(
            line,
            format!(
                "port {port} of server {addr} is left out: mode \"{mode}\" does not change the port"
            ),
        );
    }
    Ok(())
}
