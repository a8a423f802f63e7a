//! Parses a rule file: one `ethtool -N` rule per line; `#` starts a comment.
//!
//! ```text
//!  [ethtool] [-N|-U eth0] flow-type tcp4 dst-port 80 src-ip 10.0.0.0 m 0.0.0.255 action 3 loc 7
//!  [ethtool] [-N|-U eth0] delete 7
//! ```
//!
//! All errors of the file are collected, each with its place and its fix.

use std::collections::HashMap;

use super::rule::{FlowType, Masked, Rule, RuleAction};
use super::words::{Fault, Word, ipv4, ipv6, mac, number, words};
use crate::fdir::Moderation;

/// An error in a rule file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}:{col}: {what}; {fix}")]
pub struct ParseError {
    /// The name of the file as given.
    pub file: String,
    /// The line number, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub col: u32,
    /// What is wrong.
    pub what: String,
    /// How to correct it.
    pub fix: String,
}

/// The rules of `text` in order, without those that a later line deletes. `file` is the name of the
/// file for messages.
///
/// # Errors
/// All errors of the file.
pub fn parse(file: &str, text: &str) -> Result<Vec<Rule>, Vec<ParseError>> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut errors = Vec::new();
    for (number, raw) in (1..).zip(text.lines()) {
        let words = words(raw);
        let (Some(first), Some(last)) = (words.first(), words.last()) else { continue };
        let start = raw.char_indices().nth(first.col as usize - 1).map_or(0, |(i, _)| i);
        let end = raw.char_indices().nth(last.col as usize - 1).map_or(0, |(i, _)| i);
        let mut line = Line {
            file,
            number,
            words: &words,
            next: 0,
            end: last.col + last.text.chars().count() as u32,
            errors: &mut errors,
        };
        match line.statement() {
            Some(Statement::Rule(mut rule)) => {
                rule.text = raw[start..end + last.text.len()].to_owned();
                rules.push(*rule);
            }
            Some(Statement::Delete(word, loc)) => {
                let before = rules.len();
                rules.retain(|rule| rule.loc != Some(loc));
                if rules.len() == before {
                    line.fault(
                        word,
                        format!("no rule above has location {loc}"),
                        "remove this line, or give the intended rule a `loc`",
                    );
                }
            }
            None => {}
        }
    }
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

enum Statement<'a> {
    Rule(Box<Rule>),
    Delete(Word<'a>, u32),
}

/// The parser of one line.
struct Line<'a, 'e> {
    file: &'a str,
    number: u32,
    words: &'a [Word<'a>],
    next: usize,
    end: u32,
    errors: &'e mut Vec<ParseError>,
}

/// The options of a rule that specify its action.
#[derive(Default)]
struct ActionOptions {
    action: Option<i64>,
    queue: Option<u32>,
    vf: Option<u32>,
    context: Option<u32>,
}

