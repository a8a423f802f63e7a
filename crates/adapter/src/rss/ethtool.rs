//! Reads the RSS settings of a real interface, as `ethtool -x` and `ethtool -n ... rx-flow-hash` print them.
//!
//! ```text
//!  (ethtool -x eth0; ethtool -n eth0 rx-flow-hash tcp4; ethtool -n eth0 rx-flow-hash udp4) > eth0.rss
//! ```
//!
//! The outputs may be in one text, in any order. What is missing stays open.

use super::Hfunc;
use crate::hash_fields::{Fields, FlowType};

/// The settings that a text states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// Number of receive queues (`RX ring(s)`).
    pub queues: Option<u16>,
    /// The queue of each entry of the indirection table; empty if the text has none.
    pub reta: Vec<u16>,
    /// The hash key.
    pub key: Option<Vec<u8>>,
    /// The hash function.
    pub hfunc: Option<Hfunc>,
    /// The hashed fields of flow types.
    pub fields: Vec<(FlowType, Fields)>,
}

/// An error in the output of ethtool.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}:{line}: {what}; {fix}")]
pub struct NotPrinted {
    /// The name of the file as given.
    pub file: String,
    /// The line number, from 1.
    pub line: u32,
    /// What is wrong.
    pub what: String,
    /// How to correct it.
    pub fix: &'static str,
}

/// The part of the output that a line belongs to.
#[derive(Clone, Copy)]
enum Part {
    None,
    Table,
    Key,
    Function,
    Transformation,
    Fields(FlowType),
}

const SAVE_AGAIN: &str = "save the output of `ethtool -x IFACE` again, as it is printed";
const NOT_MODELLED: &str =
    "flowyard models toeplitz, plain or with symmetric-xor or symmetric-or-xor";

/// Reads the output of `ethtool -x IFACE` and of `ethtool -n IFACE rx-flow-hash TYPE`, any number of them
/// one after another. `file` is the name of the file for messages.
///
/// # Errors
/// When a line is not what ethtool prints, or names a setting that the models do not have.
pub fn parse_ethtool(file: &str, text: &str) -> Result<Printed, NotPrinted> {
    let mut read = Printed::default();
    let mut part = Part::None;
    let mut found = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let wrong = |(what, fix): Wrong| NotPrinted { file: file.into(), line: number, what, fix };
        if let Some(next) = heading(line, &mut read).map_err(wrong)? {
            (part, found) = (next, true);
        } else if !line.is_empty() {
            part = within(part, line, &mut read).map_err(wrong)?;
        }
    }
    if found {
        return Ok(read);
    }
    let what =
        "this is not the output of ethtool -x or ethtool -n IFACE rx-flow-hash TYPE".to_owned();
    Err(NotPrinted { file: file.into(), line: 1, what, fix: "run `ethtool -x IFACE > FILE`" })
}

