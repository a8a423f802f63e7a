//! A record of `ip xfrm policy`.

use std::str::FromStr;

use flowyard_frame::proto;
use ipnet::IpNet;

use super::words::short;
use super::{Words, XfrmError};
use crate::sa::Mode;
use crate::spd::{Direction, Policy, Selector, Template, Verdict};

/// The policy that a record describes; `None` if it is that of a socket.
pub(super) fn policy(record: &[(usize, &str)]) -> Result<Option<Policy>, XfrmError> {
    let (first, text) = record[0];
    let mut head = Words::new(first, text);
    let selector = selector(&mut head)?;
    let (mut direction, mut priority, mut blocks) = (None, 0, false);
    let mut templates: Vec<(usize, Template)> = Vec::new();
    for &(line, text) in &record[1..] {
        let mut words = Words::new(line, text);
        while let Some(word) = words.next() {
            match (word, templates.last_mut()) {
                ("socket", _) => return Ok(None),
                ("dir", _) => direction = Some(parse_direction(&mut words)?),
                ("action", _) => blocks = words.value(word)? == "block",
                ("priority", _) => priority = words.number(word)?,
                ("index" | "share", _) => {
                    words.value(word)?;
                }
                ("ptype", _) => {
                    if words.value(word)? != "main" {
                        return Err(words
                            .error("this type of policy is not implemented", "use 'ptype main'"));
                    }
                }
                ("flag" | "localok" | "icmp", _) => {}
                ("tmpl", _) => templates.push((line, template(&mut words)?)),
                ("proto", Some(_)) => words.esp()?,
                ("spi", Some((_, template))) => template.spi = words.number(word)?,
                ("reqid", Some((_, template))) => template.reqid = words.number(word)?,
                ("mode", Some((_, template))) => template.mode = words.mode()?,
                ("level", Some(_)) => {
                    if words.value(word)? != "required" {
                        let what = "a template that is not required is not implemented";
                        return Err(words.error(what, "use 'level required'"));
                    }
                }
                ("enc-mask" | "auth-mask" | "comp-mask", Some(_)) => {
                    words.value(word)?;
                }
                ("lifetime" | "limit:" | "expire" | "add" | "lastused", _) => break,
                (word, _) if word.bytes().all(|c| c.is_ascii_digit()) => break, // `0(bytes), 0(packets)`
                (word, _) => return Err(words.unknown(word)),
            }
        }
    }
    let direction =
        direction.ok_or_else(|| head.error("the policy has no 'dir'", "write in, out or fwd"))?;
    let verdict = match (blocks, templates.as_slice()) {
        (true, _) => Verdict::Discard,
        (false, []) => Verdict::Bypass,
        (false, [(_, template)]) => Verdict::Protect(*template),
        (false, [_, (line, _), ..]) => {
            return Err(XfrmError {
                line: *line,
                what: "a second template is not implemented".to_owned(),
                fix: "protect packets with one SA".to_owned(),
            });
        }
    };
    if let Verdict::Protect(Template { src, dst, mode: Mode::Tunnel, .. }) = verdict
        && (src.is_none() || dst.is_none())
    {
        return Err(head.error(
            "the template of a tunnel has no addresses",
            "write 'tmpl src ADDRESS dst ADDRESS'",
        ));
    }
    Ok(Some(Policy { direction, selector, priority, verdict, line: first }))
}

fn parse_direction(words: &mut Words<'_>) -> Result<Direction, XfrmError> {
    match words.value("dir")? {
        "in" => Ok(Direction::In),
        "out" => Ok(Direction::Out),
        "fwd" => Ok(Direction::Forward),
        other => {
            Err(words
                .error(format!("'{}' is not a direction", short(other)), "write in, out or fwd"))
        }
    }
}

/// `tmpl src ADDRESS dst ADDRESS`; the next line completes it.
fn template(words: &mut Words<'_>) -> Result<Template, XfrmError> {
    let mut template = Template { src: None, dst: None, spi: 0, reqid: 0, mode: Mode::Transport };
    while let Some(word) = words.next() {
        match word {
            "src" => template.src = words.address(word)?,
            "dst" => template.dst = words.address(word)?,
            other => return Err(words.unknown(other)),
        }
    }
    Ok(template)
}

/// `src PREFIX dst PREFIX proto tcp sport 1 dport 2`
fn selector(words: &mut Words<'_>) -> Result<Selector, XfrmError> {
    let (mut src, mut dst, mut proto, mut sport, mut dport) = (None, None, None, None, None);
    while let Some(word) = words.next() {
        match word {
            "src" => src = Some(prefix(words, word)?),
            "dst" => dst = Some(prefix(words, word)?),
            "proto" => proto = Some(protocol(words)?),
            "sport" => sport = Some(words.parse(word)?),
            "dport" => dport = Some(words.parse(word)?),
            "uid" => {
                words.value(word)?;
            }
            other => return Err(words.unknown(other)),
        }
    }
    let fix = "start the record with 'src PREFIX dst PREFIX', both IPv4 or both IPv6";
    match (src, dst) {
        (Some(src), Some(dst)) if src.addr().is_ipv4() == dst.addr().is_ipv4() => {
            Ok(Selector { src, dst, proto, sport, dport })
        }
        _ => Err(words.error("the policy has no prefixes of one family", fix)),
    }
}

fn prefix(words: &mut Words<'_>, name: &str) -> Result<IpNet, XfrmError> {
    let word = words.value(name)?;
    let address = || std::net::IpAddr::from_str(word).ok().map(IpNet::from);
    let net = IpNet::from_str(word).ok().or_else(address);
    let wrong = || {
        words.error(
            format!("'{}' is not a prefix", short(word)),
            "write it as 10.0.0.0/8 or fd00::/8",
        )
    };
    net.map(|net| net.trunc()).ok_or_else(wrong)
}

fn protocol(words: &mut Words<'_>) -> Result<u8, XfrmError> {
    let word = words.value("proto")?;
    let named = proto::NAMES.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    let known = named.or_else(|| (word == "ipv6-icmp").then_some(proto::ICMPV6));
    let wrong = || {
        words.error(format!("'{}' is not a protocol", short(word)), "write its name or its number")
    };
    known.or_else(|| word.parse().ok()).ok_or_else(wrong)
}