impl<'a> Line<'a, '_> {
    fn fault(&mut self, at: Word<'_>, what: impl Into<String>, fix: impl Into<String>) {
        let (file, line) = (self.file.to_owned(), self.number);
        let error = ParseError { file, line, col: at.col, what: what.into(), fix: fix.into() };
        self.errors.push(error);
    }

    fn word(&mut self) -> Option<Word<'a>> {
        let word = self.words.get(self.next).copied();
        self.next += usize::from(word.is_some());
        word
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|word| word.text)
    }

    /// The word after an option. Reports an error if the line ends.
    fn operand(&mut self, option: &str) -> Option<Word<'a>> {
        let word = self.word();
        if word.is_none() {
            let end = Word { text: "", col: self.end };
            self.fault(
                end,
                format!("`{option}` has no value"),
                "add a value, or remove the option",
            );
        }
        word
    }

    /// The value of an option. Reports an error if it cannot be read.
    fn value<T>(
        &mut self,
        option: &str,
        read: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<(Word<'a>, T)> {
        let word = self.operand(option)?;
        match read(word.text) {
            Ok(value) => Some((word, value)),
            Err(Fault { what, fix }) => {
                self.fault(word, what, fix);
                None
            }
        }
    }

    /// A value and its optional `m`, whose ones are bits to ignore. `all` has a one for each bit of
    /// the field. In the mask of the result, ones are bits to match.
    fn masked<T: std::ops::Not<Output = T> + std::ops::BitAnd<Output = T> + Copy>(
        &mut self,
        option: &str,
        all: T,
        read: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<Masked<T>> {
        let value = self.value(option, &read);
        let mask = if self.peek() == Some("m") {
            self.next += 1;
            !self.value(option, &read)?.1 & all
        } else {
            all
        };
        value.map(|(_, value)| (value, mask))
    }

    fn statement(&mut self) -> Option<Statement<'a>> {
        if self.peek() == Some("ethtool") {
            self.next += 1;
        }
        if matches!(self.peek(), Some("-N" | "-U" | "--config-nfc" | "--config-ntuple")) {
            self.next += 1;
            self.operand("-N")?;
        }
        let word = self.operand("ethtool")?;
        match word.text {
            "delete" => {
                let (word, loc) = self.value("delete", |text| number(text, 0xffff_fffc))?;
                if let Some(extra) = self.word() {
                    self.fault(
                        extra,
                        "unexpected word after the location",
                        "write it on its own line",
                    );
                }
                Some(Statement::Delete(word, loc as u32))
            }
            "flow-type" => self.rule().map(|rule| Statement::Rule(Box::new(rule))),
            other => {
                self.fault(
                    word,
                    format!("`{other}` does not start a rule"),
                    "start with `flow-type` or `delete`, optionally after `ethtool -N <device>`",
                );
                None
            }
        }
    }

    fn rule(&mut self) -> Option<Rule> {
        let faults = self.errors.len();
        let word = self.operand("flow-type")?;
        let Some(&(_, flow_type)) = FlowType::ALL.iter().find(|(name, _)| *name == word.text)
        else {
            let names = FlowType::ALL.map(|(name, _)| name).join(", ");
            self.fault(
                word,
                format!("unknown flow type `{}`", word.text),
                format!("use one of {names}"),
            );
            return None;
        };
        let mut rule = Rule { line: self.number, ..Rule::every(flow_type) };
        let mut to = ActionOptions::default();
        let mut seen = HashMap::new();
        while let Some(option) = self.word() {
            if seen.insert(option.text, option.col).is_some() {
                self.fault(option, format!("`{}` is given twice", option.text), "remove one");
            }
            self.option(option, &mut rule, &mut to);
        }
        rule.complete();
        rule.action = self.action(word, &to);
        (self.errors.len() == faults).then_some(rule)
    }

    /// Reads the operands of one option into the rule. `None` means that an error was reported.
    fn option(&mut self, option: Word<'a>, rule: &mut Rule, to: &mut ActionOptions) -> Option<()> {
        let kind = rule.flow_type;
        let ip = kind != FlowType::Ether;
        let bare_ip = matches!(kind, FlowType::Ip4 | FlowType::Ip6);
        let ipsec = matches!(kind, FlowType::Ah4 | FlowType::Esp4 | FlowType::Ah6 | FlowType::Esp6);
        let name = option.text;
        let (key, mask) = (&mut rule.written, &mut rule.mask);
        match name {
            "src-ip" | "dst-ip" if ip => {
                let (value, bits) = if kind.is_ipv4() {
                    let (value, bits) = self.masked(name, u32::MAX, |text| ipv4(name, text))?;
                    (slot4(value), slot4(bits))
                } else {
                    let (value, bits) = self.masked(name, u128::MAX, |text| ipv6(name, text))?;
                    (value.to_be_bytes(), bits.to_be_bytes())
                };
                if name == "src-ip" {
                    (key.src, mask.src) = (value, bits);
                } else {
                    (key.dst, mask.dst) = (value, bits);
                }
            }
            "src-port" if kind.has_ports() || bare_ip => {
                (key.sport, mask.sport) = self.short(name)?;
            }
            "dst-port" if kind.has_ports() || bare_ip => {
                (key.dport, mask.dport) = self.short(name)?;
            }
            // The four bytes after the IP header, where TCP, UDP and SCTP have their ports.
            "l4data" if bare_ip => {
                let (value, bits) = self.long(name)?;
                (key.sport, key.dport) = ((value >> 16) as u16, value as u16);
                (mask.sport, mask.dport) = ((bits >> 16) as u16, bits as u16);
            }
            "spi" if ipsec => rule.spi = Some(self.long(name)?),
            "tos" if kind.is_ipv4() => (key.tos, mask.tos) = self.byte(name)?,
            "tclass" if kind.is_ipv6() => (key.tos, mask.tos) = self.byte(name)?,
            "l4proto" if bare_ip => (key.proto, mask.proto) = self.byte(name)?,
            "src" if !ip => (key.eth_src, mask.eth_src) = self.mac(name)?,
            "dst" if !ip => (key.eth_dst, mask.eth_dst) = self.mac(name)?,
            "dst-mac" if ip => {
                (key.eth_dst, mask.eth_dst) = self.mac(name)?;
                rule.dst_mac = true;
            }
            "proto" if !ip => (key.eth_type, mask.eth_type) = self.short(name)?,
            "vlan" => {
                (key.vlan_tci, mask.vlan_tci) = self.short(name)?;
                rule.ext = true;
            }
            "vlan-etype" => {
                rule.vlan_etype = Some(self.short(name)?);
                rule.ext = true;
            }
            "user-def" => {
                let word = self.masked(name, u64::MAX, |text| number(text, u64::MAX))?;
                rule.user_def = Some(word);
                rule.ext = true;
            }
            "action" => {
                let (_, action) = self.value(name, action_number)?;
                to.action = Some(action);
            }
            "queue" => to.queue = Some(self.plain(name, u64::from(u32::MAX))?),
            "vf" => to.vf = Some(self.plain(name, 254)?),
            "context" => to.context = Some(self.plain(name, u64::from(u32::MAX) - 1)?),
            "count" => rule.extras.counter = Some(self.plain(name, 0xffff)? as u16),
            "value" => rule.extras.value = self.plain(name, u32::MAX.into())?,
            "moderation" => rule.extras.moderation = self.value(name, moderation)?.1,
            "loc" => rule.loc = Some(self.plain(name, 0xffff_fffc)?),
            _ => self.unknown(option, kind),
        }
        Some(())
    }

    fn byte(&mut self, option: &str) -> Option<Masked<u8>> {
        self.masked(option, u8::MAX, |text| number(text, 0xff).map(|value| value as u8))
    }

    fn short(&mut self, option: &str) -> Option<Masked<u16>> {
        self.masked(option, u16::MAX, |text| number(text, 0xffff).map(|value| value as u16))
    }

    fn long(&mut self, option: &str) -> Option<Masked<u32>> {
        self.masked(option, u32::MAX, |text| number(text, 0xffff_ffff).map(|value| value as u32))
    }

    fn mac(&mut self, option: &str) -> Option<Masked<[u8; 6]>> {
        let bytes = |value: u64| std::array::from_fn(|i| (value >> (40 - 8 * i)) as u8);
        let (value, bits) = self.masked(option, 0xffff_ffff_ffff, mac)?;
        Some((bytes(value), bytes(bits)))
    }

    fn plain(&mut self, option: &str, max: u64) -> Option<u32> {
        self.value(option, |text| number(text, max)).map(|(_, value)| value as u32)
    }

    /// Reports an option that is unknown or not allowed for the flow type, and skips its value.
    fn unknown(&mut self, option: Word<'_>, kind: FlowType) {
        let fields = match kind {
            FlowType::Ether => "src, dst, proto",
            FlowType::Ip4 => "src-ip, dst-ip, tos, l4proto, l4data, src-port, dst-port",
            FlowType::Ip6 => "src-ip, dst-ip, tclass, l4proto, l4data, src-port, dst-port",
            FlowType::Ah4 | FlowType::Esp4 => "src-ip, dst-ip, tos, spi",
            FlowType::Ah6 | FlowType::Esp6 => "src-ip, dst-ip, tclass, spi",
            _ if kind.is_ipv4() => "src-ip, dst-ip, tos, src-port, dst-port",
            _ => "src-ip, dst-ip, tclass, src-port, dst-port",
        };
        let mac = if kind == FlowType::Ether { "" } else { "dst-mac, " };
        self.fault(
            option,
            format!("flow type {} has no option `{}`", kind.name(), option.text),
            format!(
                "use {fields}, vlan-etype, vlan, user-def, {mac}action, queue, vf, context, count, moderation, value, loc"
            ),
        );
        self.next += usize::from(self.peek().is_some());
        if self.peek() == Some("m") {
            self.next += 2;
        }
    }

    fn action(&mut self, at: Word<'_>, to: &ActionOptions) -> RuleAction {
        if to.action.is_some() && to.queue.is_some() {
            self.fault(at, "`action` and `queue` are both given", "remove one");
        }
        if to.action.is_some_and(|action| action >= 0) && to.vf.is_some() {
            self.fault(at, "`action` and `vf` are both given", "write `vf N queue M`");
        }
        match to.action {
            Some(-1 | -2) if to.vf.is_some() || to.context.is_some() => {
                self.fault(
                    at,
                    "actions -1 and -2 have no vf or context",
                    "remove `vf` and `context`",
                );
                RuleAction::Drop
            }
            Some(-1) => RuleAction::Drop,
            Some(-2) => RuleAction::Wake,
            action => {
                let queue = action.map(|queue| queue as u32).or(to.queue).unwrap_or(0);
                let in_action = action.map_or(0, |action| (action >> 32) as u32 & 0xff);
                match (to.vf.or(in_action.checked_sub(1)), to.context) {
                    (Some(_), Some(_)) => {
                        self.fault(at, "`vf` and `context` are both given", "remove one");
                        RuleAction::Queue(queue)
                    }
                    (Some(vf), None) => RuleAction::Vf { vf, queue },
                    (None, Some(context)) => RuleAction::Context { context, queue },
                    (None, None) => RuleAction::Queue(queue),
                }
            }
        }
    }
}

/// An interrupt class.
fn moderation(text: &str) -> Result<Moderation, Fault> {
    let found = Moderation::ALL.iter().find(|(name, _)| *name == text);
    found.map(|(_, class)| *class).ok_or_else(|| Fault {
        what: format!("`{text}` is not an interrupt class"),
        fix: "use low-latency, high-bandwidth or default".to_owned(),
    })
}

/// A queue number, -1 to drop, or -2 to wake up the host. As the kernel's ring cookie, it has a virtual function plus one in
/// bits 32 to 39.
fn action_number(text: &str) -> Result<i64, Fault> {
    match text {
        "-1" => Ok(-1),
        "-2" => Ok(-2),
        _ => number(text, 0xff_ffff_ffff).map(|value| value as i64).map_err(|fault| Fault {
            fix: "use a queue number, -1 to drop, or -2 to wake up the host".to_owned(),
            ..fault
        }),
    }
}

fn slot4(value: u32) -> [u8; 16] {
    let mut slot = [0; 16];
    slot[..4].copy_from_slice(&value.to_be_bytes());
    slot
}

#[cfg(test)]
mod tests;
