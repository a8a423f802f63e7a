//! `[[expect.frame]]`: the contents of the frames that a port sent.

use std::fmt::Debug;

use flowyard_flow::parse;
use flowyard_wire::{Headers, LinkType, Verdict};
use toml::Spanned;

use super::Differs;
use crate::seen::Seen;
use flowyard_config::send_words::{self as words, ExpectConfig, FrameExpect};
use flowyard_config::{Config, ConfigError, hex};

/// Compares the frames of a port. Only the first frame with a difference is reported.
pub(super) fn compare(config: &Config, expect: &FrameExpect, seen: &Seen, all: &mut Differs) {
    let name = expect.port.get_ref();
    let sent = config.port_number(name).and_then(|port| seen.bytes.get(usize::from(port)));
    let wanted = (1..).zip(sent.into_iter().flatten());
    let wanted: Vec<_> =
        wanted.filter(|(number, _)| expect.nth.is_none_or(|nth| nth == *number)).collect();
    if wanted.is_empty() {
        all.add(Some(expect.port.span()), format!("frame: port {name} sent no such frame"));
    }
    for (number, bytes) in wanted {
        let before = all.list.len();
        let h = Headers::parse(LinkType::Ethernet, bytes);
        let what = |field: &str| format!("frame {number} of {name}: {field}");
        let flow = expect.flow.as_ref().map(|text| {
            let key = words::key(text.get_ref()).map(|key| key.flow().to_string());
            Spanned::new(text.span(), key.unwrap_or_default())
        });
        let got = parse::key(&h, bytes, 0).flow().to_string();
        differs(all, &what("flow"), flow.as_ref(), &got);
        differs(all, &what("vlan"), expect.vlan.as_ref(), &h.tags.ids().collect());
        differs(all, &what("ttl"), expect.ttl.as_ref(), &h.ttl(bytes).unwrap_or_default());
        let dscp = h.tos(bytes).unwrap_or_default() >> 2;
        differs(all, &what("dscp"), expect.dscp.as_ref(), &dscp);
        let start = expect
            .bytes
            .as_ref()
            .map(|text| Spanned::new(text.span(), hex(text.get_ref()).unwrap_or_default()));
        let len = start.as_ref().map_or(0, |start| start.get_ref().len());
        differs(all, &what("bytes"), start.as_ref(), &bytes[..len.min(bytes.len())].to_vec());
        if h.ipv4_checksum(bytes) == Verdict::Bad || h.transport_checksum(bytes) == Verdict::Bad {
            all.add(Some(expect.port.span()), what("a checksum is wrong"));
        }
        if all.list.len() > before {
            return; // one frame is enough
        }
    }
}

fn differs<T: PartialEq + Debug>(
    all: &mut Differs,
    what: &str,
    expected: Option<&Spanned<T>>,
    got: &T,
) {
    if let Some(expected) = expected
        && expected.get_ref() != got
    {
        let what = format!("{what}: expected {:?}, got {got:?}", expected.get_ref());
        all.add(Some(expected.span()), what);
    }
}

/// Returns the first mistake.
pub(super) fn check(config: &Config, expect: &ExpectConfig) -> Result<(), ConfigError> {
    for frame in &expect.frame {
        flowyard_config::names::port_name(config, frame.port.get_ref(), frame.port.span())?;
        if let Some(flow) = &frame.flow
            && words::key(flow.get_ref()).is_err()
        {
            let fix = "write it as in a [[send]]";
            return Err(config.error(flow.span(), "this is not a flow", fix));
        }
        if let Some(bytes) = &frame.bytes
            && hex(bytes.get_ref()).is_none()
        {
            let fix = "write two hexadecimal digits a byte";
            return Err(config.error(bytes.span(), "these are not bytes", fix));
        }
    }
    Ok(())
}