type Wrong = (String, &'static str);

/// The part that a line begins, if it is the first line of one.
fn heading(line: &str, read: &mut Printed) -> Result<Option<Part>, Wrong> {
    if let Some(rest) = line.strip_prefix("RX flow hash indirection table for ") {
        let rings = rest.split_once(" with ").and_then(|(_, rings)| rings.split(' ').next());
        read.queues = rings.and_then(|rings| rings.parse().ok());
        read.reta.clear();
        return Ok(Some(Part::Table));
    }
    if let Some((name, _)) = line.split_once(" flows use these fields for computing Hash flow key")
    {
        // Flow types of which the models have none, such as `IPSEC AH/ESP over IPV4`, are left out.
        return Ok(Some(flow_type(name).map_or(Part::None, |flow| {
            read.fields.retain(|(other, _)| *other != flow);
            read.fields.push((flow, Fields::NONE));
            Part::Fields(flow)
        })));
    }
    if line.starts_with("For RSS context") {
        let what = "these are the settings of an RSS context of its own".to_owned();
        return Err((what, "save the settings of the default context, without `context N`"));
    }
    Ok(match line {
        "RSS hash key:" => Some(Part::Key),
        "RSS hash function:" => Some(Part::Function),
        "RSS input transformation:" => Some(Part::Transformation),
        _ => None,
    })
}

fn flow_type(name: &str) -> Option<FlowType> {
    Some(match name {
        "TCP over IPV4" => FlowType::Tcp4,
        "UDP over IPV4" => FlowType::Udp4,
        "SCTP over IPV4" => FlowType::Sctp4,
        "IPV4" => FlowType::Ipv4,
        "TCP over IPV6" => FlowType::Tcp6,
        "UDP over IPV6" => FlowType::Udp6,
        "SCTP over IPV6" => FlowType::Sctp6,
        "IPV6" => FlowType::Ipv6,
        _ => return None,
    })
}

/// Reads a line inside `part`. Returns the part of the next line.
fn within(part: Part, line: &str, read: &mut Printed) -> Result<Part, Wrong> {
    match part {
        Part::None => {}
        Part::Table => table(line, &mut read.reta)?,
        Part::Key => {
            // Drivers that do not tell the key: `Operation not supported`.
            read.key = if line.contains(':') { Some(key(line)?) } else { None };
            return Ok(Part::None);
        }
        Part::Function => match line.split_once(": ") {
            Some(("toeplitz", "on")) => {
                read.hfunc = read.hfunc.or(Some(Hfunc::Toeplitz));
            }
            Some((name, "on")) => {
                return Err((
                    format!("the hash function of the interface is {name}"),
                    NOT_MODELLED,
                ));
            }
            _ => {}
        },
        Part::Transformation => match line.split_once(": ") {
            Some(("symmetric-xor", "on")) => read.hfunc = Some(Hfunc::SymmetricXor),
            Some(("symmetric-or-xor", "on")) => read.hfunc = Some(Hfunc::SymmetricOrXor),
            Some((name, "on")) => {
                return Err((
                    format!("the interface transforms the input by {name}"),
                    NOT_MODELLED,
                ));
            }
            _ => {}
        },
        Part::Fields(flow) => return field(flow, line, read),
    }
    Ok(part)
}

/// One line of the table: `  8:      0     1     2     3`.
fn table(line: &str, reta: &mut Vec<u16>) -> Result<(), Wrong> {
    let wrong = || (format!("'{line}' is not a line of an indirection table"), SAVE_AGAIN);
    let (first, queues) = line.split_once(':').ok_or_else(wrong)?;
    if first.trim().parse() != Ok(reta.len()) || reta.len() >= usize::from(u16::MAX) {
        let what = format!("expected entry {} of the indirection table, not '{first}'", reta.len());
        return Err((what, SAVE_AGAIN));
    }
    for queue in queues.split_whitespace() {
        reta.push(queue.parse().map_err(|_| wrong())?);
    }
    Ok(())
}

/// The hash key: `6d:5a:56:da:...`.
fn key(line: &str) -> Result<Vec<u8>, Wrong> {
    let byte = |digits: &str| {
        let is_byte = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_byte.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
    };
    let bytes: Option<Vec<u8>> = line.split(':').map(byte).collect();
    bytes.ok_or_else(|| (format!("'{line}' is not a hash key"), SAVE_AGAIN))
}

/// One field of a flow type.
fn field(flow: FlowType, line: &str, read: &mut Printed) -> Result<Part, Wrong> {
    let field = match line {
        "IP SA" => Fields::SRC_IP,
        "IP DA" => Fields::DST_IP,
        _ if line.starts_with("L4 bytes 0 & 1") => Fields::SRC_PORT,
        _ if line.starts_with("L4 bytes 2 & 3") => Fields::DST_PORT,
        "None" => Fields::NONE,
        "L2DA" | "VLAN tag" | "L3 proto" | "GTP TEID" | "IPV6 Flow Label" => {
            let what = format!("{flow} also hashes '{line}', which no model has");
            return Err((
                what,
                "hash addresses and ports only (ethtool -N IFACE rx-flow-hash ... sdfn)",
            ));
        }
        // Whatever follows the output of ethtool, such as the next command.
        _ => return Ok(Part::None),
    };
    if let Some((_, fields)) = read.fields.iter_mut().find(|(other, _)| *other == flow) {
        *fields = fields.or(field);
    }
    Ok(Part::Fields(flow))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
RX flow hash indirection table for eth0 with 4 RX ring(s):
    0:      0     1     2     3     0     1     2     3
    8:      3     2     1     0     3     2     1     0
RSS hash key:
6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:6a:42:b7:3b:be:ac:01:fa
RSS hash function:
    toeplitz: on
    xor: off
    crc32: off
RSS input transformation:
    symmetric-xor: off
";
    const UDP: &str =
        "UDP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n\n";
    const TCP: &str = "TCP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n\
        L4 bytes 0 & 1 [TCP/UDP src port]\nL4 bytes 2 & 3 [TCP/UDP dst port]\n\n";

    #[test]
    fn outputs_are_read_one_after_another() {
        let read = parse_ethtool("f", &[UDP, TABLE, TCP].concat()).unwrap();
        assert_eq!(read.queues, Some(4));
        assert_eq!(read.reta, [0, 1, 2, 3, 0, 1, 2, 3, 3, 2, 1, 0, 3, 2, 1, 0]);
        assert_eq!(read.key.as_deref(), Some(flowyard_flow::toeplitz::MICROSOFT_KEY.as_slice()));
        assert_eq!(read.hfunc, Some(Hfunc::Toeplitz));
        let fields = [(FlowType::Udp4, Fields::TWO_TUPLE), (FlowType::Tcp4, Fields::FOUR_TUPLE)];
        assert_eq!(read.fields, fields);
        let symmetric = TABLE.replace("symmetric-xor: off", "symmetric-xor: on");
        assert_eq!(parse_ethtool("f", &symmetric).unwrap().hfunc, Some(Hfunc::SymmetricXor));
    }

    #[test]
    fn every_flow_type_and_field_is_read() {
        let lines = [
            ("IP SA", Fields::SRC_IP),
            ("IP DA", Fields::DST_IP),
            ("L4 bytes 0 & 1 [TCP/UDP src port]", Fields::SRC_PORT),
            ("L4 bytes 2 & 3 [TCP/UDP dst port]", Fields::DST_PORT),
            ("None", Fields::NONE),
        ];
        for (name, flow) in [
            ("TCP over IPV4", FlowType::Tcp4),
            ("UDP over IPV4", FlowType::Udp4),
            ("SCTP over IPV4", FlowType::Sctp4),
            ("IPV4", FlowType::Ipv4),
            ("TCP over IPV6", FlowType::Tcp6),
            ("UDP over IPV6", FlowType::Udp6),
            ("SCTP over IPV6", FlowType::Sctp6),
            ("IPV6", FlowType::Ipv6),
        ] {
            for (line, field) in lines {
                let text = format!(
                    "{name} flows use these fields for computing Hash flow key:\n{line}\n\n"
                );
                let read = parse_ethtool("f", &text).unwrap();
                assert_eq!(read.fields, [(flow, field)], "{name}: {line}");
            }
        }
    }

    #[test]
    fn a_driver_that_tells_no_key_leaves_it_open() {
        let text = "RX flow hash indirection table for eth0 with 2 RX ring(s):\n    0:      0     1\n\
            RSS hash key:\nOperation not supported\nRSS hash function:\n    toeplitz: on\n";
        let read = parse_ethtool("f", text).unwrap();
        assert_eq!((read.key, read.reta.len(), read.hfunc), (None, 2, Some(Hfunc::Toeplitz)));
    }

    #[test]
    fn what_cannot_be_modelled_is_refused_with_its_line() {
        for (text, said) in [
            ("hello", "f:1: this is not the output of ethtool -x"),
            (
                &TABLE.replace("crc32: off", "crc32: on"),
                "f:9: the hash function of the interface is crc32",
            ),
            (
                &TABLE.replace("    8:", "   16:"),
                "f:3: expected entry 8 of the indirection table, not '16'",
            ),
            (&TABLE.replace("6d:5a", "6d:5"), "f:5: '6d:5:56"),
            (&UDP.replace("IP DA", "VLAN tag"), "f:3: udp4 also hashes 'VLAN tag'"),
            (
                &format!("For RSS context 1:\n{TCP}"),
                "f:1: these are the settings of an RSS context",
            ),
        ] {
            let error = parse_ethtool("f", text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
